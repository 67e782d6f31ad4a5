//! A page of a thread's checkpoints.

use trilogue_domain::error::Result;
use trilogue_domain::{CheckpointKey, Scope, limits};
use trilogue_store::rows::{CheckpointRow, ThreadRow};
use trilogue_store::{PathReader, Read};

/// Checkpoints of a path, newest first.
#[derive(Debug, Default)]
pub(crate) struct PathPage {
    pub(crate) rows: Vec<CheckpointRow>,
    /// The first checkpoint after the page.
    pub(crate) next: Option<CheckpointRow>,
}

/// Returns at most `limit` checkpoints, from this one or from the head; the page ends after the checkpoint whose state takes it over [`limits::MAX_PAGE_BYTES`].
pub(crate) async fn page(
    read: &dyn Read,
    scope: &Scope,
    thread: &ThreadRow,
    from: Option<CheckpointKey>,
    limit: usize,
) -> Result<PathPage> {
    let mut page = PathPage::default();
    if from.or(thread.head).is_none() {
        return Ok(page);
    }
    let mut path = PathReader::new(read, scope, &thread.id, from);
    let mut bytes = 0;
    while let Some(row) = path.next().await? {
        if page.rows.len() == limit || bytes > limits::MAX_PAGE_BYTES {
            page.next = Some(row);
            break;
        }
        bytes += row.state_bytes();
        page.rows.push(row);
    }
    Ok(page)
}
