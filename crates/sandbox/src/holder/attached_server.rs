//! The connection of the attached server.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;

use rustix::event::PollFlags;

use super::agent::HeldAgent;
use super::frame::{HolderFrame, InvalidFrame, ServerFrame};
use super::frame_reader::FrameReader;
use super::nonblocking::{self, TRANSFER_BYTES, Transfer};
use super::turn_state::TurnState;

/// The frames in a row that are sent before the other sides get their turn.
const MAX_FRAMES: usize = 16;

/// A server that has proved itself.
#[derive(Debug)]
pub(super) struct AttachedServer {
    stream: UnixStream,
    reader: FrameReader,
    /// Frames on their way to the server. More are added when it is empty, so it stays small after the first one.
    outgoing: Vec<u8>,
    /// The bytes of `outgoing` that are written.
    written: usize,
    /// The output before this offset is in frames.
    framed: u64,
    /// The output before this offset is written to the socket.
    sent: u64,
    has_output_end: bool,
    has_exit: bool,
}

// === impl AttachedServer ===

impl AttachedServer {
    /// Starts with the state. The output that is kept follows.
    pub(super) fn new(stream: UnixStream, reader: FrameReader, state: &TurnState) -> Self {
        let kept_from = state.output.kept_from();
        Self {
            stream,
            reader,
            outgoing: state.to_frame().encode(),
            written: 0,
            framed: kept_from,
            sent: kept_from,
            has_output_end: false,
            has_exit: false,
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Returns what to wait for. The system reports a lost connection without being asked.
    pub(super) fn interest(&self, can_read: bool) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, can_read);
        flags.set(PollFlags::OUT, !self.outgoing.is_empty());
        flags
    }

    pub(super) fn framed_offset(&self) -> u64 {
        self.framed
    }

    pub(super) fn sent_offset(&self) -> u64 {
        self.sent
    }

    /// Whether the server has received everything that there will ever be.
    pub(super) fn is_finished(&self) -> bool {
        self.has_exit && self.outgoing.is_empty()
    }

    /// Reads once, for [`Self::next_frame`].
    pub(super) fn receive(&mut self, scratch: &mut [u8]) -> Transfer {
        let transfer = nonblocking::read(&self.stream, scratch);
        if let Transfer::Bytes(bytes) = transfer {
            self.reader.push(scratch.get(..bytes).unwrap_or_default());
        }
        transfer
    }

    pub(super) fn next_frame(&mut self) -> Result<Option<ServerFrame>, InvalidFrame> {
        self.reader.next_server_frame()
    }

    /// Sends what the server takes now. Fails if it is gone.
    pub(super) fn send(&mut self, state: &mut TurnState, agent: &HeldAgent) -> io::Result<()> {
        for _ in 0..MAX_FRAMES {
            self.fill(state, agent);
            let rest = self.outgoing.get(self.written..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            match nonblocking::write(&self.stream, rest) {
                Transfer::Bytes(bytes) => self.written += bytes,
                Transfer::Blocked => break,
                Transfer::Closed => return Err(io::ErrorKind::BrokenPipe.into()),
            }
            if self.written == self.outgoing.len() {
                (self.outgoing, self.written) = (Vec::new(), 0);
                self.sent = self.framed;
                state.output.trim(self.sent);
            }
        }
        // What is left makes the loop wait for the socket.
        self.fill(state, agent);
        Ok(())
    }

    /// Adds the next frames if all earlier ones are written.
    fn fill(&mut self, state: &mut TurnState, agent: &HeldAgent) {
        if !self.outgoing.is_empty() {
            return;
        }
        let errors = state.errors.take(TRANSFER_BYTES);
        if !errors.is_empty() {
            self.outgoing.extend(HolderFrame::Errors(errors).encode());
        }
        if self.framed < state.output.end() {
            let bytes = state.output.part_at(self.framed).to_vec();
            let offset = self.framed;
            self.framed += bytes.len() as u64;
            self.outgoing.extend(HolderFrame::Output { offset, bytes }.encode());
            return;
        }
        if agent.output().is_none() && !self.has_output_end {
            self.has_output_end = true;
            self.outgoing.extend(HolderFrame::OutputEnd { offset: self.framed }.encode());
        }
        // The exit is the last frame, so the errors come first.
        if let Some(status) = agent.final_status()
            && !self.has_exit
            && self.outgoing.is_empty()
        {
            self.has_exit = true;
            self.outgoing = HolderFrame::Exit { status: status.into_raw() }.encode();
        }
    }
}
