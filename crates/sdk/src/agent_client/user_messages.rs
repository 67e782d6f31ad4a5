use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use trilogue_wire::agent_client::ContentBlock;

use super::update::{Piece, Speaker, Update};

/// The maximum number of remembered user messages. The oldest are forgotten first.
const MAX_REMEMBERED: usize = 4_096;

/// The maximum number of other ids of a message.
const MAX_ALIASES: usize = 8;
/// The longest message that is compared with the remembered ones, in bytes.
const MAX_COMPARED_BYTES: usize = 1024 * 1024;

/// The user's messages in a session, and the ids under which the agent knows them.
///
/// A session that is loaded with them recognizes known messages in its replay: by id, or by order and content if the agent replays other ids than it acknowledged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserMessages {
    records: VecDeque<PromptRecord>,
    /// The index of the next message that the replay should contain.
    next: usize,
    /// A replayed message with an unknown id.
    unknown: Option<UnknownMessage>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct PromptRecord {
    /// The id that the agent recorded.
    id: Option<String>,
    /// Other ids of the message.
    aliases: Vec<String>,
    digest: u64,
}

/// A replayed user message with an unknown id.
#[derive(Clone, PartialEq, Eq, Debug)]
struct UnknownMessage {
    number: u64,
    id: String,
    /// The text so far. Text above [`MAX_COMPARED_BYTES`] is not compared.
    text: String,
}

// === impl UserMessages ===

impl UserMessages {
    /// Returns the id under which the agent knows a message; `None` if it recorded no message with this id.
    #[must_use]
    pub fn canonical(&self, id: &str) -> Option<&str> {
        self.records.iter().rev().find(|records| records.is(id))?.id.as_deref()
    }

    /// Returns the ids that the agent recorded, oldest first. Messages without a recorded id are left out.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.records.iter().filter_map(|records| records.id.as_deref())
    }

    /// Records a prompt, the id that the agent recorded and the id that was sent.
    pub(super) fn note(&mut self, prompt: &[ContentBlock], id: Option<&str>, sent: Option<&str>) {
        if self.records.len() >= MAX_REMEMBERED {
            self.records.pop_front();
        }
        let aliases = sent.filter(|_| id.is_some() && id != sent).map(str::to_owned);
        self.records.push_back(PromptRecord {
            id: id.map(str::to_owned),
            aliases: aliases.into_iter().collect(),
            digest: digest(&text(prompt.iter())),
        });
    }

    /// Begins a replay of the session from its first message.
    pub(super) fn rewind(&mut self) {
        (self.next, self.unknown) = (0, None);
    }

    /// Records a replayed update, and sets the id under which its message is known.
    pub(super) fn record_replay(&mut self, update: &mut Update) {
        let (Some(piece), Some(chunk)) = (&mut update.message, update.body.chunk()) else {
            return self.settle();
        };
        match &mut self.unknown {
            Some(unknown) if unknown.number == piece.number => {
                if unknown.text.len() <= MAX_COMPARED_BYTES {
                    unknown.text.push_str(&text(std::iter::once(&chunk.content)));
                }
            }
            _ => {
                self.settle();
                self.begin_message(piece, &chunk.content);
            }
        }
    }

    /// Ends the replayed message with an unknown id, and compares it with the next known message.
    pub(super) fn settle(&mut self) {
        let Some(UnknownMessage { id, text, .. }) = self.unknown.take() else { return };
        // A message with other text is not the next known one.
        let next = self.records.get_mut(self.next);
        if let Some(record) = next.filter(|record| record.digest == digest(&text)) {
            // Keeps the newest ids, because the agent uses them in later replays.
            if record.aliases.len() >= MAX_ALIASES {
                record.aliases.remove(0);
            }
            record.aliases.push(id);
            self.next += 1;
        }
    }

    fn begin_message(&mut self, piece: &mut Piece, content: &ContentBlock) {
        if piece.speaker != Speaker::User {
            return;
        }
        let Some(id) = &piece.id else { return };
        let found = self.records.iter().position(|records| records.is(id));
        match found.and_then(|place| Some((place, self.records.get(place)?))) {
            Some((place, record)) => {
                piece.known_as = record.id.clone().or_else(|| Some(id.clone()));
                self.next = place + 1;
            }
            None if piece.is_first => {
                let (id, text) = (id.clone(), text(std::iter::once(content)));
                self.unknown = Some(UnknownMessage { number: piece.number, id, text });
            }
            None => {}
        }
    }
}

// === impl PromptRecord ===

impl PromptRecord {
    fn is(&self, id: &str) -> bool {
        self.id.as_deref() == Some(id) || self.aliases.iter().any(|alias| alias == id)
    }
}

fn text<'a>(blocks: impl Iterator<Item = &'a ContentBlock>) -> String {
    let texts = blocks.filter_map(|block| match block {
        ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
