//! The way of a program to the broker: a listener that is passed between the stage of the program and its server.
//!
//! | file | what it does |
//! |---|---|
//! | `passed_listener.rs` | what is passed: the listener, and the network in which it is |
//! | `message.rs` | the messages in which it is passed |
//! | `server_link.rs` | the connection of a stage to its server |
//! | `loopback.rs` | the loopback interface of a new network |
//!
//! The stage sends its secret first. With namespaces, the listener is in the same message. Without them, the server answers with it.

mod passed_listener;

#[cfg(target_os = "linux")]
mod loopback;
#[cfg(target_os = "linux")]
mod message;
#[cfg(target_os = "linux")]
mod server_link;

pub use passed_listener::{NetworkNamespace, PassedListener};

#[cfg(target_os = "linux")]
pub(crate) use loopback::bring_up;
#[cfg(target_os = "linux")]
pub use message::StageMessage;
#[cfg(target_os = "linux")]
pub(crate) use server_link::ServerLink;
