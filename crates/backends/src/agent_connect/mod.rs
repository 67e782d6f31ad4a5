//! Agents behind a server of the Agent Connect Protocol.
//!
//! Each run here is a run on that server, on a thread there if the agent has threads. Its values are logged as the changes that they make, its custom updates as they arrive.

mod description;
mod listing;
mod refusal;
mod start;
mod turn;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::{AgentCard, AgentName, Answer, Failure, InputKind, Interrupt, Json};
use trilogue_mapping::shape;
use trilogue_runtime::{Availability, Backend, Ending, Input, Rewind, RunCaller, RunContext, Turn};
use trilogue_sdk::client::connect::Client;

pub use description::AgentDescription;
use description::DescribedAgent;
pub use listing::ConnectListing;

use crate::permission::unattended;
use crate::remote::{self, Remote};

pub struct AgentConnect {
    /// The card under which the agent is served: what was known about it when the server started.
    card: AgentCard,
    /// The base of the card that its server's description completes: without the parts that a descriptor gives.
    base: AgentCard,
    /// Whether the configuration gives the descriptor, so that the server's descriptor is ignored.
    is_written: bool,
    described: OnceLock<Arc<DescribedAgent>>,
    /// Whether its server no longer lists the agent.
    is_missing: AtomicBool,
    /// Whether its server is known not to create the thread of a run that names a new one.
    makes_threads_first: AtomicBool,
    remote: Arc<Remote>,
    /// The version of the agent. `None` means any.
    version: Option<String>,
    client: Client,
}

// === impl AgentConnect ===

impl AgentConnect {
    /// An agent with this description by its server. Without a description, the agent accepts messages and is looked up when a run begins.
    #[must_use]
    pub fn new(
        name: AgentName,
        remote: Remote,
        version: Option<String>,
        description: Option<AgentDescription>,
    ) -> Self {
        let transport = remote.transport();
        let options = transport.options();
        let client = Client::new(transport, options);
        let is_id = uuid::Uuid::parse_str(&remote.agent).is_ok();
        let base = AgentCard {
            title: (!is_id).then(|| remote.agent.clone()),
            version: version.clone().unwrap_or_default(),
            ..AgentCard::new(name, InputKind::Chat)
        };
        let described = OnceLock::new();
        let mut card = base.clone();
        if let Some(description) = description {
            let known = Arc::new(DescribedAgent::new(description, &base));
            card = known.card.clone();
            if known.about.is_complete {
                // The cell is new, so this cannot fail.
                drop(described.set(known));
            }
        }
        let remote = Arc::new(remote);
        Self {
            card,
            base,
            is_written: false,
            described,
            is_missing: AtomicBool::default(),
            makes_threads_first: AtomicBool::default(),
            remote,
            version,
            client,
        }
    }

    /// The same agent with this description, for people.
    #[must_use]
    pub fn with_description(mut self, description: String) -> Self {
        self.base.description.clone_from(&description);
        self.card.description = description;
        self
    }

    /// The same agent with another card, such as one with a descriptor of the configuration.
    #[must_use]
    pub fn with_card(self, card: AgentCard) -> Self {
        Self { card, is_written: true, ..self }
    }

    /// The same agent under the name that it has here, on every face: another agent has this name on its server.
    #[must_use]
    pub fn with_own_name(mut self) -> Self {
        self.card.title = None;
        self.card.descriptor = None;
        self
    }

    /// Records whether its server lists it.
    pub(super) fn set_missing(&self, is_missing: bool) {
        self.is_missing.store(is_missing, Ordering::Release);
    }
}

#[async_trait]
impl Backend for AgentConnect {
    fn card(&self) -> &AgentCard {
        &self.card
    }

    fn learned_card(&self) -> Option<AgentCard> {
        let learned = self.described.get().filter(|_| !self.is_written)?;
        let (title, descriptor) = (self.card.title.clone(), self.card.descriptor.clone());
        Some(AgentCard { title, descriptor, ..learned.card.clone() })
    }

    fn is_native(&self) -> bool {
        false
    }

    fn availability(&self) -> Option<Availability> {
        let is_missing = self.is_missing.load(Ordering::Acquire);
        Some(self.remote.availability(is_missing))
    }

    /// Its server keeps threads. If a thread goes back to an earlier point, it begins a new thread there.
    fn rewind(&self) -> Rewind {
        Rewind::Prime
    }

    /// Its server sees the rights of this server's token, not those of the caller.
    async fn authorize(&self, caller: &RunCaller<'_>, config: Json) -> Result<Json> {
        unattended::check(&self.card.name, caller, &config, &[])?;
        Ok(config)
    }

    fn admit(&self, input: Input, config: Option<&Json>) -> Result<Input> {
        match self.described.get() {
            Some(described) => described.admit(input, config),
            None => shape::input(&self.card, input, SystemClock.now()),
        }
    }

    fn check_answer(&self, interrupt: &Interrupt, answer: &Answer) -> Result<()> {
        self.described.get().map_or(Ok(()), |described| described.check_answer(interrupt, answer))
    }

    fn check_config(&self, config: &Json) -> Result<()> {
        self.described.get().map_or(Ok(()), |described| described.check_config(config))
    }

    fn check_state(&self, state: &Json) -> Result<()> {
        self.described.get().map_or(Ok(()), |described| described.check_state(state))
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        remote::run(self, turn, &context).await
    }

    async fn abandon(&self, saved: Json) {
        remote::abandon(self, &saved).await;
    }
}

impl fmt::Debug for AgentConnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentConnect")
            .field("name", &self.card.name)
            .field("server", &self.remote.server)
            .finish_non_exhaustive()
    }
}
