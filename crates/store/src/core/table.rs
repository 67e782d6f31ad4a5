//! The tables of an SQL engine: a row's whole body, and the columns by which rows are searched.
//!
//! The columns repeat members of the body. Every read checks them against it, so that a changed column is noticed as damage.

use trilogue_domain::{
    AgentName, CheckpointId, CheckpointKey, ConfigurationId, InterruptId, MessageId, PrincipalId,
    RunId, RunKey, RunStatus, TenantId, ThreadId, ThreadKey, Timestamp, TokenId,
};

use crate::record::Record;
use crate::rows::{
    BindingRow, CheckpointRow, ConfigurationRow, IdempotencyRow, InterruptRow, MessageRow,
    QueueItem, QueueKind, RunRow, ThreadRow, TokenRow,
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

    fn thread(&self) -> Option<ThreadKey> {
        None
    }

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

/// The values of columns, in order.
macro_rules! columns {
    ($($value:expr),+ $(,)?) => { [$($crate::core::table::Column::from($value)),+] };
}
pub(crate) use columns;

// === impl Column ===

impl Column<'_> {
    pub(crate) fn integer(value: Option<i64>) -> Self {
        value.into()
    }
}

impl<'a, T: Into<Self>> From<Option<T>> for Column<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Makes a column from values of these types.
macro_rules! column_from {
    ($($type:ty),+: |$value:ident| $column:expr) => {$(
        impl<'a> From<$type> for Column<'a> {
            fn from($value: $type) -> Self {
                $column
            }
        }
    )+};
}
column_from!(
    &'a TenantId, &'a PrincipalId, &'a ThreadId, &'a RunId, &'a AgentName, &'a ConfigurationId,
    &'a MessageId, &'a CheckpointId, &'a InterruptId, &'a TokenId, &'a String, RunStatus,
    QueueKind: |text| Column::Text(text.as_str())
);
column_from!(&'a str: |text| Column::Text(text));
column_from!(&'a [u8]: |bytes| Column::Bytes(bytes));
column_from!(ThreadKey, RunKey, CheckpointKey: |key| Column::Integer(key.0));
column_from!(i64: |value| Column::Integer(value));
column_from!(u64: |value| Column::Integer(value.cast_signed()));
column_from!(u32, bool: |value| Column::Integer(i64::from(value)));
column_from!(Timestamp: |at| Column::Integer(at.as_micros()));

// === impl TableRow ===

/// Implements [`TableRow`]: the table, its thread, its integer where it is part of the row, and each search column with its value.
macro_rules! table {
    (
        $row:ident as $it:ident: $table:literal $(, thread = $thread:expr)?
        $(; const $const:ident = $text:literal)?
        $(; key = $key:expr)?
        => $first:ident: $first_value:expr $(, $column:ident: $value:expr)* $(,)?
    ) => {
        impl TableRow for $row {
            const TABLE: &'static str = $table;
            $(const $const: &'static str = $text;)?
            const COLUMNS: &'static str =
                concat!(stringify!($first) $(, ", ", stringify!($column))*);

            $(fn thread(&self) -> Option<ThreadKey> {
                let $it = self;
                $thread
            })?

            $(fn key(&self) -> Option<i64> {
                let $it = self;
                Some($key)
            })?

            fn columns(&self) -> impl AsRef<[Column<'_>]> {
                let $it = self;
                columns![$first_value $(, $value)*]
            }
        }
    };
}

table!(
    ThreadRow as row: "threads", thread = Some(row.key); const THREAD = "key" =>
    tenant: &row.tenant,
    id: &row.id,
    owner: &row.owner,
    owner_node: &row.owner_node,
    epoch: row.epoch,
    ephemeral: row.ephemeral,
);
table!(
    RunRow as row: "runs", thread = Some(row.thread); key = row.key.0 =>
    tenant: &row.tenant,
    id: &row.id,
    principal: &row.principal,
    agent: &row.agent,
    status: row.status,
    ended_at: ended_at(row),
    stateless: row.stateless,
);
table!(
    MessageRow as row: "messages", thread = Some(row.thread) =>
    tenant: &row.tenant,
    id: &row.id,
    run: row.run,
    alias: row.alias.as_ref(),
);
table!(
    CheckpointRow as row: "checkpoints", thread = Some(row.thread); key = row.key.0 =>
    id: &row.id,
    parent: row.parent,
    run: row.run,
);
table!(
    InterruptRow as row: "interrupts", thread = Some(row.thread) =>
    tenant: &row.tenant,
    id: &row.interrupt.id,
    principal: &row.principal,
    run: row.run,
    pending: row.resolution.is_none(),
);
table!(BindingRow as row: "bindings", thread = Some(row.thread) => agent: &row.agent);
table!(
    IdempotencyRow as row: "idempotency", thread = Some(row.thread) =>
    tenant: &row.key.tenant,
    principal: &row.key.principal,
    agent: &row.key.agent,
    text: &row.key.text,
    run: &row.run,
    created_at: row.created_at,
);
table!(
    QueueItem as row: "queue", thread = row.thread; const KEY = "id" =>
    kind: row.kind,
    key: &row.key,
    tenant: &row.tenant,
    due: row.due,
);
table!(
    ConfigurationRow as row: "configurations"; const THREAD = "NULL" =>
    tenant: &row.tenant,
    id: &row.id,
    owner: &row.owner,
    agent: &row.agent,
    expires_at: row.expires_at,
);
table!(
    TokenRow as row: "tokens"; const THREAD = "NULL" =>
    tenant: &row.tenant,
    id: &row.id,
    principal: &row.principal,
    hash: row.hash.as_slice(),
);
