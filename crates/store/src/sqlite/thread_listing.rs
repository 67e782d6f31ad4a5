use std::future::ready;

use rusqlite::{Connection, OptionalExtension, Row};
use trilogue_domain::{AgentName, RunStatus, Scope, ThreadActivity, ThreadKey};

use super::access_path::AccessPath;
use super::error::SqliteError;
use super::listing::{ListConditions, is_text, list};
use super::row::run_to_end;
use super::{Context, thread_agents};
use crate::core::search::activity_of;
use crate::rows::{Listing, Page, ThreadFilter, ThreadRow};
use crate::sql::lookups::{ThreadConnection, fits};

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
    let other = |conn: &Connection, row: &ThreadRow| run_to_end(fits(conn, row, filter));
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

// === impl Connection ===

impl ThreadConnection for Connection {
    const OPEN_RUNS: &'static str = "WHERE thread = ?1 AND ended_at IS NULL ORDER BY key";
    const PENDING: &'static str = "WHERE thread = ?1 AND pending = 1 ORDER BY key";

    fn activity(
        &self,
        thread: ThreadKey,
    ) -> impl Future<Output = Result<ThreadActivity, SqliteError>> + Send {
        ready(activity(self, thread))
    }

    fn has_agent(
        &self,
        thread: &ThreadRow,
        agent: &AgentName,
    ) -> impl Future<Output = Result<bool, SqliteError>> + Send {
        ready(thread_agents::has(self, thread, agent))
    }
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
