//! The error of an agent.

use std::borrow::Cow;
use std::convert::Infallible;

use serde_json::json;
use trilogue_domain::{Code, Failure, Json, Violation};

use crate::fault::AgentFault;
use crate::typed::to_json;

/// The maximum length of an agent's own error code, in bytes.
pub const MAX_CODE_BYTES: usize = 64;

/// Why an agent failed. The caller of the run receives it.
///
/// Put nothing in the message that the caller must not read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct AgentError {
    code: Cow<'static, str>,
    message: String,
    transient: bool,
    data: Option<Json>,
    stopped: bool,
}

// === impl AgentError ===

impl AgentError {
    /// Returns an error with the agent's own code: 1 to [`MAX_CODE_BYTES`] lower-case letters, digits, `_`, `-` or `.`. An invalid code becomes `agent_failed`.
    #[must_use]
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let code = code.into();
        let code = if is_code(&code) { code } else { Code::AgentFailed.as_str().into() };
        Self { code, message: message.into(), transient: false, data: None, stopped: false }
    }

    /// Returns the error for a value of the agent's own error type: its code, its message, whether it is transient, and the value as data. A `?` on the value does the same.
    #[must_use]
    pub fn of<F: AgentFault>(fault: &F) -> Self {
        let data = to_json(fault).ok().filter(|data| data.as_str() != "null");
        Self { transient: F::TRANSIENT, data, ..Self::new(F::CODE, fault.message()) }
    }

    /// Returns an error with the code `agent_failed`.
    #[must_use]
    pub fn agent_failed(message: impl Into<String>) -> Self {
        Self::new(Code::AgentFailed.as_str(), message)
    }

    /// Returns an error with the code `invalid_input`.
    #[must_use]
    pub fn invalid_input(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidInput.as_str(), message)
    }

    /// Returns the error that every port returns after the run was stopped. Return it from the agent: the log takes no more events.
    #[must_use]
    pub fn run_stopped() -> Self {
        Self { stopped: true, ..Self::agent_failed("the run was stopped") }
    }

    /// Marks the error as transient: the same request may succeed later.
    #[must_use]
    pub fn transient(mut self) -> Self {
        self.transient = true;
        self
    }

    /// Adds details for programs.
    #[must_use]
    pub fn with_data(mut self, data: Json) -> Self {
        self.data = Some(data);
        self
    }

    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Returns the message for people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns `true` if the same request may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.transient
    }

    /// Returns the details for programs, if any.
    #[must_use]
    pub fn data(&self) -> Option<&Json> {
        self.data.as_ref()
    }

    /// Returns `true` if the run was stopped from outside. Then the agent did not fail.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns the error for the failure of another run.
    #[must_use]
    pub fn from_failure(failure: Failure) -> Self {
        let Failure { code, message, transient, data } = failure;
        Self { transient, data, ..Self::new(code, message) }
    }

    /// Returns the failure that the run ends with.
    #[must_use]
    pub fn into_failure(self) -> Failure {
        Failure {
            code: self.code.into_owned(),
            message: self.message,
            transient: self.transient,
            data: self.data,
        }
        .bounded()
    }
}

impl From<trilogue_domain::Error> for AgentError {
    fn from(error: trilogue_domain::Error) -> Self {
        let message = match error.hint_text() {
            Some(hint) => format!("{} ({hint})", error.message()),
            None => error.message().to_owned(),
        };
        let code = error.code();
        let data = violation_data(error.violated());
        Self { transient: code.is_transient(), data, ..Self::new(code.as_str(), message) }
    }
}

impl<F: AgentFault> From<F> for AgentError {
    fn from(fault: F) -> Self {
        Self::of(&fault)
    }
}

impl From<Infallible> for AgentError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<serde_json::Error> for AgentError {
    fn from(error: serde_json::Error) -> Self {
        Self::agent_failed(format!("the JSON does not fit: {error}"))
    }
}

/// Returns the violations as data for programs; `None` if the list is empty.
fn violation_data(violations: &[Violation]) -> Option<Json> {
    let first = violations.first()?;
    let errors: Vec<_> = violations
        .iter()
        .map(|violation| {
            let Violation { path, message } = violation;
            json!({ "instance_path": path, "message": message })
        })
        .collect();
    Some(Json::from_value(&json!({ "path": first.path, "errors": errors })))
}

/// Returns `true` if an agent can use this text as the code of an error.
pub(crate) fn is_code(text: &str) -> bool {
    let fits = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.')
    };
    !text.is_empty() && text.len() <= MAX_CODE_BYTES && text.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_that_no_program_could_match_is_replaced() {
        assert_eq!(AgentError::new("mail.no_recipient", "x").code(), "mail.no_recipient");
        for bad in ["", "Two Words", "a\nb", &"a".repeat(MAX_CODE_BYTES + 1)] {
            assert_eq!(AgentError::new(bad.to_owned(), "x").code(), "agent_failed");
        }
    }

    #[test]
    fn an_error_of_ours_keeps_code_hint_and_transience() {
        let error = trilogue_domain::Error::new(Code::DiskFull, "the disk is full").hint("free it");
        let error = AgentError::from(error);
        assert_eq!(error.code(), "disk_full");
        assert_eq!(error.message(), "the disk is full (free it)");
        assert!(error.is_transient());
    }

    #[test]
    fn where_a_value_does_not_fit_is_data() {
        let violation = |path: &str| Violation { path: path.to_owned(), message: "no".to_owned() };
        let error = trilogue_domain::Error::new(Code::ResultInvalid, "the result does not fit")
            .violations(vec![violation("/a/0"), violation("/b")]);
        let data = AgentError::from(error).data().map(Json::to_value);
        let errors = json!([
            { "instance_path": "/a/0", "message": "no" },
            { "instance_path": "/b", "message": "no" },
        ]);
        assert_eq!(data, Some(json!({ "path": "/a/0", "errors": errors })));
    }
}
