//! Why a run at another server failed, as its caller is told.

use serde_json::json;
use trilogue_domain::{Code, Error, Failure, Json};
use trilogue_sdk::client::ClientError;

use super::{Remote, is_unreached};

// === impl Remote ===

impl Remote {
    /// Why a request failed that begins or resumes a run there, which its server has not refused. One that may have been taken leaves the outcome unknown.
    pub(crate) fn not_begun(&self, error: &ClientError, run: Option<&str>) -> Failure {
        if is_unreached(error) {
            return self.failure(Code::PeerUnavailable, error, run);
        }
        self.lost(error, run)
    }

    /// The run is out of reach while it was at work, or may have been: nobody knows how it ends.
    /// If its server breaks the protocol, another try ends in the same way.
    pub(crate) fn lost(&self, error: &ClientError, run: Option<&str>) -> Failure {
        let is_violation = matches!(error, ClientError::Unexpected(_));
        let code = if is_violation { Code::ProtocolViolation } else { Code::AgentLost };
        self.failure(code, error, run)
    }

    /// The server sends what this one cannot log, or what the rules of the run's mount refuse.
    pub(crate) fn unreadable(&self, error: &Error, run: Option<&str>) -> Failure {
        let (code, message) = match error.code() {
            Code::OutputInvalid => (Code::OutputInvalid, error.message().to_owned()),
            code @ (Code::ProtocolViolation | Code::RemoteOutputTooLarge) => {
                (code, error.message().to_owned())
            }
            _ => {
                let what = "the agent's server sends what cannot be kept";
                (Code::AgentFailed, format!("{what}: {}", error.message()))
            }
        };
        let details = self.details(run, error.hint_text());
        Failure { data: Some(details), ..Failure::of(code, &message) }
    }

    /// The agent failed in a way that its server does not explain.
    pub(crate) fn failed(&self, message: &str, run: Option<&str>) -> Failure {
        Failure { data: Some(self.details(run, None)), ..Failure::of(Code::AgentFailed, message) }
    }

    fn failure(&self, code: Code, error: &ClientError, run: Option<&str>) -> Failure {
        let message = format!("the agent '{}' at its server: {error}", self.agent);
        Failure { data: Some(self.details(run, error.hint())), ..Failure::of(code, &message) }
    }

    /// What a failure says of the run at the server.
    fn details(&self, run: Option<&str>, hint: Option<&str>) -> Json {
        let mut details =
            json!({ "server": self.server.url(), "agent": self.agent, "run_id": run });
        if let Some(hint) = hint {
            details["hint"] = hint.into();
        }
        Json::from_value(&details)
    }
}
