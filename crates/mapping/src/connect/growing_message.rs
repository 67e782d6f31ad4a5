use std::sync::Arc;

use bytes::Bytes;
use trilogue_domain::event::Event;
use trilogue_domain::{Content, Message, MessageId, Part, Role};

use super::block::Links;
use super::message::message;

#[derive(Clone, Debug)]
pub(super) struct GrowingMessage {
    message: Message,
    /// The text that continues the message.
    open: String,
    /// The message as JSON and its text, after it is complete.
    done: Option<(Bytes, Arc<str>)>,
}

// === impl GrowingMessage ===

impl GrowingMessage {
    pub(super) fn new(id: &MessageId, role: &Role, event: &Event) -> Self {
        let message = Message {
            id: id.clone(),
            role: role.clone(),
            parts: Vec::new(),
            created_at: Some(event.at),
            completed_at: None,
        };
        Self { message, open: String::new(), done: None }
    }

    pub(super) fn has_id(&self, id: &MessageId) -> bool {
        self.message.id == *id
    }

    pub(super) fn add_text(&mut self, text: &str) {
        self.open.push_str(text);
    }

    pub(super) fn add_part(&mut self, part: &Part) {
        self.close();
        self.message.parts.push(part.clone());
    }

    /// Renders the complete message; its parts are no longer needed.
    pub(super) fn complete(&mut self, links: &Links) {
        self.close();
        let json = render(&self.message, links);
        self.done = Some((Bytes::from(json), Arc::from(self.message.text())));
        self.message.parts = Vec::new();
    }

    pub(super) fn json(&self, links: &Links) -> Bytes {
        match &self.done {
            Some((json, _)) => json.clone(),
            None => Bytes::from(render(&self.whole(), links)),
        }
    }

    pub(super) fn text(&self) -> Arc<str> {
        match &self.done {
            Some((_, text)) => Arc::clone(text),
            None => Arc::from(self.whole().text()),
        }
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            let text = std::mem::take(&mut self.open);
            self.message.parts.push(text_part(text));
        }
    }

    fn whole(&self) -> Message {
        let mut whole = self.message.clone();
        if !self.open.is_empty() {
            whole.parts.push(text_part(self.open.clone()));
        }
        whole
    }
}

fn text_part(text: String) -> Part {
    Part::new("text/plain", Content::Text(Arc::from(text)))
}

fn render(said: &Message, links: &Links) -> Vec<u8> {
    serde_json::to_vec(&message(said, links)).unwrap_or_else(|_| b"null".to_vec())
}
