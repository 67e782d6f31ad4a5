//! Listings: an index leads, the other conditions are checked on its candidates.

use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};
use trilogue_domain::error::{Code, Error};
use trilogue_domain::{Json, Scope, ThreadId, ThreadKey, limits};

use super::fault::Fail;
use super::row::{Stored, take};
use super::schema::Searched;
use super::{Context, queue, search};
use crate::rows::{
    DeadItem, InterruptFilter, InterruptRow, Listing, Page, QueueKind, RunFilter, RunRow,
    ThreadFilter, ThreadRow,
};

/// A statement that is put together from fixed fragments, with what is bound to it.
#[derive(Debug)]
struct Query {
    sql: String,
    bound: Vec<Value>,
}

/// The page that fills.
#[derive(Debug)]
struct Pages<T> {
    limit: usize,
    rows: Vec<(i64, T)>,
}

/// A condition on a metadata member.
type Condition = (String, String);

/// Threads that the scope sees.
pub(super) fn threads(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    filter: &ThreadFilter,
    page: &Page,
) -> Result<Listing<ThreadRow>, Fail> {
    let driver = rarest::<ThreadRow>(conn, scope, &filter.metadata)?;
    let mut query = Query::select::<ThreadRow>(scope, driver, before(page));
    query.and("ephemeral = 0");
    if let Some(owner) = &scope.owner {
        query.and_equal("owner", text(owner.as_str()));
    }
    query.order("key");
    let is_seen = |row: &ThreadRow| scope.sees(&row.tenant, &row.owner) && !row.ephemeral;
    list(conn, context, &query, page, &filter.metadata, driver, is_seen)
}

/// Runs that the scope sees.
pub(super) fn runs(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    filter: &RunFilter,
    page: &Page,
) -> Result<Listing<RunRow>, Fail> {
    let driver = rarest::<RunRow>(conn, scope, &filter.metadata)?;
    let mut query = Query::select::<RunRow>(scope, driver, before(page));
    if let Some(id) = &filter.thread {
        let Some(thread) = thread_key(conn, scope, id)? else { return Ok(Listing::empty()) };
        query.and_equal("thread", Value::Integer(thread.0));
    }
    if let Some(agent) = &filter.agent {
        query.and_equal("agent", text(agent.as_str()));
    }
    if let Some(status) = filter.status {
        query.and_equal("status", text(status.as_str()));
    }
    if let Some(owner) = &scope.owner {
        query.and_equal("principal", text(owner.as_str()));
    }
    query.order("key");
    let is_seen = |row: &RunRow| scope.sees(&row.tenant, &row.principal);
    list(conn, context, &query, page, &filter.metadata, driver, is_seen)
}

/// Interrupts that the scope sees.
pub(super) fn interrupts(
    conn: &Connection,
    context: &Context,
    scope: &Scope,
    filter: &InterruptFilter,
    page: &Page,
) -> Result<Listing<InterruptRow>, Fail> {
    let mut query = Query::table::<InterruptRow>(scope, before(page));
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
        query.and("pending = 1");
    }
    if let Some(owner) = &scope.owner {
        query.and_equal("principal", text(owner.as_str()));
    }
    query.order("key");
    let is_seen = |row: &InterruptRow| scope.sees(&row.tenant, &row.principal);
    let mut pages = Pages::new(page);
    each(conn, context, &query, |key, row| Ok(!is_seen(&row) || pages.add(key, row)))?;
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

/// Reads the page of a listing with conditions on metadata.
fn list<R: Searched>(
    conn: &Connection,
    context: &Context,
    query: &Query,
    page: &Page,
    conditions: &[Condition],
    driver: Option<&Condition>,
    is_seen: impl Fn(&R) -> bool,
) -> Result<Listing<R>, Fail> {
    // The driving condition is checked too: its hash may stand for another value.
    let has_residual = conditions.iter().any(|condition| Some(condition) != driver);
    let (mut pages, mut candidates) = (Pages::new(page), 0);
    each::<R>(conn, context, query, |key, row| {
        if !is_seen(&row) {
            return Ok(true);
        }
        if has_residual {
            candidates += 1;
            if candidates > limits::MAX_SEARCH_CANDIDATES {
                return Err(too_broad().into());
            }
        }
        Ok(!holds(row.metadata(), conditions) || pages.add(key, row))
    })?;
    Ok(pages.close())
}

/// Reads rows as long as `goes_on` says so. A damaged row is left out: its thread is quarantined, and no other notices.
fn each<R: Stored>(
    conn: &Connection,
    context: &Context,
    query: &Query,
    mut goes_on: impl FnMut(i64, R) -> Result<bool, Fail>,
) -> Result<(), Fail> {
    let mut statement = conn.prepare_cached(&query.sql)?;
    let mut rows = statement.query(params_from_iter(&query.bound))?;
    while let Some(row) = rows.next()? {
        let key = row.get(1)?;
        let found: R = match take(row) {
            Ok(found) => found,
            Err(fail @ Fail::Damaged(..)) => {
                drop(context.health.settle(fail));
                continue;
            }
            Err(fail) => return Err(fail),
        };
        let is_well = found.thread().is_none_or(|key| context.health.check_thread(key).is_ok());
        if is_well && !goes_on(key, found)? {
            break;
        }
    }
    Ok(())
}

