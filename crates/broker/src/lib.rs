//! The way of hosted agents to the network: a proxy in the server for each process of an agent.
//!
//! | file | what it does |
//! |---|---|
//! | `broker.rs` | takes the connections of a process |
//! | `connection.rs` | finds out what a connection wants: a tunnel, a request, a key |
//! | `access.rs`, `host_rules.rs`, `decision.rs` | what the process may reach |
//! | `head_check.rs` | refuses requests whose meaning depends on the reader |
//! | `tunnel.rs`, `first_bytes.rs`, `socks.rs`, `relay.rs` | tunnels by CONNECT and SOCKS5 |
//! | `forward.rs` | requests over HTTP without encryption |
//! | `key_route.rs`, `placeholder.rs` | requests to providers of models, with keys that the process does not have |
//! | `usage/` | what providers report about the tokens of a request |
//! | `prices.rs` | what tokens cost |
//! | `observer.rs` | questions, records and usage, for those who serve an agent |
//!
//! # Invariants
//! - A process reaches only what its access allows, at addresses that egress has checked, and never the metadata service of a cloud.
//! - A key goes only to the address of its provider. No error, record or log has it.
//! - Records and usage have no content.

mod access;
mod broker;
mod connection;
mod decision;
mod first_bytes;
mod forward;
mod head_check;
mod host_rules;
mod key_route;
mod observer;
mod placeholder;
mod prices;
mod refusal;
mod relay;
mod socks;
mod state;
mod tunnel;
mod usage;

pub use access::{
    AgentAccess, Dialect, KeyHeader, NetworkAccess, ProviderKey, SecretText, Unlisted,
};
pub use broker::{Broker, BrokerGuard, BrokerOptions, MAX_CONNECTIONS};
pub use host_rules::{HostPattern, HostPort, HostRules, InvalidPattern, MAX_PATTERNS};
pub use observer::{
    BrokerObserver, ConnectionKind, ConnectionOutcome, ConnectionRecord, NetworkAnswer,
};
pub use prices::{InvalidPrices, PriceTable};
pub use usage::{RequestUsage, TokenCounts};
