//! How a command ends: exit codes, and errors with their hints.

use std::borrow::Cow;
use std::fmt;
use std::process::ExitCode;

use trilogue_domain::error::{Class, Code};

/// The exit codes. They are part of the interface: a number never changes its meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExitStatus {
    Success = 0,
    /// The run or the request failed.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The run needs an answer that this terminal cannot give.
    Waiting = 3,
    /// The agent, thread, run or interrupt does not exist.
    NotFound = 4,
    /// The token is missing, unknown, or lacks a right; or a denied call ended the turn.
    Denied = 5,
    /// The server cannot be reached.
    Unreachable = 6,
    /// It already exists, or is in another state.
    Conflict = 7,
    /// The run was cancelled, here or elsewhere.
    Cancelled = 8,
    /// Interrupted by Ctrl-C or SIGTERM.
    Interrupted = 130,
}

/// The message of a run whose turn a denied call ended.
const CALL_DENIED: &str = "the turn ended because a call was denied";

#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) exit: ExitStatus,
    /// What happened and why; empty if that has been reported already.
    pub(crate) message: Cow<'static, str>,
    pub(crate) hint: Option<Cow<'static, str>>,
}

pub(crate) type Result<T = (), E = CliError> = std::result::Result<T, E>;

// === impl ExitStatus ===

impl ExitStatus {
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

impl From<ExitStatus> for ExitCode {
    fn from(exit: ExitStatus) -> Self {
        Self::from(exit as u8)
    }
}

// === impl CliError ===

impl CliError {
    pub(crate) fn new(exit: ExitStatus, message: impl Into<Cow<'static, str>>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    pub(crate) fn usage(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ExitStatus::Usage, message)
    }

    pub(crate) fn failure(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ExitStatus::Failed, message)
    }

    /// A denied call ended the turn of a run.
    pub(crate) fn call_denied() -> Self {
        Self::new(ExitStatus::Denied, CALL_DENIED)
    }

    /// Whether the server refused the token: a denied call has the same exit code.
    pub(crate) fn is_token_refusal(&self) -> bool {
        self.exit == ExitStatus::Denied && self.message != CALL_DENIED
    }

    /// An error that has been reported already.
    pub(crate) fn silent(exit: ExitStatus) -> Self {
        Self::new(exit, "")
    }

    /// Whether a signal interrupted the command before anything was reported.
    pub(crate) fn is_silent_interrupt(&self) -> bool {
        self.exit == ExitStatus::Interrupted && self.message.is_empty()
    }

    pub(crate) fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<trilogue_domain::Error> for CliError {
    fn from(error: trilogue_domain::Error) -> Self {
        Self {
            exit: ExitStatus::of(error.code()),
            message: Cow::Owned(error.message().to_owned()),
            hint: error.hint_text().map(|hint| Cow::Owned(hint.to_owned())),
        }
    }
}

impl From<trilogue::config::Error> for CliError {
    fn from(error: trilogue::config::Error) -> Self {
        let hint = error.hint.clone().map(Cow::Owned);
        Self { exit: ExitStatus::Usage, message: Cow::Owned(error.to_string()), hint }
    }
}

impl From<trilogue::config::ExposureError> for CliError {
    fn from(error: trilogue::config::ExposureError) -> Self {
        let hint = Some(Cow::Owned(error.hint.clone()));
        Self { exit: ExitStatus::Usage, message: Cow::Owned(error.to_string()), hint }
    }
}
