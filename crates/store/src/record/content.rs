use trilogue_domain::content::BlobRef;
use trilogue_domain::{
    Citation, ClientHistory, Content, Part, PartMetadata, Reference, Role, Times, Trajectory,
};

use super::codec::{Damage, DecodeResult, FieldReader};
use super::field::{Field, fields, variants};

fields!(Part { content_type, content, name, metadata, extra });
fields!(BlobRef { hash, length, is_text });
fields!(Times { created_at, completed_at });
fields!(ClientHistory { entries, state });
fields!(Citation { start_index, end_index, url, title, description });
fields!(Trajectory { message, tool_name, tool_input, tool_output });
variants!(Role: 0 = User, 1 = Agent, 2 = NamedAgent(name));
variants!(Content: 0 = Empty, 1 = Text(text), 2 = Bytes(bytes), 3 = Url(url), 4 = Blob(blob));
variants!(PartMetadata: 0 = Citation(citation), 1 = Trajectory(trajectory), 2 = Other(json));

// === impl Field for Reference ===

impl Field for Reference {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Message { thread: None, id } => {
                out.push(0);
                id.put(out);
            }
            Self::Result(run) => {
                out.push(1);
                run.put(out);
            }
            Self::Address(address) => {
                out.push(2);
                address.put(out);
            }
            Self::Message { thread: Some(thread), id } => {
                out.push(3);
                thread.put(out);
                id.put(out);
            }
        }
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        match input.byte()? {
            // The first version stored no thread.
            0 => Ok(Self::Message { thread: None, id: Field::take(input)? }),
            1 => Field::take(input).map(Self::Result),
            2 => Field::take(input).map(Self::Address),
            3 => Ok(Self::Message { thread: Some(Field::take(input)?), id: Field::take(input)? }),
            _ => Err(Damage("it holds an unknown Reference")),
        }
    }
}

pub(super) fn blobs_of(parts: &[Part], blobs: &mut Vec<BlobRef>) {
    for part in parts {
        // Compare only neighbours: an engine stores equal references once anyway.
        if let Content::Blob(blob) = &part.content
            && blobs.last() != Some(blob)
        {
            blobs.push(blob.clone());
        }
    }
}
