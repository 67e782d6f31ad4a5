use std::fmt;

/// What does not fit, and where. It repeats nothing of what was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Where: a JSON Pointer; empty for the whole.
    pub path: String,
    /// What is wrong: the rest of a sentence that begins with the place.
    pub message: String,
}

// === impl Violation ===

impl Violation {
    /// A violation at a JSON Pointer.
    #[must_use]
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = if self.path.is_empty() { "the value" } else { &self.path };
        write!(f, "{subject} {}", self.message)
    }
}

impl std::error::Error for Violation {}
