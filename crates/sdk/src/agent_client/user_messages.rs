use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use trilogue_wire::agent_client::ContentBlock;

use super::update::{Piece, Speaker, Update};

/// The most messages of the user that are remembered; the oldest are forgotten first.
const MAX_REMEMBERED: usize = 4_096;

/// The most other ids that are kept of a message.
const MAX_ALIASES: usize = 8;
/// The longest message that is compared with what was said here, in bytes.
const MAX_COMPARED_BYTES: usize = 1024 * 1024;

/// What the user said in a session, and by which ids the agent knows it.
///
/// Given to a session that is loaded again, it tells which of the replayed messages are known here: by id, or where the agent replays other ids than it acknowledged, by order and content.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserMessages {
    records: VecDeque<PromptRecord>,
    /// The message that a replay comes to next.
    next: usize,
    /// A replayed message with an id that is not known.
    unknown: Option<UnknownMessage>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct PromptRecord {
    /// The id by which the agent recorded it.
    id: Option<String>,
    /// Other ids of it.
    aliases: Vec<String>,
    digest: u64,
}

/// A replayed message of the user that nobody knows by its id.
#[derive(Clone, PartialEq, Eq, Debug)]
struct UnknownMessage {
    number: u64,
    id: String,
    /// What it says, as far as it has come; what is longer than [`MAX_COMPARED_BYTES`] is not compared.
    text: String,
}

// === impl UserMessages ===

impl UserMessages {
    /// The id by which the agent knows a message; `None` where it recorded none by this id.
    #[must_use]
    pub fn canonical(&self, id: &str) -> Option<&str> {
        self.records.iter().rev().find(|records| records.is(id))?.id.as_deref()
    }

    /// The ids by which the agent recorded messages, oldest first. Those that it did not record are left out.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.records.iter().filter_map(|records| records.id.as_deref())
    }

    /// Notes what was prompted, by which id the agent recorded it, and by which it was sent.
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

    /// The session is told again from its beginning.
    pub(super) fn rewind(&mut self) {
        (self.next, self.unknown) = (0, None);
    }

    /// Notes a replayed update, and by which id its message is known.
    pub(super) fn replayed(&mut self, update: &mut Update) {
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
                self.begun(piece, &chunk.content);
            }
        }
    }

    /// Nothing more is told again.
    pub(super) fn settle(&mut self) {
        let Some(UnknownMessage { id, text, .. }) = self.unknown.take() else { return };
        // One with other words is not the one that comes next here.
        let next = self.records.get_mut(self.next);
        if let Some(record) = next.filter(|record| record.digest == digest(&text)) {
            // The newest is what the agent says from now on.
            if record.aliases.len() >= MAX_ALIASES {
                record.aliases.remove(0);
            }
            record.aliases.push(id);
            self.next += 1;
        }
    }

    fn begun(&mut self, piece: &mut Piece, content: &ContentBlock) {
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
