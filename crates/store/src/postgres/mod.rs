//! The PostgreSQL engine: any number of nodes on one database, pipelined group commits on few connections.
//!
//! | file | purpose |
//! |---|---|
//! | `schema` | the tables and their migrations |
//! | `connection`, `error` | connections and encryption, failures |
//! | `open`, `admin` | start and end, figures |
//! | `node`, `news`, `clock` | the processes that share the store, what they tell each other, and the time they agree on |
//! | `database` | its connections and its state |
//! | `group_writer`, `group`, `change`, `search` | the transactions of appends |
//! | `remove`, `blob`, `queue` | removing runs and threads, large content, work that falls due |
//! | `row`, `frames`, `lookups`, `listing`, `short_id`, `retention` | look-ups |
//! | `import` | what is copied from another engine |
//! | `append`, `read`, `housekeeping`, `tokens`, `configuration` | the ports |
//!
//! # Invariants
//! - Epoch and expected number are compared in the statement that writes the frames: a node that was replaced can write nothing.
//! - A change whose connection breaks is tried again, and its stamp tells whether an earlier try was stored.
//! - A string that a user chose reaches SQL as a bound parameter only.

mod admin;
mod append;
mod blob;
mod change;
mod clock;
mod configuration;
mod connection;
mod database;
mod error;
mod frames;
mod group;
mod group_writer;
mod housekeeping;
mod import;
mod listing;
mod lookups;
mod news;
mod node;
mod open;
mod queue;
mod read;
mod remove;
mod retention;
mod row;
mod schema;
mod search;
mod short_id;
mod tokens;

use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use trilogue_domain::ThreadKey;

use self::database::Database;
use self::group_writer::QueuedAppend;
pub(crate) use self::import::ImportEnd;
pub(crate) use self::open::{check_url, shown_url};
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
    flights: SharedReads<(ThreadKey, Range), Vec<Arc<Frame>>>,
}
