//! The end of a schedule: all faults are over, and every promise must be kept.

use super::process::ProcessState;
use super::schedule::{Schedule, ScheduleStep};
use super::{Checked, DEAD_AFTER, Shared, THREADS};

/// The most rounds of responses until everything under way has arrived.
const ROUNDS: usize = 64;
/// How often a client sends a command once all faults are over.
const TRIES: usize = 8;

// === impl Schedule ===

impl<S: Shared> Schedule<S> {
    /// Ends all faults. Every running node must get commands accepted, and then one node alone must.
    pub(super) async fn calm(&mut self) -> Checked {
        self.steps.push(ScheduleStep::FaultsEnd);
        while !self.strays.is_empty() {
            self.stray(0).await?;
        }
        for process in 0..self.processes.len() {
            if self.processes[process].state == ProcessState::Paused {
                self.resume(process);
            }
        }
        if self.running().is_empty() {
            self.open_new().await;
        }
        self.settle().await?;
        self.wait_for_death().await;
        for process in self.running() {
            self.get_through(process).await?;
        }
        let running = self.running();
        let survivor = running[self.below(running.len())];
        self.steps.push(ScheduleStep::Alone(survivor));
        for process in running.into_iter().filter(|process| *process != survivor) {
            self.crash(process).await?;
        }
        self.wait_for_death().await;
        self.get_through(survivor).await?;
        self.compare().await
    }

    fn running(&self) -> Vec<usize> {
        let all = 0..self.processes.len();
        all.filter(|process| self.processes[*process].state == ProcessState::Running).collect()
    }

    /// Waits until every process that does not run is dead.
    async fn wait_for_death(&mut self) {
        // After a clock was set back, the first sign of life only restarts the count.
        for _ in 0..=DEAD_AFTER {
            self.pass(1).await;
            for process in self.running() {
                self.sign(process).await;
            }
        }
    }

    /// A process gets a command accepted for each thread, wherever the thread is.
    async fn get_through(&mut self, process: usize) -> Checked {
        for thread in 0..THREADS {
            self.commands += 1;
            let command = self.commands;
            for _ in 0..TRIES {
                if self.ledger.is_acknowledged(command) {
                    break;
                }
                self.request(command, thread, process);
                self.settle().await?;
            }
            if !self.ledger.is_acknowledged(command) {
                return Err(format!("process {process} gets no command of thread {thread} taken"));
            }
        }
        Ok(())
    }

    /// Delivers everything that is under way.
    async fn settle(&mut self) -> Checked {
        for _ in 0..ROUNDS {
            for request in std::mem::take(&mut self.requests) {
                self.take(request).await?;
            }
            for process in self.running() {
                (0..THREADS).for_each(|thread| self.send(process, thread));
            }
            while let Some(message) = self.messages.first() {
                if message.answer.is_none() {
                    self.arrive(0).await?;
                }
                let message = self.messages.swap_remove(0);
                self.answer(message).await?;
            }
            let mut owners = self.processes.iter().flat_map(|process| process.owners.iter());
            if self.requests.is_empty()
                && owners.all(|owner| owner.as_ref().is_none_or(|owner| owner.is_idle()))
            {
                return Ok(());
            }
        }
        Err("the nodes do not come to rest".to_owned())
    }

    /// Compares the stored entries with the ledger. Every stored command must have been started.
    async fn compare(&mut self) -> Checked {
        for thread in 0..THREADS {
            let stored = self.shared.entries(thread).await;
            if stored != self.ledger.logs[thread] {
                let expected = &self.ledger.logs[thread];
                return Err(format!("thread {thread} has {stored:?} and not {expected:?}"));
            }
            let waiting = self.ledger.unstarted_commands(thread);
            if !waiting.is_empty() {
                return Err(format!("nobody starts the commands {waiting:?}"));
            }
        }
        Ok(())
    }
}
