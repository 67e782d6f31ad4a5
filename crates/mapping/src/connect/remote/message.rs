//! A message of a remote agent that grows from one reading to the next.

use std::sync::Arc;

use trilogue_domain::event::MessageEvent;
use trilogue_domain::{Body, Content, MessageId, Part, Role};

/// A message of a remote agent, up to the logged part of it.
#[derive(Clone, Debug)]
pub(super) struct RemoteMessage {
    pub(super) id: MessageId,
    /// Its id at the server, if it has one.
    pub(super) server_id: Option<String>,
    /// The number of parts that were logged whole.
    parts: usize,
    /// The logged text of the part after them.
    text: String,
    /// Whether the last part that was logged whole is a piece of plain text.
    is_after_text: bool,
    pub(super) is_complete: bool,
    /// Whether its server sends its pieces one by one, and its end.
    pub(super) comes_in_pieces: bool,
    /// Whether it was logged before a question, so that its logged part is not known any more.
    is_past: bool,
}

// === impl RemoteMessage ===

impl RemoteMessage {
    pub(super) fn begin(
        id: MessageId,
        theirs: Option<String>,
        role: &Role,
        out: &mut Vec<Body>,
    ) -> Self {
        let started =
            MessageEvent::Started { message: id.clone(), role: role.clone(), times: None };
        out.push(Body::Message(started));
        Self::new(id, theirs, false)
    }

    /// Creates a message that was logged before a question.
    pub(super) fn from_progress(id: MessageId, theirs: Option<String>) -> Self {
        Self::new(id, theirs, true)
    }

    fn new(id: MessageId, theirs: Option<String>, is_past: bool) -> Self {
        Self {
            id,
            server_id: theirs,
            parts: 0,
            text: String::new(),
            is_after_text: false,
            is_complete: is_past,
            comes_in_pieces: false,
            is_past,
        }
    }

    /// Returns what was added to a message after it was complete, as a separate message.
    pub(super) fn addition(
        &self,
        id: MessageId,
        parts: &[Part],
        out: &mut Vec<Body>,
    ) -> Option<Self> {
        if self.is_past || !self.is_complete {
            return None;
        }
        let mut more = Self { id, is_complete: false, ..self.clone() };
        more.grow(parts, true, out);
        (!out.is_empty()).then_some(more)
    }

    /// Adds to `out` what these parts have beyond the logged part. Plain text is logged as it grows; any other part once it is whole.
    /// The last part can still grow unless the message `is_whole`.
    pub(super) fn grow(&mut self, parts: &[Part], is_whole: bool, out: &mut Vec<Body>) {
        while let Some(part) = parts.get(self.parts).filter(|_| !self.is_complete) {
            let is_closed = is_whole || self.parts + 1 < parts.len();
            match plain_text(part).filter(|_| !self.is_after_text || !self.text.is_empty()) {
                Some(text) => {
                    let new = text.strip_prefix(self.text.as_str()).unwrap_or_default();
                    if !new.is_empty() {
                        self.delta(new.into(), out);
                    }
                    if !is_closed {
                        return;
                    }
                    self.close();
                }
                None if is_closed || !matches!(part.content, Content::Text(_)) => {
                    self.part(part.clone(), out);
                }
                None => return,
            }
        }
    }

    /// Whether parts differ from the logged ones, so that they are another version of the message.
    pub(super) fn differs(&self, parts: &[Part]) -> bool {
        let told = parts.get(self.parts).and_then(plain_text).map_or("", |text| text);
        parts.len() < self.parts || !told.starts_with(self.text.as_str())
    }

    pub(super) fn delta(&mut self, text: Arc<str>, out: &mut Vec<Body>) {
        self.text.push_str(&text);
        out.push(Body::Message(MessageEvent::Delta { message: self.id.clone(), text }));
    }

    pub(super) fn part(&mut self, part: Part, out: &mut Vec<Body>) {
        if !self.text.is_empty() {
            self.close();
        }
        self.is_after_text = plain_text(&part).is_some();
        self.parts += 1;
        out.push(Body::Message(MessageEvent::Part { message: self.id.clone(), part }));
    }

    pub(super) fn complete(&mut self, out: &mut Vec<Body>) {
        if !std::mem::replace(&mut self.is_complete, true) {
            out.push(Body::Message(MessageEvent::Completed { message: self.id.clone() }));
        }
    }

    fn close(&mut self) {
        self.text = String::new();
        self.parts += 1;
        self.is_after_text = true;
    }
}

/// Returns the text that continues a message, if a part contains only text.
fn plain_text(part: &Part) -> Option<&str> {
    match &part.content {
        Content::Text(text) if *part == Part::text(text.clone()) => Some(text),
        _ => None,
    }
}
