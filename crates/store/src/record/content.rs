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
variants!(Reference: 0 = Message(message), 1 = Result(run), 2 = Address(address));
variants!(Role: 0 = User, 1 = Agent, 2 = NamedAgent(name));
variants!(Content: 0 = Empty, 1 = Text(text), 2 = Bytes(bytes), 3 = Url(url), 4 = Blob(blob));
variants!(PartMetadata: 0 = Citation(citation), 1 = Trajectory(trajectory), 2 = Other(json));

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
