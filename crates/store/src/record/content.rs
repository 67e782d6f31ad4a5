//! Messages' parts and what they hold.

use std::sync::Arc;

use trilogue_domain::content::BlobRef;
use trilogue_domain::{
    Citation, Content, Given, Part, PartMetadata, Reference, Role, Times, Trajectory,
};

use super::codec::{Damage, Decoded, Reader};
use super::field::{Field, fields};

fields!(Part { content_type, content, name, metadata, extra });
fields!(BlobRef { hash, length, is_text });
fields!(Times { created_at, completed_at });
fields!(Given { entries, state });
fields!(Citation { start_index, end_index, url, title, description });
fields!(Trajectory { message, tool_name, tool_input, tool_output });

/// Adds the blobs that the parts name.
pub(super) fn blobs_of(parts: &[Part], blobs: &mut Vec<BlobRef>) {
    for part in parts {
        // Only neighbours are compared: an engine stores the same reference once anyway.
        if let Content::Blob(blob) = &part.content
            && blobs.last() != Some(blob)
        {
            blobs.push(blob.clone());
        }
    }
}

// === impl Field ===

impl Field for Reference {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Message(message) => {
                out.push(0);
                message.put(out);
            }
            Self::Result(run) => {
                out.push(1);
                run.put(out);
            }
            Self::Address(address) => {
                out.push(2);
                address.put(out);
            }
        }
    }

    fn take(input: &mut Reader<'_>) -> Decoded<Self> {
        match input.byte()? {
            0 => Field::take(input).map(Self::Message),
            1 => Field::take(input).map(Self::Result),
            2 => Field::take(input).map(Self::Address),
            _ => Err(Damage("it holds an unknown reference")),
        }
    }
}

impl Field for Role {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::User => out.push(0),
            Self::Agent => out.push(1),
            Self::NamedAgent(name) => {
                out.push(2);
                name.put(out);
            }
        }
    }

    fn take(input: &mut Reader<'_>) -> Decoded<Self> {
        match input.byte()? {
            0 => Ok(Self::User),
            1 => Ok(Self::Agent),
            2 => Arc::take(input).map(Self::NamedAgent),
            _ => Err(Damage("it holds an unknown role")),
        }
    }
}

impl Field for Content {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Empty => out.push(0),
            Self::Text(text) => {
                out.push(1);
                text.put(out);
            }
            Self::Bytes(bytes) => {
                out.push(2);
                bytes.put(out);
            }
            Self::Url(url) => {
                out.push(3);
                url.put(out);
            }
            Self::Blob(blob) => {
                out.push(4);
                blob.put(out);
            }
        }
    }

    fn take(input: &mut Reader<'_>) -> Decoded<Self> {
        match input.byte()? {
            0 => Ok(Self::Empty),
            1 => Field::take(input).map(Self::Text),
            2 => Field::take(input).map(Self::Bytes),
            3 => Field::take(input).map(Self::Url),
            4 => Field::take(input).map(Self::Blob),
            _ => Err(Damage("it holds an unknown kind of content")),
        }
    }
}

impl Field for PartMetadata {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Citation(citation) => {
                out.push(0);
                citation.put(out);
            }
            Self::Trajectory(trajectory) => {
                out.push(1);
                trajectory.put(out);
            }
            Self::Other(json) => {
                out.push(2);
                json.put(out);
            }
        }
    }

    fn take(input: &mut Reader<'_>) -> Decoded<Self> {
        match input.byte()? {
            0 => Field::take(input).map(Self::Citation),
            1 => Field::take(input).map(Self::Trajectory),
            2 => Field::take(input).map(Self::Other),
            _ => Err(Damage("it holds an unknown kind of part metadata")),
        }
    }
}
