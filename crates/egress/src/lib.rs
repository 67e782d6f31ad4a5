//! The workspace's one outbound HTTP client, with WebSockets. It connects only to addresses that it has checked.
//!
//! # Invariants
//! - Every address of a name is checked, and the connection uses one of the checked addresses: no name is resolved twice.
//! - The client follows no redirects and uses no proxy from the environment.
//! - Every response has a time and a size limit. So has every message of a WebSocket, and a silent peer ends it.

mod address;
mod authorities;
mod certificate_hint;
mod cidr;
mod client;
mod connect;
mod error;
mod policy;
mod resolver;
mod websocket;

pub use address::AddressClass;
pub use authorities::{Authorities, BadAuthorities};
pub use certificate_hint::certificate_hint;
pub use cidr::{BadCidr, Cidr};
pub use client::{Client, Options, ResponseBody};
pub use error::Error;
pub use policy::Policy;
pub use websocket::{
    CloseCode, MessageReader, MessageSizes, MessageWriter, ReceivedMessage, WebSocket,
    WebSocketClosed, WebSocketEnd, WebSocketOptions, WebSocketRole,
};
