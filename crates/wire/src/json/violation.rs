use std::fmt;

use super::joined;

/// An invalid value and its place. The message repeats little of the sent value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// A JSON Pointer, or a path like `input[0].role` in the Agent Communication Protocol; empty for the whole value. It ends with `…` where it is cut after 512 bytes.
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

/// The longest path that an error repeats, in bytes: a name in it can be as large as the body.
const MAX_PATH_BYTES: usize = 512;

// === impl Violation ===

impl Violation {
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        let (path, message) = (cut(path.into()), message.into());
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

fn cut(mut path: String) -> String {
    if path.len() > MAX_PATH_BYTES {
        path.truncate(path.floor_char_boundary(MAX_PATH_BYTES));
        path.push('…');
    }
    path
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let subject = if self.path.is_empty() { self.root } else { &self.path };
        write!(f, "{subject} {}", self.message)
    }
}

impl std::error::Error for Violation {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_in_a_path_is_cut() {
        let long = Violation::new(format!("/{}", "ü".repeat(1_000_000)), "is not known there");
        assert!(long.to_string().len() < 1_024 && long.path.ends_with("ü…"), "{}", long.path);
        assert_eq!(Violation::new("/a", "x").path, "/a");
    }
}
