//! The loop of a holder. It waits for all sides at once, and never for one of them.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::agent::{AgentPipes, HeldAgent, MAX_KEPT_ERRORS, MAX_QUEUED_ERRORS};
use super::attach_listener::AttachListener;
use super::attached_server::AttachedServer;
use super::frame::ServerFrame;
use super::nonblocking::{TRANSFER_BYTES, Transfer};
use super::turn_state::TurnState;
use crate::HoldSettings;
use crate::broker::PassedListener;

/// The processes of an agent, as their parent sees them. Its descriptor becomes readable when one may have exited.
pub(super) trait AgentTree: AsFd {
    /// Reaps the processes that have exited. Returns the status of the agent itself if it was one of them.
    fn reap(&mut self) -> io::Result<Option<ExitStatus>>;

    /// Ends the processes that the agent has left.
    fn end(&mut self) -> io::Result<()>;
}

/// A side of the holder that has something to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HolderSide {
    Tree,
    Listener,
    Input,
    Output,
    Errors,
    Server,
}

struct Holder<'a, T> {
    tree: &'a mut T,
    listener: AttachListener,
    agent: HeldAgent,
    state: TurnState,
    server: Option<AttachedServer>,
    orphan_time: Duration,
    /// When the agent has worked without a server for too long. `None` if that is beyond the range of the clock.
    orphan_until: Option<Instant>,
    is_tree_ended: bool,
    scratch: Vec<u8>,
}

/// Holds an agent until a server has received its exit. Returns the status of the agent, or `None` if no server was attached for too long: its processes may still run then.
pub(super) fn run<T: AgentTree>(
    listener: UnixListener,
    pipes: AgentPipes,
    tree: &mut T,
    (settings, broker): (&HoldSettings, Option<PassedListener>),
) -> io::Result<Option<ExitStatus>> {
    let orphan_time = Duration::from_millis(settings.orphan_ms);
    let mut holder = Holder {
        tree,
        listener: AttachListener::new(listener, &settings.secret, broker)?,
        agent: HeldAgent::new(pipes)?,
        state: TurnState::new(settings.buffer_bytes),
        server: None,
        orphan_time,
        orphan_until: Instant::now().checked_add(orphan_time),
        is_tree_ended: false,
        scratch: vec![0; TRANSFER_BYTES],
    };
    loop {
        let ready = holder.wait()?;
        for (source, flags) in ready {
            holder.serve(source, flags)?;
        }
        if holder.advance()? {
            return Ok(holder.agent.final_status());
        }
    }
}

// === impl Holder ===

