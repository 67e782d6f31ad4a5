//! Listings: an index leads, the other conditions are checked on its candidates.

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row, params, params_from_iter};
use trilogue_domain::error::{Code, Error};
use trilogue_domain::{Json, Scope, ThreadId, ThreadKey, limits};

use super::driver::{Condition, Driver, Listed, Query, is_composite, text};
use super::fault::Fail;
use super::row::{self, Stored, take};
use super::{Context, queue, search};
use crate::rows::{
    DeadItem, InterruptFilter, InterruptRow, Listing, Page, QueueKind, RunFilter, RunRow,
};

/// The page that fills.
#[derive(Debug)]
pub(super) struct Pages<T> {
    limit: usize,
    skip: usize,
    rows: Vec<(i64, T)>,
    /// Whether it ends before its last row.
    is_cut: bool,
}

/// The conditions of a listing beside the driver.
pub(super) struct Residual<'a, R> {
    /// Conditions on columns, checked before anything is decoded.
    pub(super) columns: &'a dyn Fn(&Row<'_>) -> bool,
    /// Whether there are such conditions.
    pub(super) has_columns: bool,
    /// Conditions on metadata, the driving one too.
    pub(super) metadata: &'a [Condition],
    /// Conditions on what hangs on the row; gives how many rows were looked at for it.
    pub(super) other: Option<&'a Other<'a, R>>,
}

/// A condition that needs further rows: whether it holds, and how many were looked at.
type Other<'a, R> = dyn Fn(&Connection, &R) -> Result<(bool, usize), Fail> + 'a;

/// Runs that the scope sees.
pub(super) fn runs(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    filter: &RunFilter,
    page: &Page,
) -> Result<Listing<RunRow>, Fail> {
    let mut drivers = Driver::of_metadata(&filter.metadata);
    drivers.extend(filter.agent.as_ref().map(Driver::Agent));
    drivers.extend((!filter.statuses.is_empty()).then_some(Driver::Statuses(&filter.statuses)));
    drivers.extend(scope.owner.as_ref().map(|_| Driver::Owner));
    let driver = match &filter.thread {
        Some(id) => match thread_key(conn, scope, id)? {
            Some(thread) => Driver::Thread(thread),
            None => return Ok(Listing::empty()),
        },
        None => Driver::rarest::<RunRow>(conn, scope, &drivers)?,
    };
    let columns = |row: &Row<'_>| {
        is_text(row, 3, scope.tenant.as_str())
            && scope.owner.as_ref().is_none_or(|owner| is_text(row, 5, owner.as_str()))
            && filter.agent.as_ref().is_none_or(|agent| is_text(row, 6, agent.as_str()))
            && (filter.statuses.is_empty()
                || filter.statuses.iter().any(|status| is_text(row, 7, status.as_str())))
    };
    let has_columns =
        drivers.iter().any(|one| *one != driver && !matches!(one, Driver::Metadata(_)));
    let residual =
        Residual { columns: &columns, has_columns, metadata: &filter.metadata, other: None };
    list(conn, context, scope, driver, page, &residual)
}

/// Interrupts that the scope sees.
pub(super) fn interrupts(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    filter: &InterruptFilter,
    page: &Page,
) -> Result<Listing<InterruptRow>, Fail> {
    let bound = vec![text(scope.tenant.as_str()), Value::Integer(before(page))];
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
    let mut pages = Pages::new(page);
    let mut bytes = 0;
    each::<InterruptRow>(
        conn,
        context,
        &query,
        |_| Ok(Some(())),
        |key, row, ()| {
            if !scope.sees(&row.tenant, &row.principal) {
                return Ok(true);
            }
            if bytes > limits::MAX_PENDING_PAGE_BYTES {
                pages.is_cut = true;
                return Ok(false);
            }
            if pages.skip == 0 {
                bytes += row.interrupt.payload.as_bytes().len();
            }
            Ok(pages.add(key, row))
        },
    )?;
    Ok(pages.close())
}

/// Callback deliveries that were given up.
pub(super) fn dead_deliveries(
    conn: &Connection,
    scope: &Scope,
    page: &Page,
) -> Result<Listing<DeadItem>, Fail> {
    let mut pages = Pages::new(page);
    queue::dead(conn, &scope.tenant, QueueKind::Callback, before(page), |dead| {
        let is_seen = scope.sees(&dead.item.tenant, &dead.item.principal);
        !is_seen || pages.add(dead.id, dead)
    })?;
    Ok(pages.close())
}

