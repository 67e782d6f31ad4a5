use std::fmt;

use super::joined;

/// What does not fit, and where. It repeats little of what was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// A JSON Pointer, or a path like `input[0].role` in the Agent Communication Protocol; empty for the whole.
    pub path: String,
    /// The predicate of a sentence whose subject is the path.
    pub message: String,
    pub kind: ViolationKind,
    /// The subject of the sentence where the path is empty.
    pub(super) root: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ViolationKind {
    Malformed,
    Unfit,
}

// === impl Violation ===

impl Violation {
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        let (path, message) = (path.into(), message.into());
        Self { path, message, kind: ViolationKind::Unfit, root: "the value" }
    }

    pub(super) fn malformed(why: impl fmt::Display) -> Self {
        let message = format!("is not valid JSON: {why}");
        Self { kind: ViolationKind::Malformed, root: "the text", ..Self::new("", message) }
    }

    pub fn is_malformed(&self) -> bool {
        self.kind == ViolationKind::Malformed
    }

    /// Puts the path below the one of the field whose text was read.
    #[must_use]
    pub fn under(mut self, path: &str) -> Self {
        self.path = joined(path, &self.path);
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = if self.path.is_empty() { self.root } else { &self.path };
        write!(f, "{subject} {}", self.message)
    }
}

impl std::error::Error for Violation {}
