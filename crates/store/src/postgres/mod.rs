//! The PostgreSQL engine: any number of nodes on one database, pipelined group commits on few connections.
//!
//! | file | purpose |
//! |---|---|
//! | `schema` | the tables and their migrations |
//! | `connection`, `sessions`, `error` | connections and encryption, which server is the primary, failures |
//! | `acknowledged` | what a new primary lacks |
//! | `open`, `admin` | start and end, figures |
//! | `node`, `agents`, `news`, `clock` | the processes that share the store, what they tell each other, and the time they agree on |
//! | `database` | its connections and its state |
//! | `group_writer`, `group`, `change`, `search` | the transactions of appends |
//! | `remove`, `queue` | removing runs and threads, work that falls due |
//! | `blob`, `bucket` | large content, in the database and beside it |
//! | `row`, `frames`, `lookups`, `listing`, `short_id`, `retention` | look-ups |
//! | `export`, `import` | what is copied from a store to another |
//! | `append`, `read`, `housekeeping`, `tokens`, `configuration` | the ports |
//! | `sign_in` | links for signing in |
//!
//! # Invariants
//! - Epoch and expected number are compared in the statement that writes the frames: a node that was replaced can write nothing.
//! - A change whose connection breaks is tried again, and its stamp tells whether an earlier try was stored.
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
mod news;
mod node;
mod open;
mod outage;
mod queue;
mod read;
mod remove;
mod retention;
mod row;
mod schema;
mod search;
mod sessions;
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
pub(crate) use self::open::{check_url, is_unencrypted, shown_url};
use crate::core::tail::SharedReads;
use crate::port::Range;
use crate::record::Frame;

#[derive(Debug)]
pub struct PostgresStore {
    database: Arc<Database>,
    writers: Mutex<Vec<mpsc::Sender<QueuedAppend>>>,
    tasks: Mutex<JoinSet<()>>,
    /// Signs of life, and a look at what others wrote.
    upkeep: Mutex<JoinSet<()>>,
    flights: SharedReads<(ThreadKey, Range, u64), Vec<Arc<Frame>>>,
}
