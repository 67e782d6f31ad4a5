//! The order in which a store's tables are read for a copy, and how their rows are summed up.

use trilogue_domain::TenantId;

use super::{SqlConnection, SqlError, SqlRow, queue, select, take};
use crate::core::damaged;
use crate::core::table::TableRow;
use crate::core::transfer::{BlobId, BlobName, CopyPart, StoreSums};
use crate::port::Change;
use crate::rows::{
    BindingRow, CheckpointRow, ConfigurationRow, IdempotencyRow, InterruptRow, MessageRow, RunRow,
    TokenRow,
};

const GAPS: &str = "SELECT thread, first, last FROM gaps ORDER BY thread, first";
const BLOB_NAMES: &str = concat!(
    "SELECT r.thread, r.run, r.is_text, b.tenant, b.hash, b.length FROM blob_refs r",
    " LEFT JOIN blobs b ON b.key = r.blob ORDER BY r.thread, r.run"
);

type ExportError<E> = <<E as TableExport>::Connection as SqlConnection>::Error;

/// Reads tables, sums them up, and passes them on in parts.
pub(crate) trait TableExport {
    type Connection: SqlConnection;

    /// Follows `FROM table` for threads and runs: oldest first.
    const BY_AGE: &'static str;

    /// Passes the rows of a statement on. The first column is the thread. `sum` sums a row up, and returns it with its bytes.
    fn each<T: Send>(
        &mut self,
        sql: &str,
        sum: impl FnMut(
            &mut StoreSums,
            &<Self::Connection as SqlConnection>::Row<'_>,
        ) -> Result<(T, usize), ExportError<Self>>
        + Send,
        part: impl Fn(Vec<T>) -> CopyPart + Send,
    ) -> impl Future<Output = Result<(), ExportError<Self>>> + Send;

    fn frames(&mut self) -> impl Future<Output = Result<(), ExportError<Self>>> + Send;
    fn heads(&mut self) -> impl Future<Output = Result<(), ExportError<Self>>> + Send;
    fn blobs(&mut self) -> impl Future<Output = Result<(), ExportError<Self>>> + Send;
}

/// Reads every table.
pub(crate) async fn tables<E: TableExport>(
    export: &mut E,
    with_tokens: bool,
) -> Result<(), ExportError<E>> {
    let by_key = "ORDER BY key";
    changes(export, E::BY_AGE, Change::Thread).await?;
    changes(export, E::BY_AGE, |row: RunRow| Change::Run(Box::new(row))).await?;
    changes::<MessageRow, _>(export, by_key, Change::Message).await?;
    changes::<CheckpointRow, _>(export, by_key, Change::Checkpoint).await?;
    changes(export, by_key, |row: InterruptRow| Change::Interrupt(Box::new(row))).await?;
    changes::<BindingRow, _>(export, by_key, Change::Binding).await?;
    changes::<IdempotencyRow, _>(export, by_key, Change::Idempotency).await?;
    export.frames().await?;
    export.heads().await?;
    let gap = |sums: &mut StoreSums, row: &<E::Connection as SqlConnection>::Row<'_>| {
        let numbers = [row.value(0)?, row.value(1)?, row.value(2)?];
        sums.numbers("gaps", &numbers);
        Ok((numbers, 0))
    };
    export.each(GAPS, gap, CopyPart::Gaps).await?;
    let entry = |sums: &mut StoreSums, row: &<E::Connection as SqlConnection>::Row<'_>| {
        let (_, entry) = queue::entry(row)?;
        sums.entry(&entry);
        let bytes = entry.item.reference.as_bytes().len();
        Ok((entry, bytes))
    };
    export.each(&queue::select::<E::Connection>("ORDER BY id"), entry, CopyPart::Queue).await?;
    if with_tokens {
        rows::<TokenRow, _>(export, by_key, CopyPart::Tokens).await?;
    }
    rows::<ConfigurationRow, _>(export, by_key, CopyPart::Configurations).await?;
    export.blobs().await?;
    let name = |sums: &mut StoreSums, row: &<E::Connection as SqlConnection>::Row<'_>| {
        let missing = || {
            let error = damaged("it names a blob that is not there");
            ExportError::<E>::damaged(super::thread_of(row), error)
        };
        let blob = blob_id(row, 3)?.ok_or_else(missing)?;
        let name =
            BlobName { thread: row.value(0)?, run: row.value(1)?, is_text: row.value(2)?, blob };
        sums.blob_name(&name);
        Ok((name, 0))
    };
    export.each(BLOB_NAMES, name, CopyPart::BlobNames).await
}

/// The rows of a table of threads.
async fn changes<R: TableRow, E: TableExport>(
    export: &mut E,
    rest: &str,
    change: fn(R) -> Change,
) -> Result<(), ExportError<E>> {
    let part = move |found: Vec<R>| CopyPart::Rows(found.into_iter().map(change).collect());
    rows(export, rest, part).await
}

async fn rows<R: TableRow, E: TableExport>(
    export: &mut E,
    rest: &str,
    part: impl Fn(Vec<R>) -> CopyPart + Send,
) -> Result<(), ExportError<E>> {
    let sum = |sums: &mut StoreSums, found: &<E::Connection as SqlConnection>::Row<'_>| {
        let row = take::<R, _>(found)?;
        // An older form of the same row has the same sum.
        let body = row.encode();
        sums.row::<R>(&body);
        Ok((row, body.len()))
    };
    export.each(&select::<R, E::Connection>(rest), sum, part).await
}

/// The identity of a blob from three columns. `None` if the columns are empty.
pub(crate) fn blob_id<S: SqlRow>(row: &S, index: usize) -> Result<Option<BlobId>, S::Error> {
    let Some(tenant) = row.value::<Option<String>>(index)? else { return Ok(None) };
    let Ok(tenant) = TenantId::parse(&tenant) else { return Ok(None) };
    Ok(Some(BlobId { tenant, hash: row.value(index + 1)?, length: row.value(index + 2)? }))
}
