use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use trilogue_domain::error::Result;

use super::error::{StoreState, lock};
use super::job::{Job, QueuedJob};
use super::schema::SCHEMA_VERSION;
use super::{SqliteStore, backup, connection, file, remove};
use crate::port::{Admin, Stats};

/// How long a backup waits for the deletion of removed content, and how often it checks.
const REMOVAL_WAIT: Duration = Duration::from_secs(60);
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);

#[async_trait]
impl Admin for SqliteStore {
    fn durability(&self) -> &'static str {
        self.context.durability.as_str()
    }

    fn health(&self) -> Result<()> {
        let health = &self.context.health;
        if health.state() == StoreState::Full
            && health.probe_is_due()
            && let Some(jobs) = lock(&self.jobs).as_ref()
        {
            // If the queue is full, a waiting append will probe for room.
            drop(jobs.try_send(QueuedJob { job: Job::Probe, room: None }));
        }
        health.check_write(false)
    }

    fn waits_for(&self) -> Option<String> {
        self.context.inherited.reason()
    }

    async fn stats(&self) -> Result<Stats> {
        let context = &self.context;
        let (threads, runs, pages) = self
            .read(|conn, _| {
                let count = |sql: &str| -> rusqlite::Result<i64> {
                    conn.prepare_cached(sql)?.query_row([], |row| row.get(0))
                };
                Ok((
                    count("SELECT count(*) FROM threads")?,
                    count("SELECT count(*) FROM runs")?,
                    conn.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0))?,
                ))
            })
            .await?;
        let log = std::fs::metadata(file::sibling_path(&context.path, "-wal"));
        let database = pages.cast_unsigned().saturating_mul(u64::from(connection::PAGE_BYTES));
        Ok(Stats {
            threads: threads.cast_unsigned(),
            runs: runs.cast_unsigned(),
            bytes: database.saturating_add(log.map_or(0, |log| log.len())),
            cache_bytes: context.tails.bytes() as u64,
            quarantined: context.health.quarantine.len(),
            lost_commits: context.losses.commits,
            lost_at: context.losses.found_at,
            commits: context.commits.load(Ordering::Relaxed),
            frames: context.frames.load(Ordering::Relaxed),
            schema_version: SCHEMA_VERSION,
        })
    }

    async fn backup(&self, to: &Path) -> Result<()> {
        self.context.health.check_read()?;
        // Otherwise the copy would still hold content that is being deleted.
        let begun = Instant::now();
        while self.read(|conn, _| remove::has_remains(conn)).await? {
            if begun.elapsed() > REMOVAL_WAIT {
                tracing::warn!(
                    "the backup may hold content that was removed: deleting it takes long"
                );
                break;
            }
            tokio::time::sleep(REMOVAL_PAUSE).await;
        }
        let (context, to) = (std::sync::Arc::clone(&self.context), to.to_owned());
        let task = tokio::task::spawn_blocking(move || {
            backup::backup(&context.path, &to, &context.health)
        });
        task.await.unwrap_or_else(|error| Err(crate::core::task_error(&error)))
    }

    async fn close(&self) -> Result<()> {
        let Some(jobs) = lock(&self.jobs).take() else { return Ok(()) };
        // The writer may have ended already.
        drop(jobs.send(QueuedJob { job: Job::Close, room: None }).await);
        // The writer also ends with the last sender, if it did not get the job.
        drop(jobs);
        let writer = lock(&self.writer).take();
        let ended = tokio::task::spawn_blocking(move || writer.map(std::thread::JoinHandle::join));
        if !matches!(ended.await, Ok(None | Some(Ok(())))) {
            tracing::error!("the writer panicked");
        }
        Ok(())
    }
}
