use std::io;
use std::time::Duration;

use trilogue_wire::jsonrpc::{Code, ErrorObject};

use super::peer::CallFailure;

/// Why an operation with an agent failed.
///
/// Messages of the agent are unchanged: remove control characters before you show them in a terminal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The agent returned an error.
    #[error(transparent)]
    Refused(ErrorObject),
    /// The agent requires authentication first: see [`Client::authenticate`](super::Client::authenticate).
    #[error("the agent wants to be authenticated with first: {}", .0.message)]
    AuthRequired(ErrorObject),
    /// The agent does not know the session any more. Open a new one.
    #[error("the agent does not know the session '{}' any more", .session.escape_debug())]
    SessionLost {
        /// The id of the session.
        session: String,
        /// The agent's error.
        error: ErrorObject,
    },
    /// The agent does not offer a capability that the call needs. Nothing was sent.
    #[error("{what} needs {capability}, which the agent does not offer")]
    Lacks {
        /// The capability, as the response to `initialize` spells it.
        capability: &'static str,
        /// The operation that needs it.
        what: String,
    },
    /// The protocol does not allow these values. Nothing was sent.
    #[error("{0}")]
    Invalid(String),
    /// The agent speaks another version of the protocol.
    #[error("the agent speaks version {0} of the protocol, not 1")]
    Version(u16),
    /// Another turn of the session is running. A session runs one prompt at a time.
    #[error("a turn of this session is at work")]
    Busy,
    /// The turn was cancelled twice, and the agent did not end it.
    #[error("the agent does not end its turn")]
    Unresponsive,
    /// Too many bytes of the turn were unread, so updates were dropped: see [`Options::max_unread_bytes`](super::Options::max_unread_bytes).
    #[error("too much of the turn was left unread, and updates are missing")]
    Overflow,
    /// The agent did not answer in time: see [`Options::call_timeout`](super::Options::call_timeout).
    #[error("the agent did not answer {method} within {} s", .limit.as_secs())]
    TimedOut {
        /// The method.
        method: String,
        /// The time limit.
        limit: Duration,
    },
    /// The connection has ended.
    #[error("the connection to the agent has ended")]
    Closed,
    /// Too many calls wait for their responses.
    #[error("too many calls wait for their answers")]
    TooManyCalls,
    /// The agent's response cannot be read.
    #[error("the agent's answer cannot be read: {0}")]
    Unreadable(String),
    /// The command could not be started.
    #[error("{program} cannot be started: {error}")]
    Launch {
        /// The program.
        program: String,
        /// The reason.
        error: io::Error,
    },
    /// The agent behind a server could not be reached.
    #[cfg(any(feature = "ws", feature = "http"))]
    #[error(transparent)]
    Connect(#[from] super::network::ConnectError),
    /// A file could not be read.
    #[error("{path} cannot be read: {error}")]
    File {
        /// The path of the file.
        path: String,
        /// The reason.
        error: io::Error,
    },
}

// === impl Error ===

impl Error {
    /// Converts the failure of a call. `session` is the session that the call was about.
    pub(super) fn of(failed: CallFailure, session: Option<&str>) -> Self {
        match (failed, session) {
            (CallFailure::Refused(error), _) if error.code == Code::AUTH_REQUIRED => {
                Self::AuthRequired(error)
            }
            (CallFailure::Refused(error), Some(session)) if means_lost_session(&error) => {
                Self::SessionLost { session: session.to_owned(), error }
            }
            (CallFailure::Refused(error), _) => Self::Refused(error),
            (CallFailure::Closed, _) => Self::Closed,
            (CallFailure::Unreadable(why), _) => Self::Unreadable(why),
            (CallFailure::TooMany, _) => Self::TooManyCalls,
        }
    }

    /// Returns the agent's error, if the agent returned one.
    #[must_use]
    pub fn refusal(&self) -> Option<&ErrorObject> {
        match self {
            Self::Refused(error) | Self::AuthRequired(error) | Self::SessionLost { error, .. } => {
                Some(error)
            }
            _ => None,
        }
    }
}

/// Returns `true` if an error about a session means that the agent does not know the session. Agents report this in different ways.
#[must_use]
pub fn means_lost_session(error: &ErrorObject) -> bool {
    let data = error.data.as_ref().map(|data| data.to_value()).unwrap_or_default();
    match error.code {
        // The same code reports a missing file; then the data has the file's `uri`.
        Code::RESOURCE_NOT_FOUND => data.get("uri").is_none() || data.get("sessionId").is_some(),
        Code::INVALID_PARAMS | Code::INTERNAL_ERROR => {
            let said = format!("{} {data}", error.message).to_lowercase();
            said.contains("session") && said.contains("not found")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use trilogue_wire::native::Json;

    use super::*;

    #[test]
    fn a_lost_session_is_recognised_in_the_words_of_every_agent() {
        let says = |code: i32, message: &str, data: &Value| {
            let error = ErrorObject::new(Code(code), message);
            means_lost_session(&error.data(Json::from_value(data)))
        };
        for (code, message, data) in [
            (-32002, "Resource not found: s1", json!({ "sessionId": "s1" })),
            (-32002, "nothing", Value::Null),
            (
                -32602,
                "Invalid params",
                json!({ "message": "Session not found", "sessionId": "s1" }),
            ),
            (-32603, "Internal error", json!({ "details": "Session not found for id: s1" })),
            (-32602, "session s1 NOT FOUND", Value::Null),
        ] {
            assert!(says(code, message, &data), "{code} {message} {data}");
        }
        for (code, message, data) in [
            (-32002, "Resource not found", json!({ "uri": "file:///a" })),
            (-32602, "mode not found", Value::Null),
            (-32603, "the session is busy", Value::Null),
            (-32600, "session not found", Value::Null),
            (-32000, "session not found", Value::Null),
        ] {
            assert!(!says(code, message, &data), "{code} {message} {data}");
        }
    }
}
