//! The streamed content of a message, compared with the whole message that the server sends afterwards.

use trilogue_domain::Part;
use uuid::Uuid;

use super::Boundary;
use crate::communication::NAMESPACE;
use crate::communication::part::write_part;
use crate::logged_position::plain_text;

/// The content of an open message, as far as it was streamed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct StreamedContent(Vec<StreamedPiece>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum StreamedPiece {
    /// Neighbouring texts: a server can cut them as it likes.
    Text(String),
    /// The digest of another part, whose content can be large.
    Part(Uuid),
}

/// The content of a whole message that was not streamed.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Difference {
    /// Its further parts, from the first on that differs.
    pub(super) parts: Vec<(Part, Boundary)>,
    /// Whether the streamed content is not how the message begins.
    pub(super) is_contradiction: bool,
}

// === impl StreamedContent ===

impl StreamedContent {
    pub(super) fn of<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Self {
        let mut content = Self::default();
        parts.into_iter().for_each(|part| content.push(part));
        content
    }

    pub(super) fn push(&mut self, part: &Part) {
        match (plain_text(part), self.0.last_mut()) {
            (Some(text), Some(StreamedPiece::Text(known))) => known.push_str(text),
            (Some(text), _) => self.0.push(StreamedPiece::Text(text.to_string())),
            (None, _) => self.0.push(StreamedPiece::Part(digest(part))),
        }
    }

    /// Compares the content with that of a whole message. A message that is not final may lack the content that
    /// was streamed last.
    pub(super) fn compare(&self, whole: &[Part], is_final: bool) -> Difference {
        let (mut pieces, mut bytes) = (self.0.as_slice(), 0);
        let mut parts = Vec::new();
        let mut differs = false;
        for part in whole {
            // A text that is used up ends if another kind of part follows.
            if plain_text(part).is_none()
                && let [StreamedPiece::Text(known), rest @ ..] = pieces
                && bytes == known.len()
            {
                (pieces, bytes) = (rest, 0);
            }
            match (plain_text(part), pieces) {
                _ if differs => parts.push((part.clone(), Boundary::Kept)),
                (_, []) => parts.push((part.clone(), Boundary::Kept)),
                (Some(text), [StreamedPiece::Text(known), rest @ ..]) => {
                    let known = known.get(bytes..).unwrap_or_default();
                    if known.starts_with(&**text) {
                        bytes += text.len();
                    } else if let (Some(new), []) = (text.strip_prefix(known), rest) {
                        let is_cut = !known.is_empty();
                        let boundary = if is_cut { Boundary::Joined } else { Boundary::Kept };
                        parts.push((Part::text(new), boundary));
                        pieces = rest;
                    } else {
                        differs = true;
                        parts.push((part.clone(), Boundary::Kept));
                    }
                }
                (None, [StreamedPiece::Part(known), rest @ ..]) if *known == digest(part) => {
                    (pieces, bytes) = (rest, 0);
                }
                // An empty text makes no message different.
                (Some(text), _) if text.is_empty() => {}
                _ => {
                    differs = true;
                    parts.push((part.clone(), Boundary::Kept));
                }
            }
        }
        let is_used_up = match pieces {
            [] => true,
            [StreamedPiece::Text(known)] => known.len() == bytes,
            _ => false,
        };
        Difference { parts, is_contradiction: differs || (is_final && !is_used_up) }
    }
}

fn digest(part: &Part) -> Uuid {
    let mut rendered = Vec::new();
    write_part(part, false, |_| String::new(), &mut rendered);
    Uuid::new_v5(&NAMESPACE, &rendered)
}
