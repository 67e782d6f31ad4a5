use super::violation::joined;
use super::{Rules, Violation};

/// A place in what is read, and the rules that hold there. It lives on the stack: a path is only made for a violation.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    up: Option<&'a At<'a>>,
    step: Step<'a>,
    rules: Rules,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Index(usize),
}

// === impl At ===

impl<'a> At<'a> {
    pub(in super::super) const fn root(rules: Rules) -> Self {
        Self { up: None, step: Step::Root, rules }
    }

    /// Whether what a peer says is read.
    pub(in super::super) const fn is_peer(&self) -> bool {
        matches!(self.rules, Rules::Peer)
    }

    pub(in super::super) const fn is_strict(&self) -> bool {
        matches!(self.rules, Rules::Strict)
    }

    pub(in super::super) const fn key(&'a self, key: &'a str) -> Self {
        Self { up: Some(self), step: Step::Key(key), rules: self.rules }
    }

    pub(in super::super) const fn index(&'a self, index: usize) -> Self {
        Self { up: Some(self), step: Step::Index(index), rules: self.rules }
    }

    pub(in super::super) fn path(&self) -> String {
        let outer = self.up.map(At::path).unwrap_or_default();
        match self.step {
            Step::Root => outer,
            Step::Key(key) => joined(&outer, key),
            Step::Index(index) => format!("{outer}[{index}]"),
        }
    }

    pub(in super::super) fn violation(&self, message: impl Into<String>) -> Violation {
        Violation { path: self.path(), message: message.into() }
    }
}
