//! Everything that a process started: found by its group, by variables that it was given, and by who started whom; and ended.
//!
//! Where there is no `/proc`, only the group is known.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal, test_kill_process_group,
};
use tokio::time::{Instant, sleep, timeout};

use super::lock;
use super::record::Dead;

/// How long processes of a previous life are given to end when they are asked to.
const REAP_GRACE: Duration = Duration::from_millis(500);
/// How long to wait before looking again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How often what will not go is killed: whatever is started while others are killed is found in the next round.
const ROUNDS: usize = 100;
/// How long one look may take: a process that hangs in the system can hold up whoever reads what it was given.
const LOOKED_WITHIN: Duration = Duration::from_secs(5);

/// A process, so that another that has its number later is not taken for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    /// When it was started, in the system's own unit since boot.
    pub(crate) start: u64,
}

/// What to look for, and what was found so far. Clones share what was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// Variables that its processes have, as they stand in an environment.
    variables: HashSet<Vec<u8>>,
    /// Groups of which the heads are not reaped.
    groups: HashSet<u32>,
    /// Those that were there when it was looked last: one of them stays known when whoever started it ends.
    known: Arc<Mutex<HashSet<Identity>>>,
}

/// What the system says of a process.
#[derive(Clone, Copy)]
struct Status {
    parent: u32,
    group: u32,
    start: u64,
    is_dead: bool,
}

/// All processes that there are.
struct Census(HashMap<u32, Status>);

// === impl Identity ===

impl Identity {
    /// Whether it still runs.
    pub(crate) fn is_alive(self) -> bool {
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

// === impl Tree ===

impl Tree {
    /// Has everything that was given a variable with this value.
    pub(crate) fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(format!("{name}={value}").into_bytes());
        self
    }

    /// Has this group and whatever it started. Its head must not be reaped as long as this is used.
    pub(crate) fn with_group(mut self, head: u32) -> Self {
        self.groups.insert(head);
        self
    }

    /// The processes that are there. Dead ones that nobody has asked for are not.
    fn find(&self) -> Vec<Identity> {
        let own = std::process::id();
        let census = Census::take();
        let mut known = lock(&self.known);
        let is_known = |pid: u32, start: u64| known.contains(&Identity { pid, start });
        let living = census.0.iter().filter(|(pid, status)| **pid != own && !status.is_dead);
        let first = living.filter(|(pid, status)| {
            self.groups.contains(&status.group)
                || is_known(**pid, status.start)
                || self.is_marked(**pid)
        });
        let first = first.map(|(pid, _)| *pid).chain(self.groups.iter().copied());
        let found = census.with_descendants(first.collect(), own);
        *known = found.iter().copied().collect();
        found
    }

    fn is_marked(&self, pid: u32) -> bool {
        if self.variables.is_empty() {
            return false;
        }
        // What belongs to somebody else cannot be read.
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
        environment.split(|byte| *byte == 0).any(|variable| self.variables.contains(variable))
    }

    /// Looks who is there, so that they are known when whoever started them has ended.
    pub(crate) async fn remember(&self) {
        self.look(|tree| has_proc().then(|| tree.find())).await;
    }

    /// Whether nothing is left.
    pub(crate) async fn is_gone(&self) -> bool {
        self.look(Self::none_left).await == Some(true)
    }

    fn none_left(&self) -> bool {
        if has_proc() {
            return self.find().is_empty();
        }
        let mut groups = self.groups.iter().filter_map(|group| raw(*group));
        groups.all(|group| test_kill_process_group(group).is_err())
    }

    /// Sends all of it a signal. Says how many there were; `None` where that could not be seen.
    pub(crate) async fn signal(&self, signal: Signal) -> Option<usize> {
        self.look(move |tree| tree.signal_now(signal)).await
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

    /// Returns when nothing is left, or the time is over. Says whether nothing is.
    pub(crate) async fn gone_within(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            if self.is_gone().await {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Kills all of it, again and again until nothing is left. Says whether nothing is.
    pub(crate) async fn kill(&self) -> bool {
        for _ in 0..ROUNDS {
            match self.signal(Signal::KILL).await {
                Some(0) => return true,
                Some(_) if self.is_gone().await => return true,
                Some(_) => sleep(LOOK_AGAIN).await,
                // It would hang again.
                None => break,
            }
        }
        tracing::error!("processes that an agent started could not be killed");
        false
    }

    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let tree = self.clone();
        let looked = tokio::task::spawn_blocking(move || look(&tree));
        // It fails only while the server goes down.
        timeout(LOOKED_WITHIN, looked).await.ok()?.ok()
    }
}

// === impl Census ===

impl Census {
    fn take() -> Self {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Self(pids.filter_map(|pid| Some((pid, status(pid)?))).collect())
    }

    /// These that live, with everything that they started and that lives. `own` is none of it, nor is what it started.
    fn with_descendants(&self, mut open: Vec<u32>, own: u32) -> Vec<Identity> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for (pid, status) in &self.0 {
            children.entry(status.parent).or_default().push(*pid);
        }
        let mut met = HashSet::from([own]);
        let mut found = Vec::new();
        while let Some(pid) = open.pop() {
            if !met.insert(pid) {
                continue;
            }
            if let Some(status) = self.0.get(&pid).filter(|status| !status.is_dead) {
                found.push(Identity { pid, start: status.start });
            }
            open.extend(children.get(&pid).into_iter().flatten());
        }
        found
    }
}

/// Ends what previous lives left, and forgets it. Says how many processes there were.
pub(super) async fn reap(dead: Vec<Dead>) -> usize {
    if dead.iter().all(|life| life.left.is_empty()) {
        dead.into_iter().for_each(Dead::forget);
        return 0;
    }
    let mut tree = Tree::default();
    for left in dead.iter().flat_map(|life| &life.left) {
        tree = tree.with_variable(super::MARKER, &left.instance.to_string());
        // A group is known for certain only while its head runs.
        if let Some(head) = left.head.filter(|head| head.is_alive()) {
            tree = tree.with_group(head.pid);
        }
    }
    let strays = tree.signal(Signal::TERM).await;
    if strays == Some(0) || tree.gone_within(REAP_GRACE).await || tree.kill().await {
        dead.into_iter().for_each(Dead::forget);
    }
    strays.unwrap_or_default()
}

/// A process that runs now, or has ended and is not reaped, as it can be known again.
pub(super) fn identity(pid: u32) -> Option<Identity> {
    if !has_proc() {
        return Some(Identity { pid, start: 0 });
    }
    status(pid).map(|status| Identity { pid, start: status.start })
}

/// Which start of the machine this is, and whose numbers of processes are meant; empty where nobody can say.
pub(super) fn machine() -> (String, String) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let numbers = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    (boot.trim().to_owned(), numbers.to_string_lossy().into_owned())
}

fn status(pid: u32) -> Option<Status> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in parentheses and may hold anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some(Status {
        is_dead: matches!(fields.first().copied()?, "Z" | "X" | "x"),
        parent: fields.get(1)?.parse().ok()?,
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
