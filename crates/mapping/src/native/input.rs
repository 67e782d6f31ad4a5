use std::sync::Arc;

use trilogue_domain as domain;
use trilogue_domain::error::Result;
use trilogue_domain::{
    Code, Content, Error, Input, Message, MessageId, Part, Role, Timestamp, limits,
};
use trilogue_wire::native::{ContentEncoding, InputMessage, InputPart, PartMetadata, RunInput};

use super::{escape_for_message, read_json, read_object};
use crate::repeated_id;
use trilogue_wire::encoded_bytes::decode_base64;

const MAX_CONTENT_TYPE_BYTES: usize = 256;

/// Converts a run's input; its messages are sent now.
/// Errors: `invalid_request`, `invalid_id`, `too_many_parts`, `json_too_deep`.
pub fn input(input: RunInput, now: Timestamp) -> Result<Input> {
    match input {
        RunInput::Text(text) => {
            Ok(Input::Messages(vec![Message::new(Role::User, vec![Part::text(text)], Some(now))]))
        }
        RunInput::Value(value) => Ok(Input::Value(read_json(value)?)),
        RunInput::Messages(messages) if messages.is_empty() => {
            Err(Error::new(Code::InvalidRequest, "'input' has no messages"))
        }
        RunInput::Messages(messages) if messages.len() > limits::MAX_MESSAGES_PER_INPUT => {
            Err(Error::new(
                Code::TooManyParts,
                format!("'input' has more than {} messages", limits::MAX_MESSAGES_PER_INPUT),
            ))
        }
        RunInput::Messages(messages) => {
            let messages = messages.into_iter().map(|item| message(item, now));
            let messages = messages.collect::<Result<Vec<_>>>()?;
            match repeated_id(&messages) {
                None => Ok(Input::Messages(messages)),
                Some(place) => Err(Error::new(
                    Code::InvalidRequest,
                    format!("input[{place}].id is the id of an earlier message too"),
                )),
            }
        }
    }
}

fn message(message: InputMessage, now: Timestamp) -> Result<Message> {
    let id = message.id.as_deref().map(MessageId::parse).transpose()?;
    let role = match message.role.as_deref() {
        None => Role::User,
        Some(text) => Role::from_text(text).ok_or_else(|| {
            let text = escape_for_message(text);
            Error::new(Code::InvalidRequest, format!("unknown role '{text}'"))
                .hint("a role is 'user', 'agent' or 'agent/NAME'")
        })?,
    };
    let (id, parts) = (id.unwrap_or_else(MessageId::generate), parts(message.parts)?);
    Ok(Message { id, role, parts, created_at: Some(now), completed_at: Some(now) })
}

/// Converts parts of a message, in order. Fails as [`input`].
pub fn parts(parts: Vec<InputPart>) -> Result<Vec<Part>> {
    if parts.len() > limits::MAX_PARTS_PER_MESSAGE {
        return Err(Error::new(
            Code::TooManyParts,
            format!("a message has more than {} parts", limits::MAX_PARTS_PER_MESSAGE),
        ));
    }
    parts.into_iter().map(part).collect()
}

fn part(part: InputPart) -> Result<Part> {
    let content_type = part.content_type.unwrap_or_else(|| "text/plain".to_owned());
    check_content_type(&content_type)?;
    let content = match (part.content, part.content_url) {
        (Some(_), Some(_)) => {
            return Err(Error::new(
                Code::InvalidRequest,
                "a part has both 'content' and 'content_url'",
            ));
        }
        (None, Some(url)) => Content::Url(Arc::from(url)),
        (None, None) => Content::Empty,
        (Some(content), None) => match part.content_encoding {
            None | Some(ContentEncoding::Plain) => Content::Text(Arc::from(content)),
            Some(ContentEncoding::Base64) => Content::Bytes(decode(&content)?.into()),
        },
    };
    Ok(Part {
        content_type: Arc::from(content_type),
        content,
        name: part.name.map(Arc::from),
        metadata: part.metadata.map(metadata).transpose()?,
        extra: read_object(part.extra, "extra")?,
    })
}

fn check_content_type(text: &str) -> Result<()> {
    let (kind, sub) = text.split_once('/').unwrap_or_default();
    let visible = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if !kind.is_empty() && !sub.is_empty() && visible && text.len() <= MAX_CONTENT_TYPE_BYTES {
        return Ok(());
    }
    let text = escape_for_message(text);
    Err(Error::new(Code::InvalidRequest, format!("invalid MIME type '{text}'"))
        .hint("a MIME type is such as text/plain or image/png"))
}

fn decode(content: &str) -> Result<Vec<u8>> {
    decode_base64(content)
        .ok_or_else(|| Error::new(Code::InvalidRequest, "a part's content is not base64"))
}

fn metadata(metadata: PartMetadata) -> Result<domain::PartMetadata> {
    Ok(match metadata {
        PartMetadata::Citation(citation) => domain::PartMetadata::Citation(domain::Citation {
            start_index: citation.start_index,
            end_index: citation.end_index,
            url: citation.url,
            title: citation.title,
            description: citation.description,
        }),
        PartMetadata::Trajectory(trajectory) => {
            domain::PartMetadata::Trajectory(domain::Trajectory {
                message: trajectory.message,
                tool_name: trajectory.tool_name,
                tool_input: trajectory.tool_input.map(read_json).transpose()?,
                tool_output: trajectory.tool_output.map(read_json).transpose()?,
            })
        }
        PartMetadata::Other(other) => domain::PartMetadata::Other(read_json(other.value)?),
    })
}
