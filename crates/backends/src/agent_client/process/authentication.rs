//! Authenticates with an agent that requires it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use trilogue_domain::lock;
use trilogue_runtime::Client;

use super::CLIENT_CALL_TIMEOUT;
use super::principal::PrincipalKey;
use super::process::Process;
use crate::agent_client::failure::AgentFailure;

/// The most principals whose sign-ins are remembered. Logouts are remembered beyond that, because only administrators create principals.
const MAX_SIGNED_IN: usize = 4_096;

/// How long a sign-in without a person may take.
const RUN_LIMIT: Duration = Duration::from_secs(20);

/// The method that each principal used last, for all its processes of an agent.
#[derive(Debug, Default)]
pub(crate) struct Authentication {
    states: Mutex<HashMap<PrincipalKey, State>>,
    /// Whether the agent required a sign-in and has opened no session since.
    needs_sign_in: AtomicBool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum State {
    /// No sign-in since the server started: the method in the thread's binding is used.
    #[default]
    NotYet,
    SignedIn(String),
    /// The agent stays signed out until a client signs in.
    SignedOut,
}

/// When the server authenticates without asking a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AuthMode {
    /// Always: by the configured method, by the one that was used before, or by one whose variables are set. Never begins a method that needs a person.
    Always,
    /// Only by the configured method, or by one that a client chose before: clients choose for themselves.
    AsChosen,
}

// === impl Authentication ===

impl Authentication {
    /// Authenticates with the agent, which required it with `failure`. `configured` is the method of the settings,
    /// `remembered` the one of the thread's binding. If the agent no longer has `remembered`, or refuses it, the client must choose again.
    pub(crate) async fn authenticate(
        &self,
        client: Option<&Arc<dyn Client>>,
        process: &Process,
        failure: AgentFailure,
        mode: AuthMode,
        (configured, remembered): (Option<&str>, Option<&str>),
    ) -> Result<(), AgentFailure> {
        const METHOD: &str = "authenticate";
        let state = self.state(process.principal());
        if state == State::SignedOut {
            return Err(self.sign_in_needed(process, failure, mode));
        }
        let remembered = remembered.filter(|method| process.has_auth_method(method));
        let is_remembered = configured.is_none() && state == State::NotYet;
        let chosen = configured.map(str::to_owned).or_else(|| state.method(remembered));
        let method = match mode {
            AuthMode::Always => chosen.or_else(|| process.auth_method_of_variables()),
            AuthMode::AsChosen => chosen,
        };
        let Some(method) = method else {
            return Err(self.sign_in_needed(process, failure, mode));
        };
        let params = json!({ "methodId": method });
        let time_limit = match mode {
            AuthMode::Always => RUN_LIMIT,
            AuthMode::AsChosen => CLIENT_CALL_TIMEOUT,
        };
        match process.call_for(client, METHOD, &params, time_limit).await {
            Ok(_) => {}
            Err(refused) if refused.is_refusal() && is_remembered && mode == AuthMode::AsChosen => {
                return Err(failure);
            }
            Err(refused) => {
                self.needs_sign_in.store(true, Ordering::Release);
                return Err(refused.for_method(process.agent(), METHOD));
            }
        }
        self.record_sign_in(process.principal(), Some(method));
        Ok(())
    }

    fn sign_in_needed(
        &self,
        process: &Process,
        failure: AgentFailure,
        mode: AuthMode,
    ) -> AgentFailure {
        self.needs_sign_in.store(true, Ordering::Release);
        match mode {
            AuthMode::Always => failure.with_sign_in(process.agent(), process.auth_methods()),
            // Clients of the agent's own protocol choose a method themselves.
            AuthMode::AsChosen => failure,
        }
    }

    /// Notes that the agent has opened a session.
    pub(crate) fn record_opened_session(&self) {
        self.needs_sign_in.store(false, Ordering::Release);
    }

    pub(crate) fn needs_sign_in(&self) -> bool {
        self.needs_sign_in.load(Ordering::Acquire)
    }

    /// The method that the principal of this process used last. Returns `remembered` if the principal used none since the server started.
    pub(crate) fn method(&self, process: &Process, remembered: Option<&str>) -> Option<String> {
        self.state(process.principal()).method(remembered)
    }

    pub(crate) fn record_sign_in(&self, principal: &PrincipalKey, method: Option<String>) {
        self.record_opened_session();
        let mut states = lock(&self.states);
        match method {
            Some(method) if states.len() < MAX_SIGNED_IN || states.contains_key(principal) => {
                states.insert(principal.clone(), State::SignedIn(method));
            }
            _ => drop(states.remove(principal)),
        }
    }

    pub(crate) fn record_sign_out(&self, principal: &PrincipalKey) {
        lock(&self.states).insert(principal.clone(), State::SignedOut);
    }

    fn state(&self, principal: &PrincipalKey) -> State {
        lock(&self.states).get(principal).cloned().unwrap_or_default()
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
