//! How the server authenticates with an agent that asks for it.

use std::sync::{Arc, Mutex};

use serde_json::json;
use trilogue_domain::lock;
use trilogue_runtime::Client;

use super::CLIENT_CALL_TIMEOUT;
use super::process::Process;
use crate::agent_client::failure::AgentFailure;

/// The method that was used last, for all processes of an agent.
#[derive(Debug, Default)]
pub(crate) struct Authentication(Mutex<State>);

#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum State {
    /// The server has just started: the method in the thread's binding is used.
    #[default]
    NotYet,
    SignedIn(String),
    /// The agent stays signed out until a client signs in.
    SignedOut,
}

/// When the server authenticates without asking a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AuthMode {
    /// Always, by the configured method or else the agent's first own one.
    Always,
    /// Only by the configured method, or one that a client chose before: the client chooses for itself.
    AsChosen,
}

// === impl Authentication ===

impl Authentication {
    /// Authenticates with the agent, which asked for it with `failure`. `configured` is the method of the settings,
    /// `remembered` the one of the thread's binding. If the agent does not have that one any more, or refuses it, the client must choose anew.
    pub(crate) async fn authenticate(
        &self,
        client: Option<&Arc<dyn Client>>,
        process: &Process,
        failure: AgentFailure,
        mode: AuthMode,
        (configured, remembered): (Option<&str>, Option<&str>),
    ) -> Result<(), AgentFailure> {
        const METHOD: &str = "authenticate";
        let state = lock(&self.0).clone();
        if state == State::SignedOut {
            return Err(failure);
        }
        let remembered = remembered.filter(|method| process.has_auth_method(method));
        let is_remembered = configured.is_none() && state == State::NotYet;
        let chosen = configured.map(str::to_owned).or_else(|| state.method(remembered));
        let method = match mode {
            AuthMode::Always => process.auth_method(chosen.as_deref()).map(str::to_owned),
            AuthMode::AsChosen => chosen,
        };
        let Some(method) = method else { return Err(failure) };
        let params = json!({ "methodId": method });
        match process.call_for(client, METHOD, &params, CLIENT_CALL_TIMEOUT).await {
            Ok(_) => {}
            Err(refused) if refused.is_refusal() && is_remembered && mode == AuthMode::AsChosen => {
                return Err(failure);
            }
            Err(refused) => return Err(refused.for_method(process.agent(), METHOD)),
        }
        *lock(&self.0) = State::SignedIn(method);
        Ok(())
    }

    /// The method that was used last; `remembered` if there was none since the server started.
    pub(crate) fn method(&self, remembered: Option<&str>) -> Option<String> {
        lock(&self.0).method(remembered)
    }

    pub(crate) fn signed_in(&self, method: Option<String>) {
        *lock(&self.0) = method.map_or(State::NotYet, State::SignedIn);
    }

    pub(crate) fn signed_out(&self) {
        *lock(&self.0) = State::SignedOut;
    }
}

// === impl State ===

impl State {
    fn method(&self, remembered: Option<&str>) -> Option<String> {
        match self {
            Self::SignedIn(method) => Some(method.clone()),
            Self::NotYet => remembered.map(str::to_owned),
            Self::SignedOut => None,
        }
    }
}
