//! Builds messages from events.

use std::sync::Arc;

use crate::content::{Content, Message, Part, Times};
use crate::event::{Body, Event, MessageEvent};
use crate::id::MessageId;

/// The messages of a part of the log, built event by event.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    messages: Vec<Message>,
    open: Option<OpenText>,
    /// The end times that the senders of open messages stated.
    stated: Vec<(MessageId, Times)>,
}

/// The open text part, to which deltas are appended.
#[derive(Clone, Debug)]
struct OpenText {
    index: usize,
    text: String,
}

// === impl Transcript ===

impl Transcript {
    /// Adds one event.
    pub fn push(&mut self, event: &Event) {
        let Body::Message(body) = &event.body else { return };
        match body {
            MessageEvent::Started { message, role, times } => {
                self.close_text();
                self.stated.extend(times.map(|times| (message.clone(), times)));
                self.messages.push(Message {
                    id: message.clone(),
                    role: role.clone(),
                    parts: Vec::new(),
                    created_at: times.map_or(Some(event.at), |times| times.created_at),
                    completed_at: None,
                });
            }
            MessageEvent::Delta { message, text } => self.delta(message, text),
            MessageEvent::Part { message, part } => {
                self.close_text();
                if let Some(index) = self.index_of(message) {
                    self.messages[index].parts.push(part.clone());
                }
            }
            MessageEvent::Completed { message } => {
                self.close_text();
                let stated = self.stated.iter().position(|(id, _)| id == message);
                let stated = stated.map(|place| self.stated.swap_remove(place).1);
                if let Some(index) = self.index_of(message) {
                    self.messages[index].completed_at =
                        stated.map_or(Some(event.at), |times| times.completed_at);
                }
            }
            MessageEvent::Thought { .. } => {}
        }
    }

    /// Returns the messages so far, in the order in which they began.
    #[must_use]
    pub fn into_messages(mut self) -> Vec<Message> {
        self.close_text();
        self.messages
    }

    fn delta(&mut self, message: &MessageId, text: &str) {
        let Some(index) = self.index_of(message) else { return };
        match &mut self.open {
            Some(open) if open.index == index => open.text.push_str(text),
            _ => {
                self.close_text();
                self.open = Some(OpenText { index, text: text.to_owned() });
            }
        }
    }

    fn close_text(&mut self) {
        if let Some(open) = self.open.take() {
            let part = Part::new("text/plain", Content::Text(Arc::from(open.text)));
            self.messages[open.index].parts.push(part);
        }
    }

    fn index_of(&self, message: &MessageId) -> Option<usize> {
        self.messages.iter().rposition(|candidate| candidate.id == *message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Role;
    use crate::time::Timestamp;

    fn fold(bodies: Vec<MessageEvent>) -> Vec<Message> {
        let mut transcript = Transcript::default();
        for (number, body) in (1..).zip(bodies) {
            transcript.push(&Event {
                number,
                run: None,
                run_number: 0,
                at: Timestamp::from_micros(1),
                body: Body::Message(body),
                original: None,
            });
        }
        transcript.into_messages()
    }

    #[test]
    fn deltas_join_and_a_part_closes_the_text() {
        let message = MessageId::generate();
        let delta =
            |text: &str| MessageEvent::Delta { message: message.clone(), text: Arc::from(text) };
        let part = Part::bytes("image/png", "x").with_name("a.png");
        let messages = fold(vec![
            MessageEvent::Started { message: message.clone(), role: Role::Agent, times: None },
            delta("a"),
            delta("b"),
            MessageEvent::Part { message: message.clone(), part: part.clone() },
            delta("c"),
            MessageEvent::Completed { message: message.clone() },
        ]);
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].parts, [Part::text("ab"), part, Part::text("c")]);
        assert_eq!(messages[0].text(), "abc");
        assert!(messages[0].completed_at.is_some());
    }

    #[test]
    fn an_unfinished_message_keeps_what_was_said() {
        let message = MessageId::generate();
        let messages = fold(vec![
            MessageEvent::Started { message: message.clone(), role: Role::Agent, times: None },
            MessageEvent::Delta { message, text: Arc::from("half") },
        ]);
        assert_eq!(messages[0].text(), "half");
        assert_eq!(messages[0].completed_at, None);
    }
}
