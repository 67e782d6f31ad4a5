//! Finds all descendants of a process by its group, its environment variables and the parents of processes.
//!
//! On systems other than Linux it finds the group only.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Signal, kill_process_group, test_kill_process_group};
use tokio::time::{Instant, sleep, timeout};
use trilogue_domain::lock;

use super::identity::{Identity, ProcessStatus, raw_pid};
use super::platform::{self, SEES_PROCESSES};

/// The first wait between two looks. Polling is needed: no system notifies about processes that are not one's own children.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The longest wait between two looks. Each wait is twice as long as the one before.
const MAX_LOOK_AGAIN: Duration = Duration::from_millis(320);
/// The maximum number of kill rounds. Each round finds the processes that were started during the one before.
const MAX_ROUNDS: usize = 100;
/// How long one look may take. A process that hangs in the kernel can block a reader of its environment.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// The groups and variables to look for, and the processes found so far. Clones share the processes found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// The variables that identify its processes, as `NAME=VALUE`.
    variables: HashSet<Vec<u8>>,
    /// The groups. Their leaders are not reaped yet, so the ids are certain.
    groups: HashSet<u32>,
    /// The processes of the last look. A process stays known when its parent exits.
    known: Arc<Mutex<HashSet<Identity>>>,
}

pub(super) struct Census(HashMap<u32, ProcessStatus>);

/// Whether a process and its descendants are more than this many. `false` if the look fails or takes too long.
pub(crate) async fn has_more_than(count: usize, pid: u32) -> bool {
    let look = tokio::task::spawn_blocking(move || {
        SEES_PROCESSES
            && Census::take().with_descendants(vec![pid], std::process::id()).len() > count
    });
    matches!(timeout(LOOK_TIMEOUT, look).await, Ok(Ok(true)))
}

// === impl Tree ===

impl Tree {
    /// Adds all processes that have a variable with this value.
    pub(crate) fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(format!("{name}={value}").into_bytes());
        self
    }

    /// Adds a group and its descendants. Its leader must not be reaped while this is in use, because another group could get the same id.
    pub(crate) fn with_group(mut self, leader: u32) -> Self {
        self.groups.insert(leader);
        self
    }

    /// Returns the running processes. Reads the variables of all processes on the machine only if it finds none otherwise.
    fn find_any(&self) -> Vec<Identity> {
        let found = self.find(false);
        if found.is_empty() { self.find(true) } else { found }
    }

    /// Returns the running processes. `reads_variables` also finds those that only their variables identify. All stay known for the next look.
    fn find(&self, reads_variables: bool) -> Vec<Identity> {
        let own = std::process::id();
        let census = Census::take();
        let mut known = lock(&self.known);
        let is_known = |pid: u32, start: u64| known.contains(&Identity { pid, start });
        let running = census.0.iter().filter(|(pid, status)| **pid != own && !status.is_dead);
        let first = running.filter(|(pid, status)| {
            self.groups.contains(&status.group)
                || is_known(**pid, status.start)
                || (reads_variables && self.is_marked(**pid))
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
        let Some(environment) = platform::environment(pid) else { return false };
        environment.split(|byte| *byte == 0).any(|variable| self.variables.contains(variable))
    }

    /// Finds the processes, so that they stay known when their parents exit.
    pub(crate) async fn remember(&self) {
        self.run_blocking(|tree| SEES_PROCESSES.then(|| tree.find(true))).await;
    }

    /// Returns whether all processes are gone. `false` if the look fails or takes too long.
    pub(crate) async fn is_gone(&self) -> bool {
        self.run_blocking(Self::is_empty).await == Some(true)
    }

    fn is_empty(&self) -> bool {
        if SEES_PROCESSES {
            return self.find_any().is_empty();
        }
        let mut groups = self.groups.iter().filter_map(|group| raw_pid(*group));
        groups.all(|group| test_kill_process_group(group).is_err())
    }

    /// Sends a signal to all processes. Returns how many it found (groups on systems without `/proc`), or `None` if the look failed.
    pub(crate) async fn signal(&self, signal: Signal) -> Option<usize> {
        self.run_blocking(move |tree| tree.signal_now(signal, &tree.find(true))).await
    }

    fn signal_now(&self, signal: Signal, found: &[Identity]) -> usize {
        if SEES_PROCESSES {
            found.iter().for_each(|process| process.signal(signal));
            return found.len();
        }
        let groups = self.groups.iter().filter_map(|group| raw_pid(*group));
        groups.filter(|group| kill_process_group(*group, signal).is_ok()).count()
    }

    /// Waits until all processes are gone, for at most `time`. Returns whether they are.
    pub(crate) async fn gone_within(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut pause = LOOK_AGAIN;
        loop {
            if self.is_gone().await {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            sleep(pause.min(until - Instant::now())).await;
            pause = (pause * 2).min(MAX_LOOK_AGAIN);
        }
    }

    /// As [`Self::kill`], if there is anything to look for.
    pub(super) async fn kill_if_any(&self) -> bool {
        (self.variables.is_empty() && self.groups.is_empty()) || self.kill().await
    }

    /// Kills all processes, in rounds until all are gone. Returns whether they are.
    pub(crate) async fn kill(&self) -> bool {
        for round in 0..MAX_ROUNDS {
            // Only the first round reads all variables. Later rounds know the processes that it found.
            let find: fn(&Self) -> Vec<Identity> =
                if round == 0 { |tree| tree.find(true) } else { Self::find_any };
            match self.run_blocking(move |tree| tree.signal_now(Signal::KILL, &find(tree))).await {
                Some(0) => return true,
                Some(_) if self.is_gone().await => return true,
                Some(_) => sleep(LOOK_AGAIN).await,
                // The next look would hang too.
                None => break,
            }
        }
        tracing::error!("processes that an agent started could not be killed");
        false
    }

    async fn run_blocking<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let tree = self.clone();
        let looked = tokio::task::spawn_blocking(move || look(&tree));
        // The task itself fails only while the server exits.
        timeout(LOOK_TIMEOUT, looked).await.ok()?.ok()
    }
}

// === impl Census ===

impl Census {
    pub(super) fn take() -> Self {
        let pids = platform::pids().into_iter();
        Self(pids.filter_map(|pid| Some((pid, platform::status(pid)?))).collect())
    }

    /// Returns the memory of these processes and their descendants, in bytes.
    pub(super) fn resident_bytes(&self, leaders: &HashSet<u32>) -> u64 {
        let all = self.with_descendants(leaders.iter().copied().collect(), std::process::id());
        all.into_iter().filter_map(|process| platform::resident_bytes(process.pid)).sum()
    }

    /// Returns the running processes among `open` and their descendants. Leaves out `own` and all that can be reached only through it.
    fn with_descendants(&self, mut open: Vec<u32>, own: u32) -> Vec<Identity> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for (pid, status) in &self.0 {
            children.entry(status.parent).or_default().push(*pid);
        }
        let mut visited = HashSet::from([own]);
        let mut found = Vec::new();
        while let Some(pid) = open.pop() {
            if !visited.insert(pid) {
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
