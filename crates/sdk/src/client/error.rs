//! Why a call failed.

use trilogue_wire::native::Problem;

use super::transport::TransportError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No response came, or its body broke off.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The server refused the call.
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
    /// The server's answer cannot be understood.
    #[error("the server's answer cannot be understood: {0}")]
    Unexpected(String),
}

// === impl ClientError ===

impl ClientError {
    /// The stable code of a problem; `None` where the server was not heard.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Problem(problem) => Some(&problem.code),
            Self::Transport(_) | Self::Unexpected(_) => None,
        }
    }

    /// What to do next, where somebody knows.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Problem(problem) => problem.hint.as_deref(),
            Self::Transport(error) => error.hint.as_deref(),
            Self::Unexpected(_) => None,
        }
    }

    /// Whether the same call may succeed later without a change.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.transient,
            Self::Transport(_) => true,
            Self::Unexpected(_) => false,
        }
    }
}
