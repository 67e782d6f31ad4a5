//! HTTP without routes: connections, requests, bodies, replies, problems.

pub(crate) mod activity;
pub(crate) mod body;
pub(crate) mod connection;
pub(crate) mod connections;
pub(crate) mod cors;
pub(crate) mod forward;
pub(crate) mod keep_alive;
pub(crate) mod mount_point;
pub(crate) mod node_client;
pub(crate) mod outgoing;
pub(crate) mod problem;
pub(crate) mod receive;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod stall;
pub(crate) mod trace;
pub(crate) mod upgrade;
