//! Failures of agents, in the form for runs and clients.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use trilogue_domain::error::{Code, Error};
use trilogue_domain::{Failure, Json};
use trilogue_mapping::agent_client::failure_of;
use trilogue_runtime::CallError;
use trilogue_sdk::agent_client::peer::CallFailure;
use trilogue_wire::agent_client::{AuthMethod, splice};
use trilogue_wire::jsonrpc::{Code as RpcCode, ErrorObject};

use super::diagnosis::Diagnosis;
use super::host::AgentHost;

pub(super) const NOT_AN_AGENT_HINT: &str = "check that the command starts an agent of the Agent Client Protocol: it speaks the protocol on its standard input and output, and many programs need an option for that";

#[derive(Clone, Debug)]
pub(super) enum AgentFailure {
    Refused(ErrorObject),
    /// The agent does not have a method that every agent has.
    MissingMethod(Box<MissingMethod>),
    /// A person has to sign in before the agent opens a session.
    SignInNeeded(Box<SignInNeeded>),
    /// The agent's process has exited, or its connection has ended: the status or the reason, and the end of its standard error.
    Exited(String),
    /// The agent could not be started, did not answer in time, or was not called at all.
    Local(Error),
    /// The command is not an agent that this server can talk to. Starting it again changes nothing.
    Incompatible(Error),
    /// Any of these, with hints.
    Diagnosed(Box<(Self, Diagnosis)>),
}

#[derive(Clone, Debug)]
pub(super) struct MissingMethod {
    agent: Arc<str>,
    method: String,
    error: ErrorObject,
}

/// What a person can do before an agent opens a session.
#[derive(Clone, Debug)]
pub(super) struct SignInNeeded {
    agent: Arc<str>,
    /// The ids of the agent's methods.
    methods: Vec<String>,
    error: ErrorObject,
}

// === impl AgentFailure ===

impl AgentFailure {
    /// Adds how to sign in, if the agent requires it.
    pub(super) fn with_sign_in(self, agent: &Arc<str>, methods: &[AuthMethod]) -> Self {
        match self {
            Self::Refused(error) if error.code == RpcCode::AUTH_REQUIRED => {
                let methods = methods.iter().filter_map(AuthMethod::id).map(str::to_owned);
                let (agent, methods) = (Arc::clone(agent), methods.collect());
                Self::SignInNeeded(Box::new(SignInNeeded { agent, methods, error }))
            }
            other => other,
        }
    }

    pub(super) fn local(code: Code, message: impl Into<String>) -> Self {
        Self::Local(Error::new(code, message.into()))
    }

    pub(super) fn incompatible(message: String, hint: impl Into<Cow<'static, str>>) -> Self {
        Self::Incompatible(Error::new(Code::PeerUnavailable, message).hint(hint))
    }

