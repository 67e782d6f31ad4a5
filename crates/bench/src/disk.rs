//! The disk's own commit: a row of a given size in bare SQLite, with the settings that our store uses.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rusqlite::{Connection, params};

use crate::report::{self, Report, millis, percentile};

/// How many commits are measured.
const COMMITS: i64 = 400;

/// How long the disk takes for a commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commit {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// A database with a table like the log's.
pub(crate) fn open(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         CREATE TABLE frames (
             id INTEGER PRIMARY KEY, thread INTEGER NOT NULL, run INTEGER,
             first INTEGER NOT NULL, last INTEGER NOT NULL, first_run INTEGER NOT NULL,
             data BLOB NOT NULL
         );
         CREATE UNIQUE INDEX frames_thread ON frames (thread, first);
         CREATE INDEX frames_run ON frames (run, first_run) WHERE run IS NOT NULL;",
    )?;
    Ok(connection)
}

/// Adds a frame.
pub(crate) fn insert(connection: &Connection, thread: i64, first: i64, data: &[u8]) -> Result<()> {
    let sql =
        "INSERT INTO frames (thread, run, first, last, first_run, data) VALUES (?, ?, ?, ?, ?, ?)";
    let mut statement = connection.prepare_cached(sql)?;
    statement.execute(params![thread, thread, first, first, first, data])?;
    Ok(())
}

/// Measures commits of one frame of `size` bytes, and prints them.
pub(crate) fn measure(report: &mut Report, size: usize) -> Result<Commit> {
    let dir = tempfile::tempdir_in(report::folder())?;
    let connection = open(&dir.path().join("disk.db"))?;
    let data = vec![7_u8; size];
    let mut times = Vec::new();
    for number in 1..=COMMITS {
        let begun = Instant::now();
        connection.execute_batch("BEGIN IMMEDIATE")?;
        insert(&connection, 1, number, &data)?;
        connection.execute_batch("COMMIT")?;
        times.push(begun.elapsed());
    }
    let commit = Commit { p50: percentile(&times, 0.5), p99: percentile(&times, 0.99) };
    let value = format!("{} / {}", millis(commit.p50), millis(commit.p99));
    report.line(&format!("the disk's commit of {size} bytes, p50 / p99"), &value);
    Ok(commit)
}
