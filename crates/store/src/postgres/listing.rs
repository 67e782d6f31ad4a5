//! Listings: the database checks every condition that columns and search rows answer. Other conditions are checked on the rows that it finds.

use std::marker::PhantomData;

use tokio_postgres::types::ToSql;
use trilogue_domain::{AgentName, RunStatus, Scope, ThreadActivity, ThreadId, ThreadKey};

use super::connection::Connection;
use super::database::Database;
use super::error::PostgresError;
use super::row::{self, Param};
use super::search;
use crate::core::page::{PageBuilder, PageRow};
use crate::core::search::{Candidates, Condition, activity_of, is_composite, matches, value_hash};
use crate::core::table::TableRow;
use crate::rows::{
    InterruptFilter, InterruptRow, Listing, Page, RunFilter, RunRow, ThreadFilter, ThreadRow,
};
use crate::sql::lookups::{ThreadConnection, fits};
use crate::sql::{take, thread_of};

/// The most rows of one statement. Each may have metadata, a request and a configuration.
const PART: usize = 128;
/// The most interrupts of one statement. The question of each may have the size of a peer's whole line.
const MAX_PENDING_ROWS: usize = 64;

/// A statement built from fixed fragments, with its bound values.
#[derive(Debug)]
struct Conditions<'a> {
    sql: String,
    bound: Vec<Param<'a>>,
}

/// The rows that match conditions, newest first, in parts.
#[derive(Debug)]
struct RowParts<'a, R> {
    sql: String,
    bound: Vec<Param<'a>>,
    before: i64,
    part: i64,
    is_last: bool,
    row: PhantomData<fn() -> R>,
}

/// The conditions of a filter that the database does not check.
trait PostFilter {
    type Row: TableRow + PageRow;

    /// Whether the database checks all conditions.
    fn is_empty(&self) -> bool;

    /// Whether a row matches, and how many further rows were read for it.
    async fn fits(
        &self,
        conn: &Connection,
        row: &Self::Row,
    ) -> Result<(bool, usize), PostgresError>;
}

pub(super) async fn runs(
    conn: &Connection,
    database: &Database,
    scope: &Scope,
    filter: &RunFilter,
    page: &Page,
) -> Result<Listing<RunRow>, PostgresError> {
    let mut conditions = Conditions::of_tenant(scope);
    conditions.owner("principal", scope);
    conditions.thread(filter.thread.as_ref());
    if let Some(agent) = &filter.agent {
        conditions.and("agent = ", Param::text(agent.as_str()), "");
    }
    if !filter.statuses.is_empty() {
        let statuses = filter.statuses.iter().map(|status| status.as_str()).collect();
        conditions.and("status = ANY(", Param::Texts(statuses), ")");
    }
    conditions.metadata(search::RUNS, "runs", &filter.metadata);
    list(conn, database, conditions, filter, page).await
}

pub(super) async fn threads(
    conn: &Connection,
    database: &Database,
    scope: &Scope,
    filter: &ThreadFilter,
    page: &Page,
) -> Result<Listing<ThreadRow>, PostgresError> {
    let mut conditions = Conditions::of_tenant(scope);
    conditions.sql.push_str(" AND NOT ephemeral");
    conditions.owner("owner", scope);
    if let Some(agent) = &filter.agent {
        let of =
            "key IN (SELECT id FROM search WHERE tenant = $1 AND kind = 3 AND hash = 0 AND name = ";
        conditions.and(of, Param::bytes(agent.as_str().as_bytes()), ")");
    }
    if matches!(filter.activity, Some(ThreadActivity::Busy | ThreadActivity::Interrupted)) {
        let open = " AND key IN (SELECT thread FROM runs WHERE ended_at IS NULL)";
        conditions.sql.push_str(open);
    }
    conditions.metadata(search::THREADS, "threads", &filter.metadata);
    list(conn, database, conditions, filter, page).await
}

