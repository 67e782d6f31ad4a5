//! Messages with descriptors. Each has at least one byte, without which descriptors do not travel.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use subtle::ConstantTimeEq as _;

use super::{NetworkNamespace, PassedListener};

/// The descriptors of a message at most: a listener, and the namespaces of the network and of users.
const MAX_DESCRIPTORS: usize = 3;
/// The longest secret, in bytes.
const MAX_SECRET_BYTES: usize = 256;
/// The message of a listener without a secret.
const LISTENER: &[u8] = b"L";

/// The first message of a stage to its server.
#[derive(Debug)]
pub struct StageMessage {
    secret: Vec<u8>,
    /// `None` if the stage wants the listener of the server.
    pub listener: Option<PassedListener>,
}

// === impl PassedListener ===

impl PassedListener {
    /// Sends copies of the descriptors. The receiver needs no secret for them.
    pub fn send(&self, stream: impl AsFd) -> io::Result<()> {
        self.send_with(stream, LISTENER)
    }

    pub(super) fn send_with(&self, stream: impl AsFd, bytes: &[u8]) -> io::Result<()> {
        let namespace = self.namespace.iter();
        let namespace = namespace.flat_map(|it| [it.network.as_fd(), it.users.as_fd()]);
        let descriptors: Vec<_> = [self.listener.as_fd()].into_iter().chain(namespace).collect();
        send(stream, bytes, &descriptors)
    }

    /// Receives what [`Self::send`] has sent. `None` if the sender has no listener.
    /// Errors: the connection fails, or would have to be waited for.
    pub fn receive(stream: impl AsFd) -> io::Result<Option<Self>> {
        let mut bytes = [0; LISTENER.len()];
        let (_, descriptors) = receive(stream, &mut bytes)?;
        Self::from_descriptors(descriptors)
    }

    fn from_descriptors(descriptors: Vec<OwnedFd>) -> io::Result<Option<Self>> {
        let mut descriptors = descriptors.into_iter();
        let Some(listener) = descriptors.next() else { return Ok(None) };
        // Another descriptor would only fail when the first connection comes.
        if !rustix::net::sockopt::socket_acceptconn(&listener)? {
            return Err(io::Error::other("what was passed is not a listener"));
        }
        let namespace = match (descriptors.next(), descriptors.next()) {
            (Some(network), Some(users)) => Some(NetworkNamespace { network, users }),
            _ => None,
        };
        Ok(Some(Self { listener: TcpListener::from(listener), namespace }))
    }
}

// === impl StageMessage ===

impl StageMessage {
    /// Receives the first message of a connection.
    /// Errors: the connection fails, or would have to be waited for.
    pub fn receive(stream: impl AsFd) -> io::Result<Self> {
        let mut bytes = [0; MAX_SECRET_BYTES];
        let (count, descriptors) = receive(stream, &mut bytes)?;
        let secret = bytes.get(..count).unwrap_or_default().to_vec();
        Ok(Self { secret, listener: PassedListener::from_descriptors(descriptors)? })
    }

    /// Whether it comes from the stage with this secret. The time of the comparison does not depend on the first difference.
    #[must_use]
    pub fn has_secret(&self, secret: &str) -> bool {
        self.secret.ct_eq(secret.as_bytes()).into()
    }
}

/// Sends bytes with copies of descriptors. The few bytes fit into a new socket.
pub(super) fn send(
    stream: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for a message"));
    }
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives bytes and descriptors, which no program inherits that this process starts.
fn receive(stream: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(bytes)];
    let received = recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = descriptors.flatten().collect();
    Ok((received.bytes, descriptors))
}
