use serde::Serialize;

use super::Json;

/// Why something failed: the body of an answer, a failed run's `error`, or an event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ErrorBody {
    /// The kind of failure.
    pub code: ErrorCode,
    /// What happened, in words.
    pub message: String,
    /// More detail for machines: a JSON object.
    pub data: Option<Json>,
}

/// The kinds of failure that the protocol knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// Everything else.
    ServerError,
    /// The input was not acceptable.
    InvalidInput,
    /// Nothing has that name or id.
    NotFound,
}

// === impl ErrorCode ===

impl ErrorCode {
    /// The code on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ServerError => "server_error",
            Self::InvalidInput => "invalid_input",
            Self::NotFound => "not_found",
        }
    }
}

// === impl ErrorBody ===

impl ErrorBody {
    /// An error without further detail.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Writes the error as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        super::splice::json(out, self);
    }
}
