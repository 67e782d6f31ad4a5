//! Size limits of parts: large content is stored as blobs, large metadata is refused.

use trilogue_domain::content::{BlobRef, Content, Part, PartMetadata};
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, MessageEvent, ToolEvent};
use trilogue_domain::{Code, Error, Input, Json, Message, Scope, limits};
use trilogue_store::Store;

/// The bytes of a citation's or a trajectory's JSON in addition to its texts.
const METADATA_MEMBERS_BYTES: usize = 96;
/// The most content of one group of messages that stays in the log, in bytes.
const MAX_INLINE_BYTES: usize = 1024 * 1024;
/// Content of up to this many bytes stays in the log even then.
const SMALL_CONTENT_BYTES: usize = 4 * 1024;

/// Replaces the large content of a group of messages by blob references; also medium content if the messages would not fit into one append.
pub(crate) async fn outline_all(
    store: &dyn Store,
    scope: &Scope,
    messages: &mut [Message],
) -> Result<()> {
    let mut inline = 0;
    for message in messages {
        for part in &mut message.parts {
            let content = content_bytes(part);
            let metadata = part.metadata.as_ref().map_or(0, metadata_bytes);
            let is_much = inline + content + metadata > MAX_INLINE_BYTES;
            let most = if is_much { SMALL_CONTENT_BYTES } else { limits::INLINE_CONTENT_BYTES };
            inline += metadata + if content > most { 0 } else { content };
            outline(store, scope, part, most).await?;
        }
    }
    Ok(())
}

/// Replaces a part's content by a reference to a stored blob if it has more than this many bytes.
async fn outline(store: &dyn Store, scope: &Scope, part: &mut Part, most: usize) -> Result<()> {
    let (bytes, is_text) = match &part.content {
        Content::Text(text) if text.len() > most => {
            (bytes::Bytes::copy_from_slice(text.as_bytes()), true)
        }
        Content::Bytes(bytes) if bytes.len() > most => (bytes.clone(), false),
        _ => return Ok(()),
    };
    if bytes.len() > limits::MAX_BLOB_BYTES {
        return Err(Error::new(
            Code::BlobTooLarge,
            format!(
                "the part has {} bytes of content; {} is the most",
                bytes.len(),
                limits::MAX_BLOB_BYTES
            ),
        )
        .hint("give a URL instead"));
    }
    let blob: BlobRef = store.put_blob(&scope.tenant, bytes, is_text).await?;
    part.content = Content::Blob(blob);
    Ok(())
}

/// Returns the bytes of a part's inline content.
fn content_bytes(part: &Part) -> usize {
    match &part.content {
        Content::Text(text) => text.len(),
        Content::Bytes(bytes) => bytes.len(),
        Content::Empty | Content::Url(_) | Content::Blob(_) => 0,
    }
}

/// Returns the bytes of a part's inline content and of its metadata.
pub(crate) fn part_bytes(part: &Part) -> usize {
    content_bytes(part) + part.metadata.as_ref().map_or(0, metadata_bytes)
}

/// Whether [`outline_all`] would not change these messages.
pub(crate) fn are_small(messages: &[Message]) -> bool {
    let parts = messages.iter().flat_map(|message| &message.parts);
    parts.map(part_bytes).sum::<usize>() <= SMALL_CONTENT_BYTES.min(limits::INLINE_CONTENT_BYTES)
}

/// Returns the event with the large content of its parts replaced by blob references.
pub(crate) async fn outlined(store: &dyn Store, scope: &Scope, mut body: Body) -> Result<Body> {
    let parts = match &mut body {
        Body::Message(MessageEvent::Part { part, .. }) => std::slice::from_mut(part),
        Body::Tool(ToolEvent::Updated { content, .. }) => content,
        _ => return Ok(body),
    };
    for part in parts {
        outline(store, scope, part, limits::INLINE_CONTENT_BYTES).await?;
    }
    Ok(body)
}

/// Checks that the metadata of an event's part is at most `max` bytes. Fails as [`check_metadata`].
pub(crate) fn check_part(body: &Body, max: usize) -> Result<()> {
    match body {
        Body::Message(MessageEvent::Part { part, .. }) if part.metadata.is_some() => {
            check_metadata([part], max)
        }
        _ => Ok(()),
    }
}

/// Whether content of an event must be stored as a blob.
pub(crate) fn has_large_content(body: &Body) -> bool {
    let parts = match body {
        Body::Message(MessageEvent::Part { part, .. }) => std::slice::from_ref(part),
        Body::Tool(ToolEvent::Updated { content, .. }) => content,
        _ => return false,
    };
    parts.iter().any(|part| content_bytes(part) > limits::INLINE_CONTENT_BYTES)
}

/// Whether an input refers to blobs.
pub(crate) fn names_content(input: &Input) -> bool {
    let Input::Messages(messages) = input else { return false };
    let mut parts = messages.iter().flat_map(|message| &message.parts);
    parts.any(|part| matches!(part.content, Content::Blob(_)))
}

/// Checks that the metadata of every part has at most `max` bytes; fails with `event_too_large`, with the part and the limit.
pub(crate) fn check_metadata<'a>(
    parts: impl IntoIterator<Item = &'a Part>,
    max: usize,
) -> Result<()> {
    for (place, part) in parts.into_iter().enumerate() {
        let bytes = part.metadata.as_ref().map_or(0, metadata_bytes);
        if bytes > max {
            return Err(Error::new(
                Code::EventTooLarge,
                format!("the metadata of part {place} has {bytes} bytes; {max} is the most"),
            )
            .hint("metadata says what a part means; send content as content"));
        }
    }
    Ok(())
}

/// Returns an estimate of the length of the metadata's JSON: texts are counted without escapes.
fn metadata_bytes(metadata: &PartMetadata) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let json = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.as_bytes().len());
    match metadata {
        PartMetadata::Citation(citation) => {
            METADATA_MEMBERS_BYTES
                + text(&citation.url)
                + text(&citation.title)
                + text(&citation.description)
        }
        PartMetadata::Trajectory(trajectory) => {
            METADATA_MEMBERS_BYTES
                + text(&trajectory.message)
                + text(&trajectory.tool_name)
                + json(&trajectory.tool_input)
                + json(&trajectory.tool_output)
        }
        PartMetadata::Other(other) => other.as_bytes().len(),
    }
}