    /// Names the missing method, if the agent refused a method that every agent must have.
    pub(super) fn for_method(self, agent: &Arc<str>, method: &str) -> Self {
        match self {
            Self::Refused(error) if error.code == RpcCode::METHOD_NOT_FOUND => {
                let (agent, method) = (Arc::clone(agent), method.to_owned());
                Self::MissingMethod(Box::new(MissingMethod { agent, method, error }))
            }
            other => other,
        }
    }

    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Diagnosed(diagnosed) => diagnosed.0.is_refusal(),
            failure => {
                matches!(failure, Self::Refused(_) | Self::MissingMethod(_) | Self::SignInNeeded(_))
            }
        }
    }

    pub(super) fn is_authentication_required(&self) -> bool {
        match self {
            Self::Diagnosed(diagnosed) => diagnosed.0.is_authentication_required(),
            Self::Refused(error) => error.code == RpcCode::AUTH_REQUIRED,
            Self::SignInNeeded(_) => true,
            _ => false,
        }
    }

    /// Whether the failure means that the agent does not know the session `remote`. Agents report that in several ways. A resource that is not
    /// found does not count, unless the resource is the session.
    pub(super) fn is_lost_session(&self, remote: &str) -> bool {
        let Self::Refused(error) = self else { return false };
        let data = error.data.as_ref().map_or("", |data| data.as_str());
        let names_session = || {
            let text = format!("{} {}", error.message, data).to_lowercase();
            text.contains("session") && (text.contains("not found") || text.contains("unknown"))
        };
        let member = |name: &str| splice::get_text(data, &[name]);
        match error.code {
            RpcCode::RESOURCE_NOT_FOUND => match (member("sessionId"), member("uri")) {
                (Some(_), _) => true,
                (None, Some(uri)) => uri == remote,
                (None, None) => names_session() || error.message.contains(remote),
            },
            RpcCode::INVALID_PARAMS | RpcCode::INTERNAL_ERROR | RpcCode(-32001) => names_session(),
            _ => false,
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Refused(error) => error.to_string(),
            Self::MissingMethod(missing) => missing.to_string(),
            Self::SignInNeeded(needed) => needed.to_string(),
            Self::Exited(how) => how.clone(),
            Self::Local(error) | Self::Incompatible(error) => error.message().to_owned(),
            Self::Diagnosed(diagnosed) => diagnosed.0.text(),
        }
    }

    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Refused(error) => {
                let data = error.data.as_ref().and_then(domain_json);
                failure_of(error.code.0, &error.message, data.as_ref()).bounded()
            }
            Self::MissingMethod(missing) => {
                let MissingMethod { error, .. } = &*missing;
                let data = error.data.as_ref().and_then(domain_json);
                let failure = failure_of(error.code.0, &error.message, data.as_ref());
                let hinted = failure.data.as_ref();
                let hinted = hinted.and_then(|data| with_hint(data.as_str(), NOT_AN_AGENT_HINT));
                let data = hinted.or(failure.data);
                Failure { message: missing.to_string(), data, ..failure }.bounded()
            }
            Self::SignInNeeded(needed) => {
                let data = needed.error.data.as_ref().and_then(domain_json);
                let error = &needed.error;
                let failure = failure_of(error.code.0, &error.message, data.as_ref());
                let hinted = failure.data.as_ref();
                let hinted = hinted.and_then(|data| with_hint(data.as_str(), &needed.hint()));
                let data = hinted.or(failure.data);
                Failure { message: needed.to_string(), data, ..failure }.bounded()
            }
            Self::Exited(how) => Failure::of(Code::AgentLost, &how),
            Self::Local(error) => local_failure(&error),
            Self::Incompatible(error) => Failure { transient: false, ..local_failure(&error) },
            Self::Diagnosed(diagnosed) => {
                let (failure, diagnosis) = *diagnosed;
                diagnosis.explain_failure(failure.into_failure())
            }
        }
    }

    /// Adds hints, for runs and clients. `wanted` are the variables that the agent may need, `stderr` is its output during the call.
    pub(super) fn with_diagnosis(
        self,
        host: &AgentHost,
        wanted: &[String],
        stderr: String,
    ) -> Self {
        let diagnosis = Diagnosis::of(&self, (host.env(), host.layers()), wanted, stderr);
        Self::Diagnosed(Box::new((self, diagnosis)))
    }

    pub(super) fn into_call_error(self) -> CallError {
        match self {
            // The client has called a method that every agent must have.
            Self::MissingMethod(missing) => {
                let data = missing.error.data.as_ref().and_then(domain_json);
                let hint = |data: &str| with_hint(data, NOT_AN_AGENT_HINT);
                let hinted = hint(data.as_ref().map_or("", |data| data.as_str()));
                let hinted = hinted.or_else(|| hint("{}"));
                CallError {
                    data: hinted,
                    ..CallError::new(CallError::INTERNAL, missing.to_string())
                }
            }
            Self::Refused(error) => {
                let data = error.data.as_ref().and_then(domain_json);
                CallError { data, ..CallError::new(error.code.0, error.message) }
            }
            Self::SignInNeeded(needed) => {
                let data = needed.error.data.as_ref().and_then(domain_json);
                let data = data.as_ref().map_or("{}", |data| data.as_str());
                let data = with_hint(data, &needed.hint());
                CallError { data, ..CallError::new(needed.error.code.0, needed.to_string()) }
            }
            Self::Exited(how) => {
                let data = serde_json::json!({ "code": Code::AgentLost.as_str() });
                let data = Some(Json::from_value(&data));
                CallError { data, ..CallError::new(CallError::INTERNAL, how) }
            }
            Self::Local(error) | Self::Incompatible(error) => {
                let code = match error.code() {
                    Code::InvalidRequest => CallError::INVALID_PARAMS,
                    _ => CallError::INTERNAL,
                };
                let mut data = serde_json::json!({ "code": error.code().as_str() });
                if let Some(hint) = error.hint_text() {
                    data["hint"] = hint.into();
                }
                let data = Some(Json::from_value(&data));
                CallError { data, ..CallError::new(code, error.message()) }
            }
            Self::Diagnosed(diagnosed) => {
                let (failure, diagnosis) = *diagnosed;
                diagnosis.explain_call(failure.into_call_error())
            }
        }
    }
}

