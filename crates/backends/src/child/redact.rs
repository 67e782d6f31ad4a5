use std::collections::BTreeSet;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value;
use trilogue_domain::safe;
use url::{Url, form_urlencoded};

/// The shortest value that is redacted, in bytes. Shorter ones would match everywhere.
const MIN_BYTES: usize = 8;
/// The length of a piece, in bytes. A longer value is redacted in several pieces.
const MAX_BYTES: usize = 4 * 1024;
/// The maximum number of pieces. If there are more, no output is shown at all.
const MAX_PIECES: usize = 4_096;
const MARK: &str = "[hidden]";
/// What JavaScript encodes in a part of an address.
const ADDRESS_PART: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');
/// What Python encodes in a path.
const PATH_PART: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

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
        let values: Vec<_> = values.collect();
        for piece in values.iter().flat_map(|value| forms(value)) {
            if all.len() >= MAX_PIECES && !all.contains(&piece) {
                self.is_full = true;
                break;
            }
            all.insert(piece);
        }
        // Many texts in JSON do not keep the whole output from being shown.
        let parts = values.iter().flat_map(|value| parts(value)).collect::<Vec<_>>();
        let of_parts = parts.iter().flat_map(|part| forms(part));
        all.extend(of_parts.take(MAX_PIECES.saturating_sub(all.len())));
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

/// Returns the forms in which a secret may occur, as a whole and line by line: unchanged, as a JSON string, and in an address.
fn forms(value: &str) -> impl Iterator<Item = String> {
    let lines = value.lines().filter(move |line| line.len() < value.len());
    let all = std::iter::once(value).chain(lines).filter(|it| it.len() >= MIN_BYTES);
    let forms = all.flat_map(|it| {
        let quoted = serde_json::to_string(it).unwrap_or_default();
        let quoted = quoted.trim_matches('"').to_owned();
        let in_query = form_urlencoded::byte_serialize(it.as_bytes()).collect();
        let [in_address, in_path] =
            [ADDRESS_PART, PATH_PART].map(|set| utf8_percent_encode(it, set).to_string());
        [safe::block(it), quoted, in_query, in_address, in_path]
    });
    forms.flat_map(|form| pieces(&form)).filter(|piece| piece.len() >= MIN_BYTES)
}

/// Returns what is secret in a value that is an address, or the texts of one that is JSON.
fn parts(value: &str) -> Vec<String> {
    match value.trim_start().starts_with(['{', '[']) {
        true => {
            let mut texts = serde_json::from_str(value).map(texts).unwrap_or_default();
            texts.extend(texts.iter().flat_map(|text| address_secrets(text)).collect::<Vec<_>>());
            texts
        }
        false => address_secrets(value),
    }
}

/// Returns the password of an address, and the values of its query, as written and decoded. Nothing of other texts.
pub(crate) fn address_secrets(text: &str) -> Vec<String> {
    let (Ok(address), Some((_, rest))) = (Url::parse(text), text.split_once("://")) else {
        return Vec::new();
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
    let query = address.query_pairs().map(|(_, value)| value.into_owned());
    let password = user.map_or("", |(_, password)| password);
    let decoded = percent_decode_str(password).decode_utf8_lossy().into_owned();
    let written = address.query().unwrap_or_default().split('&');
    let written = written.filter_map(|pair| Some(pair.split_once('=')?.1.to_owned()));
    [password.to_owned(), decoded].into_iter().chain(query).chain(written).collect()
}

/// Returns all texts in a value.
pub(crate) fn texts(value: Value) -> Vec<String> {
    let (mut values, mut texts) = (vec![value], Vec::new());
    while let Some(value) = values.pop() {
        match value {
            Value::String(text) => texts.push(text),
            Value::Array(items) => values.extend(items),
            Value::Object(members) => values.extend(members.into_iter().map(|(_, value)| value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    texts
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
        let address = "postgres://app:db-password@host/data?key=a%20private%20key&x=1";
        let said = "db-password, a private key, a%20private%20key, a+private+key";
        assert_eq!(without(&[address], said), "[hidden], [hidden], [hidden], [hidden]");
        let settings =
            r#"{"token": ["in a setting"], "id": 12345678, "db": "x://u:pass%40word@h"}"#;
        let said = "in a setting, 12345678, pass%40word, pass@word";
        assert_eq!(without(&[settings], said), "[hidden], 12345678, [hidden], [hidden]");
        assert_eq!(without(&["http://u:raw^pipe|word@h"], "raw^pipe|word"), "[hidden]");
        let encoded = "of/every+k=nd%(1)";
        let said = "of%2Fevery%2Bk%3Dnd%25(1) of/every%2Bk%3Dnd%25%281%29";
        assert_eq!(without(&[encoded], said), "[hidden] [hidden]");
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
        let texts: Vec<_> = (0..2 * MAX_PIECES).map(|number| format!("a text {number}")).collect();
        assert_eq!(without(&[&serde_json::to_string(&texts).unwrap()], "an error"), "an error");
        // The redactor cannot recognize the secrets that it dropped, so it shows nothing.
        assert_eq!(redactor.redact(format!("{} x", values[MAX_PIECES])), "");
    }
}
