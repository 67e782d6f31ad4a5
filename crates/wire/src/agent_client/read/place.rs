use std::fmt::Write;

use super::{Rules, Violation};

/// The longest member name that a path repeats, in bytes.
const MAX_STEP_BYTES: usize = 64;

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

    pub(in super::super) const fn is_strict(&self) -> bool {
        matches!(self.rules, Rules::Strict)
    }

    pub(in super::super) const fn key(&'a self, key: &'a str) -> Self {
        Self { up: Some(self), step: Step::Key(key), rules: self.rules }
    }

    pub(in super::super) const fn index(&'a self, index: usize) -> Self {
        Self { up: Some(self), step: Step::Index(index), rules: self.rules }
    }

    pub(in super::super) fn violation(&self, message: impl Into<String>) -> Violation {
        Violation { path: self.path(), message: message.into() }
    }

    fn path(&self) -> String {
        let mut path = self.up.map(At::path).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Key(key) => {
                let key = key.get(..key.floor_char_boundary(MAX_STEP_BYTES)).unwrap_or_default();
                path.push('/');
                path.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            // Writing to a string cannot fail.
            Step::Index(index) => {
                let _ = write!(path, "/{index}");
            }
        }
        path
    }
}
