//! Why a run at another server failed, as its caller is told.

use trilogue_domain::{Code, Error, Failure};
use trilogue_mapping::communication::remote_failure;
use trilogue_sdk::client::ClientError;
use trilogue_wire::agent_communication::Uuid;

use super::{AgentCommunication, is_unreached};

// === impl AgentCommunication ===

impl AgentCommunication {
    /// Why a request failed that begins or resumes a run there. One that may have been taken leaves the outcome unknown.
    pub(super) fn not_begun(&self, error: &ClientError, run: Option<Uuid>) -> Failure {
        match error {
            ClientError::Refused(refusal) if !refusal.is_foreign() => remote_failure(&refusal.body),
            error if is_unreached(error) => self.failure(Code::PeerUnavailable, error, run),
            error => self.lost(error, run),
        }
    }

    /// The run is out of reach while it was at work, or may have been: nobody knows how it ends.
    pub(super) fn lost(&self, error: &ClientError, run: Option<Uuid>) -> Failure {
        self.failure(Code::AgentLost, error, run)
    }

    fn failure(&self, code: Code, error: &ClientError, run: Option<Uuid>) -> Failure {
        let message = format!("the agent '{}' at its server: {error}", self.remote.agent);
        let failure = Failure::of(code, &message);
        Failure { data: Some(self.details(run)), ..failure }
    }

    /// The server sends what this one cannot log.
    pub(super) fn unreadable(&self, error: &Error, run: Option<Uuid>) -> Failure {
        let message = format!("the agent's server sends what cannot be kept: {}", error.message());
        Failure { data: Some(self.details(run)), ..Failure::of(Code::AgentFailed, &message) }
    }
}
