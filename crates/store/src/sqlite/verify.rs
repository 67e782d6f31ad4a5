//! Verification: reads everything in the file and compares every checksum.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};
use trilogue_domain::error::{Error, Result};

use super::error::{Health, SqliteError};
use super::{blob, row, scan};
use crate::core::table::TableRow;
use crate::rows::{
    BindingRow, CheckpointRow, ConfigurationRow, IdempotencyRow, InterruptRow, MessageRow,
    QueueItem, QueueKind, RunRow, ThreadRow, TokenRow,
};

const MAX_FINDINGS: usize = 100;
/// The largest number of a removed event: numbers remain for further events, in JSON too.
const MAX_GAP_END: i64 = 1 << 52;
/// Gaps of threads and runs that are being removed may still have their frames, or have them no longer.
const INVALID_GAP: &str = concat!(
    "SELECT thread, first, last FROM gaps AS gap WHERE NOT EXISTS",
    " (SELECT 1 FROM removals WHERE removals.thread = gap.thread AND removals.run = 0)",
    " AND (first < 1 OR last < first OR last > ?1",
    " OR first > 1 + max(",
    "coalesce((SELECT last FROM frames WHERE frames.thread = gap.thread AND frames.first < gap.first",
    " ORDER BY frames.first DESC LIMIT 1), 0),",
    " coalesce((SELECT last FROM gaps AS earlier WHERE earlier.thread = gap.thread",
    " AND earlier.first < gap.first ORDER BY earlier.first DESC LIMIT 1), 0))",
    " OR EXISTS (SELECT 1 FROM frames WHERE frames.thread = gap.thread",
    " AND frames.first BETWEEN gap.first AND gap.last AND NOT EXISTS",
    " (SELECT 1 FROM removals WHERE removals.thread = frames.thread",
    " AND removals.run = coalesce(frames.run, 0)))) LIMIT 1"
);

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
    /// The tokens among the other rows.
    pub tokens: u64,
    /// The callbacks among the other rows that were not delivered: those that wait, and those given up.
    pub callbacks: u64,
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

    /// Notes damage. Any other failure ends the verification.
    fn judge(
        &mut self,
        checked: Result<(), SqliteError>,
        describe: impl FnOnce(&Error) -> String,
    ) -> Result<(), SqliteError> {
        match checked {
            Err(SqliteError::Damaged(_, error) | SqliteError::Refused(error)) => {
                self.add_damage(describe(&error));
                Ok(())
            }
            checked => checked,
        }
    }

    fn add_damage(&mut self, damage: String) {
        if self.damage.len() < MAX_FINDINGS {
            self.damage.push(damage);
        }
    }
}

/// Reads a whole store or backup without changing it: its structures, every checksum, every reference between rows.
/// Errors: `invalid_request` if it is not a store; `store_too_new` if a newer version wrote it; `store_corrupt` if it cannot be read at all. Damage that leaves the rest readable is in the report.
pub fn verify(path: &Path) -> Result<VerifyReport> {
    let path = scan::existing(path)?;
    let health = Health::new(&path);
    let read = || -> Result<VerifyReport, SqliteError> {
        let (conn, version) = scan::open(&path)?;
        let mut report = VerifyReport { schema_version: version, ..VerifyReport::default() };
        scan::structures(&conn)?.into_iter().for_each(|finding| report.add_damage(finding));
        check_rows(&conn, &mut report)?;
        check_frames(&conn, &mut report)?;
        find_invalid_gap(&conn)?.into_iter().for_each(|damage| report.add_damage(damage));
        check_blobs(&conn, &mut report)?;
        Ok(report)
    };
    read().map_err(|fail| health.settle(fail))
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
        + check_table::<ConfigurationRow>(conn, report)?;
    report.tokens = check_table::<TokenRow>(conn, report)?;
    report.rows += report.tokens;
    let callbacks: i64 = conn.query_row(
        "SELECT count(*) FROM queue WHERE kind = ?1",
        [QueueKind::Callback.as_str()],
        |row| row.get(0),
    )?;
    report.callbacks = callbacks.cast_unsigned();
    Ok(())
}

fn check_table<R: TableRow>(
    conn: &Connection,
    report: &mut VerifyReport,
) -> Result<u64, SqliteError> {
    let mut count = 0;
    row::each::<R>(conn, |key, row| {
        count += 1;
        report.judge(row.map(drop), |error| format!("{} row {key}: {error}", R::NAME))
    })?;
    Ok(count)
}

fn check_frames(conn: &Connection, report: &mut VerifyReport) -> Result<(), SqliteError> {
    scan::frames(conn, |frame| {
        let checked = frame.and_then(|frame| {
            report.frames += 1;
            report.events += frame.events()?.len() as u64;
            Ok(())
        });
        report.judge(checked, |error| error.message().to_owned())
    })
}

/// Returns the first gap that no removal of runs can have made: it holds events, does not follow the event or gap before it, or leaves no number for the thread's next event. Later events would be taken for removed ones.
pub(super) fn find_invalid_gap(conn: &Connection) -> Result<Option<String>, SqliteError> {
    let found = conn.query_row(INVALID_GAP, [MAX_GAP_END], |row| {
        let (thread, first, last): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(format!("the events {first} to {last} of thread {thread} cannot have been removed"))
    });
    Ok(found.optional()?)
}

fn check_blobs(conn: &Connection, report: &mut VerifyReport) -> Result<(), SqliteError> {
    let mut statement = conn.prepare("SELECT key FROM blobs")?;
    for key in statement.query_map([], |row| row.get::<_, i64>(0))? {
        let key = key?;
        report.blobs += 1;
        if !blob::is_whole(conn, key)? {
            report.add_damage(format!("blob {key} does not match its hash"));
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
        report.add_damage(format!("{missing} frames name blobs that are not there"));
    }
    Ok(())
}
