//! The steps of a node. They match what the runtime does as the owner of a thread and when it forwards requests.

use trilogue_domain::error::Code;

use super::schedule::Schedule;
use super::{AcquireOutcome, AppendOutcome, Checked, Entry, SentAppend, Shared, THREADS};
use crate::core::ownership::{NextTry, OwnerExit};

/// How often a request is tried before the time for a take-over has passed.
const TRIES: u8 = 3;

#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: usize,
    pub(super) state: ProcessState,
    pub(super) is_draining: bool,
    pub(super) owners: [Option<Owner>; THREADS],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProcessState {
    Running,
    Paused,
    Ended,
}

/// What a process knows about a thread that it owns, or owned at its last check.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) epoch: u64,
    pub(super) last: u64,
    pub(super) requests: Vec<Request>,
    /// Accepted commands that were not started.
    pub(super) to_start: Vec<u32>,
    pub(super) is_sending: bool,
}

/// A client's command that is under way.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) command: u32,
    pub(super) thread: usize,
    pub(super) at: usize,
    /// The node that has forwarded it.
    pub(super) via: Option<usize>,
    pub(super) tries: u8,
    /// Whether its client still waits.
    pub(super) is_awaited: bool,
}

/// An append whose process waits for the response.
#[derive(Debug)]
pub(super) struct SentMessage {
    pub(super) append: SentAppend,
    pub(super) requests: Vec<Request>,
    pub(super) is_again: bool,
    pub(super) answer: Option<AppendOutcome>,
}

// === impl Owner ===

impl Owner {
    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.to_start.is_empty() && !self.is_sending
    }
}

// === impl Schedule ===

impl<S: Shared> Schedule<S> {
    /// Handles a request at its node.
    pub(super) async fn take(&mut self, mut request: Request) -> Checked {
        let (at, thread) = (request.at, request.thread);
        if self.processes[at].state == ProcessState::Ended {
            return self.next_try(request, false);
        }
        if self.processes[at].owners[thread].is_none() {
            match self.acquire(at, thread).await? {
                None => {}
                // A request is forwarded at most once.
                Some(_) if request.via.is_some() => return self.refuse(&request),
                Some(owner) => {
                    (request.via, request.at) = (Some(at), owner);
                    self.requests.push(request);
                    return Ok(());
                }
            }
        }
        if let Some(owner) = &mut self.processes[at].owners[thread] {
            owner.requests.push(request);
        }
        Ok(())
    }

    /// Loads a thread, or returns the process that owns it.
    pub(super) async fn acquire(&mut self, at: usize, thread: usize) -> Checked<Option<usize>> {
        match self.shared.acquire(at, thread).await {
            AcquireOutcome::Owned { epoch, last } => {
                self.ledger.check_acquired(at, thread, epoch, last)?;
                self.processes[at].owners[thread] = Some(Owner {
                    epoch,
                    last,
                    requests: Vec::new(),
                    to_start: self.ledger.unstarted_commands(thread),
                    is_sending: false,
                });
                Ok(None)
            }
            AcquireOutcome::Elsewhere(owner) => Ok(Some(owner)),
            AcquireOutcome::GivenUp(next) => {
                self.ledger.record_hand_over(at, thread, None);
                Ok(Some(next))
            }
        }
    }

    /// Sends the waiting requests as one append.
    pub(super) fn send(&mut self, process: usize, thread: usize) {
        let Some(owner) = &mut self.processes[process].owners[thread] else { return };
        if owner.is_sending || owner.is_idle() {
            return;
        }
        let requests = std::mem::take(&mut owner.requests);
        let starts = owner.to_start.drain(..).map(Entry::Start);
        let accepts = requests.iter().map(|request| Entry::Accept(request.command));
        let entries = accepts.chain(starts).collect();
        owner.is_sending = true;
        self.stamps += 1;
        let append = SentAppend {
            process,
            thread,
            epoch: owner.epoch,
            expected_last: owner.last,
            entries,
            stamp: self.stamps,
        };
        self.messages.push(SentMessage { append, requests, is_again: false, answer: None });
    }

    /// Delivers an append to the shared state.
    pub(super) async fn arrive(&mut self, index: usize) -> Checked {
        let message = &mut self.messages[index];
        let answer = self.shared.append(&message.append, message.is_again).await;
        message.answer = Some(answer);
        self.ledger.check_appended(&message.append, answer)
    }

    /// Delivers the response to the process.
    pub(super) async fn answer(&mut self, message: SentMessage) -> Checked {
        let SentAppend { process, thread, .. } = message.append;
        match message.answer {
            Some(AppendOutcome::Stored | AppendOutcome::StoredBefore) => self.stored(message),
            Some(AppendOutcome::Late) => {
                message.requests.iter().try_for_each(|request| self.refuse(request))?;
                self.recover(process, thread).await
            }
            Some(AppendOutcome::Uncertain) | None => self.recover(process, thread).await,
        }
    }

    fn stored(&mut self, message: SentMessage) -> Checked {
        let SentAppend { process, thread, entries, .. } = message.append;
        let Some(owner) = &mut self.processes[process].owners[thread] else { return Ok(()) };
        owner.is_sending = false;
        owner.last += entries.len() as u64;
        for entry in entries {
            match entry {
                Entry::Accept(command) => owner.to_start.push(command),
                Entry::Start(command) => self.ledger.check_executed(command)?,
            }
        }
        let awaited = message.requests.iter().filter(|request| request.is_awaited);
        awaited.map(|request| request.command).try_for_each(|id| self.ledger.check_acknowledged(id))
    }

    /// Handles a failed append: the owner reads its thread again, and gives it up.
    async fn recover(&mut self, process: usize, thread: usize) -> Checked {
        let left = self.processes[process].owners[thread].take();
        let looked = self.acquire(process, thread).await?;
        let looked = looked.map_or(Ok(()), |_| Err(Code::ThreadElsewhere));
        match ((self.rules.owner_exit)(looked), looked) {
            (OwnerExit::WakeLater, Ok(())) | (OwnerExit::StepDown, Err(_)) => {}
            (departure, _) => return Err(format!("an owner that saw {looked:?}: {departure:?}")),
        }
        let Some(mut left) = left else { return Ok(()) };
        if self.rules.leaves {
            self.processes[process].owners[thread] = None;
            // The waiting requests are sent to the next owner.
            self.requests.extend(left.requests);
        } else {
            left.is_sending = false;
            self.processes[process].owners[thread] = Some(left);
        }
        Ok(())
    }

    /// Refuses a client's command. The client may send it again.
    fn refuse(&mut self, request: &Request) -> Checked {
        if request.is_awaited {
            self.ledger.check_refused(request.command)?;
            self.refused.push((request.command, request.thread));
        }
        Ok(())
    }

    /// Handles a request whose target node has ended, before or after it received the request.
    pub(super) fn next_try(&mut self, mut request: Request, is_reached: bool) -> Checked {
        // No node forwarded it, so its client sees the connection break.
        let Some(via) = request.via else { return Ok(()) };
        if self.processes[via].state == ProcessState::Ended {
            return Ok(());
        }
        match (self.rules.next_try)(is_reached, request.tries >= TRIES) {
            NextTry::Again => {
                (request.at, request.via) = (via, None);
                request.tries += 1;
                self.requests.push(request);
                Ok(())
            }
            NextTry::NothingTaken => self.refuse(&request),
            NextTry::MayBeTaken => Ok(()),
        }
    }
}
