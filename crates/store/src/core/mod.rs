//! Rules that every engine shares: an engine adds statements and transactions.
//!
//! | file | decides |
//! |---|---|
//! | `batch` | whether a batch is well formed, whether its writer still owns the thread, which runs own its blobs |
//! | `continuity` | whether frames that were read follow each other |
//! | `ownership` | who may continue a thread, and what became of an append |
//! | `page`, `search` | what a page holds, which rows a filter selects, when a filter is too broad |
//! | `queue` | how a queue item changes when it is offered, claimed, finished, retried or given up |
//! | `retention` | which ended runs a policy removes |
//! | `health` | which writes a store with a full or failing disk admits, which threads are quarantined or hidden |
//! | `tail` | which frames stay in memory for attached readers, and when these are woken |
//! | `sign_in` | which links for signing in work, where one process holds the store |
//! | `steady_clock` | what the time is while the machine's clock jumps |
//! | `transfer` | what is copied from engine to engine, and whether both hold the same |
//! | `table` | the tables, and the columns that a row is searched by |

pub(crate) mod agent_difference;
pub(crate) mod batch;
pub(crate) mod continuity;
pub(crate) mod health;
pub mod ownership;
pub(crate) mod page;
pub(crate) mod queue;
pub(crate) mod retention;
pub(crate) mod search;
pub(crate) mod sign_in;
pub(crate) mod steady_clock;
pub(crate) mod table;
pub(crate) mod tail;
pub(crate) mod transfer;

use tokio::task::JoinError;
use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Code, Error};

pub(crate) fn closed_error() -> Error {
    Error::new(Code::ShuttingDown, "the store is closed")
}

/// The error after a failure that only a bug explains. Its details are in the log.
pub(crate) fn unexpected_error() -> Error {
    Error::new(Code::Internal, "the store failed in a way it should not; see the server's log")
}

/// The error of a blocking task without a result: it panicked, or the runtime ended before it began.
pub(crate) fn task_error(error: &JoinError) -> Error {
    if error.is_panic() { unexpected_error() } else { closed_error() }
}

pub(crate) fn no_thread(thread: ThreadKey) -> Error {
    Error::new(Code::ThreadNotFound, format!("thread with the key {thread} not found"))
}

pub(crate) fn already_exists(what: &str, id: &str) -> Error {
    Error::new(Code::AlreadyExists, format!("the {what} '{}' exists already", id.escape_debug()))
        .hint("choose another id, or leave it out to be given one")
}

pub(crate) fn damaged(message: impl Into<String>) -> Error {
    Error::new(Code::ThreadQuarantined, message.into()).hint(
        "restore the store from a backup, or erase this thread; other threads are not affected",
    )
}
