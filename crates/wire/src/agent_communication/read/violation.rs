use std::fmt;

/// The most bytes of a sender's text that a violation repeats.
pub const MAX_QUOTED_BYTES: usize = 64;

/// What breaks the rules, where, and what is allowed there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The field, like `input[0].parts[1].content`; empty for the whole text.
    pub path: String,
    /// What is wrong with it and what is allowed: the rest of a sentence that begins with the field.
    pub message: String,
}

// === impl Violation ===

impl Violation {
    /// Says in which field the text lies that was read.
    #[must_use]
    pub fn under(mut self, path: &str) -> Self {
        self.path = joined(path, &self.path);
        self
    }
}

/// Appends a path to another.
pub(super) fn joined(outer: &str, inner: &str) -> String {
    let dot = if outer.is_empty() || inner.is_empty() || inner.starts_with('[') { "" } else { "." };
    [outer, dot, inner].concat()
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = if self.path.is_empty() { "the body" } else { &self.path };
        write!(f, "{subject} {}", self.message)
    }
}

impl std::error::Error for Violation {}

/// A sender's text, escaped, and cut where it is longer than [`MAX_QUOTED_BYTES`].
pub(in super::super) fn quoted(text: &str) -> impl fmt::Display {
    let end = text.floor_char_boundary(MAX_QUOTED_BYTES);
    let head = text.get(..end).unwrap_or_default();
    let more = if end < text.len() { "…" } else { "" };
    // Whatever could break a line or hide in one is shown by its number.
    fmt::from_fn(move |f| write!(f, "{head:?}{more}"))
}
