//! What the engines on SQL databases do in the same order: which statements, how rows become values, which errors.
//!
//! | file | purpose |
//! |---|---|
//! | `connection`, `row` | what an engine provides: executing a statement, reading a column |
//! | `queue`, `tokens`, `configurations` | the steps of these ports |
//! | `lookups`, `short_id`, `frames` | reading rows and frames; gaps of removed runs |
//! | `export` | reading everything, for a copy |
//!
//! An engine adds its connections, its transactions, and the statements that need its own indexes or locks.
//! Statements number their parameters `?1`, `?2`, …, and each engine accepts that form.
//!
//! The functions are `async` because PostgreSQL waits for its server. A statement of SQLite is done when it returns, so there such a function ends at its first poll: no task, allocation or waker is involved.
//! Appends do not come here: their statements belong to the engines.

pub(crate) mod configurations;
pub(crate) mod connection;
pub(crate) mod export;
pub(crate) mod frames;
pub(crate) mod lookups;
pub(crate) mod queue;
pub(crate) mod row;
pub(crate) mod short_id;
pub(crate) mod tokens;

pub(crate) use connection::{SqlConnection, SqlError, many, one, select, write};
pub(crate) use row::{SqlRow, SqlValue, take, thread_of};
