//! The ids that an abbreviation matches.
//!
//! No index is by the last group: it would cost every turn a page, for a look-up that people need now and then. So the newest ids are searched, in the index that has them.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};
use trilogue_domain::{IdKind, PrincipalId, Scope, ShortId, limits};

use super::error::SqliteError;

const CANDIDATES: i64 = limits::MAX_SHORT_ID_CANDIDATES as i64;

/// The statements for the ids of one kind.
pub(super) struct Statements {
    /// By the beginning of the id.
    pub(super) by_beginning: &'static str,
    /// By the beginning of the last group.
    pub(super) by_last_group: &'static str,
}

/// The statements for a table and the column that names the owner. Parameters: tenant, the first text, the exclusive upper bound of texts, owner or null, rows, candidates.
macro_rules! statements {
    ($table:literal, $owner:literal) => {
        Statements {
            by_beginning: concat!(
                "SELECT found.id FROM (SELECT key, id FROM ",
                $table,
                " INDEXED BY ",
                $table,
                "_by_id WHERE tenant = ?1 AND id >= ?2 AND id < ?3 ORDER BY id LIMIT ?6)",
                " AS found JOIN ",
                $table,
                " AS row ON row.key = found.key",
                " WHERE ?4 IS NULL OR row.",
                $owner,
                " = ?4 LIMIT ?5"
            ),
            by_last_group: concat!(
                "SELECT found.id FROM (SELECT key, id FROM ",
                $table,
                " INDEXED BY ",
                $table,
                "_by_id WHERE tenant = ?1 AND id >= '0' AND id < 'g' ORDER BY id DESC LIMIT ?6)",
                " AS found JOIN ",
                $table,
                " AS row ON row.key = found.key",
                " WHERE length(found.id) = 36 AND substr(found.id, 25) >= ?2",
                " AND substr(found.id, 25) < ?3 AND (?4 IS NULL OR row.",
                $owner,
                " = ?4) LIMIT ?5"
            ),
        }
    };
}

const THREADS: Statements = statements!("threads", "owner");
const RUNS: Statements = statements!("runs", "principal");
const INTERRUPTS: Statements = statements!("interrupts", "principal");

pub(super) fn resolve(
    conn: &Connection,
    scope: &Scope,
    kind: IdKind,
    short: &ShortId,
    limit: usize,
) -> Result<Vec<String>, SqliteError> {
    let statements = statements_of(kind);
    let find = |sql: &str, text: &str| -> Result<Vec<String>, SqliteError> {
        let owner = scope.owner.as_ref().map(PrincipalId::as_str);
        let behind = format!("{text}{}", char::MAX);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut statement = conn.prepare_cached(sql)?;
        let values = params![scope.tenant.as_str(), text, behind, owner, limit, CANDIDATES];
        let rows = statement.query_map(values, |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    };
    let mut ids: BTreeSet<_> = find(statements.by_beginning, short.as_str())?.into_iter().collect();
    if let Some(whole) = ids.take(short.as_str()) {
        return Ok(vec![whole]);
    }
    ids.extend(find(statements.by_last_group, short.of_last_group())?);
    ids.retain(|id| short.matches(id));
    Ok(ids.into_iter().take(limit).collect())
}

pub(super) fn statements_of(kind: IdKind) -> Statements {
    match kind {
        IdKind::Thread => THREADS,
        IdKind::Run => RUNS,
        IdKind::Interrupt => INTERRUPTS,
    }
}
