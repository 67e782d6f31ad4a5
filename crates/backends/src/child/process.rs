//! One child and the task that watches it.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::Command;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::leader::Leader;
use super::record::Records;
use super::tree::{self, Identity, Tree};
use super::{MARKER, Program, Running, STEP, Started, Stderr, environment};

/// How long what a child said last is waited for after it has ended: what it started may hold its streams open.
const LAST_WORDS: Duration = Duration::from_millis(250);
/// How long a child that was killed may take to end: one that hangs in the system may not end at all.
const DYING: Duration = Duration::from_secs(2);

/// A child process with everything that it started. Cheap to clone; when all clones are gone it is watched on.
#[derive(Clone, Debug)]
pub struct Child(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    instance: Uuid,
    pid: u32,
    env: Vec<(String, String)>,
    stderr: Stderr,
    stage: watch::Sender<Stage>,
    /// Asks the child to end.
    stop: CancellationToken,
    /// Ends it without asking.
    kill: CancellationToken,
}

/// How a child itself ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exit(Option<ExitStatus>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Running,
    /// The child itself has ended; what it started may be there.
    Ended(Exit),
    /// Nothing is left.
    Gone(Exit),
}

/// A child that has been started, and whoever waits for its record to be written.
pub(super) struct Fresh {
    pub(super) started: Started,
    pub(super) head: Option<Identity>,
    /// To be dropped when nothing more is written about it.
    pub(super) recording: oneshot::Sender<()>,
}

/// Starts a program and the task that watches it.
pub(super) fn start(
    instance: Uuid,
    program: Program<'_>,
    records: Option<Arc<Records>>,
    running: &Arc<watch::Sender<Running>>,
) -> io::Result<Fresh> {
    let [command, arguments @ ..] = program.command else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no command"));
    };
    let env = environment::of(program, instance);
    let mut spawned = Command::new(command)
        .args(arguments)
        .current_dir(program.cwd)
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)))
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let missing = || io::Error::other("a stream of the child is missing");
    let input = spawned.stdin.take().ok_or_else(missing)?;
    let output = spawned.stdout.take().ok_or_else(missing)?;
    let errors = spawned.stderr.take().ok_or_else(missing)?;
    let leader = Leader::of(spawned)?;
    let pid = leader.pid();
    // As long as it is not reaped this is the child, and no other that has its number.
    let head = tree::identity(pid);
    let child = Child(Arc::new(Inner {
        instance,
        pid,
        stderr: Stderr::new(environment::secrets(&env)),
        env,
        stage: watch::Sender::new(Stage::Running),
        stop: CancellationToken::new(),
        kill: CancellationToken::new(),
    }));
    running.send_modify(|running| drop(running.children.insert(instance, child.clone())));
    let (name, reads) = (program.name.to_owned(), child.clone());
    let said = tokio::spawn(async move { reads.0.stderr.read(&name, errors).await });
    let (watched, running) = (child.clone(), Arc::clone(running));
    let (recording, recorded) = oneshot::channel();
    tokio::spawn(async move {
        let is_clear = watched.watch(leader, said).await;
        // Nobody writes it any more when it is removed. What could not be ended is left to the next life.
        drop(recorded.await);
        if let Some(records) = records.filter(|_| is_clear) {
            records.remove(instance);
        }
        running.send_modify(|running| drop(running.children.remove(&instance)));
    });
    Ok(Fresh { started: Started { child, input, output }, head, recording })
}

// === impl Child ===

impl Child {
    /// What [`super::MARKER`] is in its environment.
    #[must_use]
    pub fn instance(&self) -> Uuid {
        self.0.instance
    }

