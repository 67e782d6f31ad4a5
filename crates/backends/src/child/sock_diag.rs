//! Asks the kernel for one TCP socket, through the netlink protocol that `ss` uses too. The cost does not depend on the number of sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};

use super::tcp_sockets::{SocketOwner, has_ends};

/// How long the kernel may take to answer. It answers while the request is sent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The room for an answer, in bytes. It has 124, and more with the attributes that a later kernel may add.
const ANSWER_BYTES: usize = 4096;
/// The lengths of a message's header and of a request, in bytes.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
/// The types of messages: `NLMSG_ERROR`, and `SOCK_DIAG_BY_FAMILY` for requests and answers.
const ERROR: u16 = 2;
const BY_FAMILY: u16 = 20;
/// The flag `NLM_F_REQUEST`. Without `NLM_F_DUMP`, the request is for one socket.
const REQUEST: u16 = 1;
/// The number of the protocol TCP.
const TCP: u8 = 6;
/// The request names no cookie of a socket, only its ends (`INET_DIAG_NOCOOKIE`).
const ANY_COOKIE: [u8; 8] = [0xff; 8];

/// Whether the kernel finds a connection of ours. Without its module for TCP it says that no socket exists.
static IS_RELIABLE: OnceLock<bool> = OnceLock::new();

/// Finds the socket that has these ends. `None` if the kernel knows none, which says nothing of a socket that is bound to another interface.
/// Errors: the kernel or a filter of system calls refuses such requests, or nothing is known.
pub(super) fn find(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<SocketOwner>> {
    let found = request(local, remote)?;
    if found.is_none() && !is_reliable()? {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(found)
}

/// Looks once for a connection of ours, which must be found.
fn is_reliable() -> io::Result<bool> {
    if let Some(is_reliable) = IS_RELIABLE.get() {
        return Ok(*is_reliable);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .or_else(|_| TcpListener::bind((Ipv6Addr::LOCALHOST, 0)))?;
    let own = TcpStream::connect(listener.local_addr()?)?;
    let found = request(own.local_addr()?, own.peer_addr()?)?;
    let is_found = found.is_some_and(|it| fstat(&own).is_ok_and(|own| own.st_ino == it.inode));
    Ok(*IS_RELIABLE.get_or_init(|| is_found))
}

fn request(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<SocketOwner>> {
    let socket = open()?;
    send(&socket, &encode(local, remote), SendFlags::empty())?;
    let mut answer = [0; ANSWER_BYTES];
    let (_, length) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    let answer = answer.get(..length).ok_or(io::ErrorKind::InvalidData)?;
    decode(answer, local, remote).ok_or(io::ErrorKind::InvalidData)?
}

fn open() -> io::Result<OwnedFd> {
    let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
    let socket = socket_with(AddressFamily::NETLINK, kind, flags, Some(SOCK_DIAG))?;
    set_socket_timeout(socket.as_fd(), Timeout::Recv, Some(ANSWER_TIMEOUT))?;
    set_socket_timeout(socket.as_fd(), Timeout::Send, Some(ANSWER_TIMEOUT))?;
    // Only the kernel answers a connected socket.
    connect(&socket, &SocketAddrNetlink::new(0, 0))?;
    Ok(socket)
}

/// The bytes of a `nlmsghdr` and an `inet_diag_req_v2`, in the byte order of this machine, except addresses and ports.
fn encode(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let ends = [local, remote].map(canonical);
    let family = if ends.iter().all(SocketAddr::is_ipv4) {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let length = HEADER_BYTES + REQUEST_BYTES;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    // The sequence number, and the sender's port, which the kernel knows.
    bytes.extend([0; 8]);
    bytes.extend([u8::try_from(family.as_raw()).unwrap_or_default(), TCP, 0, 0]);
    // Sockets in every state.
    bytes.extend([0xff; 4]);
    ends.iter().for_each(|end| bytes.extend(end.port().to_be_bytes()));
    ends.iter().for_each(|end| bytes.extend(address(*end, family)));
    bytes.extend(interface(local).to_ne_bytes());
    bytes.extend(ANY_COOKIE);
    bytes
}

/// Reads an answer: `None` if it is not one. The kernel may have found a listener, a closed connection, or none.
fn decode(
    answer: &[u8],
    local: SocketAddr,
    remote: SocketAddr,
) -> Option<io::Result<Option<SocketOwner>>> {
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let message = HEADER_BYTES;
    if kind == ERROR {
        let error = word(message)?.cast_signed().checked_neg()?;
        return Some(match Errno::from_raw_os_error(error) {
            Errno::NOENT => Ok(None),
            error => Err(error.into()),
        });
    }
    if kind != BY_FAMILY {
        return None;
    }
    let family = AddressFamily::from_raw((*answer.get(message)?).into());
    let id = message + 4;
    let port = |at: usize| Some(u16::from_be_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let end = |port_at: usize, at: usize| {
        let ip = match family {
            AddressFamily::INET => IpAddr::from(<[u8; 4]>::try_from(answer.get(at..at + 4)?).ok()?),
            _ => IpAddr::from(<[u8; 16]>::try_from(answer.get(at..at + 16)?).ok()?),
        };
        Some(SocketAddr::new(ip, port(port_at)?))
    };
    let ends = (end(id, id + 4)?, end(id + 2, id + 20)?);
    // After the id: when it expires, what waits in its queues, then its user and its inode.
    let (uid, inode) = (word(id + 60)?, u64::from(word(id + 64)?));
    let is_it = has_ends(ends, (local, remote)) && inode != 0;
    Some(Ok(is_it.then_some(SocketOwner { uid, inode })))
}

fn canonical(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

fn address(end: SocketAddr, family: AddressFamily) -> [u8; 16] {
    match end.ip() {
        IpAddr::V4(ip) if family == AddressFamily::INET => {
            let mut bytes = [0; 16];
            for (byte, octet) in bytes.iter_mut().zip(ip.octets()) {
                *byte = octet;
            }
            bytes
        }
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// The interface that a link-local address belongs to.
fn interface(end: SocketAddr) -> u32 {
    match end {
        SocketAddr::V6(end) => end.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}
