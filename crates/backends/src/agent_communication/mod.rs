//! Agents behind a server of the Agent Communication Protocol.
//!
//! Each run here is a run on that server. Its events are logged as they arrive. Its question suspends the run here, and the answer resumes both.

mod listing;
mod mode;
mod turn;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::{AgentCard, AgentName, Failure, InputKind, Json, lock};
use trilogue_mapping::{communication, shape};
use trilogue_runtime::{Availability, Backend, Ending, Input, Rewind, RunCaller, RunContext, Turn};
use trilogue_sdk::client::communication::Client;
use trilogue_wire::agent_communication::AgentManifest;

use crate::permission::unattended;
use crate::remote::{self, Remote};

pub use listing::CommunicationListing;
use mode::KnownMode;

pub struct AgentCommunication {
    card: AgentCard,
    /// The card that its server reported later. `None` before, and if the settings give a card.
    learned: Mutex<Option<Arc<AgentCard>>>,
    /// Whether the settings give its card.
    is_described: bool,
    /// Whether it has no title, even if its server reports one.
    has_own_name: bool,
    /// The prefix of its title here.
    prefix: String,
    /// The description from the settings.
    description: Option<String>,
    /// Whether its server reports that the agent does not exist.
    is_missing: AtomicBool,
    remote: Arc<Remote>,
    client: Client,
    /// Whether its server is a Trilogue server, which keeps ids, settings and idempotency keys.
    is_ours: AtomicBool,
    mode: KnownMode,
}

// === impl AgentCommunication ===

impl AgentCommunication {
    /// An agent that its server described with this manifest. Without a manifest, any input and output content types are accepted.
    #[must_use]
    pub fn new(name: AgentName, remote: Remote, manifest: Option<&AgentManifest>) -> Self {
        let transport = remote.transport();
        let options = transport.options();
        let client = Client::new(transport, options);
        Self {
            card: match manifest {
                Some(manifest) => communication::card(name, manifest),
                None => AgentCard::new(name, InputKind::Chat),
            },
            learned: Mutex::default(),
            is_described: false,
            has_own_name: false,
            prefix: String::new(),
            description: None,
            is_missing: AtomicBool::new(false),
            is_ours: AtomicBool::new(manifest.is_some_and(is_ours)),
            mode: KnownMode::default(),
            remote: Arc::new(remote),
            client,
        }
    }

    /// The same agent with this description, for people.
    #[must_use]
    pub fn with_description(mut self, description: String) -> Self {
        self.card.description.clone_from(&description);
        Self { description: Some(description), ..self }
    }

    /// The same agent as its server describes it. Its title gets the prefix of its name here, which distinguishes agents of two servers.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str, manifest: &AgentManifest) -> Self {
        prefix.clone_into(&mut self.prefix);
        self.card = self.card_of(manifest);
        self.is_ours.store(is_ours(manifest), Ordering::Release);
        self
    }

    /// The same agent under the name that it has here, on every face: another agent has this name on its server.
    #[must_use]
    pub fn with_own_name(mut self) -> Self {
        self.card.title = None;
        Self { has_own_name: true, ..self }
    }

    /// The same agent with another card, such as one with a descriptor.
    #[must_use]
    pub fn with_card(self, card: AgentCard) -> Self {
        Self { card, is_described: true, ..self }
    }

    /// Takes what its server reports about it. `None` if the server does not have the agent.
    pub fn learn(&self, manifest: Option<&AgentManifest>) {
        self.is_missing.store(manifest.is_none(), Ordering::Release);
        let Some(manifest) = manifest else { return };
        self.is_ours.store(is_ours(manifest), Ordering::Release);
        if self.is_described {
            return;
        }
        let card = self.card_of(manifest);
        let is_new = card != self.card;
        *lock(&self.learned) = is_new.then(|| Arc::new(card));
    }

    fn card_of(&self, manifest: &AgentManifest) -> AgentCard {
        let mut card = communication::card(self.card.name.clone(), manifest);
        let title = card.title.filter(|_| !self.has_own_name);
        card.title = title.map(|title| format!("{}{title}", self.prefix));
        if let Some(description) = &self.description {
            card.description.clone_from(description);
        }
        card
    }

    fn is_ours(&self) -> bool {
        self.is_ours.load(Ordering::Acquire)
    }

    /// Requests the agent's manifest. Waits for at most [`remote::DESCRIPTION_TIME`].
    ///
    /// # Errors
    /// `peer_unavailable`, with the reason.
    pub async fn manifest(&self) -> Result<AgentManifest> {
        self.remote.await_description(self.client.agent(&self.remote.agent)).await
    }
}

#[async_trait]
impl Backend for AgentCommunication {
    fn card(&self) -> &AgentCard {
        &self.card
    }

    fn is_native(&self) -> bool {
        false
    }

    fn learned_card(&self) -> Option<AgentCard> {
        lock(&self.learned).as_deref().cloned()
    }

    fn availability(&self) -> Option<Availability> {
        let is_missing = self.is_missing.load(Ordering::Acquire);
        Some(self.remote.availability(is_missing))
    }

    /// Its server keeps sessions. If a thread goes back to an earlier point, it begins a new session there.
    fn rewind(&self) -> Rewind {
        Rewind::Prime
    }

    /// Its server sees the rights of this server's token, not those of the caller.
    async fn authorize(&self, caller: &RunCaller<'_>, config: Json) -> Result<Json> {
        unattended::check(&self.card.name, caller, &config, &[])?;
        Ok(config)
    }

    fn admit(&self, input: Input, _config: Option<&Json>) -> Result<Input> {
        let learned = lock(&self.learned).clone();
        shape::input(learned.as_deref().unwrap_or(&self.card), input, SystemClock.now())
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        remote::run(self, turn, &context).await
    }

    async fn abandon(&self, saved: Json) {
        remote::abandon(self, &saved).await;
    }
}

/// Whether a server is a Trilogue server.
fn is_ours(manifest: &AgentManifest) -> bool {
    manifest.metadata.extra.get(communication::EXTENSION).is_some()
}

impl fmt::Debug for AgentCommunication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentCommunication")
            .field("name", &self.card.name)
            .field("server", &self.remote.server)
            .finish_non_exhaustive()
    }
}