/// The condition on a scalar that the fewest rows fulfil; none when there is no such condition.
fn rarest<'a, R: Searched>(
    conn: &Connection,
    scope: &Scope,
    conditions: &'a [Condition],
) -> Result<Option<&'a Condition>, Fail> {
    let scalars: Vec<_> =
        conditions.iter().filter(|(_, value)| !value.starts_with(['{', '['])).collect();
    if let [only] = scalars.as_slice() {
        return Ok(Some(*only));
    }
    let mut rarest = None;
    for condition in scalars {
        let count: i64 = conn
            .prepare_cached(concat!(
                "SELECT count(*) FROM (SELECT 1 FROM search WHERE tenant = ?1 AND kind = ?2",
                " AND name = ?3 AND hash = ?4 LIMIT ?5)"
            ))?
            .query_row(
                params![
                    scope.tenant.as_str(),
                    R::KIND as i64,
                    condition.0,
                    search::hash(&condition.1),
                    limits::MAX_SEARCH_CANDIDATES as i64 + 1,
                ],
                |row| row.get(0),
            )?;
        if rarest.is_none_or(|(least, _)| count < least) {
            rarest = Some((count, condition));
        }
    }
    Ok(rarest.map(|(_, condition)| condition))
}

fn holds(metadata: &Json, conditions: &[Condition]) -> bool {
    if conditions.is_empty() {
        return true;
    }
    let metadata = metadata.to_value();
    let text = |key: &String| metadata.get(key).map(ToString::to_string);
    conditions.iter().all(|(key, value)| text(key).as_ref() == Some(value))
}

fn thread_key(conn: &Connection, scope: &Scope, id: &ThreadId) -> Result<Option<ThreadKey>, Fail> {
    let mut statement =
        conn.prepare_cached("SELECT key FROM threads WHERE tenant = ?1 AND id = ?2")?;
    let mut found = statement.query(params![scope.tenant.as_str(), id.as_str()])?;
    Ok(found.next()?.map(|row| row.get(0)).transpose()?.map(ThreadKey))
}

fn before(page: &Page) -> i64 {
    page.after.unwrap_or(i64::MAX)
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn too_broad() -> Error {
    Error::new(
        Code::FilterTooBroad,
        format!("the filter leaves more than {} candidates", limits::MAX_SEARCH_CANDIDATES),
    )
    .hint("add a condition on a string, number, truth value or null that fewer fulfil")
}

// === impl Query ===

impl Query {
    /// Rows of a table, led by a condition on metadata where there is one.
    fn select<R: Searched>(scope: &Scope, driver: Option<&Condition>, before: i64) -> Self {
        let Some((name, value)) = driver else { return Self::table::<R>(scope, before) };
        let rest = concat!(
            "WHERE key IN (SELECT id FROM search WHERE tenant = ? AND kind = ?",
            " AND name = ? AND hash = ? AND id < ?)"
        );
        let (kind, hash) = (R::KIND as i64, search::hash(value));
        let bound = vec![
            text(scope.tenant.as_str()),
            Value::Integer(kind),
            text(name),
            Value::Integer(hash),
            Value::Integer(before),
        ];
        Self { sql: super::row::select::<R>(rest), bound }
    }

    fn table<R: Stored>(scope: &Scope, before: i64) -> Self {
        let bound = vec![text(scope.tenant.as_str()), Value::Integer(before)];
        Self { sql: super::row::select::<R>("WHERE tenant = ? AND key < ?"), bound }
    }

    /// Adds a fixed condition.
    fn and(&mut self, condition: &'static str) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
    }

    /// Adds a condition on a column of ours; the value is bound.
    fn and_equal(&mut self, column: &'static str, value: Value) {
        self.sql.push_str(" AND ");
        self.sql.push_str(column);
        self.sql.push_str(" = ?");
        self.bound.push(value);
    }

    fn order(&mut self, column: &'static str) {
        self.sql.push_str(" ORDER BY ");
        self.sql.push_str(column);
        self.sql.push_str(" DESC");
    }
}

// === impl Pages ===

impl<T> Pages<T> {
    fn new(page: &Page) -> Self {
        Self { limit: page.rows(), rows: Vec::new() }
    }

    /// Adds a row; `false` when there is one more than the page takes.
    fn add(&mut self, key: i64, row: T) -> bool {
        self.rows.push((key, row));
        self.rows.len() <= self.limit
    }

    fn close(mut self) -> Listing<T> {
        let has_more = self.rows.len() > self.limit;
        self.rows.truncate(self.limit);
        let next = self.rows.last().filter(|_| has_more).map(|(key, _)| *key);
        Listing { rows: self.rows.into_iter().map(|(_, row)| row).collect(), next }
    }
}
