use rusqlite::{Connection, OptionalExtension, Row};
use trilogue_domain::{Json, RunStatus, Scope, ThreadActivity, ThreadKey};

use super::access_path::AccessPath;
use super::error::SqliteError;
use super::listing::{ListConditions, is_text, list};
use super::row::one;
use super::{Context, lookups, thread_agents};
use crate::core::search::{Candidates, activity_of, matches};
use crate::rows::{CheckpointRow, Listing, Page, ThreadFilter, ThreadRow};

pub(super) fn threads(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    filter: &ThreadFilter,
    page: &Page,
) -> Result<Listing<ThreadRow>, SqliteError> {
    let mut drivers = AccessPath::of_metadata(&filter.metadata);
    // If several have the same number of rows, the first is used.
    drivers.extend(filter.agent.as_ref().map(AccessPath::ThreadAgent));
    drivers.extend(scope.owner.as_ref().map(|_| AccessPath::Owner));
    let is_open =
        matches!(filter.activity, Some(ThreadActivity::Busy | ThreadActivity::Interrupted));
    drivers.extend(is_open.then_some(AccessPath::Open));
    let driver = AccessPath::rarest::<ThreadRow>(conn, scope, &drivers)?;
    let columns = |row: &Row<'_>| {
        is_text(row, 3, scope.tenant.as_str())
            && scope.owner.as_ref().is_none_or(|owner| is_text(row, 5, owner.as_str()))
    };
    let has_columns = scope.owner.is_some() && driver != AccessPath::Owner;
    let other = |conn: &Connection, row: &ThreadRow| {
        if let Some(agent) = &filter.agent
            && !thread_agents::has(conn, row, agent)?
        {
            return Ok((false, 0));
        }
        let stands = match filter.activity {
            Some(wanted) => activity(conn, row.key)? == wanted,
            None => true,
        };
        if !stands || filter.values.is_empty() {
            return Ok((stands, 0));
        }
        let (value, looked_at) = value_at_head(conn, row)?;
        Ok((value.is_some_and(|value| matches(&value, &filter.values)), looked_at))
    };
    let has_other =
        filter.agent.is_some() || filter.activity.is_some() || !filter.values.is_empty();
    let residual = ListConditions {
        columns: &columns,
        has_columns,
        metadata: &filter.metadata,
        other: if has_other { Some(&other) } else { None },
        with_damaged: filter.with_damaged,
    };
    list(conn, context, scope, driver, page, &residual)
}

/// The activity of visible threads, in the order of the keys.
pub(super) fn activities(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    threads: &[ThreadKey],
) -> Result<Vec<ThreadActivity>, SqliteError> {
    let snapshot = conn.unchecked_transaction()?;
    threads
        .iter()
        .map(|key| match lookups::thread_of(&snapshot, context, scope, *key) {
            Ok(Some(_)) => activity(&snapshot, *key),
            Ok(None) | Err(SqliteError::Refused(_) | SqliteError::Damaged(..)) => {
                Ok(ThreadActivity::Idle)
            }
            Err(fail) => Err(fail),
        })
        .collect()
}

fn activity(conn: &Connection, thread: ThreadKey) -> Result<ThreadActivity, SqliteError> {
    let mut open = conn.prepare_cached(
        "SELECT status FROM runs INDEXED BY runs_open WHERE thread = ?1 AND ended_at IS NULL",
    )?;
    let mut rows = open.query([thread.0])?;
    while let Some(row) = rows.next()? {
        if !is_text(row, 0, RunStatus::Interrupted.as_str()) {
            return Ok(ThreadActivity::Busy);
        }
    }
    let newest: Option<String> = conn
        .prepare_cached(concat!(
            "SELECT status FROM runs INDEXED BY runs_by_thread WHERE thread = ?1",
            " ORDER BY key DESC LIMIT 1"
        ))?
        .query_row([thread.0], |row| row.get(0))
        .optional()?;
    let newest = newest.and_then(|status| RunStatus::from_text(&status));
    Ok(activity_of(newest))
}

/// The state that was set last on the path to a thread's head, and how many checkpoints were read for it.
fn value_at_head(
    conn: &Connection,
    thread: &ThreadRow,
) -> Result<(Option<Json>, usize), SqliteError> {
    let mut next = thread.head;
    let (mut looked_at, mut candidates) = (0, Candidates::default());
    while let Some(key) = next {
        looked_at += 1;
        // The bound also ends a circle of damaged links.
        candidates.add(1)?;
        let rest = "WHERE key = ?1 AND thread = ?2";
        let found = one::<CheckpointRow>(conn, rest, [key.0, thread.key.0])?;
        let Some(row) = found else { break };
        if row.ends_state_search() {
            return Ok((row.value, looked_at));
        }
        next = row.parent;
    }
    Ok((None, looked_at))
}
