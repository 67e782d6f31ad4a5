use std::collections::HashMap;

use trilogue_wire::agent_client::{ContentBlock, SessionUpdate};

use super::peer::RawJson;

/// The maximum number of remembered message ids, which assign later chunks to their messages. The oldest are forgotten first.
const MAX_KNOWN_MESSAGES: usize = 1_024;

/// An update of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// The update. An unknown kind is kept as it arrived.
    pub body: SessionUpdate,
    /// The message that this is a piece of, if any.
    pub message: Option<Piece>,
    /// The notification's params as the agent wrote them, including unknown members.
    pub original: RawJson,
}

/// The message that a piece belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The number of the message in the session on this connection, from 1. Pieces with the same number belong to the same message.
    pub number: u64,
    /// The author of the message.
    pub speaker: Speaker,
    /// The message's id, if the agent sends ids. Compare it only; its form has no meaning.
    pub id: Option<String>,
    /// Whether this is the first piece of the message.
    pub is_first: bool,
    /// The id under which this program already knows a user message, so that it need not show the message again.
    pub known_as: Option<String>,
}

/// The author of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Speaker {
    /// The user.
    User,
    /// The agent.
    Agent,
    /// The agent's thoughts.
    Thought,
}

/// Assigns pieces to messages. A piece with an id belongs to the message of its speaker and id. A piece without an id continues the open message, until another speaker, a tool call or a prompt begins.
#[derive(Debug, Default)]
pub(super) struct Grouping {
    last: u64,
    /// The open message without an id.
    open: Option<(Speaker, u64)>,
    known: HashMap<(Speaker, String), u64>,
}

/// Messages that are assembled from pieces, in the order in which they began.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Messages(Vec<Message>);

/// A message, with the pieces so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The author of the message.
    pub speaker: Speaker,
    /// The message's id, if the agent sends ids.
    pub id: Option<String>,
    /// The content blocks. Consecutive text is merged into one block.
    pub content: Vec<ContentBlock>,
    number: u64,
}

// === impl Speaker ===

impl Speaker {
    fn of(update: &SessionUpdate) -> Option<Self> {
        match update {
            SessionUpdate::UserMessageChunk(_) => Some(Self::User),
            SessionUpdate::AgentMessageChunk(_) => Some(Self::Agent),
            SessionUpdate::AgentThoughtChunk(_) => Some(Self::Thought),
            _ => None,
        }
    }
}

// === impl Grouping ===

impl Grouping {
    /// Assigns an update to its message. Returns `None` if the update is not a piece of a message.
    pub(super) fn place(&mut self, update: &SessionUpdate) -> Option<Piece> {
        let (Some(speaker), Some(chunk)) = (Speaker::of(update), update.chunk()) else {
            if matches!(update, SessionUpdate::ToolCall(_)) {
                self.open = None;
            }
            return None;
        };
        let (number, is_first) = match chunk.message_id.as_deref() {
            Some(id) => self.by_id(speaker, id),
            None => self.by_turn(speaker),
        };
        Some(Piece { number, speaker, id: chunk.message_id.clone(), is_first, known_as: None })
    }

    /// Ends the open message. Called when a prompt is sent: the next piece begins another message.
    pub(super) fn break_here(&mut self) {
        self.open = None;
    }

    fn by_id(&mut self, speaker: Speaker, id: &str) -> (u64, bool) {
        self.open = None;
        let key = (speaker, id.to_owned());
        if let Some(number) = self.known.get(&key) {
            return (*number, false);
        }
        if self.known.len() >= MAX_KNOWN_MESSAGES {
            // Removes half at once, which keeps the average cost low.
            let oldest = self.last.saturating_sub(MAX_KNOWN_MESSAGES as u64 / 2);
            self.known.retain(|_, number| *number > oldest);
        }
        self.last += 1;
        self.known.insert(key, self.last);
        (self.last, true)
    }

    fn by_turn(&mut self, speaker: Speaker) -> (u64, bool) {
        match self.open {
            Some((same, number)) if same == speaker => (number, false),
            _ => {
                self.last += 1;
                self.open = Some((speaker, self.last));
                (self.last, true)
            }
        }
    }
}

// === impl Update ===

impl Update {
    /// Returns the size in bytes, as the agent wrote it.
    pub(super) fn size(&self) -> usize {
        self.original.as_bytes().len()
    }

