//! Parts that came with the beginning of their message, and that the server may send once more, one by one.

use std::ops::Range;

use trilogue_domain::Part;

use crate::logged_position::plain_text;

/// How many parts of a message's beginning are known again when the server repeats them.
const MAX_REPEATED_PARTS: usize = 1024;

/// The parts that can still be repeated.
#[derive(Clone, Debug, Default)]
pub(super) struct RepeatedParts {
    /// In their order; `None` for one that was repeated.
    parts: Vec<Option<Part>>,
    /// The part that is repeated next if the server keeps the order.
    next: usize,
    /// How many bytes of the next part's text were repeated.
    repeated_bytes: usize,
    /// Whether a part was new. A text after it is new too: short texts recur by chance.
    has_new: bool,
}

/// The relation of a text to the known texts from some part on.
enum TextMatch {
    /// It ends inside or at the end of this part; `bytes` of the part are repeated.
    Whole { end: usize, bytes: usize },
    /// It reaches beyond the known texts before this part; its last `new_bytes` are new.
    Longer { end: usize, new_bytes: usize },
}

// === impl RepeatedParts ===

impl RepeatedParts {
    pub(super) fn of(mut parts: Vec<Part>) -> Self {
        parts.truncate(MAX_REPEATED_PARTS);
        Self { parts: parts.into_iter().map(Some).collect(), ..Self::default() }
    }

    /// The new content of a part; nothing if it only repeats. A text can be repeated in pieces, and parts in any order.
    /// A text that only began like a known one is new as a whole.
    pub(super) fn without(&mut self, part: Part) -> Vec<Part> {
        if let Some(text) = plain_text(&part) {
            return self.without_text(text);
        }
        let mut new: Vec<Part> = self.unfinished().into_iter().collect();
        match self.parts.iter().position(|known| known.as_ref() == Some(&part)) {
            Some(place) => self.take(place..place + 1),
            None => {
                self.has_new = true;
                new.push(part);
            }
        }
        new
    }

    /// The beginning of a text that was taken for a repetition and was not repeated to its end.
    pub(super) fn unfinished(&mut self) -> Option<Part> {
        let bytes = std::mem::take(&mut self.repeated_bytes);
        let known = self.text(self.next).filter(|_| bytes > 0)?;
        let part = Part::text(known.get(..bytes).unwrap_or_default());
        self.has_new = true;
        Some(part)
    }

    fn without_text(&mut self, text: &str) -> Vec<Part> {
        if self.has_new {
            return vec![Part::text(text)];
        }
        let is_inside = self.repeated_bytes > 0;
        match self.matched(self.next, self.repeated_bytes, text) {
            Some(TextMatch::Longer { end, new_bytes }) => {
                self.take(self.next..end);
                self.has_new = true;
                return vec![Part::text(text.get(text.len() - new_bytes..).unwrap_or_default())];
            }
            Some(TextMatch::Whole { end, bytes }) => {
                self.move_to(self.next, end, bytes);
                return Vec::new();
            }
            None => {}
        }
        if !is_inside {
            // The server leaves parts out, or has another order.
            for place in 0..self.parts.len() {
                if let Some(TextMatch::Whole { end, bytes }) = self.matched(place, 0, text) {
                    self.move_to(place, end, bytes);
                    return Vec::new();
                }
            }
        }
        let begun = self.unfinished();
        self.has_new = !text.is_empty() || begun.is_some();
        let begun = begun.as_ref().and_then(plain_text).map_or("", |begun| begun);
        vec![Part::text([begun, text].concat())]
    }

    /// Returns how far a text repeats the texts from this place on, from the byte `bytes` of the first; `None` if it
    /// differs.
    fn matched(&self, place: usize, bytes: usize, text: &str) -> Option<TextMatch> {
        let (mut end, mut bytes, mut text) = (place, bytes, text);
        self.text(place)?;
        loop {
            let Some(known) = self.text(end) else {
                return Some(TextMatch::Longer { end, new_bytes: text.len() });
            };
            let known = known.get(bytes..)?;
            if known.starts_with(text) {
                return Some(TextMatch::Whole { end, bytes: bytes + text.len() });
            }
            text = text.strip_prefix(known)?;
            (end, bytes) = (end + 1, 0);
        }
    }

    fn text(&self, place: usize) -> Option<&str> {
        plain_text(self.parts.get(place)?.as_ref()?).map(|text| &**text)
    }

    /// Notes that the texts from this place on were repeated, up to the byte `bytes` of the last.
    fn move_to(&mut self, place: usize, end: usize, bytes: usize) {
        let is_finished = self.text(end).is_some_and(|known| known.len() == bytes);
        self.take(place..end + usize::from(is_finished));
        if !is_finished {
            self.repeated_bytes = bytes;
        }
    }

    fn take(&mut self, places: Range<usize>) {
        self.next = places.end;
        self.repeated_bytes = 0;
        self.parts.get_mut(places).into_iter().flatten().for_each(|part| *part = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_counts_once_however_often_and_in_whatever_pieces_it_comes() {
        let image = || Part::bytes("image/png", &b"x"[..]);
        let text = |text: &str| Part::text(text);
        for (begun, sent, new) in [
            (vec![text("a"), image()], vec![text("a"), image()], vec![]),
            (vec![text("a")], vec![text("a"), text("a")], vec![text("a")]),
            (vec![text("Howdy")], vec![text("Ho"), text("wdy")], vec![]),
            (vec![text("Ho")], vec![text("Howdy")], vec![text("wdy")]),
            (vec![text("Ho"), text("wdy")], vec![text("Howdy!")], vec![text("!")]),
            (vec![text("")], vec![text("a")], vec![text("a")]),
            (vec![text("a")], vec![image(), text("a")], vec![image(), text("a")]),
            (vec![image()], vec![text("a")], vec![text("a")]),
            (vec![], vec![text("a")], vec![text("a")]),
            // In another order, and not all of them.
            (vec![text("a"), text("b")], vec![text("b"), image()], vec![image()]),
            (vec![text("a"), text("b")], vec![text("b"), text("a"), text("a")], vec![text("a")]),
            (vec![text("a"), image()], vec![image(), text("a"), text("b")], vec![text("b")]),
            (vec![text("a"), text("bc")], vec![text("b"), text("c"), text("d")], vec![text("d")]),
            // Only the beginning repeats a known text.
            (vec![text("two")], vec![text("t"), text("hree")], vec![text("three")]),
            (vec![text("two")], vec![text("t"), image()], vec![text("t"), image()]),
        ] {
            let mut repeats = RepeatedParts::of(begun.clone());
            let left: Vec<_> = sent.iter().flat_map(|part| repeats.without(part.clone())).collect();
            assert_eq!(left, new, "{begun:?} and then {sent:?}");
        }
    }
}
