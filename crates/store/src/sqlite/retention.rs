//! The ended runs that a policy removes: found by an index where it is about age, by one pass over all where it counts.

use std::collections::VecDeque;
use std::sync::Mutex;

use rusqlite::{Connection, Row};
use trilogue_domain::{RunKey, ThreadKey, Timestamp};

use super::error::{SqliteError, lock};
use crate::core::retention::{EndedRun, RetentionPass};
use crate::rows::RetentionPolicy;

/// The most runs that one pass notes.
const MAX_NOTED: usize = 100_000;

/// What the last pass of a counting policy found, so that a removal in parts does not look at every run for each part.
#[derive(Debug, Default)]
pub(super) struct RetentionBacklog(Mutex<Option<FoundRuns>>);

#[derive(Debug)]
struct FoundRuns {
    policy: RetentionPolicy,
    /// Oldest first.
    runs: VecDeque<i64>,
}

// === impl RetentionBacklog ===

impl RetentionBacklog {
    /// Keys of ended runs that the policy removes, oldest first.
    pub(super) fn expired(
        &self,
        conn: &Connection,
        policy: &RetentionPolicy,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<i64>, SqliteError> {
        if !policy.counts() {
            return too_old(conn, policy, now, limit);
        }
        let mut found = lock(&self.0).take().filter(|found| found.policy == *policy);
        let mut keys = match &mut found {
            Some(found) => found.removable(conn, limit)?,
            None => Vec::new(),
        };
        if keys.len() < limit {
            let runs = passed(conn, policy, now)?;
            let pass = found.insert(FoundRuns { policy: *policy, runs });
            keys = pass.removable(conn, limit)?;
        }
        *lock(&self.0) = found;
        Ok(keys)
    }
}

// === impl FoundRuns ===

impl FoundRuns {
    /// The first of those that are still there and have no undelivered callback; forgets those that are gone.
    fn removable(&mut self, conn: &Connection, limit: usize) -> Result<Vec<i64>, SqliteError> {
        let mut statement = conn.prepare_cached(REMOVABLE)?;
        let (mut keys, mut waiting) = (Vec::new(), VecDeque::new());
        while keys.len() < limit
            && let Some(key) = self.runs.pop_front()
        {
            let mut row = statement.query([key])?;
            let Some(row) = row.next()? else { continue };
            waiting.push_back(key);
            if row.get(0)? {
                keys.push(key);
            }
        }
        // Until they are removed, they are the first again.
        waiting.append(&mut self.runs);
        self.runs = waiting;
        Ok(keys)
    }
}

/// Runs beyond an age.
fn too_old(
    conn: &Connection,
    policy: &RetentionPolicy,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<i64>, SqliteError> {
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut pass = RetentionPass::new(policy, now);
    let mut found = Vec::new();
    for (age, sql) in [(policy.max_age, TOO_OLD), (policy.max_stateless_age, TOO_OLD_STATELESS)] {
        let Some(age) = age else { continue };
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = statement.query([now.before(age).as_micros(), most])?;
        while let Some(row) = rows.next()? {
            let run = ended(row)?;
            if pass.removes(run) {
                found.push((run.ended_at, run.key.0));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(limit);
    Ok(found.into_iter().map(|(_, key)| key).collect())
}

/// One pass over all ended runs.
fn passed(
    conn: &Connection,
    policy: &RetentionPolicy,
    now: Timestamp,
) -> Result<VecDeque<i64>, SqliteError> {
    let mut pass = RetentionPass::new(policy, now);
    let mut found = VecDeque::new();
    let mut statement = conn.prepare_cached(NEWEST_FIRST)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let run = ended(row)?;
        if pass.removes(run) {
            found.push_front(run.key.0);
            found.truncate(MAX_NOTED);
        }
    }
    Ok(found)
}

fn ended<'r>(row: &'r Row<'_>) -> Result<EndedRun<'r>, SqliteError> {
    Ok(EndedRun {
        key: RunKey(row.get(0)?),
        thread: ThreadKey(row.get(1)?),
        tenant: row.get_ref(2)?.as_str().unwrap_or_default(),
        ended_at: Timestamp::from_micros(row.get(3)?),
        is_stateless: row.get(4)?,
    })
}

/// Whether no callback of a run waits for delivery.
macro_rules! all_told {
    () => {
        "NOT EXISTS (SELECT 1 FROM queue WHERE queue.run = runs.key AND queue.dead = 0)"
    };
}

const REMOVABLE: &str =
    concat!("SELECT ", all_told!(), " FROM runs WHERE key = ?1 AND ended_at IS NOT NULL");
pub(super) const TOO_OLD: &str = concat!(
    "SELECT key, thread, tenant, ended_at, stateless FROM runs WHERE ended_at < ?1 AND ",
    all_told!(),
    " ORDER BY ended_at, key LIMIT ?2"
);
pub(super) const TOO_OLD_STATELESS: &str = concat!(
    "SELECT key, thread, tenant, ended_at, stateless FROM runs INDEXED BY runs_stateless",
    " WHERE stateless = 1 AND ended_at < ?1 AND ",
    all_told!(),
    " ORDER BY ended_at, key LIMIT ?2"
);
pub(super) const NEWEST_FIRST: &str = concat!(
    "SELECT key, thread, tenant, ended_at, stateless FROM runs INDEXED BY runs_ended",
    " WHERE ended_at IS NOT NULL ORDER BY ended_at DESC, key DESC"
);
