use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};
use trilogue_domain::{MessageId, Part, PartMetadata, Times, Trajectory};
use trilogue_wire::agent_communication::{Role, Time, splice, sse};

use super::list::SharedList;
use crate::communication::part::{append_members, write_part};
use crate::communication::{EXTENSION, further_members};
use crate::time;

/// An incomplete message: its parts are rendered, and its pieces of text wait to be joined.
#[derive(Clone, Debug)]
pub(super) struct RenderedMessage {
    /// `None` while it has only steps, and for a run's result.
    pub(super) id: Option<MessageId>,
    pub(super) kind: Kind,
    role: Role,
    created_at: Option<Time>,
    /// The completion time that its sender stated.
    stated: Option<Option<Time>>,
    items: SharedList<MessagePiece>,
    /// Its further members, without braces.
    further: Arc<[u8]>,
    /// When it was complete, if that was known before its turn on the wire.
    pub(super) ended: Option<Option<Time>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The run's input, and answers to its interrupts.
    Input,
    Output,
    /// The agent's value; its resource has the run's id.
    Result,
    /// The agent's steps without a message after them.
    Steps,
}

#[derive(Clone, Debug)]
pub(super) enum MessagePiece {
    /// Text that joins its neighbours.
    Text(Arc<str>),
    /// A piece of a thought, which joins its neighbours of the same thought.
    Thought(ThoughtPiece),
    Part(Bytes),
}

#[derive(Clone, Debug)]
pub(super) struct ThoughtPiece {
    /// The thought's id, if its agent gave one.
    pub(super) id: Option<Arc<str>>,
    pub(super) text: Arc<str>,
    pub(super) is_strict: bool,
}

// === impl RenderedMessage ===

impl RenderedMessage {
    pub(super) fn new(
        id: Option<MessageId>,
        kind: Kind,
        role: Role,
        at: Time,
        times: Option<Times>,
    ) -> Self {
        let mut growing = Self {
            id: None,
            kind,
            role,
            created_at: Some(at),
            stated: None,
            items: SharedList::default(),
            further: Arc::default(),
            ended: None,
        };
        growing.become_message(id, kind, times);
        growing
    }

    pub(super) fn become_message(
        &mut self,
        id: Option<MessageId>,
        kind: Kind,
        times: Option<Times>,
    ) {
        self.id = id;
        self.kind = kind;
        if let Some(Times { created_at, completed_at }) = times {
            self.created_at = created_at.map(time);
            self.stated = Some(completed_at.map(time));
        }
    }

    pub(super) fn add(&mut self, item: MessagePiece) {
        self.items.push(item);
    }

    /// Shows the members that its sender's protocol does not declare.
    pub(super) fn add_further(&mut self, members: Map<String, Value>) {
        let members: Map<String, Value> = further_members(members).collect();
        let mut shown = Value::Object(members).to_string().into_bytes();
        sse::safe(&mut shown);
        let inner = shown.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
        self.further = inner.unwrap_or_default().into();
    }

    pub(super) fn items(&self) -> Vec<&MessagePiece> {
        self.items.items()
    }

    /// Returns its completion time if it completes now: its sender's time, if given.
    pub(super) fn end(&self, now: Time) -> Option<Time> {
        self.stated.unwrap_or(Some(now))
    }

    /// Renders the message as created: without parts.
    pub(super) fn head(&self) -> Vec<u8> {
        let mut out = Vec::new();
        splice::message(&mut out, &self.role, std::iter::empty::<&[u8]>(), self.created_at, None);
        self.push_id(&mut out);
        out
    }

    /// Renders the whole message: neighbouring pieces of text become one part, and so do those of a thought.
    pub(super) fn whole(&self, completed_at: Option<Time>) -> Bytes {
        let mut out = Vec::new();
        splice::message_head(&mut out, &self.role);
        let items = self.items.items();
        for (place, run) in items.chunk_by(|one, two| one.is_joined_by(two)).enumerate() {
            if place > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&joined(run));
        }
        splice::message_tail(&mut out, self.created_at, completed_at);
        append_members(&self.further, &mut out);
        self.push_id(&mut out);
        Bytes::from(out)
    }

    /// Adds the id to the message and not to a part: official clients keep and compare unknown members of parts.
    fn push_id(&self, out: &mut Vec<u8>) {
        let Some(id) = &self.id else { return };
        let id = Value::from(id.as_str());
        let mut member = format!("\"{EXTENSION}\":{{\"message_id\":{id}}}").into_bytes();
        sse::safe(&mut member);
        append_members(member, out);
    }
}

// === impl MessagePiece ===

impl MessagePiece {
    fn is_joined_by(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Text(_), Self::Text(_)) => true,
            (Self::Thought(one), Self::Thought(two)) => one.id == two.id,
            _ => false,
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Thought(ThoughtPiece { text, .. }) => text,
            Self::Part(_) => "",
        }
    }

    pub(super) fn as_part(&self) -> Bytes {
        joined(&[self])
    }
}

/// Renders pieces that join as one part.
fn joined(pieces: &[&MessagePiece]) -> Bytes {
    let mut part = Vec::new();
    match pieces.first() {
        Some(MessagePiece::Part(part)) => return part.clone(),
        Some(MessagePiece::Thought(ThoughtPiece { is_strict, .. })) => {
            let message = Some(pieces.iter().map(|piece| piece.text()).collect());
            let step = Trajectory { message, ..Trajectory::default() };
            let whole = Part::annotation(PartMetadata::Trajectory(step));
            // A thought has no stored content.
            write_part(&whole, *is_strict, |_| String::new(), &mut part);
        }
        _ => splice::text_part(&mut part, pieces.iter().map(|piece| piece.text())),
    }
    sse::safe(&mut part);
    Bytes::from(part)
}
