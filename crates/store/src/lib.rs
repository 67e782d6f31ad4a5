//! The durable log, its rows and its queue: ports, and the stores that implement them.
//!
//! # Invariants
//! - Numbers of a thread's log are assigned without gaps and never reused.
//! - A batch that [`port::Append::append`] acknowledged is durable and visible. A refused one is neither.
//! - Only this crate contains SQL, and only [`record`] knows the persisted form.

mod copy;
mod core;
mod filter;
#[cfg(test)]
#[path = "../tests/fixtures/rows.rs"]
mod fixtures;
pub mod memory;
pub mod news;
mod open;
mod options;
mod path_reader;
pub mod port;
pub mod postgres;
pub mod record;
pub mod rows;
#[cfg(test)]
#[path = "../tests/fixtures/services.rs"]
mod services;
#[cfg(test)]
mod simulation;
mod sql;
pub mod sqlite;

// Tests from outside this crate use the same fixtures.
#[cfg(test)]
extern crate self as trilogue_store;

pub use copy::{CopyOptions, CopyProgress, CopyReport, CopyStep, copy, copy_to_draft};
pub use core::ownership;
pub use news::{ChangedRow, PeerMessage, PeerNews, Peers, RowChange, ShownQuestion};
pub use open::{check_url, file_of_url, is_unencrypted, open, redacted_url, takes_nodes};
pub use options::{BucketOptions, Durability, NodeOptions, Options, Password};
pub use path_reader::PathReader;
pub use port::{
    Admin, AgentDifference, Append, Batch, Change, Configurations, Housekeeping, NodeAddress,
    NodeAgent, NodeRow, Nodes, OwnedThread, Queue, Range, Read, Stats, Store, Tail, TailGuard,
    Tokens, agent_differences,
};
pub use postgres::check_bucket;
pub use record::{Draft, Frame, RawOriginal, RawRecord, RawRecords};
