//! Abbreviated ids, for people who type them.

use crate::limits;

/// The length of a UUID in its hyphenated form.
const UUID_CHARS: usize = 36;
/// The position of the last group of a UUID. It is random in a UUIDv7, while ids of the same minute have the same beginning.
const LAST_GROUP: usize = 24;

/// The beginning of an id, or of the last group of a UUID.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShortId {
    text: String,
    /// The text in lower case, like the UUIDs that Trilogue makes.
    lower: String,
}

/// The kind of resource that an id names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdKind {
    /// A thread.
    Thread,
    /// A run.
    Run,
    /// An interrupt.
    Interrupt,
}

// === impl ShortId ===

impl ShortId {
    /// Returns `None` if the text has fewer than [`limits::MIN_SHORT_ID_CHARS`] characters or more than [`limits::MAX_ID_BYTES`] bytes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_one = text.len() <= limits::MAX_ID_BYTES
            && text.chars().count() >= limits::MIN_SHORT_ID_CHARS;
        is_one.then(|| Self { text: text.to_owned(), lower: text.to_ascii_lowercase() })
    }

    /// Returns the unchanged text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the text to compare with the last group of a UUID.
    #[must_use]
    pub fn of_last_group(&self) -> &str {
        &self.lower
    }

    /// Returns `true` if the text abbreviates this id.
    #[must_use]
    pub fn matches(&self, id: &str) -> bool {
        id.starts_with(&self.text)
            || last_group(id).is_some_and(|group| group.starts_with(&self.lower))
    }
}

/// Returns the last group of an id that is a UUID.
#[must_use]
pub fn last_group(id: &str) -> Option<&str> {
    let is_uuid = id.len() == UUID_CHARS
        && id.bytes().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    id.get(LAST_GROUP..).filter(|_| is_uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0199f3a2-1b2c-7abc-8def-3f9c45a01b2d";

    #[test]
    fn an_id_is_meant_by_its_beginning_and_by_that_of_its_random_group() {
        for (text, id, means) in [
            ("3f9c", ID, true),
            ("3F9C45A0", ID, true),
            ("3f9c45a01b2d", ID, true),
            ("0199f3a2", ID, true),
            (ID, ID, true),
            ("9c45", ID, false),
            ("8def", ID, false),
            ("lunch", "lunch-2", true),
            ("Lunch", "lunch-2", false),
            ("nch-2", "lunch-2", false),
            // Only a UUID has a last group.
            ("3f9c", "0199f3a2-1b2c-7abc-8defx3f9c45a01b2d", false),
            ("3f9c", "0199f3a2-1b2c-7abc-8dex-3f9c45a01b2d", false),
        ] {
            assert_eq!(ShortId::parse(text).unwrap().matches(id), means, "{text} {id}");
        }
        assert_eq!(ShortId::parse("3f9"), None);
        assert_eq!(ShortId::parse(""), None);
        assert_eq!(ShortId::parse(&"x".repeat(limits::MAX_ID_BYTES + 1)), None);
    }
}
