//! The errors of calls to a server.

use serde::Deserialize;
use trilogue_wire::agent_communication::{ErrorBody, ErrorCode};
use trilogue_wire::native::Problem;

use super::call::perhaps_elsewhere;
use super::connect::Fault;
use super::transport::TransportError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No response arrived, or its body is incomplete.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The server refused the call.
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
    /// A server of the Agent Communication Protocol refused the call, or ended the stream with an error.
    #[error("{}", .0.body.message)]
    Refused(Box<Refusal>),
    /// A server of the Agent Connect Protocol refused the call.
    #[error("{}", .0.description)]
    Fault(Box<Fault>),
    /// The server's response cannot be understood.
    #[error("the server's answer cannot be understood: {0}")]
    Unexpected(String),
}

/// An error response of an Agent Communication Protocol server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The HTTP status; `None` if a stream ended with the error.
    pub status: Option<u16>,
    /// The error as the server wrote it, or an error of this client if the response was not in the protocol's form.
    pub body: ErrorBody,
    detail: Detail,
    is_foreign: bool,
}

/// Members that a Trilogue server adds to an error in its `data`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
struct Detail {
    reason: Option<String>,
    hint: Option<String>,
    transient: Option<bool>,
}

// === impl Refusal ===

impl Refusal {
    /// Returns an error with its status; `None` if it ended a stream.
    #[must_use]
    pub fn new(status: Option<u16>, body: ErrorBody) -> Self {
        // Other servers may put any value there.
        let object = body.data.as_ref().filter(|data| data.as_str().starts_with('{'));
        let detail = object.and_then(|data| data.read().ok()).unwrap_or_default();
        Self { status, body, detail, is_foreign: false }
    }

    /// Returns the error for a response with this status that is not in the protocol's form. It may come from a proxy, or from a server of another protocol.
    pub(crate) fn foreign(status: u16) -> Self {
        let elsewhere = perhaps_elsewhere(status);
        let message = format!("the server answered with status {status}{elsewhere}");
        let body = ErrorBody::new(ErrorCode::ServerError, message);
        Self { is_foreign: true, ..Self::new(Some(status), body) }
    }

    /// Returns `true` if the response was not in the protocol's form.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Returns `true` if the requested name or id does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.body.code == ErrorCode::NotFound
    }

    fn is_transient(&self) -> bool {
        let by_status = || matches!(self.status, Some(429 | 502..=504));
        self.detail.transient.unwrap_or_else(by_status)
    }
}

// === impl ClientError ===

impl ClientError {
    /// Returns the stable error code. For the Agent Communication Protocol this is the reason that the server adds, otherwise one of the protocol's three codes. `None` if no response arrived or it cannot be understood.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Problem(problem) => Some(&problem.code),
            Self::Refused(refusal) => {
                Some(refusal.detail.reason.as_deref().unwrap_or(refusal.body.code.as_str()))
            }
            Self::Fault(fault) => fault.code.as_deref(),
            Self::Transport(_) | Self::Unexpected(_) => None,
        }
    }

    /// Returns what to do next, if known.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Problem(problem) => problem.hint.as_deref(),
            Self::Refused(refusal) => refusal.detail.hint.as_deref(),
            Self::Fault(fault) => fault.hint.as_deref(),
            Self::Transport(error) => error.hint.as_deref(),
            Self::Unexpected(_) => None,
        }
    }

    /// Returns `true` if the same call may succeed later without a change.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.transient,
            Self::Refused(refusal) => refusal.is_transient(),
            Self::Fault(fault) => fault.is_transient(),
            Self::Transport(_) => true,
            Self::Unexpected(_) => false,
        }
    }
}
