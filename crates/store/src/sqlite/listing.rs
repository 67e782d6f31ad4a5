//! Listings: an index selects candidates, and the other conditions are checked on them.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row, params, params_from_iter};
use trilogue_domain::{Scope, ThreadId, ThreadKey};

use super::access_path::{AccessPath, Listed, Query, text};
use super::error::SqliteError;
use super::row::{self, take};
use super::{Context, search};
use crate::core::page::{PageBuilder, PageRow};
use crate::core::search::{Candidates, Condition, is_composite, matches};
use crate::core::table::TableRow;
use crate::rows::{InterruptFilter, InterruptRow, Listing, Page, RunFilter, RunRow};

pub(super) struct ListConditions<'a, R> {
    /// Conditions on columns, checked before anything is decoded.
    pub(super) columns: &'a dyn Fn(&Row<'_>) -> bool,
    pub(super) has_columns: bool,
    /// Conditions on metadata, including the one of the access path.
    pub(super) metadata: &'a [Condition],
    /// A condition on other rows. It also returns how many of them were read.
    pub(super) other: Option<&'a Other<'a, R>>,
    /// Whether rows of damaged threads are included.
    pub(super) with_damaged: bool,
}

/// A condition on further rows: returns whether it holds, and how many rows were read.
type Other<'a, R> = dyn Fn(&Connection, &R) -> Result<(bool, usize), SqliteError> + 'a;

pub(super) fn runs(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    filter: &RunFilter,
    page: &Page,
) -> Result<Listing<RunRow>, SqliteError> {
    let mut drivers = AccessPath::of_metadata(&filter.metadata);
    drivers.extend(filter.agent.as_ref().map(AccessPath::Agent));
    drivers.extend((!filter.statuses.is_empty()).then_some(AccessPath::Statuses(&filter.statuses)));
    drivers.extend(scope.owner.as_ref().map(|_| AccessPath::Owner));
    let driver = match &filter.thread {
        Some(id) => match thread_key(conn, scope, id)? {
            Some(thread) => AccessPath::Thread(thread),
            None => return Ok(Listing::empty()),
        },
        None => AccessPath::rarest::<RunRow>(conn, scope, &drivers)?,
    };
    let columns = |row: &Row<'_>| {
        is_text(row, 3, scope.tenant.as_str())
            && scope.owner.as_ref().is_none_or(|owner| is_text(row, 5, owner.as_str()))
            && filter.agent.as_ref().is_none_or(|agent| is_text(row, 6, agent.as_str()))
            && (filter.statuses.is_empty()
                || filter.statuses.iter().any(|status| is_text(row, 7, status.as_str())))
    };
    let has_columns =
        drivers.iter().any(|one| *one != driver && !matches!(one, AccessPath::Metadata(_)));
    let residual = ListConditions {
        columns: &columns,
        has_columns,
        metadata: &filter.metadata,
        other: None,
        with_damaged: false,
    };
    list(conn, context, scope, driver, page, &residual)
}

pub(super) fn interrupts(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    filter: &InterruptFilter,
    page: &Page,
) -> Result<Listing<InterruptRow>, SqliteError> {
    let bound = vec![text(scope.tenant.as_str()), Value::Integer(page.before())];
    let sql = row::select::<InterruptRow>("WHERE tenant = ? AND key < ?");
    let mut query = Query { sql, bound };
    if let Some(id) = &filter.thread {
        let Some(thread) = thread_key(conn, scope, id)? else { return Ok(Listing::empty()) };
        query.and_equal("thread", Value::Integer(thread.0));
    }
    if let Some(id) = &filter.run {
        let sql = "SELECT thread, key FROM runs WHERE tenant = ?1 AND id = ?2";
        let mut statement = conn.prepare_cached(sql)?;
        let mut found = statement.query(params![scope.tenant.as_str(), id.as_str()])?;
        let Some(run) = found.next()? else { return Ok(Listing::empty()) };
        query.and_equal("thread", Value::Integer(run.get(0)?));
        query.and_equal("run", Value::Integer(run.get(1)?));
    }
    if filter.pending {
        query.sql.push_str(" AND pending = 1");
    }
    if let Some(owner) = &scope.owner {
        query.and_equal("principal", text(owner.as_str()));
    }
    query.sql.push_str(" ORDER BY key DESC");
    let mut pages = PageBuilder::new(page);
    each::<InterruptRow>(
        conn,
        context,
        &query,
        false,
        |_| Ok(true),
        |key, row| {
            let is_seen = scope.can_see(&row.tenant, &row.principal);
            Ok(!is_seen || pages.add(key, row))
        },
    )?;
    Ok(pages.finish())
}

