//! What a part may hold: large content goes beside the log, large metadata is refused.

use trilogue_domain::content::{BlobRef, Content, Part, PartMetadata};
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, MessageEvent};
use trilogue_domain::{Code, Error, Input, Json, Scope, limits};
use trilogue_store::Store;

/// What the JSON of a citation or a trajectory needs around its texts, in bytes.
const METADATA_MEMBERS_BYTES: usize = 96;

/// Replaces a part's large content by a reference to a stored blob.
pub(crate) async fn outline(store: &dyn Store, scope: &Scope, mut part: Part) -> Result<Part> {
    let (bytes, is_text) = match &part.content {
        Content::Text(text) if text.len() > limits::INLINE_CONTENT_BYTES => {
            (bytes::Bytes::copy_from_slice(text.as_bytes()), true)
        }
        Content::Bytes(bytes) if bytes.len() > limits::INLINE_CONTENT_BYTES => {
            (bytes.clone(), false)
        }
        _ => return Ok(part),
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
    Ok(part)
}

/// The event with large content stored beside the log and named instead.
pub(crate) async fn outlined(store: &dyn Store, scope: &Scope, body: Body) -> Result<Body> {
    match body {
        Body::Message(MessageEvent::Part { message, part }) => {
            let part = outline(store, scope, part).await?;
            Ok(Body::Message(MessageEvent::Part { message, part }))
        }
        body => Ok(body),
    }
}

/// Passes when the metadata of an event's part is at most `max` bytes.
///
/// # Errors
/// As [`check_metadata`].
pub(crate) fn check_part(body: &Body, max: usize) -> Result<()> {
    match body {
        Body::Message(MessageEvent::Part { part, .. }) if part.metadata.is_some() => {
            check_metadata([part], max)
        }
        _ => Ok(()),
    }
}

/// Whether a part's content goes beside the log.
pub(crate) fn has_large_content(body: &Body) -> bool {
    let Body::Message(MessageEvent::Part { part, .. }) = body else { return false };
    match &part.content {
        Content::Text(text) => text.len() > limits::INLINE_CONTENT_BYTES,
        Content::Bytes(bytes) => bytes.len() > limits::INLINE_CONTENT_BYTES,
        Content::Empty | Content::Url(_) | Content::Blob(_) => false,
    }
}

/// Whether an input refers to content beside the log.
pub(crate) fn names_content(input: &Input) -> bool {
    let Input::Messages(messages) = input else { return false };
    let mut parts = messages.iter().flat_map(|message| &message.parts);
    parts.any(|part| matches!(part.content, Content::Blob(_)))
}

/// Passes when the metadata of every part is at most `max` bytes.
///
/// # Errors
/// `event_too_large`, naming the part and the limit.
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

/// Roughly the length of the metadata's JSON: its texts are counted, not escaped.
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
