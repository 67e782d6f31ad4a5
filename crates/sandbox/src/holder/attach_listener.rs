//! Connections that have not proved yet that they come from a server of this agent.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::process::getuid;
use subtle::ConstantTimeEq as _;

use super::frame::{HOLDER_VERSION, HolderFrame, MAX_SECRET_BYTES, ServerFrame};
use super::frame_reader::FrameReader;
use super::nonblocking::{self, Transfer, set_nonblocking};
use crate::broker::PassedListener;

/// How long a connection may take to prove itself.
const PROOF_TIME: Duration = Duration::from_secs(5);
/// The connections that wait at most. The oldest makes room for a new one, so that they cannot keep a server out.
const MAX_UNPROVED: usize = 4;
/// The largest payload of a first frame, in bytes: a version and a secret.
const MAX_FIRST_PAYLOAD_BYTES: usize = 2 + MAX_SECRET_BYTES;
/// How long no connection is accepted after the system has refused one, such as without free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The socket that listens for servers, and the connections without a proof.
pub(super) struct AttachListener {
    listener: UnixListener,
    proofs: Proofs,
    unproved: Vec<Unproved>,
    paused_until: Option<Instant>,
}

/// What a connection must know, and what it can get for that.
struct Proofs {
    secret: String,
    /// The listener of the broker, which the next server gets.
    broker: Option<PassedListener>,
}

struct Unproved {
    stream: UnixStream,
    reader: FrameReader,
    until: Instant,
}

/// What the first bytes of a connection prove.
enum Proof {
    Incomplete,
    /// Nothing, or all that the connection wants is done.
    Refused,
    Accepted,
}

// === impl AttachListener ===

impl AttachListener {
    pub(super) fn new(
        listener: UnixListener,
        secret: &str,
        broker: Option<PassedListener>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let proofs = Proofs { secret: secret.to_owned(), broker };
        Ok(Self { listener, proofs, unproved: Vec::new(), paused_until: None })
    }

    /// Returns what becomes readable when [`Self::admit`] has something to do.
    pub(super) fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let listener = self.paused_until.is_none().then(|| self.listener.as_fd());
        listener.into_iter().chain(self.unproved.iter().map(|unproved| unproved.stream.as_fd()))
    }

    /// Returns when [`Self::admit`] has something to do at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.unproved.iter().map(|unproved| unproved.until).chain(self.paused_until).min()
    }

    /// Accepts connections. Returns the newest one that proves itself, with the bytes that follow its proof.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        scratch: &mut [u8],
    ) -> Option<(UnixStream, FrameReader)> {
        let mut admitted = None;
        self.paused_until = self.paused_until.filter(|until| now < *until);
        if self.paused_until.is_none() {
            self.accept(now, scratch, &mut admitted);
        }
        for mut unproved in std::mem::take(&mut self.unproved) {
            match unproved.check(&self.proofs, scratch) {
                Proof::Accepted => admitted = Some(unproved),
                Proof::Incomplete if now < unproved.until => self.unproved.push(unproved),
                Proof::Incomplete | Proof::Refused => {}
            }
        }
        admitted.map(|Unproved { stream, mut reader, .. }| {
            reader.lift_limit();
            (stream, reader)
        })
    }

    /// Accepts at most as many connections as may wait, so that a flood of them does not stop the loop.
    fn accept(&mut self, now: Instant, scratch: &mut [u8], admitted: &mut Option<Unproved>) {
        for _ in 0..MAX_UNPROVED {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let Some(mut unproved) = Unproved::new(stream, now + PROOF_TIME) else {
                        continue;
                    };
                    // At once: a server has sent its proof by now, and others cannot push it out.
                    match unproved.check(&self.proofs, scratch) {
                        Proof::Accepted => *admitted = Some(unproved),
                        Proof::Incomplete => self.add(unproved),
                        Proof::Refused => {}
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(_) => {
                    self.paused_until = Some(now + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn add(&mut self, unproved: Unproved) {
        if self.unproved.len() == MAX_UNPROVED {
            self.unproved.remove(0);
        }
        self.unproved.push(unproved);
    }
}

// === impl Proofs ===

impl Proofs {
    /// Compares a secret. The time does not depend on the first difference.
    fn has(&self, secret: &str) -> bool {
        secret.as_bytes().ct_eq(self.secret.as_bytes()).into()
    }
}

// === impl Unproved ===

impl Unproved {
    /// Takes a connection of this user. `None` for one of another user.
    fn new(stream: UnixStream, until: Instant) -> Option<Self> {
        let is_own = socket_peercred(&stream).is_ok_and(|peer| peer.uid == getuid());
        if !is_own || set_nonblocking(&stream).is_err() {
            return None;
        }
        Some(Self { stream, reader: FrameReader::with_limit(MAX_FIRST_PAYLOAD_BYTES), until })
    }

    fn check(&mut self, proofs: &Proofs, scratch: &mut [u8]) -> Proof {
        match nonblocking::read(&self.stream, scratch) {
            Transfer::Bytes(bytes) => self.reader.push(scratch.get(..bytes).unwrap_or_default()),
            Transfer::Blocked => return Proof::Incomplete,
            Transfer::Closed => return Proof::Refused,
        }
        let (version, secret) = match self.reader.next_server_frame() {
            Ok(Some(ServerFrame::Attach { version, secret })) => (version, secret),
            Ok(Some(ServerFrame::TakeBroker { secret })) => {
                if let Some(broker) = proofs.broker.as_ref().filter(|_| proofs.has(&secret)) {
                    // A server that is gone leaves it to the next one.
                    let _ = broker.send(&self.stream);
                }
                return Proof::Refused;
            }
            Ok(None) => return Proof::Incomplete,
            Ok(Some(_)) | Err(_) => return Proof::Refused,
        };
        if !proofs.has(&secret) {
            return Proof::Refused;
        }
        if version == HOLDER_VERSION {
            return Proof::Accepted;
        }
        // The other version learns only this one. The few bytes fit into a new socket.
        let (labels, note) = (Vec::new(), Vec::new());
        let (kept_from, seen_to, has_lost_labels) = (0, 0, false);
        let version = HOLDER_VERSION;
        let state =
            HolderFrame::State { version, kept_from, seen_to, has_lost_labels, labels, note };
        let _ = nonblocking::write(&self.stream, &state.encode());
        Proof::Refused
    }
}