/// Reads the page of a listing: what the driver leads to, and fulfils the rest.
pub(super) fn list<R: Listed>(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    driver: Driver<'_>,
    page: &Page,
    residual: &Residual<'_, R>,
) -> Result<Listing<R>, Fail> {
    let is_driver = |condition: &Condition| driver == Driver::Metadata(condition);
    let others: Vec<_> = residual.metadata.iter().filter(|one| !is_driver(one)).collect();
    let scalars: Vec<_> = others.iter().filter(|(_, value)| !is_composite(value)).collect();
    let is_bounded = residual.has_columns || !others.is_empty() || residual.other.is_some();
    let is_plain =
        residual.other.is_none() && residual.metadata.iter().all(|(_, value)| !is_composite(value));
    let query = driver.query::<R>(scope, before(page));
    let pages = std::cell::RefCell::new(Pages::new(page));
    let candidates = std::cell::Cell::new(0_usize);
    let look_at = |count: usize| -> Result<(), Fail> {
        candidates.set(candidates.get().saturating_add(count));
        if is_bounded && candidates.get() > limits::MAX_SEARCH_CANDIDATES {
            return Err(too_broad().into());
        }
        Ok(())
    };
    each::<R>(
        conn,
        context,
        &query,
        |row| {
            look_at(1)?;
            if !(residual.columns)(row) {
                return Ok(None);
            }
            for (name, value) in &scalars {
                if !search::has(conn, R::KIND, row.get(1)?, &scope.tenant, name, value)? {
                    return Ok(None);
                }
            }
            // What is left out needs no decoding where columns and search rows say everything.
            let is_left_out = is_plain && pages.borrow_mut().leaves_out();
            Ok((!is_left_out).then_some(()))
        },
        |key, row, ()| {
            // The driving condition is checked too: its hash may stand for another value.
            if !holds(row.metadata(), residual.metadata) {
                return Ok(true);
            }
            if let Some(other) = residual.other {
                let (fits, looked_at) = other(conn, &row)?;
                look_at(looked_at)?;
                if !fits {
                    return Ok(true);
                }
            }
            Ok(pages.borrow_mut().add(key, row))
        },
    )?;
    Ok(pages.into_inner().close())
}

/// Reads rows as long as `goes_on` says so; `admits` decides by the columns which are decoded. A damaged row is left out: its thread is quarantined, and no other notices.
fn each<R: Stored>(
    conn: &Connection,
    context: &Context,
    query: &Query,
    admits: impl Fn(&Row<'_>) -> Result<Option<()>, Fail>,
    mut goes_on: impl FnMut(i64, R, ()) -> Result<bool, Fail>,
) -> Result<(), Fail> {
    let mut statement = conn.prepare_cached(&query.sql)?;
    let mut rows = statement.query(params_from_iter(&query.bound))?;
    while let Some(row) = rows.next()? {
        let thread = row.get::<_, Option<i64>>(0)?.map(ThreadKey);
        if thread.is_some_and(|key| context.health.check_thread(key).is_err()) {
            continue;
        }
        let Some(admitted) = admits(row)? else { continue };
        let found: R = match take(row) {
            Ok(found) => found,
            Err(fail @ Fail::Damaged(..)) => {
                drop(context.health.settle(fail));
                continue;
            }
            Err(fail) => return Err(fail),
        };
        if !goes_on(row.get(1)?, found, admitted)? {
            break;
        }
    }
    Ok(())
}

/// Whether the members of an object are equal to these.
pub(super) fn holds(object: &Json, conditions: &[Condition]) -> bool {
    if conditions.is_empty() {
        return true;
    }
    let object = object.to_value();
    let text = |key: &String| object.get(key).map(ToString::to_string);
    conditions.iter().all(|(key, value)| text(key).as_ref() == Some(value))
}

pub(super) fn is_text(row: &Row<'_>, index: usize, expected: &str) -> bool {
    matches!(row.get_ref(index), Ok(ValueRef::Text(found)) if found == expected.as_bytes())
}

fn thread_key(conn: &Connection, scope: &Scope, id: &ThreadId) -> Result<Option<ThreadKey>, Fail> {
    let mut statement =
        conn.prepare_cached("SELECT key FROM threads WHERE tenant = ?1 AND id = ?2")?;
    let mut found = statement.query(params![scope.tenant.as_str(), id.as_str()])?;
    Ok(found.next()?.map(|row| row.get(0)).transpose()?.map(ThreadKey))
}

pub(super) fn before(page: &Page) -> i64 {
    page.after.unwrap_or(i64::MAX)
}

pub(super) fn too_broad() -> Error {
    Error::new(
        Code::FilterTooBroad,
        format!("the filter leaves more than {} candidates", limits::MAX_SEARCH_CANDIDATES),
    )
    .hint("add a condition on a string, number, truth value or null that fewer fulfil")
}

// === impl Query ===

impl Query {
    /// Adds a condition on a column of ours; the value is bound.
    fn and_equal(&mut self, column: &'static str, value: Value) {
        self.sql.push_str(" AND ");
        self.sql.push_str(column);
        self.sql.push_str(" = ?");
        self.bound.push(value);
    }
}

// === impl Pages ===

impl<T> Pages<T> {
    pub(super) fn new(page: &Page) -> Self {
        Self { limit: page.rows(), skip: page.skip, rows: Vec::new(), is_cut: false }
    }

    /// Whether the next row that matches is before the page; it counts as seen then.
    fn leaves_out(&mut self) -> bool {
        let leaves_out = self.skip > 0;
        self.skip = self.skip.saturating_sub(1);
        leaves_out
    }

    /// Adds a row that matches; `false` when there is one more than the page takes.
    pub(super) fn add(&mut self, key: i64, row: T) -> bool {
        if self.leaves_out() {
            return true;
        }
        self.rows.push((key, row));
        self.rows.len() <= self.limit
    }

    pub(super) fn close(mut self) -> Listing<T> {
        let has_more = self.is_cut || self.rows.len() > self.limit;
        self.rows.truncate(self.limit);
        let next = self.rows.last().filter(|_| has_more).map(|(key, _)| *key);
        Listing { rows: self.rows.into_iter().map(|(_, row)| row).collect(), next }
    }
}