    /// Its process id, which is that of its group too.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        Some(self.0.pid)
    }

    /// Its environment, all of it.
    #[must_use]
    pub fn env(&self) -> &[(String, String)] {
        &self.0.env
    }

    /// What it says on its standard error.
    #[must_use]
    pub fn captured(&self) -> &Stderr {
        &self.0.stderr
    }

    /// Never shows these values where it is shown what the child said: secrets that it was told. One of less than eight bytes is no secret
    /// that could be found again.
    pub fn hide<'a>(&self, values: impl IntoIterator<Item = &'a str>) {
        self.0.stderr.hide(values.into_iter());
    }

    /// Whether the child itself has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        *self.0.stage.borrow() != Stage::Running
    }

    /// Returns when the child itself has ended, and what it said last was read.
    pub async fn ended(&self) -> Exit {
        let mut stage = self.0.stage.subscribe();
        let ended = stage.wait_for(|stage| *stage != Stage::Running).await;
        ended.map_or(Exit(None), |stage| stage.exit())
    }

    /// Ends it: waits for it to end by itself, which one does whose standard input was closed, then asks it to, then kills it and
    /// everything that it started. Returns when nothing is left.
    pub async fn stop(&self) -> Exit {
        self.0.stop.cancel();
        self.gone().await
    }

    /// Kills it and everything that it started. Returns when nothing is left.
    pub async fn kill(&self) -> Exit {
        self.0.kill.cancel();
        self.gone().await
    }

    /// As [`Self::stop`], without waiting.
    pub fn begin_stop(&self) {
        self.0.stop.cancel();
    }

    /// As [`Self::kill`], without waiting.
    pub fn begin_kill(&self) {
        self.0.kill.cancel();
    }

    async fn gone(&self) -> Exit {
        let mut stage = self.0.stage.subscribe();
        let gone = stage.wait_for(|stage| matches!(stage, Stage::Gone(_))).await;
        gone.map_or(Exit(None), |stage| stage.exit())
    }

    /// Watches the child until nothing is left of it. Says whether nothing is.
    async fn watch(&self, leader: Leader, said: JoinHandle<()>) -> bool {
        let instance = self.0.instance.to_string();
        let tree = Tree::default().with_variable(MARKER, &instance).with_group(leader.pid());
        let exit = Exit(self.end(&leader, &tree).await);
        // What it said last is read before anybody is told that it has ended.
        drop(tokio::time::timeout(LAST_WORDS, said).await);
        self.0.stage.send_replace(Stage::Ended(exit));
        let is_clear = self.clear(&tree).await;
        // Until now its group was its own.
        leader.reap().await;
        self.0.stage.send_replace(Stage::Gone(exit));
        is_clear
    }

    /// Waits for the child to end, and makes it where that is wanted. `None` where nobody saw how it ended.
    async fn end(&self, leader: &Leader, tree: &Tree) -> Option<ExitStatus> {
        let asked = async {
            self.0.stop.cancelled().await;
            // What it started stays known if it ends now.
            tree.remember().await;
            tokio::time::sleep(STEP).await;
            tree.signal(Signal::TERM).await;
            tokio::time::sleep(STEP).await;
        };
        tokio::select! {
            biased;
            () = self.0.kill.cancelled() => {}
            exit = leader.ended() => return exit,
            () = asked => {}
        }
        tree.kill().await;
        tokio::time::timeout(DYING, leader.ended()).await.ok().flatten()
    }

    /// Ends what the child started and left behind. Says whether nothing is left.
    async fn clear(&self, tree: &Tree) -> bool {
        if !self.0.kill.is_cancelled() {
            if tree.is_gone().await {
                return true;
            }
            tree.signal(Signal::TERM).await;
            let gone = tokio::select! {
                biased;
                () = self.0.kill.cancelled() => false,
                gone = tree.gone_within(STEP) => gone,
            };
            if gone {
                return true;
            }
        }
        tree.kill().await
    }
}

// === impl Exit ===

impl Exit {
    /// Whether it ended as one that has nothing to complain about.
    #[must_use]
    pub fn is_success(self) -> bool {
        self.0.is_some_and(|status| status.success())
    }
}

/// A verb phrase: completes "the process …".
impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(status) = self.0 else { return f.write_str("exited with an unknown status") };
        match (status.code(), status.signal()) {
            (Some(code), _) => write!(f, "exited with status {code}"),
            (None, Some(signal)) => write!(f, "was killed by signal {signal}"),
            (None, None) => write!(f, "exited: {status}"),
        }
    }
}

// === impl Stage ===

impl Stage {
    fn exit(self) -> Exit {
        match self {
            Self::Running => Exit(None),
            Self::Ended(exit) | Self::Gone(exit) => exit,
        }
    }
}
