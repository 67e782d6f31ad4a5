//! Agents behind a server of the Agent Communication Protocol.
//!
//! A run here is a run there: its events are logged as they come, its question suspends the run, its answer resumes the one there.

mod failure;
mod turn;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use tokio::time::timeout;
use trilogue_domain::error::Result;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::{AgentCard, AgentName, Code, Error, Failure, InputKind, Json};
use trilogue_mapping::{communication, shape};
use trilogue_runtime::{Backend, Ending, Input, Rewind, RunContext, Turn};
use trilogue_sdk::client::{ClientError, Credential, HttpTransport};
use trilogue_sdk::communication::Client;
use trilogue_wire::agent_communication::{AgentManifest, Uuid};

/// How long a server may take to say what its agent is, when this server starts.
pub const MANIFEST_TIME: Duration = Duration::from_secs(5);

/// Where an agent is, and how its server is talked to.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The address where the protocol is mounted, such as `http://127.0.0.1:8000`.
    pub url: String,
    /// The agent's name there.
    pub agent: String,
    /// Sent to the address of [`Remote::url`] and nowhere else: redirects are not followed.
    pub credential: Option<Credential>,
}

pub struct AgentCommunication {
    card: AgentCard,
    remote: Remote,
    client: Client,
    /// Whether its server is one of ours, which keeps ids, settings and idempotency keys.
    is_ours: bool,
}

// === impl AgentCommunication ===

impl AgentCommunication {
    /// An agent that its server described with this manifest; without one it takes and gives anything.
    ///
    /// # Errors
    /// `invalid_request` for an address that is none.
    pub fn new(name: AgentName, remote: Remote, manifest: Option<&AgentManifest>) -> Result<Self> {
        let client = Client::over(transport(&remote)?);
        let is_ours = |manifest: &AgentManifest| {
            manifest.metadata.extra.get(communication::EXTENSION).is_some()
        };
        Ok(Self {
            card: match manifest {
                Some(manifest) => communication::card(name, manifest),
                None => AgentCard::new(name, InputKind::Chat),
            },
            is_ours: manifest.is_some_and(is_ours),
            remote,
            client,
        })
    }

    /// The same agent with this description, for people.
    #[must_use]
    pub fn described(mut self, description: String) -> Self {
        self.card.description = description;
        self
    }

    /// The same agent with another card, such as one with a descriptor.
    #[must_use]
    pub fn with_card(self, card: AgentCard) -> Self {
        Self { card, ..self }
    }

    /// Asks the server what the agent is; waits for at most [`MANIFEST_TIME`].
    ///
    /// # Errors
    /// Why it does not say: `peer_unavailable`, or `invalid_request` for an address that is none.
    pub async fn manifest(&self) -> Result<AgentManifest> {
        let unavailable = |why: String| {
            let Remote { url, agent, .. } = &self.remote;
            let message =
                format!("the server {url} does not say what its agent '{agent}' is: {why}");
            Error::new(Code::PeerUnavailable, message)
        };
        match timeout(MANIFEST_TIME, self.client.agent(&self.remote.agent)).await {
            Ok(Ok(manifest)) => Ok(manifest),
            Ok(Err(error)) => Err(unavailable(error.to_string())),
            Err(_) => Err(unavailable(format!("no answer within {} s", MANIFEST_TIME.as_secs()))),
        }
    }
}

fn transport(remote: &Remote) -> Result<HttpTransport> {
    let transport = HttpTransport::to(&remote.url)
        .map_err(|error| Error::new(Code::InvalidRequest, error.message))?;
    Ok(match remote.credential.clone() {
        Some(credential) => transport.credential(credential),
        None => transport,
    })
}

#[async_trait]
impl Backend for AgentCommunication {
    fn card(&self) -> &AgentCard {
        &self.card
    }

    fn is_native(&self) -> bool {
        false
    }

    /// Its server keeps sessions; a thread that goes back begins a new one there.
    fn rewind(&self) -> Rewind {
        Rewind::Prime
    }

    fn admit(&self, input: Input, _config: Option<&Json>) -> Result<Input> {
        shape::input(&self.card, input, SystemClock.now())
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        turn::run(self, turn, &context).await
    }

    async fn abandon(&self, saved: Json) {
        turn::abandon(self, &saved).await;
    }
}

impl AgentCommunication {
    /// What a failure says of the run at the server.
    fn details(&self, run: Option<Uuid>) -> Json {
        Json::from_value(&json!({
            "server": self.remote.url,
            "agent": self.remote.agent,
            "run_id": run.map(|run| run.to_string()),
        }))
    }
}

impl fmt::Debug for AgentCommunication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentCommunication")
            .field("name", &self.card.name)
            .field("url", &self.remote.url)
            .finish_non_exhaustive()
    }
}

/// Whether the server has certainly not begun what it was asked for.
fn is_unreached(error: &ClientError) -> bool {
    matches!(error, ClientError::Transport(error) if error.is_unreached)
}
