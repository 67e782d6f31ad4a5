//! Builds the failures that callers get when a run at another server fails.

use serde_json::json;
use trilogue_domain::{Code, Error, Failure, Json};
use trilogue_sdk::client::ClientError;

use super::{Remote, is_unreached};

// === impl Remote ===

impl Remote {
    /// Returns the failure of a request to begin or resume a run, if the server has not refused it: `peer_unavailable` if the request has certainly not
    /// reached the server. Otherwise the server may have accepted it, so the outcome is unknown, as in [`Self::lost_failure`].
    pub(crate) fn begin_failure(&self, error: &ClientError, run: Option<&str>) -> Failure {
        if is_unreached(error) {
            return self.failure(Code::PeerUnavailable, error, run);
        }
        self.lost_failure(error, run)
    }

    /// Returns the failure of a run that is out of reach and was, or may have been, at work: its outcome is unknown.
    /// The code is `agent_lost`, or `protocol_violation` if the server broke the protocol, because a retry would fail in the same way.
    pub(crate) fn lost_failure(&self, error: &ClientError, run: Option<&str>) -> Failure {
        let is_violation = matches!(error, ClientError::Unexpected(_));
        let code = if is_violation { Code::ProtocolViolation } else { Code::AgentLost };
        self.failure(code, error, run)
    }

    /// Returns the failure for output that this server cannot log, or that the rules of the run's mount refuse.
    pub(crate) fn output_failure(&self, error: &Error, run: Option<&str>) -> Failure {
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

    /// Returns the failure of an agent whose server gives no reason. `message` says what happened.
    pub(crate) fn run_failure(&self, message: &str, run: Option<&str>) -> Failure {
        Failure { data: Some(self.details(run, None)), ..Failure::of(Code::AgentFailed, message) }
    }

    fn failure(&self, code: Code, error: &ClientError, run: Option<&str>) -> Failure {
        let message = format!("the agent '{}' at its server: {error}", self.agent);
        Failure { data: Some(self.details(run, error.hint())), ..Failure::of(code, &message) }
    }

    /// Returns the details of a failure: the server, the agent, the run's id at the server, and a hint.
    fn details(&self, run: Option<&str>, hint: Option<&str>) -> Json {
        let mut details =
            json!({ "server": self.server.url(), "agent": self.agent, "run_id": run });
        if let Some(hint) = hint {
            details["hint"] = hint.into();
        }
        Json::from_value(&details)
    }
}
