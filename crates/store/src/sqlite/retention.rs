//! The ended runs that a policy removes. An index finds them if the policy is about age; a policy with counts needs one pass over all ended runs.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use rusqlite::{Connection, Row};
use trilogue_domain::{RunKey, ThreadKey, Timestamp};

use super::error::{SqliteError, lock};
use crate::core::retention::{BeyondCounts, EndedRun, RetentionPass};
use crate::rows::RetentionPolicy;

/// The most runs that one pass notes.
const MAX_NOTED: usize = 100_000;

/// The result of the last pass of a policy with counts, so that a removal in parts does not read every run for each part.
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
            let runs = find_expired(conn, policy, now)?;
            let pass = found.insert(FoundRuns { policy: *policy, runs });
            keys = pass.removable(conn, limit)?;
        }
        *lock(&self.0) = found;
        Ok(keys)
    }
}

// === impl FoundRuns ===

impl FoundRuns {
    /// The first noted runs that still exist and have no undelivered callback. Forgets runs that are gone.
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
        // Until they are removed, the next call returns them first.
        waiting.append(&mut self.runs);
        self.runs = waiting;
        Ok(keys)
    }
}

/// Runs older than an age.
fn too_old(
    conn: &Connection,
    policy: &RetentionPolicy,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<i64>, SqliteError> {
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut found = Vec::new();
    for (age, sql) in [(policy.max_age, TOO_OLD), (policy.max_stateless_age, TOO_OLD_STATELESS)] {
        let Some(age) = age else { continue };
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = statement.query([now.before(age).as_micros(), most])?;
        while let Some(row) = rows.next()? {
            let run = decode_ended_run(row)?;
            if policy.is_too_old(&run, now) {
                found.push((run.ended_at, run.key.0));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(limit);
    Ok(found.into_iter().map(|(_, key)| key).collect())
}

/// Passes over all ended runs in the order of their ends. If some exceed a count, also passes over them in the order of lists.
fn find_expired(
    conn: &Connection,
    policy: &RetentionPolicy,
    now: Timestamp,
) -> Result<VecDeque<i64>, SqliteError> {
    let mut by_end = RetentionPass::new(policy);
    let mut found: VecDeque<(i64, bool)> = VecDeque::new();
    let mut in_doubt: HashMap<i64, BeyondCounts> = HashMap::new();
    let mut statement = conn.prepare_cached(NEWEST_FIRST)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let run = decode_ended_run(row)?;
        let (beyond, is_too_old) = (by_end.count(&run), policy.is_too_old(&run, now));
        if !is_too_old && !beyond.is_any() {
            continue;
        }
        found.push_front((run.key.0, is_too_old));
        if !is_too_old {
            in_doubt.insert(run.key.0, beyond);
        }
        if found.len() > MAX_NOTED
            && let Some((key, _)) = found.pop_back()
        {
            in_doubt.remove(&key);
        }
    }
    if !in_doubt.is_empty() {
        let mut by_place = RetentionPass::new(policy);
        let mut statement = conn.prepare_cached(LATEST_FIRST)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let run = decode_ended_run(row)?;
            let place = by_place.count(&run);
            if in_doubt.get(&run.key.0).is_some_and(|end| !end.agrees_with(place)) {
                in_doubt.remove(&run.key.0);
            }
        }
    }
    let is_removed = |(key, is_too_old): &(i64, bool)| *is_too_old || in_doubt.contains_key(key);
    Ok(found.into_iter().filter(is_removed).map(|(key, _)| key).collect())
}

fn decode_ended_run<'r>(row: &'r Row<'_>) -> Result<EndedRun<'r>, SqliteError> {
    Ok(EndedRun {
        key: RunKey(row.get(0)?),
        thread: ThreadKey(row.get(1)?),
        tenant: row.get_ref(2)?.as_str().unwrap_or_default(),
        ended_at: Timestamp::from_micros(row.get(3)?),
        is_stateless: row.get(4)?,
    })
}

/// Whether all callbacks of a run have been delivered.
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
/// The same in the order of lists.
pub(super) const LATEST_FIRST: &str = concat!(
    "SELECT key, thread, tenant, ended_at, stateless FROM runs NOT INDEXED",
    " WHERE ended_at IS NOT NULL ORDER BY key DESC"
);