/// Reads a page of a listing: the rows of the access path that match the other conditions.
pub(super) fn list<R: Listed + PageRow>(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    driver: AccessPath<'_>,
    page: &Page,
    residual: &ListConditions<'_, R>,
) -> Result<Listing<R>, SqliteError> {
    let is_driver = |condition: &Condition| driver == AccessPath::Metadata(condition);
    let others: Vec<_> = residual.metadata.iter().filter(|one| !is_driver(one)).collect();
    let scalars: Vec<_> = others.iter().filter(|(_, value)| !is_composite(value)).collect();
    let is_bounded = residual.has_columns || !others.is_empty() || residual.other.is_some();
    let is_plain =
        residual.other.is_none() && residual.metadata.iter().all(|(_, value)| !is_composite(value));
    let query = driver.query::<R>(scope, page.before());
    let pages = std::cell::RefCell::new(PageBuilder::new(page));
    let candidates = std::cell::RefCell::new(Candidates::default());
    let count_candidates = |count| {
        if is_bounded { candidates.borrow_mut().add(count) } else { Ok(()) }
    };
    each::<R>(
        conn,
        context,
        &query,
        residual.with_damaged,
        |row| {
            count_candidates(1)?;
            if !(residual.columns)(row) {
                return Ok(false);
            }
            for (name, value) in &scalars {
                if !search::has(conn, R::KIND, row.get(1)?, &scope.tenant, name, value)? {
                    return Ok(false);
                }
            }
            // Skipped rows need no decoding if columns and search rows decide.
            Ok(!(is_plain && pages.borrow_mut().leaves_out()))
        },
        |key, row| {
            // Also check the condition of the access path: another value can have the same hash.
            if !matches(row.metadata(), residual.metadata) {
                return Ok(true);
            }
            if let Some(other) = residual.other {
                let (fits, looked_at) = other(conn, &row)?;
                count_candidates(looked_at)?;
                if !fits {
                    return Ok(true);
                }
            }
            Ok(pages.borrow_mut().add(key, row))
        },
    )?;
    Ok(pages.into_inner().finish())
}

/// Reads rows while `keep_going` returns `true`. `admits` decides by the columns which rows are decoded. A damaged row is left out, and its thread is quarantined.
fn each<R: TableRow>(
    conn: &Connection,
    context: &Context,
    query: &Query,
    with_damaged: bool,
    admits: impl Fn(&Row<'_>) -> Result<bool, SqliteError>,
    mut keep_going: impl FnMut(i64, R) -> Result<bool, SqliteError>,
) -> Result<(), SqliteError> {
    let mut statement = conn.prepare_cached(&query.sql)?;
    let mut rows = statement.query(params_from_iter(&query.bound))?;
    while let Some(row) = rows.next()? {
        let thread = row.get::<_, Option<i64>>(0)?.map(ThreadKey);
        let is_left_out = |key: ThreadKey| {
            let health = &context.health;
            health.hidden.contains(key) || (!with_damaged && health.quarantine.check(key).is_err())
        };
        if thread.is_some_and(is_left_out) {
            continue;
        }
        if !admits(row)? {
            continue;
        }
        let found: R = match take(row) {
            Ok(found) => found,
            Err(fail @ SqliteError::Damaged(..)) => {
                // The list leaves the row out, and `settle` closes its thread.
                drop(context.health.settle(fail));
                continue;
            }
            Err(fail) => return Err(fail),
        };
        if !keep_going(row.get(1)?, found)? {
            break;
        }
    }
    Ok(())
}

pub(super) fn is_text(row: &Row<'_>, index: usize, expected: &str) -> bool {
    matches!(row.get_ref(index), Ok(ValueRef::Text(found)) if found == expected.as_bytes())
}

fn thread_key(
    conn: &Connection,
    scope: &Scope,
    id: &ThreadId,
) -> Result<Option<ThreadKey>, SqliteError> {
    let mut statement =
        conn.prepare_cached("SELECT key FROM threads WHERE tenant = ?1 AND id = ?2")?;
    let mut found = statement.query(params![scope.tenant.as_str(), id.as_str()])?;
    Ok(found.next()?.map(|row| row.get(0)).transpose()?.map(ThreadKey))
}

// === impl Query ===

impl Query {
    /// Adds a condition on a column. The name is a constant; the value is bound.
    fn and_equal(&mut self, column: &'static str, value: Value) {
        self.sql.push_str(" AND ");
        self.sql.push_str(column);
        self.sql.push_str(" = ?");
        self.bound.push(value);
    }
}
