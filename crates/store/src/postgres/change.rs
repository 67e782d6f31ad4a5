//! The rows of a batch as statements.

use std::collections::HashSet;
use std::sync::LazyLock;

use tokio_postgres::Row;
use trilogue_domain::limits::IDEMPOTENCY_KEPT;
use trilogue_domain::{AgentName, MessageId, ThreadKey};

use super::connection::Connection;
use super::database::Database;
use super::error::PostgresError;
use super::row::{self, Param, bind, insert, refs};
use super::{blob, remove, search};
use crate::core::already_exists;
use crate::core::table::{Column, TableRow, columns};
use crate::port::{Batch, Change};
use crate::rows::{
    BindingRow, CheckpointRow, IdempotencyRow, InterruptRow, MessageRow, QueueItem, QueueKind,
    RunRow, ThreadRow,
};
use crate::sql;

/// A statement with its values, and the row that it writes, by which its result is checked.
#[derive(Debug)]
pub(super) struct RowStatement<'a> {
    sql: &'a str,
    params: Vec<Param<'a>>,
    row: WrittenRow<'a>,
}

/// The row that a statement writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum WrittenRow<'a> {
    Thread(&'a ThreadRow),
    Run(&'a RunRow),
    Checkpoint(&'a CheckpointRow),
    Interrupt(&'a InterruptRow),
    Idempotency(&'a IdempotencyRow),
    /// The references of runs to a blob of this batch.
    Blob(&'a Batch, &'a trilogue_domain::content::BlobRef),
    Other,
}

static THREAD: LazyLock<String> = LazyLock::new(|| {
    insert::<ThreadRow>(
        false,
        concat!(
            "ON CONFLICT (key) DO UPDATE SET tenant = excluded.tenant, id = excluded.id,",
            " owner = excluded.owner, owner_node = excluded.owner_node, epoch = excluded.epoch,",
            " ephemeral = excluded.ephemeral, body = excluded.body RETURNING searched"
        ),
    )
});
// A row that was just inserted has no older version.
static RUN: LazyLock<String> = LazyLock::new(|| {
    insert::<RunRow>(
        true,
        concat!(
            "ON CONFLICT (key) DO UPDATE SET thread = excluded.thread, tenant = excluded.tenant,",
            " id = excluded.id, principal = excluded.principal, agent = excluded.agent,",
            " status = excluded.status, ended_at = excluded.ended_at,",
            " stateless = excluded.stateless, body = excluded.body",
            " RETURNING searched, xmax = 0"
        ),
    )
});
static MESSAGE: LazyLock<String> = LazyLock::new(|| {
    insert::<MessageRow>(
        false,
        concat!(
            "ON CONFLICT (thread, id) DO UPDATE SET alias = excluded.alias, body = excluded.body",
            " WHERE messages.run = excluded.run"
        ),
    )
});
static CHECKPOINT: LazyLock<String> = LazyLock::new(|| {
    insert::<CheckpointRow>(
        true,
        concat!(
            "ON CONFLICT (key) DO UPDATE SET thread = excluded.thread, id = excluded.id,",
            " parent = excluded.parent, run = excluded.run, body = excluded.body"
        ),
    )
});
static INTERRUPT: LazyLock<String> = LazyLock::new(|| {
    insert::<InterruptRow>(
        false,
        concat!(
            "ON CONFLICT (tenant, id) DO UPDATE SET principal = excluded.principal,",
            " pending = excluded.pending, body = excluded.body",
            " WHERE interrupts.thread = excluded.thread AND interrupts.run = excluded.run",
            " RETURNING 1"
        ),
    )
});
static BINDING: LazyLock<String> = LazyLock::new(|| {
    insert::<BindingRow>(false, "ON CONFLICT (thread, agent) DO UPDATE SET body = excluded.body")
});
static IDEMPOTENCY: LazyLock<String> = LazyLock::new(|| {
    insert::<IdempotencyRow>(
        false,
        concat!(
            "ON CONFLICT (tenant, principal, agent, text) DO UPDATE SET thread = excluded.thread,",
            " run = excluded.run, created_at = excluded.created_at, body = excluded.body",
            " WHERE idempotency.created_at < $9",
            " OR (idempotency.thread = excluded.thread AND idempotency.run = excluded.run)",
            " RETURNING 1"
        ),
    )
});

/// Adds an item that is in no line, or replaces the old one.
const OFFER: &str = concat!(
    "INSERT INTO queue",
    " (thread, kind, key, tenant, due, body, free_at, fence, attempts, dead, error, about)",
    " VALUES ($1, $2, $3, $4, $5, $6, $5, 0, 0, FALSE, '', $7)",
    " ON CONFLICT (kind, tenant, key) DO UPDATE SET thread = $1, due = $5, body = $6,",
    " free_at = $5, fence = queue.fence + 1, attempts = 0, held = FALSE, dead = FALSE,",
    " error = '', about = $7"
);

/// What followed the rows of a group so far.
#[derive(Debug, Default)]
pub(super) struct FollowedRows<'a> {
    agents: HashSet<(ThreadKey, &'a AgentName)>,
    /// The rows whose search rows are rewritten, by kind and key.
    rewritten: HashSet<(i64, i64)>,
}

// === impl FollowedRows ===

impl FollowedRows<'_> {
    /// Returns the sum of the metadata that a row's search rows are made from, as the row's statement found it. An earlier write of the row
    /// in the same group may rewrite them later, so the sum is then unknown: the last write must rewrite them again.
    fn searched(&self, key: (i64, i64), rows: &[Row]) -> i64 {
        match self.rewritten.contains(&key) {
            true => search::UNKNOWN_SUM,
            false => rows.first().map_or(0, |found| found.get(0)),
        }
    }

    fn note_rewrite(&mut self, key: (i64, i64), follow: &[RowStatement<'_>]) {
        if !follow.is_empty() {
            self.rewritten.insert(key);
        }
    }
}

// === impl Change ===

impl Change {
    /// Whether it is one statement that does not depend on stored rows.
    pub(super) fn is_plain(&self) -> bool {
        match self {
            Self::Offer(item) => item.kind != QueueKind::Callback,
            Self::Alias(..) | Self::Withdraw(..) | Self::RemoveRun(_) | Self::RemoveThread => false,
            _ => true,
        }
    }
}

/// The statements of a batch whose changes are all plain.
pub(super) fn plain<'a>(database: &Database, batch: &'a Batch) -> Vec<RowStatement<'a>> {
    let rows = batch.changes.iter().filter_map(RowStatement::of);
    rows.chain(blob::references(database.keys.opening, batch)).collect()
}

/// Writes the rows of a batch one after the other, because some need stored rows first.
pub(super) async fn in_order(
    database: &Database,
    conn: &Connection,
    batch: &Batch,
) -> Result<(), PostgresError> {
    // A thread's first row must precede its blob references, and these must precede a removal.
    let mut references = Some(blob::references(database.keys.opening, batch));
    let mut noted = FollowedRows::default();
    for change in &batch.changes {
        if matches!(change, Change::RemoveRun(_) | Change::RemoveThread) {
            for statement in references.take().into_iter().flatten() {
                statement.run(conn, &mut noted).await?;
            }
        }
        match change {
            Change::Alias(message, alias) => {
                write_alias(conn, batch.thread, message, alias).await?
            }
            Change::Withdraw(kind, key) => {
                sql::queue::withdraw(conn, batch.thread, *kind, key).await?
            }
            Change::Offer(item) if !change.is_plain() => {
                sql::queue::offer_callback(conn, item).await?
            }
            Change::RemoveRun(run) => remove::run(conn, batch.thread, *run).await?,
            Change::RemoveThread => remove::threads(conn, &[batch.thread]).await?,
            change => {
                if let Some(statement) = RowStatement::of(change) {
                    statement.run(conn, &mut noted).await?;
                }
            }
        }
    }
    for statement in references.take().into_iter().flatten() {
        statement.run(conn, &mut noted).await?;
    }
    Ok(())
}

async fn write_alias(
    conn: &Connection,
    thread: ThreadKey,
    message: &MessageId,
    alias: &MessageId,
) -> Result<(), PostgresError> {
    let found = sql::one(conn, sql::lookups::IN_THREAD, &columns![thread, message]).await?;
    let Some(row): Option<MessageRow> = found else { return Ok(()) };
    let row = MessageRow { alias: Some(alias.clone()), ..row };
    let statement = RowStatement::row(&MESSAGE, &row, row.columns().as_ref(), WrittenRow::Other);
    statement.run(conn, &mut FollowedRows::default()).await
}

pub(super) async fn write_checkpoint(
    conn: &Connection,
    row: &CheckpointRow,
) -> Result<(), PostgresError> {
    let statement =
        RowStatement::row(&CHECKPOINT, row, row.columns().as_ref(), WrittenRow::Checkpoint(row));
    statement.run(conn, &mut FollowedRows::default()).await
}

// === impl RowStatement ===

impl<'a> RowStatement<'a> {
    pub(super) fn new(sql: &'a str, params: Vec<Param<'a>>) -> Self {
        Self { sql, params, row: WrittenRow::Other }
    }

    pub(super) fn about(self, row: WrittenRow<'a>) -> Self {
        Self { row, ..self }
    }

    fn row<R: TableRow>(
        sql: &'a str,
        row: &'a R,
        columns: &[Column<'a>],
        written: WrittenRow<'a>,
    ) -> Self {
        Self { sql, params: bind(row, columns), row: written }
    }

    /// The statement of a plain change. `None` for any other change.
    pub(super) fn of(change: &'a Change) -> Option<Self> {
        Some(match change {
            Change::Thread(row) => {
                Self::row(&THREAD, row, row.columns().as_ref(), WrittenRow::Thread(row))
            }
            Change::Run(row) => {
                Self::row(&RUN, &**row, row.columns().as_ref(), WrittenRow::Run(row))
            }
            Change::Message(row) => {
                Self::row(&MESSAGE, row, row.columns().as_ref(), WrittenRow::Other)
            }
            Change::Checkpoint(row) => {
                Self::row(&CHECKPOINT, row, row.columns().as_ref(), WrittenRow::Checkpoint(row))
            }
            Change::Interrupt(row) => {
                Self::row(&INTERRUPT, &**row, row.columns().as_ref(), WrittenRow::Interrupt(row))
            }
            Change::Binding(row) => {
                Self::row(&BINDING, row, row.columns().as_ref(), WrittenRow::Other)
            }
            Change::Idempotency(row) => {
                let written = WrittenRow::Idempotency(row);
                let mut statement = Self::row(&IDEMPOTENCY, row, row.columns().as_ref(), written);
                let forgotten = row.created_at.before(IDEMPOTENCY_KEPT).as_micros();
                statement.params.push(Param::integer(forgotten));
                statement
            }
            Change::Offer(item) => Self::offer(item),
            Change::Alias(..)
            | Change::Withdraw(..)
            | Change::RemoveRun(_)
            | Change::RemoveThread => return None,
        })
    }

    /// Only callbacks are in line. Any other item replaces the old one.
    fn offer(item: &'a QueueItem) -> Self {
        let mut statement = Self::row(OFFER, item, item.columns().as_ref(), WrittenRow::Other);
        let (about, _) = item.run_and_line();
        statement.params.push(Param::Column(Column::integer(about.map(|run| run.0))));
        statement
    }

    pub(super) fn sql(&self) -> &str {
        self.sql
    }

    pub(super) fn params(&self) -> &[Param<'a>] {
        &self.params
    }

    /// Names the row that a unique index refuses.
    pub(super) fn blame(&self, fail: PostgresError) -> PostgresError {
        match (fail.violated_index(), self.row) {
            (Some(_), WrittenRow::Thread(row)) => already_exists("thread", row.id.as_str()).into(),
            (Some(_), WrittenRow::Run(row)) => already_exists("run", row.id.as_str()).into(),
            (Some(_), WrittenRow::Checkpoint(row)) => {
                already_exists("checkpoint", row.id.as_str()).into()
            }
            _ => fail,
        }
    }

    /// The statements that must follow it. Fails if it wrote no row but had to. `noted` has what followed earlier rows.
    pub(super) fn follow(
        &self,
        rows: &[Row],
        noted: &mut FollowedRows<'a>,
    ) -> Result<Vec<RowStatement<'a>>, PostgresError> {
        match self.row {
            WrittenRow::Thread(row) => {
                let key = (search::THREADS, row.key.0);
                let follow = search::of_thread(row, noted.searched(key, rows));
                noted.note_rewrite(key, &follow);
                Ok(follow)
            }
            WrittenRow::Run(row) => {
                let key = (search::RUNS, row.key.0);
                let mut follow = search::of_run(row, noted.searched(key, rows));
                noted.note_rewrite(key, &follow);
                let is_new = rows.first().is_some_and(|found| found.get(1));
                if is_new && !row.stateless && noted.agents.insert((row.thread, &row.agent)) {
                    follow.push(search::note_agent(row.thread, &row.agent));
                }
                Ok(follow)
            }
            WrittenRow::Interrupt(row) if rows.is_empty() => {
                Err(already_exists("interrupt", row.interrupt.id.as_str()).into())
            }
            WrittenRow::Idempotency(row) if rows.is_empty() => {
                Err(already_exists("idempotency key", &row.key.text).into())
            }
            WrittenRow::Blob(batch, blob) if rows.is_empty() => {
                Err(batch.blob_missing(blob).into())
            }
            _ => Ok(Vec::new()),
        }
    }

    async fn run(
        &self,
        conn: &Connection,
        noted: &mut FollowedRows<'a>,
    ) -> Result<(), PostgresError> {
        let rows = row::query(conn, self.sql, &refs(&self.params)).await;
        // The index alone does not name the row, so the statement does.
        let rows = rows.map_err(|fail| self.blame(fail))?;
        for more in self.follow(&rows, noted)? {
            row::query(conn, more.sql, &refs(&more.params)).await?;
        }
        Ok(())
    }
}
