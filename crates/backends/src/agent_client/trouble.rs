//! What goes wrong with an agent, in the words of whoever is told.

use std::fmt;
use std::sync::Arc;

use trilogue_domain::error::{Code, Error};
use trilogue_domain::{Failure, Json};
use trilogue_mapping::agent_client::failure_of;
use trilogue_runtime::CallError;
use trilogue_sdk::agent_client::peer::CallFailure;
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::{Code as RpcCode, ErrorObject};

/// What to look at where a command does not do what every agent does.
const NO_AGENT: &str = "check that the command is an agent of the Agent Client Protocol: it speaks that on its standard input and output, mostly behind an option of its own";

/// Why something could not be done.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// The agent refuses.
    Refused(ErrorObject),
    /// The agent does not know a method that every agent has.
    Lacks(Box<Lacks>),
    /// The agent's process has ended: how, and what it said last.
    Lost(String),
    /// The agent could not be started, or took too long, or was not asked at all.
    Ours(Error),
    /// The command is no agent that can be spoken to: starting it again changes nothing.
    Unfit(Error),
}

/// A method that an agent does not know.
#[derive(Clone, Debug)]
pub(super) struct Lacks {
    /// Which agent.
    pub(super) agent: Arc<str>,
    /// Which method.
    pub(super) method: String,
    /// What it said.
    pub(super) error: ErrorObject,
}

// === impl Trouble ===

impl Trouble {
    pub(super) fn ours(code: Code, message: impl Into<String>) -> Self {
        Self::Ours(Error::new(code, message.into()))
    }

    /// The command is no agent that can be spoken to.
    pub(super) fn unfit(message: impl Into<String>) -> Self {
        Self::Unfit(Error::new(Code::PeerUnavailable, message.into()).hint(NO_AGENT))
    }

    /// The same, where this was a method that every agent has.
    pub(super) fn of(self, agent: &Arc<str>, method: &str) -> Self {
        match self {
            Self::Refused(error) if error.code == RpcCode::METHOD_NOT_FOUND => {
                let (agent, method) = (Arc::clone(agent), method.to_owned());
                Self::Lacks(Box::new(Lacks { agent, method, error }))
            }
            other => other,
        }
    }

    /// Whether the agent has answered, and said no.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Lacks(_))
    }

    /// Whether the agent wants to be authenticated with.
    pub(super) fn wants_authentication(&self) -> bool {
        matches!(self, Self::Refused(error) if error.code == RpcCode::AUTH_REQUIRED)
    }

    /// Whether the agent says that it does not know the session, which it calls `remote`. Agents have several words for it. A resource
    /// that it does not find is none, unless it is the session.
    pub(super) fn is_lost_session(&self, remote: &str) -> bool {
        let Self::Refused(error) = self else { return false };
        let data = error.data.as_ref().map_or("", |data| data.as_str());
        let says_so = || {
            let text = format!("{} {}", error.message, data).to_lowercase();
            text.contains("session") && (text.contains("not found") || text.contains("unknown"))
        };
        let member = |name: &str| splice::get_text(data, &[name]);
        match error.code {
            RpcCode::RESOURCE_NOT_FOUND => match (member("sessionId"), member("uri")) {
                (Some(_), _) => true,
                (None, Some(uri)) => uri == remote,
                (None, None) => says_so() || error.message.contains(remote),
            },
            RpcCode::INVALID_PARAMS | RpcCode::INTERNAL_ERROR => says_so(),
            RpcCode(-32001) => says_so(),
            _ => false,
        }
    }

    /// In words.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Refused(error) => error.to_string(),
            Self::Lacks(lacks) => lacks.to_string(),
            Self::Lost(how) => how.clone(),
            Self::Ours(error) | Self::Unfit(error) => error.message().to_owned(),
        }
    }

    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Refused(error) => {
                let data = error.data.as_ref().and_then(domain_json);
                failure_of(error.code.0, &error.message, data.as_ref()).bounded()
            }
            Self::Lacks(lacks) => {
                let Lacks { error, .. } = &*lacks;
                let data = error.data.as_ref().and_then(domain_json);
                let failure = failure_of(error.code.0, &error.message, data.as_ref());
                let hinted =
                    failure.data.as_ref().and_then(|data| with_hint(data.as_str(), NO_AGENT));
                let data = hinted.or(failure.data);
                Failure { message: lacks.to_string(), data, ..failure }.bounded()
            }
            Self::Lost(how) => Failure::of(Code::AgentLost, &how),
            Self::Ours(error) => failure(&error),
            Self::Unfit(error) => Failure { transient: false, ..failure(&error) },
        }
    }

    pub(super) fn into_call_error(self) -> CallError {
        let code = match &self {
            Self::Refused(error) => error.code.0,
            Self::Ours(error) if error.code() == Code::InvalidRequest => CallError::INVALID_PARAMS,
            // Whoever asked has asked for what every agent has.
            Self::Lacks(_) | Self::Lost(_) | Self::Ours(_) | Self::Unfit(_) => CallError::INTERNAL,
        };
        match self {
            Self::Lacks(lacks) => {
                let data = lacks.error.data.as_ref().and_then(domain_json);
                let hinted = with_hint(data.as_ref().map_or("", |data| data.as_str()), NO_AGENT);
                let hinted = hinted.or_else(|| with_hint("{}", NO_AGENT));
                CallError { data: hinted, ..CallError::new(code, lacks.to_string()) }
            }
            Self::Refused(error) => {
                let data = error.data.as_ref().and_then(domain_json);
                CallError { data, ..CallError::new(code, error.message) }
            }
            Self::Lost(how) => {
                let data = serde_json::json!({ "code": Code::AgentLost.as_str() });
                CallError { data: Some(Json::from_value(&data)), ..CallError::new(code, how) }
            }
            Self::Ours(error) | Self::Unfit(error) => {
                let mut data = serde_json::json!({ "code": error.code().as_str() });
                if let Some(hint) = error.hint_text() {
                    data["hint"] = hint.into();
                }
                let data = Some(Json::from_value(&data));
                CallError { data, ..CallError::new(code, error.message()) }
            }
        }
    }
}

