use std::fmt;

use super::joined;

/// An invalid value and its place. The message repeats little of the sent value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// A JSON Pointer, or a path like `input[0].role` in the Agent Communication Protocol; empty for the whole value.
    pub path: String,
    /// The predicate of a sentence. The path is its subject.
    pub message: String,
    pub kind: ViolationKind,
    /// The subject of the sentence if the path is empty.
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

    /// Puts the path below the path of the field that contained this text.
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
