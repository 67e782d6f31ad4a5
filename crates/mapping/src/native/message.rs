use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use trilogue_domain as domain;
use trilogue_domain::content::BlobRef;
use trilogue_domain::{Content, ThreadId};
use trilogue_wire::native::{
    BlobLink, Citation, ContentEncoding, Message, OtherMetadata, Part, PartMetadata, Trajectory,
};

use super::{hex, json};

pub fn message(message: &domain::Message, run_id: Option<&str>, thread: &ThreadId) -> Message {
    Message {
        id: message.id.as_str().to_owned(),
        role: message.role.to_text(),
        parts: parts(&message.parts, thread),
        run_id: run_id.map(str::to_owned),
        created_at: message.created_at.map(|at| at.to_string()),
        completed_at: message.completed_at.map(|at| at.to_string()),
    }
}

pub fn parts(parts: &[domain::Part], thread: &ThreadId) -> Vec<Part> {
    parts.iter().map(|item| part(item, thread)).collect()
}

/// Converts a part for display; large content becomes a link to the thread's blobs.
pub fn part(part: &domain::Part, thread: &ThreadId) -> Part {
    let mut wire = Part {
        content_type: part.content_type.to_string(),
        name: part.name.as_deref().map(str::to_owned),
        metadata: part.metadata.as_ref().map(metadata),
        extra: part.extra.as_ref().map(json),
        ..Part::default()
    };
    match &part.content {
        Content::Empty => {}
        Content::Text(text) => wire.content = Some(text.to_string()),
        Content::Bytes(bytes) => {
            wire.content = Some(STANDARD.encode(bytes));
            wire.content_encoding = Some(ContentEncoding::Base64);
        }
        Content::Url(url) => wire.content_url = Some(url.to_string()),
        Content::Blob(blob) => wire.blob = Some(link(blob, thread)),
    }
    wire
}

fn link(blob: &BlobRef, thread: &ThreadId) -> BlobLink {
    let sha256 = hex(&blob.hash);
    let thread = utf8_percent_encode(thread.as_str(), PATH_SEGMENT);
    BlobLink {
        url: format!("/api/v1/threads/{thread}/blobs/{sha256}"),
        sha256,
        length: blob.length,
        is_text: blob.is_text,
    }
}

/// The characters that must be escaped in one segment of a path.
pub const PATH_SEGMENT: &percent_encoding::AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

fn metadata(metadata: &domain::PartMetadata) -> PartMetadata {
    match metadata {
        domain::PartMetadata::Citation(citation) => PartMetadata::Citation(Citation {
            start_index: citation.start_index,
            end_index: citation.end_index,
            url: citation.url.clone(),
            title: citation.title.clone(),
            description: citation.description.clone(),
        }),
        domain::PartMetadata::Trajectory(trajectory) => PartMetadata::Trajectory(Trajectory {
            message: trajectory.message.clone(),
            tool_name: trajectory.tool_name.clone(),
            tool_input: trajectory.tool_input.as_ref().map(json),
            tool_output: trajectory.tool_output.as_ref().map(json),
        }),
        domain::PartMetadata::Other(value) => {
            PartMetadata::Other(OtherMetadata { value: json(value) })
        }
    }
}
