//! Lines, the queue of what waits to be written, the interface of transports, and the local socket.

pub(crate) mod lines;
pub(crate) mod outbox;
pub(crate) mod socket;
pub(crate) mod transport;