    /// Returns the text that the update adds to its message; empty for other content.
    #[must_use]
    pub fn text(&self) -> &str {
        match self.body.chunk().map(|chunk| &chunk.content) {
            Some(ContentBlock::Text(text)) => &text.text,
            _ => "",
        }
    }
}

// === impl Messages ===

impl Messages {
    /// Adds an update to its message. Ignores updates that are not pieces of a message.
    pub fn push(&mut self, update: &Update) {
        let (Some(piece), Some(chunk)) = (&update.message, update.body.chunk()) else { return };
        let found = self.0.iter_mut().rev().find(|message| message.number == piece.number);
        match found {
            Some(message) => message.push(&chunk.content),
            None => self.0.push(Message {
                speaker: piece.speaker,
                id: piece.id.clone(),
                content: vec![chunk.content.clone()],
                number: piece.number,
            }),
        }
    }

    /// Returns the messages.
    #[must_use]
    pub fn as_slice(&self) -> &[Message] {
        &self.0
    }

    /// Takes the messages.
    #[must_use]
    pub fn into_vec(self) -> Vec<Message> {
        self.0
    }
}

// === impl Message ===

impl Message {
    /// Returns the text of the message.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    fn push(&mut self, block: &ContentBlock) {
        match (self.content.last_mut(), block) {
            (Some(ContentBlock::Text(said)), ContentBlock::Text(more))
                if said.annotations == more.annotations && said.meta == more.meta =>
            {
                said.text.push_str(&more.text);
            }
            _ => self.content.push(block.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use trilogue_wire::agent_client::{ContentChunk, ToolCall};

    use super::*;

    fn chunk(speaker: Speaker, id: Option<&str>, text: &str) -> SessionUpdate {
        let chunk = ContentChunk { message_id: id.map(str::to_owned), ..ContentChunk::new(text) };
        let chunk = Box::new(chunk);
        match speaker {
            Speaker::User => SessionUpdate::UserMessageChunk(chunk),
            Speaker::Agent => SessionUpdate::AgentMessageChunk(chunk),
            Speaker::Thought => SessionUpdate::AgentThoughtChunk(chunk),
        }
    }

    fn messages(updates: Vec<SessionUpdate>) -> Vec<(Speaker, String)> {
        let (mut grouping, mut messages) = (Grouping::default(), Messages::default());
        for body in updates {
            let message = grouping.place(&body);
            messages.push(&Update { body, message, original: RawJson::EMPTY });
        }
        messages.into_vec().into_iter().map(|it| (it.speaker, it.text())).collect()
    }

    #[test]
    fn another_id_is_another_message_and_the_same_id_goes_on_wherever_it_comes() {
        use Speaker::{Agent, Thought};
        let said = messages(vec![
            chunk(Agent, Some("a"), "on"),
            chunk(Agent, Some("a"), "e"),
            chunk(Agent, Some("b"), "two"),
            chunk(Thought, Some("a"), "hm"),
            chunk(Agent, Some("a"), "!"),
        ]);
        let of = |speaker, text: &str| (speaker, text.to_owned());
        assert_eq!(said, [of(Agent, "one!"), of(Agent, "two"), of(Thought, "hm")]);
    }

    #[test]
    fn without_ids_a_message_ends_where_another_speaks_or_a_tool_is_used() {
        use Speaker::{Agent, Thought};
        let tool = SessionUpdate::ToolCall(Box::new(ToolCall::new("c", "Look")));
        let said = messages(vec![
            chunk(Agent, None, "one "),
            chunk(Agent, None, "still"),
            tool,
            chunk(Agent, None, "two"),
            chunk(Thought, None, "hm"),
            chunk(Agent, None, "three"),
            chunk(Agent, Some("x"), "four"),
            chunk(Agent, None, "five"),
        ]);
        let texts: Vec<_> = said.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["one still", "two", "hm", "three", "four", "five"]);
    }

    #[test]
    fn what_is_remembered_of_ids_is_bounded() {
        let mut grouping = Grouping::default();
        for number in 0..10 * MAX_KNOWN_MESSAGES {
            grouping.place(&chunk(Speaker::Agent, Some(&number.to_string()), "x"));
            assert!(grouping.known.len() <= MAX_KNOWN_MESSAGES);
        }
    }
}
