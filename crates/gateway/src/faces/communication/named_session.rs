//! Finds sessions by name. Clients of this protocol know a thread by a UUID, but a thread that another client named can have any text as its id.

use std::sync::{Arc, LazyLock};

use tokio::sync::Semaphore;
use trilogue_domain::ThreadId;
use trilogue_domain::error::Result;
use trilogue_mapping::communication as mapping;
use trilogue_runtime::shares::Shares;
use trilogue_store::rows::{Page, ThreadFilter, ThreadRow};
use uuid::Uuid;

use super::CommunicationCall;
use super::request::read_uuid;
use crate::core::not_found::no_thread;

/// How many of the newest threads a search for a non-UUID id covers.
const MAX_SEARCHED: usize = 10_000;
/// How many threads one read returns.
const PAGE: usize = 500;
/// Limits concurrent searches, because a search costs more than other lookups.
static SEARCHES: Semaphore = Semaphore::const_new(2);
/// One of them for each principal.
static SHARES: LazyLock<Arc<Shares>> = LazyLock::new(|| Shares::new(1));

// === impl CommunicationCall ===

impl CommunicationCall {
    /// Returns the session of this name: the thread's own id, or the UUID that clients of this protocol know it by, in any spelling.
    /// Errors: `invalid_id`, naming the parameter `what`; `thread_not_found`.
    pub(super) async fn session(&self, text: &str, what: &str) -> Result<ThreadRow> {
        if let Ok(id) = ThreadId::parse(text)
            && let Some(row) = self.state.read.named_thread(&self.scope(), &id).await?
        {
            return Ok(row);
        }
        let id = read_uuid(text, what)?;
        let read = &self.state.read;
        if let Some(row) = read.named_thread(&self.scope(), &ThreadId::from_uuid(id)).await? {
            return Ok(row);
        }
        self.thread_shown_as(id).await?.ok_or_else(|| no_thread(&id.to_string()))
    }

    /// Returns the id of the thread that clients of this protocol know by this UUID. For a thread that does not exist yet, that is the UUID itself.
    pub(super) async fn session_id(&self, id: Uuid) -> Result<ThreadId> {
        Ok(self.thread_shown_as(id).await?.map_or_else(|| ThreadId::from_uuid(id), |row| row.id))
    }

    /// Finds the thread with a non-UUID id that is shown as this UUID.
    async fn thread_shown_as(&self, id: Uuid) -> Result<Option<ThreadRow>> {
        // A UUID that stands for a thread's id is derived from it and has version 5. All others are found directly.
        if id.get_version_num() != 5 {
            return Ok(None);
        }
        let (scope, read) = (self.scope(), &self.state.read);
        if let Some(row) = read.named_thread(&scope, &ThreadId::from_uuid(id)).await? {
            return Ok(Some(row));
        }
        // First: a principal that waits for its share takes no place among the searches of all.
        let _share = SHARES.wait(self.principal()).await;
        // The semaphore is never closed.
        let _search = SEARCHES.acquire().await;
        let mut page = Page { limit: PAGE, ..Page::default() };
        for _ in 0..MAX_SEARCHED / PAGE {
            let listing = read.threads(&scope, &ThreadFilter::default(), &page).await?;
            let is_it = |row: &ThreadRow| mapping::uuid_of(row.id.as_str()).get() == id;
            if let Some(row) = listing.rows.into_iter().find(is_it) {
                return Ok(Some(row));
            }
            if listing.next.is_none() {
                return Ok(None);
            }
            page.after = listing.next;
        }
        Ok(None)
    }
}
