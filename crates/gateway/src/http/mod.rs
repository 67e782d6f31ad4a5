//! HTTP without routes: connections, bodies, replies, problems.

pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod connection;
pub(crate) mod disconnect;
pub(crate) mod problem;
pub(crate) mod receive;
pub(crate) mod reply;
pub(crate) mod stall;
pub(crate) mod wait;
