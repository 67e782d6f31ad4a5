//! The PostgreSQL engine: several nodes on one database, pipelined group commits on few connections.
//!
//! | file | purpose |
//! |---|---|
//! | `schema` | the tables and their migrations |
//! | `connection`, `error`, `outage`, `disk_space` | connections and encryption, failures, retries, a full disk |
//! | `open`, `admin` | start and end, figures |
//! | `node`, `liveness`, `handover`, `agents`, `news`, `clock` | the nodes that share the store, which are alive, how threads move, what nodes publish, and the time they agree on |
//! | `database` | the connections, the store's known state, look-ups and changes with retries |
//! | `group_writer`, `group`, `change`, `search` | the transactions of appends |
//! | `remove` | removing runs and threads |
//! | `blob`, `bucket` | large content, in the database or in a bucket |
//! | `row`, `frames`, `lookups`, `listing`, `short_id`, `retention` | look-ups |
//! | `export`, `import` | copies from one store to another |
//! | `append`, `read`, `housekeeping`, `queue`, `tokens`, `configuration` | the ports |
//! | `sign_in` | sign-in links |
//!
//! Steps that this engine and SQLite have in common are in [`crate::sql`].
//!
//! # Invariants
//! - The statement that writes the frames also compares epoch and expected number: a replaced node can write nothing.
//! - A change whose connection breaks is retried, and its stamp shows whether an earlier try was stored.
//! - A string that a user chose reaches SQL as a bound parameter only.

mod acknowledged;
mod admin;
mod agents;
mod append;
mod blob;
mod bucket;
mod change;
mod clock;
mod configuration;
mod connection;
mod database;
mod disk_space;
mod error;
mod export;
mod frames;
mod group;
mod group_writer;
mod handover;
mod housekeeping;
mod import;
mod listing;
mod liveness;
mod lookups;
mod lost_events;
mod news;
mod node;
mod open;
mod outage;
mod primary_sessions;
mod queue;
mod read;
mod remove;
mod retention;
mod row;
mod schema;
mod search;
mod short_id;
mod sign_in;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
mod tokens;

use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use trilogue_domain::ThreadKey;

pub use self::bucket::check_bucket;
use self::database::Database;
use self::group_writer::QueuedAppend;
pub(crate) use self::open::{check_url, is_unencrypted, redacted_url};
use crate::core::tail::SharedReads;
use crate::port::Range;
use crate::record::Frame;

#[derive(Debug)]
pub struct PostgresStore {
    database: Arc<Database>,
    writers: Mutex<Vec<mpsc::Sender<QueuedAppend>>>,
    tasks: Mutex<JoinSet<()>>,
    /// The tasks that give signs of life and check for changes of other nodes.
    upkeep: Mutex<JoinSet<()>>,
    flights: SharedReads<(ThreadKey, Range, u64), Vec<Arc<Frame>>>,
}