pub(super) async fn interrupts(
    conn: &Connection,
    database: &Database,
    scope: &Scope,
    filter: &InterruptFilter,
    page: &Page,
) -> Result<Listing<InterruptRow>, PostgresError> {
    let mut conditions = Conditions::of_tenant(scope);
    conditions.owner("principal", scope);
    conditions.thread(filter.thread.as_ref());
    if let Some(id) = &filter.run {
        let of = "(thread, run) = (SELECT thread, key FROM runs WHERE tenant = $1 AND id = ";
        conditions.and(of, Param::text(id.as_str()), ")");
    }
    if filter.pending {
        conditions.sql.push_str(" AND pending");
    }
    let mut pages = PageBuilder::new(page);
    let mut rows = RowParts::<InterruptRow>::of(
        conditions,
        "key",
        page,
        page.rows_read().min(MAX_PENDING_ROWS),
    );
    while let Some(part) = rows.next(conn, database).await? {
        for (key, row) in part {
            if scope.can_see(&row.tenant, &row.principal) && !pages.add(key, row) {
                return Ok(pages.finish());
            }
        }
    }
    Ok(pages.finish())
}

/// Reads a page of the rows that match the conditions and the rest of the filter.
async fn list<F: PostFilter>(
    conn: &Connection,
    database: &Database,
    conditions: Conditions<'_>,
    filter: &F,
    page: &Page,
) -> Result<Listing<F::Row>, PostgresError> {
    let is_exact = filter.is_empty();
    let part = if is_exact { page.rows_read().min(PART) } else { PART };
    let (mut pages, mut candidates) = (PageBuilder::new(page), Candidates::default());
    let mut rows = RowParts::of(conditions, "position", page, part);
    while let Some(part) = rows.next(conn, database).await? {
        for (position, row) in part {
            if !is_exact {
                let (fits, looked_at) = filter.fits(conn, &row).await?;
                candidates.add(1 + looked_at)?;
                if !fits {
                    continue;
                }
            }
            if !pages.add(position, row) {
                return Ok(pages.finish());
            }
        }
    }
    Ok(pages.finish())
}

// === impl Connection ===

impl ThreadConnection for Connection {
    const OPEN_RUNS: &'static str = "WHERE thread = ?1 AND ended_at IS NULL ORDER BY position";
    const PENDING: &'static str = "WHERE thread = ?1 AND pending ORDER BY key";

    async fn activity(&self, thread: ThreadKey) -> Result<ThreadActivity, PostgresError> {
        let sql = concat!(
            "SELECT EXISTS (SELECT 1 FROM runs WHERE thread = $1 AND ended_at IS NULL AND status <> $2),",
            " (SELECT status FROM runs WHERE thread = $1 ORDER BY position DESC LIMIT 1)"
        );
        let found =
            row::query_opt(self, sql, &[&thread.0, &RunStatus::Interrupted.as_str()]).await?;
        let Some(found) = found else { return Ok(ThreadActivity::Idle) };
        if found.get(0) {
            return Ok(ThreadActivity::Busy);
        }
        let newest: Option<String> = found.get(1);
        Ok(activity_of(newest.and_then(|status| RunStatus::from_text(&status))))
    }

    async fn has_agent(
        &self,
        thread: &ThreadRow,
        agent: &AgentName,
    ) -> Result<bool, PostgresError> {
        let sql = "SELECT 1 FROM runs WHERE thread = $1 AND agent = $2 LIMIT 1";
        Ok(thread.agent().as_ref() == Some(agent)
            || row::exists(self, sql, &[&thread.key.0, &agent.as_str()]).await?)
    }
}

// === impl PostFilter ===

impl PostFilter for RunFilter {
    type Row = RunRow;

    fn is_empty(&self) -> bool {
        self.metadata.is_empty()
    }

    async fn fits(&self, _: &Connection, row: &RunRow) -> Result<(bool, usize), PostgresError> {
        Ok((matches(&row.metadata, &self.metadata), 0))
    }
}

