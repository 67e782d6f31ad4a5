//! Verification: everything in the file is read, and every checksum compared.

use std::path::Path;

use bytes::Bytes;
use rusqlite::Connection;
use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Code, Error, Result};

use super::error::{Health, SqliteError};
use super::row::all;
use super::{backup, blob, connection, schema};
use crate::core::table::TableRow;
use crate::record::{Frame, NoOriginals};
use crate::rows::{
    BindingRow, CheckpointRow, ConfigurationRow, IdempotencyRow, InterruptRow, MessageRow,
    QueueItem, RunRow, ThreadRow, TokenRow,
};

const MAX_FINDINGS: usize = 100;
/// Rows per read.
const STRETCH: i64 = 1_000;

/// The counts of a store, and its damage.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VerifyReport {
    pub schema_version: u32,
    pub threads: u64,
    pub runs: u64,
    pub frames: u64,
    pub events: u64,
    /// Other rows: messages, checkpoints, interrupts, bindings, idempotency, queue, tokens, configured instances.
    pub rows: u64,
    pub blobs: u64,
    /// Descriptions of the damage; at most 100.
    pub damage: Vec<String>,
}

// === impl VerifyReport ===

impl VerifyReport {
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }

    fn found(&mut self, damage: String) {
        if self.damage.len() < MAX_FINDINGS {
            self.damage.push(damage);
        }
    }
}

/// Reads a whole store or backup without changing it: its structures, every checksum, every reference between rows.
/// Errors: `invalid_request` when it is no store, `store_too_new` when a newer version wrote it, `store_corrupt` when it cannot be read at all. Damage that leaves the rest readable is in the report.
pub fn verify(path: &Path) -> Result<VerifyReport> {
    let path = std::path::absolute(path).map_err(|_| backup::missing(path))?;
    if !path.is_file() {
        return Err(backup::missing(&path));
    }
    let health = Health::new(&path);
    let read = || -> Result<VerifyReport, SqliteError> {
        let conn = connection::reader(&path, backup::COPY_CACHE_KIB)?;
        let version = schema::checked_version(&conn, schema::MIGRATIONS)?;
        if version == 0 {
            return Err(Error::new(Code::InvalidRequest, "the file holds no store")
                .hint("name a file that 'trilogue backup' wrote")
                .into());
        }
        let mut report = VerifyReport { schema_version: version, ..VerifyReport::default() };
        check_structures(&conn, &mut report)?;
        check_rows(&conn, &mut report)?;
        check_frames(&conn, &mut report)?;
        check_blobs(&conn, &mut report)?;
        Ok(report)
    };
    read().map_err(|fail| health.settle(fail))
}

fn check_structures(conn: &Connection, report: &mut VerifyReport) -> Result<(), SqliteError> {
    let mut statement = conn.prepare("PRAGMA integrity_check(100)")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let line: String = row.get(0)?;
        if line != "ok" {
            report.found(line);
        }
    }
    Ok(())
}

fn check_rows(conn: &Connection, report: &mut VerifyReport) -> Result<(), SqliteError> {
    report.threads = check_table::<ThreadRow>(conn, report)?;
    report.runs = check_table::<RunRow>(conn, report)?;
    report.rows = check_table::<MessageRow>(conn, report)?
        + check_table::<CheckpointRow>(conn, report)?
        + check_table::<InterruptRow>(conn, report)?
        + check_table::<BindingRow>(conn, report)?
        + check_table::<IdempotencyRow>(conn, report)?
        + check_table::<QueueItem>(conn, report)?
        + check_table::<ConfigurationRow>(conn, report)?
        + check_table::<TokenRow>(conn, report)?;
    Ok(())
}

fn check_table<R: TableRow>(
    conn: &Connection,
    report: &mut VerifyReport,
) -> Result<u64, SqliteError> {
    let (mut after, mut count) = (i64::MIN, 0);
    loop {
        let rows = all::<R>(conn, after, STRETCH)?;
        let Some((last, _)) = rows.last() else { return Ok(count) };
        after = *last;
        for (key, row) in rows {
            count += 1;
            match row {
                Ok(_) => {}
                Err(SqliteError::Sql(error)) => return Err(error.into()),
                Err(SqliteError::Damaged(_, error) | SqliteError::Refused(error)) => {
                    report.found(format!("{} row {key}: {error}", R::NAME));
                }
            }
        }
    }
}

fn check_frames(conn: &Connection, report: &mut VerifyReport) -> Result<(), SqliteError> {
    let reader: std::sync::Arc<dyn trilogue_domain::port::ReadOriginal> =
        std::sync::Arc::new(NoOriginals);
    let mut statement = conn.prepare(concat!(
        "SELECT thread, run, first, last, first_run, body FROM frames WHERE NOT EXISTS",
        " (SELECT 1 FROM removals WHERE removals.thread = frames.thread",
        " AND removals.run IN (0, coalesce(frames.run, 0))) ORDER BY thread, first"
    ))?;
    let mut gap =
        conn.prepare("SELECT 1 FROM gaps WHERE thread = ?1 AND first <= ?2 AND last >= ?3")?;
    let mut rows = statement.query([])?;
    let mut next = (0_i64, 1_i64);
    while let Some(row) = rows.next()? {
        let (thread, first): (i64, i64) = (row.get(0)?, row.get(2)?);
        let (last, first_run): (i64, i64) = (row.get(3)?, row.get(4)?);
        let run: Option<i64> = row.get(1)?;
        let body = row.get_ref(5)?.as_blob().unwrap_or_default();
        let frame = Frame::from_stored(
            ThreadKey(thread),
            run.map(trilogue_domain::RunKey),
            first.cast_unsigned(),
            last.cast_unsigned(),
            first_run.cast_unsigned(),
            Bytes::copy_from_slice(body),
            &reader,
        );
        report.frames += 1;
        match frame.and_then(|frame| frame.events().map(<[_]>::len)) {
            Ok(events) => report.events += events as u64,
            Err(error) => report.found(error.message().to_owned()),
        }
        let expected = if next.0 == thread { next.1 } else { 1 };
        if first > expected && !gap.exists([thread, expected, first - 1])? {
            report.found(format!("the log of thread {thread} has a hole at number {expected}"));
        }
        next = (thread, last.saturating_add(1));
    }
    Ok(())
}

fn check_blobs(conn: &Connection, report: &mut VerifyReport) -> Result<(), SqliteError> {
    let mut statement = conn.prepare("SELECT key FROM blobs")?;
    for key in statement.query_map([], |row| row.get::<_, i64>(0))? {
        let key = key?;
        report.blobs += 1;
        if !blob::is_whole(conn, key)? {
            report.found(format!("blob {key} does not match its hash"));
        }
    }
    let missing: i64 = conn.query_row(
        concat!(
            "SELECT count(*) FROM blob_refs WHERE NOT EXISTS",
            " (SELECT 1 FROM blobs WHERE blobs.key = blob_refs.blob)"
        ),
        [],
        |row| row.get(0),
    )?;
    if missing > 0 {
        report.found(format!("{missing} frames name blobs that are not there"));
    }
    Ok(())
}
