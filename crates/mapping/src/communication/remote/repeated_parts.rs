//! Parts that came with the beginning of their message, and that the server may send once more, one by one.

use std::collections::VecDeque;

use trilogue_domain::Part;

use crate::logged_position::plain_text;

/// The parts that can still be repeated, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct RepeatedParts {
    parts: VecDeque<Part>,
    /// How many bytes of the first one's text were repeated.
    repeated_bytes: usize,
}

// === impl RepeatedParts ===

impl RepeatedParts {
    pub(super) fn of(parts: Vec<Part>) -> Self {
        Self { parts: parts.into(), repeated_bytes: 0 }
    }

    /// The new content of a part; `None` if it only repeats. A text can be repeated in pieces.
    /// The first part that repeats nothing is new, and so are all behind it.
    pub(super) fn without(&mut self, mut part: Part) -> Option<Part> {
        while let Some(first) = self.parts.front() {
            let Some(known) = plain_text(first) else {
                let is_same = *first == part;
                return self.next_or_end(is_same, part);
            };
            let known = known.get(self.repeated_bytes..).unwrap_or_default();
            let Some(text) = plain_text(&part) else { return self.next_or_end(false, part) };
            if let Some(rest) = known.strip_prefix(&**text) {
                match rest.is_empty() {
                    true => self.next(),
                    false => self.repeated_bytes += text.len(),
                }
                return None;
            }
            let Some(rest) = text.strip_prefix(known) else {
                return self.next_or_end(false, part);
            };
            part = Part::text(rest);
            self.next();
        }
        Some(part)
    }

    fn next_or_end(&mut self, is_same: bool, part: Part) -> Option<Part> {
        if is_same {
            self.next();
            return None;
        }
        *self = Self::default();
        Some(part)
    }

    fn next(&mut self) {
        self.parts.pop_front();
        self.repeated_bytes = 0;
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
        ] {
            let mut repeats = RepeatedParts::of(begun.clone());
            let left: Vec<_> =
                sent.iter().filter_map(|part| repeats.without(part.clone())).collect();
            assert_eq!(left, new, "{begun:?} and then {sent:?}");
        }
    }
}
