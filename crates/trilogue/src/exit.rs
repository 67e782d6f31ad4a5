//! How the command ends: its exit codes, and the message that explains them.

use std::borrow::Cow;
use std::fmt;
use std::process::ExitCode;

use trilogue_domain::error::{Class, Code};

/// The exit codes. They are part of the interface: a number never changes its meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// Done.
    Success = 0,
    /// The run, or what was asked for, failed.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The run waits for an answer that this terminal cannot give.
    Waiting = 3,
    /// There is no such agent, thread, run or interrupt.
    NotFound = 4,
    /// The token is missing, unknown, or lacks a right.
    Denied = 5,
    /// The server cannot be reached.
    Unreachable = 6,
    /// The thing is in another state, or taken.
    Conflict = 7,
    /// The run was cancelled, here or elsewhere.
    Cancelled = 8,
    /// Interrupted by Ctrl-C.
    Interrupted = 130,
}

/// Why a command stops: what happened, and what to do next.
#[derive(Debug)]
pub(crate) struct Stop {
    /// How it ends.
    pub(crate) exit: Exit,
    /// What happened and why; empty when everything has been said.
    pub(crate) message: Cow<'static, str>,
    /// What to do next.
    pub(crate) hint: Option<Cow<'static, str>>,
}

/// The result of a command.
pub(crate) type Result<T = (), E = Stop> = std::result::Result<T, E>;

// === impl Exit ===

impl Exit {
    /// How a command ends that the server refused with this code.
    pub(crate) fn of(code: Code) -> Self {
        match code.class() {
            Class::NotFound => Self::NotFound,
            Class::Unauthenticated | Class::Forbidden => Self::Denied,
            Class::Conflict => Self::Conflict,
            Class::Invalid | Class::Unprocessable | Class::TooLarge => Self::Usage,
            Class::TooMany | Class::NoSpace | Class::Unavailable | Class::Internal => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

// === impl Stop ===

impl Stop {
    /// A stop with its message.
    pub(crate) fn new(exit: Exit, message: impl Into<Cow<'static, str>>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    /// A wrong command line.
    pub(crate) fn usage(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// A failure.
    pub(crate) fn failed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// A stop that has nothing more to say.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    /// The same stop with what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<trilogue_domain::Error> for Stop {
    fn from(error: trilogue_domain::Error) -> Self {
        Self {
            exit: Exit::of(error.code()),
            message: Cow::Owned(error.message().to_owned()),
            hint: error.hint_text().map(|hint| Cow::Owned(hint.to_owned())),
        }
    }
}

impl From<trilogue::config::Error> for Stop {
    fn from(error: trilogue::config::Error) -> Self {
        let hint = error.hint.clone().map(Cow::Owned);
        Self { exit: Exit::Usage, message: Cow::Owned(error.to_string()), hint }
    }
}

impl From<trilogue::config::Exposed> for Stop {
    fn from(error: trilogue::config::Exposed) -> Self {
        let hint = Some(Cow::Owned(error.hint.clone()));
        Self { exit: Exit::Usage, message: Cow::Owned(error.to_string()), hint }
    }
}
