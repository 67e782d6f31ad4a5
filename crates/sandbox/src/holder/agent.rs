//! The agent as its holder sees it: three pipes and an exit.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::input_queue::InputQueue;
use super::nonblocking::{self, Transfer, set_nonblocking};
use super::turn_state::TurnState;

/// How long the output may take to end after the agent has exited. A descendant can hold it open.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);
/// The errors that are kept while no server is attached, in bytes.
pub(super) const MAX_KEPT_ERRORS: usize = 64 * 1024;
/// The errors that wait for an attached server, in bytes.
pub(super) const MAX_QUEUED_ERRORS: usize = 256 * 1024;

/// The pipes of an agent that was started.
#[derive(Debug)]
pub(super) struct AgentPipes {
    pub(super) input: OwnedFd,
    pub(super) output: OwnedFd,
    pub(super) errors: OwnedFd,
}

#[derive(Debug)]
pub(super) struct HeldAgent {
    pub(super) input: InputQueue,
    /// `None` after the end.
    output: Option<OwnedFd>,
    /// `None` after the end.
    errors: Option<OwnedFd>,
    exit: Option<AgentExit>,
}

#[derive(Debug)]
struct AgentExit {
    status: ExitStatus,
    /// When the output counts as ended.
    output_until: Instant,
    /// The bytes of output that were in the pipe at that time. They may wait for room in the buffer.
    last_bytes: Option<u64>,
}

// === impl HeldAgent ===

impl HeldAgent {
    pub(super) fn new(pipes: AgentPipes) -> io::Result<Self> {
        set_nonblocking(&pipes.output)?;
        set_nonblocking(&pipes.errors)?;
        let (output, errors) = (Some(pipes.output), Some(pipes.errors));
        Ok(Self { input: InputQueue::new(pipes.input)?, output, errors, exit: None })
    }

    pub(super) fn output(&self) -> Option<BorrowedFd<'_>> {
        self.output.as_ref().map(|pipe| pipe.as_fd())
    }

    pub(super) fn errors(&self) -> Option<BorrowedFd<'_>> {
        self.errors.as_ref().map(|pipe| pipe.as_fd())
    }

    /// Returns the status if the agent has exited and all of its output was read.
    pub(super) fn final_status(&self) -> Option<ExitStatus> {
        let exit = self.exit.as_ref()?;
        (self.output.is_none() && self.errors.is_none()).then_some(exit.status)
    }

    /// Notes that the agent has exited.
    pub(super) fn set_exit(&mut self, status: ExitStatus, now: Instant) {
        self.input.close();
        self.exit = Some(AgentExit { status, output_until: now + OUTPUT_GRACE, last_bytes: None });
    }

    /// Reads a part of the output into the buffer. `sent` is how much of it an attached server got.
    pub(super) fn read_output(
        &mut self,
        state: &mut TurnState,
        sent: Option<u64>,
        scratch: &mut [u8],
    ) {
        let Some(pipe) = &self.output else { return };
        let last_bytes = self.exit.as_ref().and_then(|exit| exit.last_bytes).unwrap_or(u64::MAX);
        let max = state.output.room(sent).min(last_bytes);
        let max = usize::try_from(max).unwrap_or(usize::MAX).min(scratch.len());
        let Some(scratch) = scratch.get_mut(..max).filter(|scratch| !scratch.is_empty()) else {
            return;
        };
        match nonblocking::read(pipe, scratch) {
            Transfer::Bytes(bytes) => {
                state.output.push(scratch.get(..bytes).unwrap_or_default());
                if let Some(sent) = sent {
                    state.output.trim(sent);
                }
                self.count_last_bytes(bytes);
            }
            Transfer::Blocked => {}
            Transfer::Closed => self.output = None,
        }
    }

    /// Reads a part of the errors. The agent never waits for a reader of them.
    pub(super) fn read_errors(
        &mut self,
        state: &mut TurnState,
        max_bytes: usize,
        scratch: &mut [u8],
    ) {
        let Some(pipe) = &self.errors else { return };
        match nonblocking::read(pipe, scratch) {
            Transfer::Bytes(bytes) => {
                state.errors.push(scratch.get(..bytes).unwrap_or_default(), max_bytes);
            }
            Transfer::Blocked => {}
            Transfer::Closed => self.errors = None,
        }
    }

    /// Returns when [`Self::end_output`] has something to do.
    pub(super) fn output_deadline(&self) -> Option<Instant> {
        let exit = self.exit.as_ref().filter(|exit| exit.last_bytes.is_none())?;
        (self.output.is_some() || self.errors.is_some()).then_some(exit.output_until)
    }

    /// Ends the output of an agent that has exited, if a descendant holds it open for too long.
    pub(super) fn end_output(&mut self, now: Instant) {
        if self.output_deadline().is_none_or(|until| now < until) {
            return;
        }
        // The loop has read the errors up to now.
        self.errors = None;
        // A full buffer can have delayed the output itself, so its rest still counts. A descendant that keeps writing does not.
        let rest = self.output.as_ref().and_then(|pipe| rustix::io::ioctl_fionread(pipe).ok());
        if let Some(exit) = &mut self.exit {
            exit.last_bytes = Some(rest.unwrap_or_default());
        }
        self.count_last_bytes(0);
    }

    fn count_last_bytes(&mut self, bytes: usize) {
        let Some(rest) = self.exit.as_mut().and_then(|exit| exit.last_bytes.as_mut()) else {
            return;
        };
        *rest = rest.saturating_sub(bytes as u64);
        if *rest == 0 {
            self.output = None;
        }
    }
}
