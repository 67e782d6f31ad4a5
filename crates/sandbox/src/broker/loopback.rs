use std::io;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// The index of the loopback interface, in every network.
const LOOPBACK: i32 = 1;
const HEADER_BYTES: usize = 16;
const INTERFACE_BYTES: usize = 16;
const MESSAGE_BYTES: usize = HEADER_BYTES + INTERFACE_BYTES;
const IS_UP: u32 = libc::IFF_UP.unsigned_abs();
/// The largest answer: a header, an error and the message that it is about.
const MAX_ANSWER_BYTES: usize = 256;

/// Brings the loopback interface of the network of this process up, with its addresses.
/// Errors: the kernel refuses it.
pub(crate) fn bring_up() -> io::Result<()> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &message(), SendFlags::empty())?;
    let mut answer = [0; MAX_ANSWER_BYTES];
    let (bytes, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    match error_of(answer.get(..bytes).unwrap_or_default()) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        None => Err(io::Error::other("the answer of the kernel has another form")),
    }
}

/// A message of the kernel's routing protocol that sets one flag of the interface.
fn message() -> [u8; MESSAGE_BYTES] {
    let mut message = [0; MESSAGE_BYTES];
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK;
    let header: [&[u8]; 4] = [
        &(MESSAGE_BYTES as u32).to_ne_bytes(),
        &libc::RTM_NEWLINK.to_ne_bytes(),
        &(flags as u16).to_ne_bytes(),
        // The number of the message and the port of the sender, which the kernel knows.
        &[0; 8],
    ];
    // The family and the type are not set.
    let interface: [&[u8]; 4] =
        [&[0; 4], &LOOPBACK.to_ne_bytes(), &IS_UP.to_ne_bytes(), &IS_UP.to_ne_bytes()];
    let fields = header.into_iter().chain(interface).flatten();
    message.iter_mut().zip(fields).for_each(|(byte, value)| *byte = *value);
    message
}

/// Returns the error of an answer, below 0, or 0 for success.
fn error_of(answer: &[u8]) -> Option<i32> {
    let kind = answer.get(4..6)?.first_chunk().map(|kind| u16::from_ne_bytes(*kind))?;
    let error =
        answer.get(HEADER_BYTES..)?.first_chunk().map(|error| i32::from_ne_bytes(*error))?;
    (i32::from(kind) == libc::NLMSG_ERROR).then_some(error)
}
