//! Ids in an event's head that this server assigned.

use trilogue_domain::event::{Body, InterruptEvent, MessageEvent, ToolEvent};
use trilogue_domain::{InterruptId, MessageId};

use super::codec::{Damage, DecodeResult, FieldReader, put_bytes};
use super::field::text;

/// The server's id in an event's head: the original does not have it, or has the peer's id.
#[derive(Clone, Copy, Debug)]
pub(super) enum RecordSubject<'a> {
    None,
    Message(&'a str),
    Tool(&'a str),
    Interrupt(&'a str),
    /// A tool call, and the message that it belongs to.
    ToolOf(&'a str, &'a str),
}

// === impl RecordSubject ===

impl<'a> RecordSubject<'a> {
    /// The id that the head of this body holds.
    pub(super) fn of(body: &'a Body) -> Self {
        match body {
            Body::Message(
                MessageEvent::Started { message, .. }
                | MessageEvent::Delta { message, .. }
                | MessageEvent::Part { message, .. }
                | MessageEvent::Completed { message }
                | MessageEvent::Thought { message: Some(message), .. },
            ) => Self::Message(message.as_str()),
            Body::Tool(ToolEvent::Started { call, message: Some(message), .. }) => {
                Self::ToolOf(call, message.as_str())
            }
            Body::Tool(
                ToolEvent::Started { call, .. }
                | ToolEvent::Updated { call, .. }
                | ToolEvent::Ended { call, .. },
            ) => Self::Tool(call),
            Body::Interrupt(InterruptEvent::Raised(interrupt)) => {
                Self::Interrupt(interrupt.id.as_str())
            }
            Body::Interrupt(InterruptEvent::Resolved { interrupt, .. }) => {
                Self::Interrupt(interrupt.as_str())
            }
            _ => Self::None,
        }
    }

    pub(super) fn put(self, out: &mut Vec<u8>) {
        let (kind, id) = match self {
            Self::None => return out.push(0),
            Self::Message(id) => (1, id),
            Self::Tool(id) => (2, id),
            Self::Interrupt(id) => (3, id),
            Self::ToolOf(id, _) => (4, id),
        };
        out.push(kind);
        put_bytes(out, id.as_bytes());
        if let Self::ToolOf(_, message) = self {
            put_bytes(out, message.as_bytes());
        }
    }

    pub(super) fn take(input: &mut FieldReader<'a>) -> DecodeResult<Self> {
        match input.byte()? {
            0 => Ok(Self::None),
            1 => text(input).map(Self::Message),
            2 => text(input).map(Self::Tool),
            3 => text(input).map(Self::Interrupt),
            4 => Ok(Self::ToolOf(text(input)?, text(input)?)),
            _ => Err(Damage("it holds an unknown kind of subject")),
        }
    }

    /// The body with the head's id filled in.
    pub(super) fn restore(self, mut body: Body) -> DecodeResult<Body> {
        const MALFORMED: Damage = Damage("it holds a malformed id");
        match (self, &mut body) {
            (
                Self::Message(id),
                Body::Message(
                    MessageEvent::Started { message, .. }
                    | MessageEvent::Delta { message, .. }
                    | MessageEvent::Part { message, .. }
                    | MessageEvent::Completed { message },
                ),
            ) => *message = MessageId::parse(id).map_err(|_| MALFORMED)?,
            (Self::Message(id), Body::Message(MessageEvent::Thought { message, .. })) => {
                *message = Some(MessageId::parse(id).map_err(|_| MALFORMED)?);
            }
            (
                Self::Tool(id),
                Body::Tool(
                    ToolEvent::Started { call, .. }
                    | ToolEvent::Updated { call, .. }
                    | ToolEvent::Ended { call, .. },
                ),
            ) => id.clone_into(call),
            (Self::ToolOf(id, of), Body::Tool(ToolEvent::Started { call, message, .. })) => {
                id.clone_into(call);
                *message = Some(MessageId::parse(of).map_err(|_| MALFORMED)?);
            }
            (
                Self::ToolOf(id, _),
                Body::Tool(ToolEvent::Updated { call, .. } | ToolEvent::Ended { call, .. }),
            ) => id.clone_into(call),
            (Self::Interrupt(id), Body::Interrupt(InterruptEvent::Raised(interrupt))) => {
                interrupt.id = InterruptId::parse(id).map_err(|_| MALFORMED)?;
            }
            (Self::Interrupt(id), Body::Interrupt(InterruptEvent::Resolved { interrupt, .. })) => {
                *interrupt = InterruptId::parse(id).map_err(|_| MALFORMED)?
            }
            _ => {}
        }
        Ok(body)
    }
}
