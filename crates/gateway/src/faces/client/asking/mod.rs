//! Requests to the client: for interrupts, and for agents.

pub(crate) mod agent_calls;
pub(crate) mod question;
pub(crate) mod snapshot;
