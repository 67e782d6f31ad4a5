//! One child and the task that watches it.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{Child as Spawned, Command};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::record::Records;
use super::tree::Wanted;
use super::{Program, STEP, Started, Stderr, environment, lock};

/// How long what a child said last is waited for after it has ended: what it started may hold its streams open.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// A child process with everything that it started. Cheap to clone; when all clones are gone it is watched on.
#[derive(Clone, Debug)]
pub struct Child(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    instance: Uuid,
    pid: Option<u32>,
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

/// Starts a program and the task that watches it.
pub(super) fn start(
    instance: Uuid,
    program: Program<'_>,
    records: Option<Arc<Records>>,
    running: &Arc<Mutex<HashMap<Uuid, Child>>>,
) -> io::Result<Started> {
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
    let child = Child(Arc::new(Inner {
        instance,
        pid: spawned.id(),
        stderr: Stderr::new(environment::secrets(&env)),
        env,
        stage: watch::Sender::new(Stage::Running),
        stop: CancellationToken::new(),
        kill: CancellationToken::new(),
    }));
    lock(running).insert(instance, child.clone());
    let (name, reads) = (program.name.to_owned(), child.clone());
    let said = tokio::spawn(async move { reads.0.stderr.read(&name, errors).await });
    let (watched, running) = (child.clone(), Arc::clone(running));
    tokio::spawn(async move {
        watched.watch(spawned, said).await;
        if let Some(records) = records {
            records.remove(instance);
        }
        lock(&running).remove(&instance);
    });
    Ok(Started { child, input, output })
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
        self.0.pid
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

    /// Watches the child until nothing is left of it.
    async fn watch(&self, mut spawned: Spawned, said: tokio::task::JoinHandle<()>) {
        let tree = Wanted::child(self.0.instance, self.0.pid);
        let asked = async {
            self.0.stop.cancelled().await;
            tokio::time::sleep(STEP).await;
        };
        let mut exit = tokio::select! {
            biased;
            () = self.0.kill.cancelled() => None,
            exit = spawned.wait() => Some(exit),
            () = asked => None,
        };
        if exit.is_none() && !self.0.kill.is_cancelled() {
            tree.signal(Signal::TERM).await;
            exit = tokio::select! {
                biased;
                () = self.0.kill.cancelled() => None,
                exit = spawned.wait() => Some(exit),
                () = tokio::time::sleep(STEP) => None,
            };
        }
        let exit = match exit {
            Some(exit) => exit,
            None => {
                tree.kill().await;
                spawned.wait().await
            }
        };
        let exit = Exit(exit.ok());
        // What it said last is read before anybody is told that it has ended.
        drop(tokio::time::timeout(LAST_WORDS, said).await);
        self.0.stage.send_replace(Stage::Ended(exit));
        self.clear(&tree).await;
        self.0.stage.send_replace(Stage::Gone(exit));
    }

    /// Ends what the child started and left behind.
    async fn clear(&self, tree: &Wanted) {
        if !self.0.kill.is_cancelled() {
            if tree.is_gone().await {
                return;
            }
            tree.signal(Signal::TERM).await;
            let gone = tokio::select! {
                biased;
                () = self.0.kill.cancelled() => false,
                gone = tree.gone_within(STEP) => gone,
            };
            if gone {
                return;
            }
        }
        tree.kill().await;
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

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(status) => status.fmt(f),
            None => f.write_str("in a way that nobody saw"),
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
