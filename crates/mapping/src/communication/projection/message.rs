use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use trilogue_domain::{MessageId, Times};
use trilogue_wire::agent_communication::{Role, Time, splice, sse};

use super::list::SharedList;
use crate::communication::EXTENSION;
use crate::communication::part::append_members;
use crate::time;

/// An incomplete message: its parts are rendered, its pieces of text wait to be joined.
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
    /// When it was complete, if that was known before its turn on the wire came.
    pub(super) ended: Option<Option<Time>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The run's input, and answers to its interrupts.
    Input,
    Output,
    /// The agent's value; its resource has the run's id.
    Result,
    /// The agent's steps without a message behind them.
    Steps,
}

#[derive(Clone, Debug)]
pub(super) enum MessagePiece {
    /// Text that joins its neighbours.
    Text(Arc<str>),
    Part(Bytes),
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

    pub(super) fn items(&self) -> Vec<&MessagePiece> {
        self.items.items()
    }

    /// When it is complete, if that is now: its sender's time, where it states one.
    pub(super) fn end(&self, now: Time) -> Option<Time> {
        self.stated.unwrap_or(Some(now))
    }

    /// The message as it is created: without parts.
    pub(super) fn head(&self) -> Vec<u8> {
        let mut out = Vec::new();
        splice::message(&mut out, &self.role, std::iter::empty::<&[u8]>(), self.created_at, None);
        self.push_id(&mut out);
        out
    }

    /// The whole message: neighbouring pieces of text are one part.
    pub(super) fn whole(&self, completed_at: Option<Time>) -> Bytes {
        let mut out = Vec::new();
        splice::message_head(&mut out, &self.role);
        let items = self.items.items();
        let both_text = |one: &&MessagePiece, two: &&MessagePiece| {
            matches!((one, two), (MessagePiece::Text(_), MessagePiece::Text(_)))
        };
        for (place, run) in items.chunk_by(both_text).enumerate() {
            if place > 0 {
                out.push(b',');
            }
            match run {
                [MessagePiece::Part(part)] => out.extend_from_slice(part),
                texts => {
                    let mut part = Vec::new();
                    splice::text_part(&mut part, texts.iter().filter_map(|item| item.as_text()));
                    sse::safe(&mut part);
                    out.extend_from_slice(&part);
                }
            }
        }
        splice::message_tail(&mut out, self.created_at, completed_at);
        self.push_id(&mut out);
        Bytes::from(out)
    }

    /// Adds the id to a message and not to a part: official clients keep members of parts that they do not know, and compare them.
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
    fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Part(_) => None,
        }
    }

    pub(super) fn as_part(&self) -> Bytes {
        match self {
            Self::Part(part) => part.clone(),
            Self::Text(text) => {
                let mut part = Vec::new();
                splice::text_part(&mut part, [&**text]);
                sse::safe(&mut part);
                Bytes::from(part)
            }
        }
    }
}
