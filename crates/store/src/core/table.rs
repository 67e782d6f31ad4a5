//! The tables of an SQL engine: a row's whole body, and the columns by which rows are searched.
//!
//! The columns repeat members of the body. Every read checks them against it, so that a changed column is noticed as damage.

use trilogue_domain::{MessageId, ThreadKey, Timestamp};

use crate::record::Record;
use crate::rows::{
    BindingRow, CheckpointRow, ConfigurationRow, IdempotencyRow, InterruptRow, MessageRow,
    QueueItem, RunRow, ThreadRow, TokenRow,
};

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Column<'a> {
    Null,
    Integer(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

pub(crate) trait TableRow: Record + Send + Sync {
    const TABLE: &'static str;
    const KEY: &'static str = "key";
    /// The column of the thread; `NULL` if the rows belong to no thread.
    const THREAD: &'static str = "thread";
    const COLUMNS: &'static str;

    fn thread(&self) -> Option<ThreadKey>;

    /// The table's integer, if it is part of the row.
    fn key(&self) -> Option<i64> {
        None
    }

    /// The search columns, without the thread and the integer.
    fn columns(&self) -> impl AsRef<[Column<'_>]>;
}

/// When a run ended, for the column. `None` for an open run, even if its row has a time.
pub(crate) fn ended_at(run: &RunRow) -> Option<Timestamp> {
    run.status.is_terminal().then(|| run.ended_at.unwrap_or(run.created_at))
}

// === impl Column ===

impl Column<'_> {
    pub(crate) fn integer(value: Option<i64>) -> Self {
        value.map_or(Self::Null, Self::Integer)
    }

    fn time(value: Option<Timestamp>) -> Self {
        Self::integer(value.map(Timestamp::as_micros))
    }

    fn flag(value: bool) -> Self {
        Self::Integer(i64::from(value))
    }
}

// === impl TableRow ===

impl TableRow for ThreadRow {
    const TABLE: &'static str = "threads";
    const THREAD: &'static str = "key";
    const COLUMNS: &'static str = "tenant, id, owner, owner_node, epoch, ephemeral";

    fn thread(&self) -> Option<ThreadKey> {
        Some(self.key)
    }

    fn columns(&self) -> impl AsRef<[Column<'_>]> {
        [
            Column::Text(self.tenant.as_str()),
            Column::Text(self.id.as_str()),
            Column::Text(self.owner.as_str()),
            Column::Text(&self.owner_node),
            Column::Integer(self.epoch.cast_signed()),
            Column::flag(self.ephemeral),
        ]
    }
}

impl TableRow for RunRow {
    const TABLE: &'static str = "runs";
    const COLUMNS: &'static str = "tenant, id, principal, agent, status, ended_at, stateless";

    fn thread(&self) -> Option<ThreadKey> {
        Some(self.thread)
    }

    fn key(&self) -> Option<i64> {
        Some(self.key.0)
    }

    fn columns(&self) -> impl AsRef<[Column<'_>]> {
        [
            Column::Text(self.tenant.as_str()),
            Column::Text(self.id.as_str()),
            Column::Text(self.principal.as_str()),
            Column::Text(self.agent.as_str()),
            Column::Text(self.status.as_str()),
            Column::time(ended_at(self)),
            Column::flag(self.stateless),
        ]
    }
}

impl TableRow for MessageRow {
    const TABLE: &'static str = "messages";
    const COLUMNS: &'static str = "tenant, id, run, alias";

    fn thread(&self) -> Option<ThreadKey> {
        Some(self.thread)
    }

    fn columns(&self) -> impl AsRef<[Column<'_>]> {
        [
            Column::Text(self.tenant.as_str()),
            Column::Text(self.id.as_str()),
            Column::Integer(self.run.0),
            self.alias.as_ref().map(MessageId::as_str).map_or(Column::Null, Column::Text),
        ]
    }
}

impl TableRow for CheckpointRow {
    const TABLE: &'static str = "checkpoints";
    const COLUMNS: &'static str = "id, parent, run";

    fn thread(&self) -> Option<ThreadKey> {
        Some(self.thread)
    }

    fn key(&self) -> Option<i64> {
        Some(self.key.0)
    }

    fn columns(&self) -> impl AsRef<[Column<'_>]> {
        [
            Column::Text(self.id.as_str()),
            Column::integer(self.parent.map(|key| key.0)),
            Column::integer(self.run.map(|key| key.0)),
        ]
    }
}

impl TableRow for InterruptRow {
    const TABLE: &'static str = "interrupts";
    const COLUMNS: &'static str = "tenant, id, principal, run, pending";

    fn thread(&self) -> Option<ThreadKey> {
        Some(self.thread)
    }

    fn columns(&self) -> impl AsRef<[Column<'_>]> {
        [
            Column::Text(self.tenant.as_str()),
            Column::Text(self.interrupt.id.as_str()),
            Column::Text(self.principal.as_str()),
            Column::Integer(self.run.0),
            Column::flag(self.resolution.is_none()),
        ]
    }
}

impl TableRow for BindingRow {
    const TABLE: &'static str = "bindings";
    const COLUMNS: &'static str = "agent";

    fn thread(&self) -> Option<ThreadKey> {
        Some(self.thread)
    }

    fn columns(&self) -> impl AsRef<[Column<'_>]> {
        [Column::Text(self.agent.as_str())]
    }
}

impl TableRow for IdempotencyRow {
    const TABLE: &'static str = "idempotency";
    const COLUMNS: &'static str = "tenant, principal, agent, text, run, created_at";

    fn thread(&self) -> Option<ThreadKey> {
        Some(self.thread)
    }

    fn columns(&self) -> impl AsRef<[Column<'_>]> {
        [
            Column::Text(self.key.tenant.as_str()),
            Column::Text(self.key.principal.as_str()),
            Column::Text(self.key.agent.as_str()),
            Column::Text(&self.key.text),
            Column::Text(self.run.as_str()),
            Column::Integer(self.created_at.as_micros()),
        ]
    }
}

impl TableRow for QueueItem {
    const TABLE: &'static str = "queue";
    const KEY: &'static str = "id";
    const COLUMNS: &'static str = "kind, key, tenant, due";

    fn thread(&self) -> Option<ThreadKey> {
        self.thread
    }

    fn columns(&self) -> impl AsRef<[Column<'_>]> {
        [
            Column::Text(self.kind.as_str()),
            Column::Text(&self.key),
            Column::Text(self.tenant.as_str()),
            Column::Integer(self.due.as_micros()),
        ]
    }
}

impl TableRow for ConfigurationRow {
    const TABLE: &'static str = "configurations";
    const THREAD: &'static str = "NULL";
    const COLUMNS: &'static str = "tenant, id, owner, agent, expires_at";

    fn thread(&self) -> Option<ThreadKey> {
        None
    }

    fn columns(&self) -> impl AsRef<[Column<'_>]> {
        [
            Column::Text(self.tenant.as_str()),
            Column::Text(self.id.as_str()),
            Column::Text(self.owner.as_str()),
            Column::Text(self.agent.as_str()),
            Column::time(self.expires_at),
        ]
    }
}

impl TableRow for TokenRow {
    const TABLE: &'static str = "tokens";
    const THREAD: &'static str = "NULL";
    const COLUMNS: &'static str = "tenant, id, principal, hash";

    fn thread(&self) -> Option<ThreadKey> {
        None
    }

    fn columns(&self) -> impl AsRef<[Column<'_>]> {
        [
            Column::Text(self.tenant.as_str()),
            Column::Text(self.id.as_str()),
            Column::Text(self.principal.as_str()),
            Column::Bytes(&self.hash),
        ]
    }
}
