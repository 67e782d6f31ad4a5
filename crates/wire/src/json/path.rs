use std::fmt::{self, Write};

use super::scan::Member;
use super::{Rules, Violation, ViolationKind};

pub const MAX_QUOTED_BYTES: usize = 64;

/// The reader's position and its rules. It is on the stack; its text is made only for a violation.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
    rules: Rules,
    style: Style,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Index(usize),
}

/// How a protocol reads JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    /// Paths are JSON Pointers. The last of several members with one name counts. An unpaired surrogate becomes U+FFFD.
    Tolerant,
    /// Paths look like `input[0].role`. A repeated member or an unpaired surrogate is a violation. Carried JSON loses
    /// its white space and has at most [`super::MAX_DEPTH`] levels.
    Exact,
}

// === impl Path ===

impl<'a> Path<'a> {
    pub(crate) const fn root(rules: Rules, style: Style) -> Self {
        Self { parent: None, step: Step::Root, rules, style }
    }

    pub(crate) const fn is_strict(&self) -> bool {
        matches!(self.rules, Rules::Strict)
    }

    pub(crate) const fn is_lenient(&self) -> bool {
        matches!(self.rules, Rules::Lenient)
    }

    pub(crate) const fn is_exact(&self) -> bool {
        matches!(self.style, Style::Exact)
    }

    pub(crate) const fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Key(key), ..*self }
    }

    pub(crate) const fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(index), ..*self }
    }

    pub(crate) fn violation(&self, message: impl Into<String>) -> Violation {
        let root = match self.style {
            Style::Tolerant => "the value",
            Style::Exact => "the body",
        };
        let mut path = String::new();
        self.write(&mut path);
        Violation { path, message: message.into(), kind: ViolationKind::Unfit, root }
    }

    /// Stores the value of a member in its slot. In the exact style, a second value is a violation.
    pub(crate) fn note<'j>(
        &self,
        slot: &mut Option<&'j str>,
        member: &Member<'j>,
    ) -> Result<(), Violation> {
        if self.is_exact() && slot.is_some() {
            return Err(self.repeated(&member.key));
        }
        *slot = Some(member.value);
        Ok(())
    }

    pub(crate) fn repeated(&self, key: &str) -> Violation {
        self.violation(format!("has the member {} twice", quoted(key)))
    }

    // Writing to a string cannot fail.
    fn write(&self, path: &mut String) {
        if let Some(parent) = self.parent {
            parent.write(path);
        }
        match (self.step, self.style) {
            (Step::Root, _) => {}
            (Step::Key(key), Style::Tolerant) => {
                let key = key.get(..key.floor_char_boundary(MAX_QUOTED_BYTES)).unwrap_or_default();
                path.push('/');
                path.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            (Step::Index(index), Style::Tolerant) => {
                let _ = write!(path, "/{index}");
            }
            (Step::Key(key), Style::Exact) if is_word(key) => *path = joined(path, key),
            (Step::Key(key), Style::Exact) => {
                let _ = write!(path, "[{}]", quoted(key));
            }
            (Step::Index(index), Style::Exact) => {
                let _ = write!(path, "[{index}]");
            }
        }
    }
}

/// Returns `true` if a path can contain the name without quotes. Names from a sender can have any length and any characters.
fn is_word(key: &str) -> bool {
    (1..=MAX_QUOTED_BYTES).contains(&key.len())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// Joins two paths of the form `input[0].role`.
pub fn joined(outer: &str, inner: &str) -> String {
    let dot = if outer.is_empty() || inner.is_empty() || inner.starts_with('[') { "" } else { "." };
    [outer, dot, inner].concat()
}

/// Quotes a sender's text. Escapes it, and cuts it after [`MAX_QUOTED_BYTES`].
pub(crate) fn quoted(text: &str) -> impl fmt::Display {
    let end = text.floor_char_boundary(MAX_QUOTED_BYTES);
    let head = text.get(..end).unwrap_or_default();
    let more = if end < text.len() { "…" } else { "" };
    fmt::from_fn(move |f| write!(f, "{head:?}{more}"))
}
