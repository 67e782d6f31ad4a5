//! Finds a message by any id that a client was shown for it.

use std::sync::Arc;

use tokio::sync::Semaphore;
use trilogue_domain::error::Result;
use trilogue_domain::event::{Event, MessageEvent};
use trilogue_domain::{Body, MessageId};
use trilogue_mapping::agent_client::{IdFormat, UPDATE, shown_id};
use trilogue_store::Read;
use trilogue_store::rows::{MessageRow, ThreadRow};
use trilogue_wire::agent_client::splice;
use uuid::Uuid;

use crate::stream::log_reader::LogReader;

/// How much of a log is read at once, in bytes.
const READ_BYTES: usize = 256 * 1024;
/// How much of a log is searched for an unknown id, in bytes.
const MAX_LOOKED_THROUGH_BYTES: usize = 256 * 1024 * 1024;
const MAX_LOOKS: usize = 2;

/// Limits concurrent searches: any caller can request an id that no message has.
static LOOKS: Semaphore = Semaphore::const_new(MAX_LOOKS);

/// Returns a message of a thread: by its id, by its agent's id for it, or by the UUID that clients are shown instead of one of these.
///
/// Finding it by UUID reads the whole log, and finds only messages that have a row: a question as text, for example, has none.
pub(super) async fn find_message(
    read: &Arc<dyn Read>,
    thread: &ThreadRow,
    id: &MessageId,
) -> Result<Option<MessageRow>> {
    if let Some(row) = read.message_in(thread.key, id).await? {
        return Ok(Some(row));
    }
    // Such a UUID is derived from the session's id and another id of the message.
    let is_made = |id: &Uuid| id.get_version_num() == 5;
    if !Uuid::try_parse(id.as_str()).is_ok_and(|id| is_made(&id)) {
        return Ok(None);
    }
    // The semaphore is never closed.
    let _look = LOOKS.acquire().await;
    match find_by_shown_id(read, thread, id.as_str()).await? {
        Some(id) => read.message_in(thread.key, &id).await,
        None => Ok(None),
    }
}

/// Returns the message that clients know by this UUID.
async fn find_by_shown_id(
    read: &Arc<dyn Read>,
    thread: &ThreadRow,
    wanted: &str,
) -> Result<Option<MessageId>> {
    let is_wanted = |id: &str| shown_id(IdFormat::Uuid, thread.id.as_str(), id) == wanted;
    let mut last = None;
    let mut log = LogReader::new(read.as_ref(), thread.key, None).pages_of(READ_BYTES);
    while log.bytes() < MAX_LOOKED_THROUGH_BYTES
        && let Some(page) = log.next().await?
    {
        for event in page.events()? {
            let Some(message) = message_of(event) else { continue };
            // Most pieces belong to the same message as the piece before.
            let piece = (message.clone(), agent_message_id(event));
            if last.as_ref() == Some(&piece) {
                continue;
            }
            if is_wanted(message.as_str()) || piece.1.as_deref().is_some_and(is_wanted) {
                return Ok(Some(message.clone()));
            }
            last = Some(piece);
        }
    }
    Ok(None)
}

/// Returns the id that a hosted agent gave the message.
fn agent_message_id(event: &Event) -> Option<String> {
    let original = event.original.as_ref().filter(|original| *original.dialect == *UPDATE)?;
    let text = std::str::from_utf8(&original.bytes).ok()?;
    splice::message_id(text).map(|id| id.into_owned())
}

pub(super) fn message_of(event: &Event) -> Option<&MessageId> {
    match &event.body {
        Body::Message(
            MessageEvent::Started { message, .. }
            | MessageEvent::Delta { message, .. }
            | MessageEvent::Part { message, .. }
            | MessageEvent::Thought { message: Some(message), .. },
        ) => Some(message),
        _ => None,
    }
}