// === impl Lacks ===

impl fmt::Display for Lacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { agent, method, error } = self;
        write!(f, "the agent '{agent}' does not know `{method}`: {error}")
    }
}

/// A failure of ours. What to do next stands in its details.
fn failure(error: &Error) -> Failure {
    let hint = error.hint_text().map(|hint| Json::from_value(&serde_json::json!({ "hint": hint })));
    Failure { data: hint, ..Failure::of(error.code(), error.message()) }
}

fn with_hint(details: &str, hint: &str) -> Option<Json> {
    let hinted = splice::set_text(details, &["hint"], hint)?;
    Json::parse(hinted).ok()
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

/// An error of the other side of a call that goes through us.
pub(super) fn error_object(error: CallError) -> ErrorObject {
    let data = error
        .data
        .and_then(|data| trilogue_wire::agent_client::Json::parse(data.as_str().to_owned()).ok());
    ErrorObject { code: RpcCode(error.code), message: error.message, data }
}

/// What a call failed with, where its connection has not ended.
pub(super) fn of_failed(failed: CallFailure) -> Trouble {
    match failed {
        CallFailure::Refused(error) => Trouble::Refused(error),
        CallFailure::Closed => Trouble::Lost("the agent is not there any more".to_owned()),
        other => {
            Trouble::ours(Code::PeerUnavailable, format!("the agent broke its protocol: {other}"))
        }
    }
}

fn domain_json(json: &trilogue_wire::agent_client::Json) -> Option<Json> {
    Json::parse(json.as_str().to_owned()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: i32, message: &str, data: Option<&str>) -> Trouble {
        let error = ErrorObject::new(RpcCode(code), message.to_owned());
        Trouble::Refused(match data {
            Some(data) => {
                error.data(trilogue_wire::agent_client::Json::parse(data.to_owned()).unwrap())
            }
            None => error,
        })
    }

    #[test]
    fn only_a_session_that_is_not_found_is_a_lost_one() {
        for (code, message, data) in [
            (-32002, "Resource not found", Some(r#"{"sessionId":"s1"}"#)),
            (-32002, "Resource not found: s1", Some(r#"{"uri":"s1"}"#)),
            (-32002, "Resource not found: s1", None),
            (-32002, "Session not found", None),
            (-32602, "unknown session", None),
            (-32603, "Internal error", Some(r#"{"details":"Session s1 not found"}"#)),
        ] {
            assert!(refused(code, message, data).is_lost_session("s1"), "{message} {data:?}");
        }
        for (code, message, data) in [
            (-32002, "Resource not found: /x", Some(r#"{"uri":"/x"}"#)),
            (-32002, "Resource not found: session", Some(r#"{"uri":"file:///session"}"#)),
            (-32002, "Resource not found", None),
            (-32602, "the file was not found", None),
            (-32000, "session not found", None),
            (-32603, "Internal error", None),
        ] {
            assert!(!refused(code, message, data).is_lost_session("s1"), "{message} {data:?}");
        }
        assert!(!Trouble::Lost("session not found".to_owned()).is_lost_session("s1"));
    }
}
