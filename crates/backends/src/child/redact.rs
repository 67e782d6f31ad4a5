use std::collections::BTreeSet;

use trilogue_domain::safe;

/// The shortest value that is redacted, in bytes. Shorter ones would match everywhere.
const MIN_BYTES: usize = 8;
/// The length of a piece, in bytes. A longer value is redacted in several pieces.
const MAX_BYTES: usize = 4 * 1024;
/// The maximum number of pieces. If there are more, no output is shown at all.
const MAX_PIECES: usize = 4_096;
const MARK: &str = "[hidden]";

#[derive(Debug, Default)]
pub(super) struct Redactor {
    /// Longest first, because one piece may contain another.
    pieces: Vec<String>,
    is_full: bool,
}

// === impl Redactor ===

impl Redactor {
    pub(super) fn add<'a>(&mut self, values: impl Iterator<Item = &'a str>) {
        let mut all: BTreeSet<String> = self.pieces.drain(..).collect();
        for piece in values.flat_map(forms) {
            if all.len() >= MAX_PIECES && !all.contains(&piece) {
                self.is_full = true;
                break;
            }
            all.insert(piece);
        }
        self.pieces = all.into_iter().collect();
        self.pieces.sort_by_key(|piece| std::cmp::Reverse(piece.len()));
    }

    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }

    pub(super) fn longest(&self) -> usize {
        self.pieces.first().map_or(0, String::len)
    }

    /// Returns the text with each secret replaced by a mark. Returns an empty text if there are too many secrets.
    pub(super) fn redact(&self, mut text: String) -> String {
        if self.is_full {
            return String::new();
        }
        for piece in &self.pieces {
            if text.contains(piece.as_str()) {
                text = text.replace(piece.as_str(), MARK);
            }
        }
        text
    }
}

/// Returns the forms in which a secret may occur, as a whole and line by line: unchanged, and as a JSON string.
fn forms(value: &str) -> impl Iterator<Item = String> {
    let lines = value.lines().filter(move |line| line.len() < value.len());
    let all = std::iter::once(value).chain(lines).filter(|it| it.len() >= MIN_BYTES);
    let forms = all.flat_map(|it| {
        let quoted = serde_json::to_string(it).unwrap_or_default();
        let quoted = quoted.trim_matches('"').to_owned();
        [safe::block(it), quoted]
    });
    forms.flat_map(|form| pieces(&form)).filter(|piece| piece.len() >= MIN_BYTES)
}

fn pieces(mut text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let (piece, rest) = text.split_at(text.floor_char_boundary(MAX_BYTES));
        pieces.push(piece.to_owned());
        text = rest;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(values: &[&str], text: &str) -> String {
        let mut redactor = Redactor::default();
        redactor.add(values.iter().copied());
        assert!(!redactor.is_full());
        redactor.redact(text.to_owned())
    }

    #[test]
    fn a_value_is_hidden_in_every_form_that_it_is_met_in() {
        let key = "-----BEGIN-----\nabc\"defgh\\ij\n-----END-----";
        let json = serde_json::to_string(key).unwrap();
        assert_eq!(without(&[key], &format!("a{key}b {json} c")), "a[hidden]b \"[hidden]\" c");
        assert_eq!(without(&[key], "it has abc\"defgh\\ij."), "it has [hidden].");
        // The shorter value is part of the longer one.
        assert_eq!(
            without(&["password", "password123"], "password123 password"),
            "[hidden] [hidden]"
        );
        // Values this short would match everywhere.
        assert_eq!(without(&["", "true", "1234567"], "true 1234567"), "true 1234567");
    }

    #[test]
    fn a_long_value_is_hidden_piece_by_piece_and_nothing_is_shown_where_there_are_too_many() {
        let long: String = (0..5_000).map(|number| format!("ü{number}")).collect();
        let shown = without(&[&long], &format!("<{long}>"));
        assert!(shown.len() < 200 && shown.replace(MARK, "").len() < 2 + MIN_BYTES, "{shown}");
        let mut redactor = Redactor::default();
        let values: Vec<_> = (0..2 * MAX_PIECES).map(|number| format!("secret-{number}")).collect();
        let (some, others) = values.split_at(MAX_PIECES);
        redactor.add(some.iter().chain(some).map(String::as_str));
        assert_eq!(redactor.redact(format!("{} x", values[0])), "[hidden] x");
        redactor.add(others.iter().map(String::as_str));
        assert_eq!(redactor.pieces.len(), MAX_PIECES);
        // The redactor cannot recognize the secrets that it dropped, so it shows nothing.
        assert_eq!(redactor.redact(format!("{} x", values[MAX_PIECES])), "");
    }
}
