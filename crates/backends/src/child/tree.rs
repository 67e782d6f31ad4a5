//! Everything that a child started: found by its process group and by its marker, and ended.
//!
//! Where there is no `/proc`, only the process group is known.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal, test_kill_process_group,
};
use uuid::Uuid;

use super::MARKER;
use super::record::{Left, Records};

/// How long processes of a previous life are given to end when they are asked to.
const REAP_GRACE: Duration = Duration::from_millis(500);
/// How long to wait before looking again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How often what will not go is killed: whatever is started while others are killed is found in the next round.
const ROUNDS: usize = 100;

/// A process, so that another that has its number later is not taken for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Identity {
    pub(super) pid: u32,
    /// When it was started, in the system's own unit since boot.
    pub(super) start: u64,
}

/// What to look for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    instances: HashSet<String>,
    groups: HashSet<u32>,
}

/// What the system says of a process.
struct Status {
    group: u32,
    start: u64,
    is_dead: bool,
}

// === impl Identity ===

impl Identity {
    /// Whether it still runs.
    pub(super) fn is_alive(self) -> bool {
        status(self.pid).is_some_and(|status| status.start == self.start && !status.is_dead)
    }

    /// Sends it a signal, and never to another.
    fn signal(self, signal: Signal) {
        let Some(pid) = raw(self.pid) else { return };
        // A descriptor holds on to the process; after that its number is checked once more.
        let sent = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) if self.is_alive() => pidfd_send_signal(process, signal),
            Ok(_) => return,
            Err(rustix::io::Errno::NOSYS) if self.is_alive() => kill_process(pid, signal),
            Err(_) => return,
        };
        if let Err(error) = sent {
            tracing::debug!(pid = self.pid, %error, "a process could not be sent a signal");
        }
    }
}

// === impl Wanted ===

impl Wanted {
    /// One child and what it started.
    pub(super) fn child(instance: Uuid, group: Option<u32>) -> Self {
        Self {
            instances: HashSet::from([instance.to_string()]),
            groups: group.into_iter().collect(),
        }
    }

    /// The processes that are there. Dead ones that nobody has asked for are not.
    fn find(&self) -> Vec<Identity> {
        let own = std::process::id();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let found = pids.filter(|pid| *pid != own).filter_map(|pid: u32| {
            let status = status(pid).filter(|status| !status.is_dead)?;
            let is_wanted = self.groups.contains(&status.group) || self.is_marked(pid);
            is_wanted.then_some(Identity { pid, start: status.start })
        });
        found.collect()
    }

    fn is_marked(&self, pid: u32) -> bool {
        // What belongs to somebody else cannot be read.
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
        environment.split(|byte| *byte == 0).any(|variable| {
            let value = variable.strip_prefix(MARKER.as_bytes());
            let value = value.and_then(|rest| rest.strip_prefix(b"="));
            value
                .and_then(|value| std::str::from_utf8(value).ok())
                .is_some_and(|value| self.instances.contains(value))
        })
    }

    /// Whether anything is left.
    pub(super) async fn is_gone(&self) -> bool {
        self.clone().look(|wanted| wanted.none_left()).await
    }

    fn none_left(&self) -> bool {
        if has_proc() {
            return self.find().is_empty();
        }
        self.groups
            .iter()
            .filter_map(|group| raw(*group))
            .all(|group| test_kill_process_group(group).is_err())
    }

    /// Sends all of it a signal.
    pub(super) async fn signal(&self, signal: Signal) -> usize {
        self.clone().look(move |wanted| wanted.signal_now(signal)).await
    }

    fn signal_now(&self, signal: Signal) -> usize {
        if has_proc() {
            let found = self.find();
            found.iter().for_each(|process| process.signal(signal));
            return found.len();
        }
        let groups = self.groups.iter().filter_map(|group| raw(*group));
        groups.filter(|group| rustix::process::kill_process_group(*group, signal).is_ok()).count()
    }

    /// Returns when nothing is left, or the time is over.
    pub(super) async fn gone_within(&self, time: Duration) -> bool {
        let until = tokio::time::Instant::now() + time;
        loop {
            if self.is_gone().await {
                return true;
            }
            if tokio::time::Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Kills all of it, again and again until nothing is left.
    pub(super) async fn kill(&self) {
        for _ in 0..ROUNDS {
            if self.signal(Signal::KILL).await == 0 || self.is_gone().await {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        tracing::error!("processes of an agent could not be killed");
    }

    async fn look<T: Default + Send + 'static>(
        self,
        look: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> T {
        // It fails only while the server goes down.
        tokio::task::spawn_blocking(move || look(&self)).await.unwrap_or_default()
    }
}

/// Ends what a previous life left, and forgets it. Says how many processes there were.
pub(super) async fn reap(left: Vec<Left>, records: &Records) -> usize {
    if left.is_empty() {
        return 0;
    }
    // A group is known for certain only while its head runs.
    let heads = left.iter().filter_map(|one| one.head).filter(|head| head.is_alive());
    let wanted = Wanted {
        instances: left.iter().map(|one| one.instance.to_string()).collect(),
        groups: heads.map(|head| head.pid).collect(),
    };
    let strays = wanted.signal(Signal::TERM).await;
    if strays > 0 && !wanted.gone_within(REAP_GRACE).await {
        wanted.kill().await;
    }
    for one in left {
        records.remove(one.instance);
    }
    strays
}

/// A process that runs now, as it can be known again.
pub(super) fn identity(pid: u32) -> Option<Identity> {
    if !has_proc() {
        return Some(Identity { pid, start: 0 });
    }
    status(pid).map(|status| Identity { pid, start: status.start })
}

/// Which start of the machine this is; empty where nobody can say.
pub(super) fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

fn status(pid: u32) -> Option<Status> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in parentheses and may hold anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some(Status {
        is_dead: matches!(fields.first().copied()?, "Z" | "X" | "x"),
        group: fields.get(2)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

fn has_proc() -> bool {
    cfg!(target_os = "linux")
}

fn raw(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}
