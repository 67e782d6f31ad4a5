//! Lines, the queue of what waits to be written, and the local socket.

pub(crate) mod lines;
pub(crate) mod outbox;
pub(crate) mod socket;