impl From<Error> for AgentFailure {
    fn from(error: Error) -> Self {
        Self::Local(error)
    }
}

/// For a call on a connection that may still exist.
impl From<CallFailure> for AgentFailure {
    fn from(failed: CallFailure) -> Self {
        match failed {
            CallFailure::Refused(error) => Self::Refused(error),
            CallFailure::Closed => Self::Exited("the agent's connection is closed".to_owned()),
            CallFailure::TooMany => Self::local(Code::Overloaded, "too much waits for the agent"),
            unreadable @ CallFailure::Unreadable(_) => {
                let message = format!("the agent broke its protocol: {unreadable}");
                Self::local(Code::ProtocolViolation, message)
            }
        }
    }
}

// === impl SignInNeeded ===

impl SignInNeeded {
    fn hint(&self) -> String {
        let Self { agent, methods, .. } = self;
        let command = format!("sign in with `trilogue agents login {agent}`");
        match methods.is_empty() {
            true => format!("{command}, or with the agent's own program"),
            false => format!("{command}; the agent's methods: {}", methods.join(", ")),
        }
    }
}

impl fmt::Display for SignInNeeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { agent, error, .. } = self;
        write!(f, "the agent '{agent}' wants you to sign in: {}", error.message)
    }
}

// === impl MissingMethod ===

impl fmt::Display for MissingMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { agent, method, error } = self;
        write!(f, "the agent '{agent}' does not know `{method}`: {error}")
    }
}

fn local_failure(error: &Error) -> Failure {
    let hint = error.hint_text().map(|hint| Json::from_value(&serde_json::json!({ "hint": hint })));
    Failure { data: hint, ..Failure::of(error.code(), error.message()) }
}

fn with_hint(details: &str, hint: &str) -> Option<Json> {
    let hinted = splice::set_text(details, &["hint"], hint)?;
    Json::parse(hinted).ok()
}

/// Converts a client's error to the form that its agent gets.
pub(super) fn error_object(error: CallError) -> ErrorObject {
    let data = error
        .data
        .and_then(|data| trilogue_wire::agent_client::Json::parse(data.as_str().to_owned()).ok());
    ErrorObject { code: RpcCode(error.code), message: error.message, data }
}

pub(super) fn domain_json(json: &trilogue_wire::agent_client::Json) -> Option<Json> {
    Json::parse(json.as_str().to_owned()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: i32, message: &str, data: Option<&str>) -> AgentFailure {
        let error = ErrorObject::new(RpcCode(code), message.to_owned());
        AgentFailure::Refused(match data {
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
            assert!(refusal(code, message, data).is_lost_session("s1"), "{message} {data:?}");
        }
        for (code, message, data) in [
            (-32002, "Resource not found: /x", Some(r#"{"uri":"/x"}"#)),
            (-32002, "Resource not found: session", Some(r#"{"uri":"file:///session"}"#)),
            (-32002, "Resource not found", None),
            (-32602, "the file was not found", None),
            (-32000, "session not found", None),
            (-32603, "Internal error", None),
        ] {
            assert!(!refusal(code, message, data).is_lost_session("s1"), "{message} {data:?}");
        }
        assert!(!AgentFailure::Exited("session not found".to_owned()).is_lost_session("s1"));
    }
}