impl<T: AgentTree> Holder<'_, T> {
    /// Waits until a side has something to do, or the time of one is over.
    fn wait(&self) -> io::Result<Vec<(HolderSide, PollFlags)>> {
        let mut sources = vec![(HolderSide::Tree, self.tree.as_fd(), PollFlags::IN)];
        sources
            .extend(self.agent.input.pending().map(|fd| (HolderSide::Input, fd, PollFlags::OUT)));
        // The agent waits while the buffer is full.
        let output = self.agent.output().filter(|_| self.state.output.room(self.sent_offset()) > 0);
        sources.extend(output.map(|fd| (HolderSide::Output, fd, PollFlags::IN)));
        sources.extend(self.agent.errors().map(|fd| (HolderSide::Errors, fd, PollFlags::IN)));
        sources.extend(self.server.as_ref().map(|server| {
            (HolderSide::Server, server.as_fd(), server.interest(!self.agent.input.is_full()))
        }));
        // Last, because the flags of the server are those of the one that is attached now.
        sources.extend(self.listener.sources().map(|fd| (HolderSide::Listener, fd, PollFlags::IN)));
        let mut fds: Vec<_> =
            sources.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let timeout = self.deadline().map(|until| until.saturating_duration_since(Instant::now()));
        // A time beyond the range of the system is as good as none.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = fds.iter().map(PollFd::revents);
        let ready = sources.iter().map(|(source, ..)| *source).zip(flags);
        Ok(ready.filter(|(_, flags)| !flags.is_empty()).collect())
    }

    fn deadline(&self) -> Option<Instant> {
        let orphan_until = self.orphan_until.filter(|_| self.server.is_none());
        let all = [self.listener.deadline(), self.agent.output_deadline(), orphan_until];
        all.into_iter().flatten().min()
    }

    /// Returns how much output the attached server got.
    fn sent_offset(&self) -> Option<u64> {
        self.server.as_ref().map(AttachedServer::sent_offset)
    }

    fn serve(&mut self, source: HolderSide, flags: PollFlags) -> io::Result<()> {
        match source {
            HolderSide::Tree => {
                if let Some(status) = self.tree.reap()? {
                    self.agent.set_exit(status, Instant::now());
                }
            }
            HolderSide::Listener => self.admit(Instant::now()),
            // Each turn of the loop writes.
            HolderSide::Input => {}
            HolderSide::Output => {
                let sent = self.sent_offset();
                self.agent.read_output(&mut self.state, sent, &mut self.scratch);
            }
            HolderSide::Errors => {
                let is_attached = self.server.is_some();
                let max_bytes = if is_attached { MAX_QUEUED_ERRORS } else { MAX_KEPT_ERRORS };
                self.agent.read_errors(&mut self.state, max_bytes, &mut self.scratch);
            }
            HolderSide::Server if flags == PollFlags::OUT => {}
            HolderSide::Server => self.receive(flags),
        }
        Ok(())
    }

    /// Accepts connections. One that proves itself replaces the attached server.
    fn admit(&mut self, now: Instant) {
        if let Some((stream, reader)) = self.listener.admit(now, &mut self.scratch) {
            // First, so that the state of the new server has the labels of the old one.
            self.finish_server();
            self.server = Some(AttachedServer::new(stream, reader, &self.state));
        }
    }

    /// Reads once from the server, or everything if it is gone.
    fn receive(&mut self, flags: PollFlags) {
        if flags.intersects(PollFlags::HUP | PollFlags::ERR) {
            return self.finish_server();
        }
        match self.server.as_mut().map(|server| server.receive(&mut self.scratch)) {
            Some(Transfer::Bytes(_)) => self.apply_frames(),
            Some(Transfer::Closed) => self.detach(),
            Some(Transfer::Blocked) | None => {}
        }
    }

    /// Detaches a server that is gone or replaced. The complete frames that it has sent still count, unless the agent is behind with its input.
    fn finish_server(&mut self) {
        while !self.agent.input.is_full()
            && let Some(server) = &mut self.server
            && matches!(server.receive(&mut self.scratch), Transfer::Bytes(_))
        {
            self.apply_frames();
        }
        self.detach();
    }

    /// Does what follows from the last events. Returns whether the holder has done its work.
    fn advance(&mut self) -> io::Result<bool> {
        let now = Instant::now();
        if self.listener.deadline().is_some_and(|until| until <= now) {
            self.admit(now);
        }
        self.agent.end_output(now);
        self.agent.input.write();
        // Frames can wait in the reader for the input to shrink.
        self.apply_frames();
        self.agent.input.write();
        self.send();
        if self.agent.final_status().is_some() && !self.is_tree_ended {
            self.is_tree_ended = true;
            self.tree.end()?;
        }
        let is_finished = self.server.as_ref().is_some_and(AttachedServer::is_finished);
        let is_orphaned =
            self.server.is_none() && self.orphan_until.is_some_and(|until| until <= now);
        Ok(is_finished || is_orphaned)
    }

    fn send(&mut self) {
        if let Some(server) = &mut self.server
            && server.send(&mut self.state, &self.agent).is_err()
        {
            self.finish_server();
        }
    }

    /// Applies the complete frames of the server while the agent takes its input.
    fn apply_frames(&mut self) {
        while !self.agent.input.is_full()
            && let Some(server) = &mut self.server
        {
            let framed = server.framed_offset();
            match server.next_frame() {
                Ok(None) => return,
                Ok(Some(frame)) => {
                    if !self.apply(frame, framed) {
                        self.detach();
                    }
                }
                Err(_) => self.detach(),
            }
        }
    }

    /// Applies a frame. Returns whether the server may send it now.
    fn apply(&mut self, frame: ServerFrame, framed: u64) -> bool {
        match frame {
            ServerFrame::Attach { .. } | ServerFrame::TakeBroker { .. } => return false,
            ServerFrame::Input { label, bytes } => {
                // One step: the label tells the next server that the agent gets these bytes.
                self.state.add_label(label);
                self.agent.input.push(bytes);
            }
            ServerFrame::EndInput => self.agent.input.end(),
            // A server cannot be done with output that it has not seen.
            ServerFrame::Mark { offset } if offset > framed => return false,
            ServerFrame::Mark { offset } => self.state.mark(offset),
            ServerFrame::Note(note) => self.state.set_note(note),
            ServerFrame::OrphanTime { ms } => self.orphan_time = Duration::from_millis(ms),
        }
        true
    }

    /// Drops the connection of the server. The time without a server begins.
    fn detach(&mut self) {
        if let Some(server) = self.server.take() {
            self.state.record_seen(server.framed_offset());
        }
        self.state.errors.truncate(MAX_KEPT_ERRORS);
        self.orphan_until = Instant::now().checked_add(self.orphan_time);
    }
}
