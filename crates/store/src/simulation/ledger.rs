use std::collections::HashMap;

use super::{AppendOutcome, Checked, DEAD_AFTER, Entry, HEARTBEAT, SentAppend, THREADS};

/// The true history of the simulation, which no node can see as a whole. Each change is checked.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// How long the database could be reached, independent of its clock. At most one heartbeat of each outage counts, because the nodes cannot know when it began.
    reachable: u64,
    nodes: Vec<LedgerNode>,
    pub(crate) logs: [Vec<Entry>; THREADS],
    owners: [Tenure; THREADS],
    commands: HashMap<u32, CommandTally>,
}

#[derive(Debug)]
struct LedgerNode {
    name: usize,
    /// The reachable time at its last sign of life.
    seen: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Tenure {
    process: usize,
    epoch: u64,
    /// Whether its process has given it up, or has received it by a hand-over and not taken it yet.
    is_handed_over: bool,
    /// `false` if it was given up to the next process that requests it.
    is_held: bool,
    /// The process whose appends were stored in each epoch.
    writers: HashMap<u64, usize>,
}

/// How often a command had each outcome.
#[derive(Debug, Default)]
struct CommandTally {
    accepted: u32,
    started: u32,
    executed: u32,
    is_acknowledged: bool,
}

// === impl Ledger ===

impl Ledger {
    pub(crate) fn record_open(&mut self, name: usize) {
        for node in self.nodes.iter_mut().filter(|node| node.name == name) {
            node.seen = None;
        }
        self.nodes.push(LedgerNode { name, seen: Some(self.reachable) });
    }

    pub(crate) fn record_creation(&mut self, process: usize) {
        let owner = Tenure { process, epoch: 1, is_held: true, ..Tenure::default() };
        self.owners.fill(owner);
    }

    pub(crate) fn record_sign(&mut self, process: usize) {
        let name = self.nodes[process].name;
        let mut others = self.nodes.iter().enumerate();
        // Another process may have taken its name.
        if !others.any(|(other, node)| other != process && node.name == name && node.seen.is_some())
        {
            self.nodes[process].seen = Some(self.reachable);
        }
    }

    pub(crate) fn record_leave(&mut self, process: usize) {
        self.nodes[process].seen = None;
    }

    pub(crate) fn is_alive(&self, process: usize) -> bool {
        self.nodes[process].seen.is_some_and(|seen| self.reachable - seen < DEAD_AFTER)
    }

    pub(crate) fn advance(&mut self, time: u64) {
        self.reachable += time;
    }

    /// Records an outage of this length.
    pub(crate) fn unreachable(&mut self, time: u64) {
        self.reachable += time.min(HEARTBEAT);
    }

    /// Records that the database's clock was set. A step ahead looks like an outage.
    pub(crate) fn clock_set(&mut self, by: i64) {
        self.unreachable(u64::try_from(by).unwrap_or_default());
    }

    /// Checks the answer that a process owns a thread.
    pub(crate) fn check_acquired(
        &mut self,
        process: usize,
        thread: usize,
        epoch: u64,
        last: u64,
    ) -> Checked {
        let log_end = self.logs[thread].len() as u64;
        let before = &self.owners[thread];
        if last != log_end {
            return Err(format!("the log ends at {log_end}, and its owner believes at {last}"));
        }
        let is_owner = process == before.process && before.is_held;
        if is_owner && epoch == before.epoch && !before.is_handed_over {
            return Ok(());
        }
        if before.is_held && !is_owner && self.is_alive(before.process) {
            return Err(format!("process {process} robbed the live process {}", before.process));
        }
        if epoch <= before.epoch {
            return Err(format!("epoch {epoch} of process {process} is not a new one"));
        }
        let owner = &mut self.owners[thread];
        (owner.process, owner.epoch) = (process, epoch);
        (owner.is_held, owner.is_handed_over) = (true, false);
        Ok(())
    }

    /// Records that a process has given a thread up, if it owned it.
    pub(crate) fn record_hand_over(&mut self, process: usize, thread: usize, to: Option<usize>) {
        let listed =
            |name| self.nodes.iter().position(|node| node.name == name && node.seen.is_some());
        let to = to.and_then(listed);
        let owner = &mut self.owners[thread];
        if owner.process == process && owner.is_held {
            (owner.is_held, owner.is_handed_over) = (to.is_some(), true);
            owner.process = to.unwrap_or(process);
        }
    }

    /// Checks the outcome of an append.
    pub(crate) fn check_appended(
        &mut self,
        append: &SentAppend,
        appended: AppendOutcome,
    ) -> Checked {
        if appended != AppendOutcome::Stored {
            return Ok(());
        }
        let SentAppend { process, thread, epoch, expected_last, .. } = *append;
        let log = &mut self.logs[thread];
        if expected_last != log.len() as u64 {
            let first = expected_last + 1;
            return Err(format!("number {first} was stored behind number {}", log.len()));
        }
        let owner = &mut self.owners[thread];
        if epoch != owner.epoch {
            return Err(format!("an append of epoch {epoch} was stored in epoch {}", owner.epoch));
        }
        let writer = *owner.writers.entry(epoch).or_insert(process);
        if writer != process {
            return Err(format!("processes {writer} and {process} both wrote in epoch {epoch}"));
        }
        for entry in &append.entries {
            let (Entry::Accept(id) | Entry::Start(id)) = *entry;
            let command = self.commands.entry(id).or_default();
            match entry {
                Entry::Accept(_) => command.accepted += 1,
                Entry::Start(_) => command.started += 1,
            }
            if command.accepted != 1 || command.started > 1 {
                return Err(format!("{entry:?} was stored: {command:?}"));
            }
            log.push(*entry);
        }
        Ok(())
    }

    /// Checks that a client's command was accepted.
    pub(crate) fn check_acknowledged(&mut self, id: u32) -> Checked {
        let command = self.commands.entry(id).or_default();
        command.is_acknowledged = true;
        match command.accepted {
            1 => Ok(()),
            _ => Err(format!("command {id} was acknowledged: {command:?}")),
        }
    }

    /// Checks that a client's command was refused.
    pub(crate) fn check_refused(&mut self, id: u32) -> Checked {
        match self.commands.entry(id).or_default() {
            CommandTally { accepted: 0, .. } => Ok(()),
            command => Err(format!("command {id} was refused: {command:?}")),
        }
    }

    /// Checks that a process runs a command.
    pub(crate) fn check_executed(&mut self, id: u32) -> Checked {
        let command = self.commands.entry(id).or_default();
        command.executed += 1;
        match command {
            CommandTally { started: 1, executed: 1, .. } => Ok(()),
            command => Err(format!("command {id} was executed: {command:?}")),
        }
    }

    pub(crate) fn is_acknowledged(&self, id: u32) -> bool {
        self.commands.get(&id).is_some_and(|command| command.is_acknowledged)
    }

    /// The commands of a log that no process has started, in order.
    pub(crate) fn unstarted_commands(&self, thread: usize) -> Vec<u32> {
        let accepted = self.logs[thread].iter().filter_map(|entry| match entry {
            Entry::Accept(id) => Some(*id),
            Entry::Start(_) => None,
        });
        accepted
            .filter(|id| self.commands.get(id).is_some_and(|found| found.started == 0))
            .collect()
    }
}
