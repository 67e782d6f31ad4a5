//! The schema and its numbered migrations. Each runs in one transaction with its number, so a crash leaves either side of it.

use rusqlite::{Connection, Transaction, TransactionBehavior};
use trilogue_domain::error::{Code, Error};
use trilogue_domain::{Json, TenantId};

use super::fault::Fail;
use super::row::{Stored, Stretch, all};
use super::{search, thread_agents};
use crate::rows::{RunRow, ThreadRow};

/// The schema version that this program writes.
pub(super) const SCHEMA_VERSION: u32 = 5;
/// The first schema version with configured instances.
pub(super) const CONFIGURATIONS_SINCE: u32 = 4;
/// The first schema version with other ids of messages.
pub(super) const ALIASES_SINCE: u32 = 5;
/// Marks a SQLite file as ours: "TRLG".
pub(super) const APPLICATION_ID: i32 = 0x5452_4C47;

/// One step from a schema version to the next.
type Step = fn(&Transaction<'_>) -> Result<(), Fail>;

/// The steps, in order; the first leads from an empty file to version 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Migrations {
    up_to: u32,
}

// === impl Migrations ===

impl Migrations {
    const STEPS: [Step; SCHEMA_VERSION as usize] =
        [base, search_rows, second_format, third_format, fourth_format];

    /// Every step.
    pub(super) fn all() -> Self {
        Self { up_to: SCHEMA_VERSION }
    }

    /// Only the steps up to this version: an older program's store.
    #[cfg(test)]
    pub(super) fn up_to(version: u32) -> Self {
        Self { up_to: version }
    }

    /// Brings the file to the newest version and refuses one that is newer or not ours.
    pub(super) fn run(self, conn: &mut Connection) -> Result<(), Fail> {
        let found = checked_version(conn)?;
        let steps =
            Self::STEPS.iter().zip(1_u32..).take_while(|(_, version)| *version <= self.up_to);
        for (step, version) in steps.filter(|(_, version)| *version > found) {
            let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            step(&transaction)?;
            transaction.pragma_update(None, "user_version", version)?;
            transaction.commit()?;
        }
        Ok(())
    }
}

/// The schema version of a file; zero when it is empty.
pub(super) fn checked_version(conn: &Connection) -> Result<u32, Fail> {
    let application: i32 = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: u32 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let objects: i64 =
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != APPLICATION_ID && (objects > 0 || version > 0) {
        return Err(Error::new(Code::InvalidRequest, "the file is a database of another program")
            .hint("name another file in [store] url; a new one is created")
            .into());
    }
    if version > SCHEMA_VERSION {
        return Err(Error::new(
            Code::StoreTooNew,
            format!(
                "the store has schema version {version}, this program knows up to {SCHEMA_VERSION}"
            ),
        )
        .hint("start the newer version of trilogue that wrote it, or restore an older backup")
        .into());
    }
    Ok(version)
}

/// Version 1: the log, the rows, the queue.
fn base(transaction: &Transaction<'_>) -> Result<(), Fail> {
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    Ok(transaction.execute_batch(include_str!("schema_1.sql"))?)
}

/// Version 2: search rows, built from the metadata of the rows that exist.
fn search_rows(transaction: &Transaction<'_>) -> Result<(), Fail> {
    transaction.execute_batch(include_str!("schema_2.sql"))?;
    index_all::<ThreadRow>(transaction)?;
    index_all::<RunRow>(transaction)
}

/// Version 3: rows and frames of format 2 may follow. What is there stays as it is; a program that reads format 1 alone is kept away.
#[expect(clippy::unnecessary_wraps, reason = "every step has this signature")]
fn second_format(_transaction: &Transaction<'_>) -> Result<(), Fail> {
    Ok(())
}

/// Version 4: configured instances, stateless runs, callbacks in order; rows and frames of format 3 may follow.
fn third_format(transaction: &Transaction<'_>) -> Result<(), Fail> {
    Ok(transaction.execute_batch(include_str!("schema_4.sql"))?)
}

/// Version 5: messages by thread and by other ids, threads by agent; rows and frames of format 4 may follow.
fn fourth_format(transaction: &Transaction<'_>) -> Result<(), Fail> {
    transaction.execute_batch(include_str!("schema_5.sql"))?;
    thread_agents::make_all(transaction)
}

/// A row whose metadata is searched.
pub(super) trait Searched: Stored {
    /// Which kind of search row it has.
    const KIND: search::Kind;
    /// Its integer.
    fn key(&self) -> i64;
    /// Its tenant.
    fn tenant(&self) -> &TenantId;
    /// What is searched.
    fn metadata(&self) -> &Json;
}

fn index_all<R: Searched>(transaction: &Transaction<'_>) -> Result<(), Fail> {
    let mut after = i64::MIN;
    loop {
        // A bounded stretch at a time: a large store must fit through a small memory.
        let rows: Stretch<R> = all(transaction, after, 1_000)?;
        let Some((last, _)) = rows.last() else { return Ok(()) };
        after = *last;
        for (_, row) in rows {
            // A damaged row keeps its thread from being read; it does not keep the store from starting.
            if let Ok(row) = row {
                search::write(transaction, R::KIND, row.key(), row.tenant(), row.metadata())?;
            }
        }
    }
}

// === impl Searched ===

impl Searched for ThreadRow {
    const KIND: search::Kind = search::Kind::Thread;

    fn key(&self) -> i64 {
        self.key.0
    }

    fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    fn metadata(&self) -> &Json {
        &self.metadata
    }
}

impl Searched for RunRow {
    const KIND: search::Kind = search::Kind::Run;

    fn key(&self) -> i64 {
        self.key.0
    }

    fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    fn metadata(&self) -> &Json {
        &self.metadata
    }
}
