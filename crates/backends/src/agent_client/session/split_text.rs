//! Characters that an agent cuts in half between two chunks of a message: the first half waits for the second.

use bytes::Bytes;
use trilogue_wire::agent_client::splice;
use trilogue_wire::agent_client::text_edges::{
    BrokenEdges, broken_edges, chunk_text, set_chunk_text, split_high, split_low,
};

use super::actor::is_background;

const REPLACEMENT: char = '\u{fffd}';
/// The most bytes of a character.
const MAX_CHAR_BYTES: usize = 4;

#[derive(Debug, Default)]
pub(super) struct SplitText {
    held: Option<HeldHalf>,
    /// The line of the next update, if it is not UTF-8.
    line: Option<Bytes>,
}

/// The first half of a character, with its chunk.
#[derive(Debug)]
struct HeldHalf {
    kind: &'static str,
    /// The agent's id of the message.
    id: Option<String>,
    /// The chunk, with U+FFFD as its text.
    params: String,
    half: CharacterHalf,
}

#[derive(Debug)]
enum CharacterHalf {
    /// An escaped UTF-16 unit, as the agent wrote it.
    Unit(String),
    /// The first bytes of a character.
    Bytes(Vec<u8>),
}

/// The updates that an update becomes. Each has its kind.
#[derive(Debug, Default, PartialEq)]
pub(super) struct JoinedUpdates {
    /// An earlier half that stays alone.
    pub(super) earlier: Option<(&'static str, String)>,
    /// `None` if the update was only half of a character.
    pub(super) update: Option<String>,
}

/// A text without its quotes, with the end of a character that began before.
enum Start {
    /// No half was held, or its second half is in the text.
    Text(String),
    /// The held half continues with these bytes, and the character is still incomplete.
    Longer(Vec<u8>),
    /// The text does not continue the held half.
    Other,
}

// === impl SplitText ===

impl SplitText {
    /// Notes the line of the next update, which is not UTF-8.
    pub(super) fn expect(&mut self, line: Bytes) {
        self.line = Some(line);
    }

    /// Returns the noted line if it contains these params.
    pub(super) fn take_line(&mut self, params: &str) -> Option<Bytes> {
        let line = self.line.take()?;
        String::from_utf8_lossy(&line).contains(params).then_some(line)
    }

    pub(super) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// Returns the held half as a chunk of its own.
    pub(super) fn flush(&mut self) -> Option<(&'static str, String)> {
        self.held.take().map(|held| (held.kind, held.params))
    }

    /// Puts the halves of characters together. `line` is the update's line, if it is not UTF-8.
    pub(super) fn join(
        &mut self,
        kind: &'static str,
        params: String,
        line: Option<&[u8]>,
    ) -> JoinedUpdates {
        if is_background(kind) {
            return JoinedUpdates { earlier: None, update: Some(params) };
        }
        let Some(text) = chunk_text(&params).filter(|_| kind.ends_with("_chunk")) else {
            return JoinedUpdates { earlier: self.flush(), update: Some(params) };
        };
        let id = splice::message_id(&params).map(|id| id.into_owned());
        let edges = line.map(broken_edges).unwrap_or_default();
        let mut earlier = None;
        let held = self.held.take();
        let continued = held.as_ref().filter(|held| held.kind == kind && held.id == id);
        if text.is_empty() && continued.is_some() {
            // It has nothing of the character.
            self.held = held;
            return JoinedUpdates { earlier: None, update: Some(params) };
        }
        let text = match continued.map_or(Start::Other, |held| held.half.start(text, &edges)) {
            Start::Text(text) => text,
            Start::Longer(bytes) => {
                self.held = held.map(|held| HeldHalf { half: CharacterHalf::Bytes(bytes), ..held });
                return JoinedUpdates::default();
            }
            Start::Other => {
                earlier = held.map(|held| (held.kind, held.params));
                text.to_owned()
            }
        };
        let (text, half) = split_end(text, &edges);
        if let Some(half) = half
            && let Some(params) = set_chunk_text(&params, &REPLACEMENT.to_string())
        {
            self.held = Some(HeldHalf { kind, id, params, half });
            if text.is_empty() {
                return JoinedUpdates { earlier, update: None };
            }
        }
        let is_same = chunk_text(&params) == Some(&*text);
        let changed = if is_same { None } else { set_chunk_text(&params, &text) };
        JoinedUpdates { earlier, update: Some(changed.unwrap_or(params)) }
    }
}

// === impl CharacterHalf ===

impl CharacterHalf {
    fn start(&self, text: &str, edges: &BrokenEdges) -> Start {
        match self {
            Self::Unit(high) => match split_low(text) {
                Some((low, rest)) => Start::Text(format!("{high}{low}{rest}")),
                None => Start::Other,
            },
            Self::Bytes(begun) => {
                // U+FFFD replaced each of these bytes.
                let with = |count: usize| {
                    [begun.as_slice(), edges.head.get(..count).unwrap_or(&[])].concat()
                };
                let rest = |count: usize| {
                    let replaced = String::from(REPLACEMENT).repeat(count);
                    text.strip_prefix(&*replaced)
                };
                for count in 1..=edges.head.len().min(MAX_CHAR_BYTES) {
                    if let Ok(character) = std::str::from_utf8(&with(count))
                        && let Some(rest) = rest(count)
                    {
                        return Start::Text(format!("{character}{rest}"));
                    }
                }
                let all = edges.head.len();
                let bytes = with(all);
                match all > 0 && rest(all) == Some("") && is_begun(&bytes) {
                    true => Start::Longer(bytes),
                    false => Start::Other,
                }
            }
        }
    }
}

/// Whether these are the first bytes of a character, and not all of them.
fn is_begun(bytes: &[u8]) -> bool {
    let error = std::str::from_utf8(bytes).err();
    error.is_some_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

/// Splits off the half of a character at the end of a text.
fn split_end(mut text: String, edges: &BrokenEdges) -> (String, Option<CharacterHalf>) {
    if let Some((rest, high)) = split_high(&text) {
        let (rest, half) = (rest.len(), CharacterHalf::Unit(high.to_owned()));
        text.truncate(rest);
        return (text, Some(half));
    }
    let begun = (1..MAX_CHAR_BYTES).rev().find_map(|length| {
        let bytes = edges.tail.get(edges.tail.len().checked_sub(length)?..)?;
        is_begun(bytes).then_some(bytes)
    });
    // U+FFFD replaced the begun character as a whole.
    match begun.filter(|_| text.ends_with(REPLACEMENT)) {
        Some(bytes) => {
            text.pop();
            (text, Some(CharacterHalf::Bytes(bytes.to_vec())))
        }
        None => (text, None),
    }
}

#[cfg(test)]
mod tests;
