//! The access path of a listing: the condition with the fewest rows, of those that an index answers. The other conditions are checked on its rows.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use trilogue_domain::{AgentName, Json, RunStatus, Scope, ThreadKey, limits};

use super::error::SqliteError;
use super::{row, search, thread_agents};
use crate::core::search::{Condition, is_composite, value_hash};
use crate::core::table::TableRow;

/// A statement built from fixed fragments, with its bound values.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) sql: String,
    pub(super) bound: Vec<Value>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum AccessPath<'a> {
    Tenant,
    /// Rows that the scope's principal created.
    Owner,
    /// Rows with a metadata member.
    Metadata(&'a Condition),
    Thread(ThreadKey),
    Agent(&'a AgentName),
    Statuses(&'a [RunStatus]),
    /// Threads with a run that has not ended.
    Open,
    /// Threads that may have an agent.
    ThreadAgent(&'a AgentName),
}

pub(super) trait Listed: TableRow {
    const KIND: search::SearchKind;
    /// The index over the tenant, or the condition without one.
    const BY_TENANT: &'static str;
    /// The index over tenant and creator, and the creator's column.
    const BY_OWNER: (&'static str, &'static str);
    /// A condition of every listing.
    const ALWAYS: &'static str;

    fn metadata(&self) -> &Json;
}

// === impl Listed ===

impl Listed for crate::rows::ThreadRow {
    const KIND: search::SearchKind = search::SearchKind::Thread;
    const BY_TENANT: &'static str = "INDEXED BY threads_by_tenant";
    const BY_OWNER: (&'static str, &'static str) = ("INDEXED BY threads_by_owner", "owner");
    const ALWAYS: &'static str = " AND ephemeral = 0";

    fn metadata(&self) -> &Json {
        &self.metadata
    }
}

impl Listed for crate::rows::RunRow {
    const KIND: search::SearchKind = search::SearchKind::Run;
    const BY_TENANT: &'static str = "NOT INDEXED";
    const BY_OWNER: (&'static str, &'static str) = ("INDEXED BY runs_by_principal", "principal");
    const ALWAYS: &'static str = "";

    fn metadata(&self) -> &Json {
        &self.metadata
    }
}

// === impl AccessPath ===

impl<'a> AccessPath<'a> {
    /// The access path with the fewest rows. Falls back to the tenant's.
    pub(super) fn rarest<R: Listed>(
        conn: &Connection,
        scope: &Scope,
        drivers: &[AccessPath<'a>],
    ) -> Result<AccessPath<'a>, SqliteError> {
        if let [] | [_] = drivers {
            return Ok(drivers.first().copied().unwrap_or(AccessPath::Tenant));
        }
        let mut rarest = None;
        for driver in drivers {
            let count = driver.count::<R>(conn, scope)?;
            if rarest.is_none_or(|(least, _)| count < least) {
                rarest = Some((count, *driver));
            }
        }
        Ok(rarest.map_or(AccessPath::Tenant, |(_, driver)| driver))
    }

    /// The access paths for conditions on metadata: only conditions on scalars have one.
    pub(super) fn of_metadata(conditions: &'a [Condition]) -> Vec<AccessPath<'a>> {
        let scalars = conditions.iter().filter(|(_, value)| !is_composite(value));
        scalars.map(AccessPath::Metadata).collect()
    }

    /// The rows that match it with a key below `before`, newest first.
    pub(super) fn query<R: Listed>(self, scope: &Scope, before: i64) -> Query {
        let legs = self.legs::<R>(scope);
        let count = legs.len();
        let mut query = Query { sql: String::new(), bound: Vec::new() };
        for leg in legs {
            if !query.sql.is_empty() {
                query.sql.push_str(" UNION ALL ");
            }
            query.sql.push_str("SELECT ");
            query.sql.push_str(&row::columns::<R>());
            query.sql.push_str(" FROM ");
            query.sql.push_str(&leg.sql);
            query.sql.push_str(R::ALWAYS);
            query.bound.extend(leg.bound);
            query.bound.push(Value::Integer(before));
        }
        // The second column is the key. One leg is read in the order of its index; several are merged.
        query.sql.push_str(if count > 1 { " ORDER BY 2 DESC" } else { self.order() });
        query
    }

    /// How many rows match it. The count stops at one more than a listing ever reads.
    fn count<R: Listed>(self, conn: &Connection, scope: &Scope) -> Result<i64, SqliteError> {
        let most = Value::Integer(limits::MAX_SEARCH_CANDIDATES as i64 + 1);
        let mut count = 0;
        for leg in self.legs::<R>(scope) {
            let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {} LIMIT ?)", leg.inner);
            let mut bound = leg.bound;
            bound.push(Value::Integer(i64::MAX));
            bound.push(most.clone());
            count += conn
                .prepare_cached(&sql)?
                .query_row(params_from_iter(bound), |row| row.get::<_, i64>(0))?;
        }
        Ok(count)
    }

    fn order(self) -> &'static str {
        match self {
            Self::Metadata(_) | Self::ThreadAgent(_) => " ORDER BY found DESC",
            _ => " ORDER BY key DESC",
        }
    }

    /// The text after `FROM` for each statement. The bound of the key is bound last.
    fn legs<R: Listed>(self, scope: &Scope) -> Vec<PathQuery> {
        let tenant = text(scope.tenant.as_str());
        let leg = |index: &str, column: &str, value: Value| {
            let bound = vec![tenant.clone(), value];
            PathQuery::of::<R>(
                &format!("{index} WHERE tenant = ? AND {column} = ? AND key < ?"),
                bound,
            )
        };
        match self {
            Self::Tenant => {
                let rest = format!("{} WHERE tenant = ? AND key < ?", R::BY_TENANT);
                vec![PathQuery::of::<R>(&rest, vec![tenant])]
            }
            Self::Owner => {
                let owner = scope.owner.as_ref().map_or("", |owner| owner.as_str());
                vec![leg(R::BY_OWNER.0, R::BY_OWNER.1, text(owner))]
            }
            Self::Thread(key) => vec![PathQuery::of::<R>(
                "INDEXED BY runs_by_thread WHERE thread = ? AND key < ?",
                vec![Value::Integer(key.0)],
            )],
            Self::Agent(agent) => {
                vec![leg("INDEXED BY runs_by_agent", "agent", text(agent.as_str()))]
            }
            Self::Statuses(statuses) => RunStatus::ALL
                .into_iter()
                .filter(|status| statuses.contains(status))
                .map(|status| leg("INDEXED BY runs_by_status", "status", text(status.as_str())))
                .collect(),
            Self::Metadata((name, value)) => {
                let inner =
                    "search WHERE tenant = ? AND kind = ? AND name = ? AND hash = ? AND id < ?";
                let (kind, hash) = (R::KIND as i64, value_hash(value));
                let bound = vec![tenant, Value::Integer(kind), text(name), Value::Integer(hash)];
                vec![PathQuery::from_search::<R>(inner, bound)]
            }
            Self::ThreadAgent(agent) => {
                let inner =
                    "search WHERE tenant = ? AND kind = ? AND name = ? AND hash = 0 AND id < ?";
                let kind = Value::Integer(thread_agents::KIND);
                vec![PathQuery::from_search::<R>(inner, vec![tenant, kind, text(agent.as_str())])]
            }
            Self::Open => {
                // The plus keeps SQLite from using the tenant's index, which holds all rows of the tenant.
                let rest = concat!(
                    "WHERE +tenant = ? AND key IN (SELECT thread FROM runs INDEXED BY runs_open",
                    " WHERE ended_at IS NULL AND thread < ?)"
                );
                vec![PathQuery::of::<R>(rest, vec![tenant])]
            }
        }
    }
}

#[derive(Debug)]
struct PathQuery {
    /// The text after `FROM` that reads rows of the table.
    sql: String,
    /// The text after `FROM` that counts.
    inner: String,
    bound: Vec<Value>,
}

// === impl PathQuery ===

impl PathQuery {
    fn of<R: Listed>(rest: &str, bound: Vec<Value>) -> Self {
        let sql = format!("{} {rest}", R::TABLE);
        Self { inner: sql.clone() + R::ALWAYS, sql, bound }
    }

    /// The rows that search rows refer to.
    fn from_search<R: TableRow>(inner: &str, bound: Vec<Value>) -> Self {
        let found = format!("(SELECT id AS found FROM {inner} ORDER BY id DESC)");
        let sql = format!("{found} CROSS JOIN {} ON key = found WHERE 1", R::TABLE);
        Self { sql, inner: inner.to_owned(), bound }
    }
}

pub(super) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}