impl PostFilter for ThreadFilter {
    type Row = ThreadRow;

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    async fn fits(
        &self,
        conn: &Connection,
        row: &ThreadRow,
    ) -> Result<(bool, usize), PostgresError> {
        match matches(&row.metadata, &self.metadata) {
            true => fits(conn, row, self).await,
            false => Ok((false, 0)),
        }
    }
}

// === impl RowParts ===

impl<'a, R: TableRow> RowParts<'a, R> {
    /// Starts a read. `order` is the column by which newer rows have greater values. Each part has `part` rows.
    fn of(conditions: Conditions<'a>, order: &str, page: &Page, part: usize) -> Self {
        let Conditions { sql, bound } = conditions;
        let (table, columns, count) = (R::TABLE, row::columns::<R>(), bound.len());
        let sql = format!(
            "SELECT {columns}, {table}.{order} FROM {table} WHERE {sql} AND {order} < ${} ORDER BY {order} DESC LIMIT ${}",
            count + 1,
            count + 2,
        );
        let part = i64::try_from(part).unwrap_or(i64::MAX);
        Self { sql, bound, before: page.before(), part, is_last: false, row: PhantomData }
    }

    /// The next part. `None` after the last. A damaged row is left out, and its thread is quarantined.
    async fn next(
        &mut self,
        conn: &Connection,
        database: &Database,
    ) -> Result<Option<Vec<(i64, R)>>, PostgresError> {
        if self.is_last {
            return Ok(None);
        }
        let mut params = row::refs(&self.bound);
        params.extend([&self.before as &(dyn ToSql + Sync), &self.part]);
        let rows = row::query(conn, &self.sql, &params).await?;
        self.is_last = (rows.len() as i64) < self.part;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            self.before = row.get(row.len() - 1);
            if thread_of(row).is_some_and(|key| database.health.check_thread(key).is_err()) {
                continue;
            }
            match take::<R, _>(row) {
                Ok(row) => found.push((self.before, row)),
                // The list leaves the row out, and `settle` closes its thread.
                Err(fail @ PostgresError::Damaged(..)) => drop(database.settle(fail)),
                Err(fail) => return Err(fail),
            }
        }
        Ok(Some(found))
    }
}

// === impl Conditions ===

impl<'a> Conditions<'a> {
    fn of_tenant(scope: &'a Scope) -> Self {
        Self { sql: "tenant = $1".to_owned(), bound: vec![Param::text(scope.tenant.as_str())] }
    }

    /// Adds a condition: the value is bound between two constant fragments.
    fn and(&mut self, before: &str, value: Param<'a>, behind: &str) {
        self.bound.push(value);
        let number = self.bound.len();
        self.sql.push_str(&format!(" AND {before}${number}{behind}"));
    }

    /// Adds that the column names the scope's principal, if the scope is limited to one.
    fn owner(&mut self, column: &str, scope: &'a Scope) {
        if let Some(owner) = &scope.owner {
            self.and(&format!("{column} = "), Param::text(owner.as_str()), "");
        }
    }

    /// Adds that a row belongs to a thread.
    fn thread(&mut self, id: Option<&'a ThreadId>) {
        if let Some(id) = id {
            // The tenant is the first value.
            let of = "thread = (SELECT key FROM threads WHERE tenant = $1 AND id = ";
            self.and(of, Param::text(id.as_str()), ")");
        }
    }

    /// Adds the conditions on metadata that search rows answer. The metadata itself is compared later, because another value can have the same hash.
    fn metadata(&mut self, kind: i64, table: &str, conditions: &'a [Condition]) {
        for (name, value) in conditions.iter().filter(|(_, value)| !is_composite(value)) {
            let of = format!(
                "EXISTS (SELECT 1 FROM search WHERE tenant = $1 AND kind = {kind} AND id = {table}.key AND name = "
            );
            self.bound.push(Param::bytes(name.as_bytes()));
            let name = self.bound.len();
            self.and(&format!("{of}${name} AND hash = "), Param::integer(value_hash(value)), ")");
        }
    }
}
