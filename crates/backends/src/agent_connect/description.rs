//! What an agent's server reports about the agent: looked up when this server starts, otherwise when a run begins.

use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::{AgentCard, Answer, Code, Error, Input, InputKind, Interrupt, Json};
use trilogue_mapping::connect::{OutputForm, remote_card, remote_input_kind};
use trilogue_mapping::native::read_json;
use trilogue_mapping::shape;
use trilogue_sdk::client::ClientError;
use trilogue_sdk::client::connect::{Agent, AgentSearchRequest, Fault, StreamMode};
use trilogue_wire::agent_connect::{Capabilities, Streaming};

use super::AgentConnect;
use super::start::is_missing;
use crate::native::schemas::Schemas;

/// What an agent's server reports about it.
#[derive(Clone, Debug)]
pub struct AgentDescription {
    /// Its id there.
    pub id: String,
    /// Its descriptor, if the server has one.
    pub descriptor: Option<Json>,
    /// Its capabilities there.
    pub capabilities: Capabilities,
    /// Whether its server is a Trilogue server, which keeps ids and idempotency keys and sends Trilogue's events.
    pub is_ours: bool,
    /// Whether the server has answered all requests. Otherwise the agent is looked up again.
    pub is_complete: bool,
}

/// An agent whose server has described it.
#[derive(Debug)]
pub(super) struct DescribedAgent {
    pub(super) about: AgentDescription,
    pub(super) card: AgentCard,
    /// Its schemas, if all of them are valid.
    schemas: Option<Schemas>,
}

// === impl AgentConnect ===

impl AgentConnect {
    /// Requests the agent's description. Waits for at most [`crate::remote::DESCRIPTION_TIME`].
    ///
    /// # Errors
    /// `peer_unavailable`, with the reason.
    pub async fn description(&self) -> Result<AgentDescription> {
        self.remote.await_description(self.look_up()).await
    }

    /// The description of the agent. Requests it if it is not known yet. An incomplete description is used but not kept.
    pub(super) async fn described_agent(&self) -> Result<Arc<DescribedAgent>, ClientError> {
        if let Some(described) = self.described.get() {
            return Ok(Arc::clone(described));
        }
        let described = Arc::new(DescribedAgent::new(self.look_up().await?, &self.base));
        if !described.about.is_complete {
            return Ok(described);
        }
        Ok(Arc::clone(self.described.get_or_init(|| described)))
    }

    /// Looks the agent up, unless its server has described it completely.
    ///
    /// # Errors
    /// `peer_unavailable`, with the reason.
    pub(super) async fn complete_description(&self) -> Result<()> {
        if self.described.get().is_some() {
            return Ok(());
        }
        let described = self.remote.await_description(self.described_agent()).await?;
        if described.about.is_complete {
            return Ok(());
        }
        let message = format!("the server {} refuses to list what it adds", self.remote.server);
        Err(Error::new(Code::PeerUnavailable, message))
    }

    async fn look_up(&self) -> Result<AgentDescription, ClientError> {
        let id = self.find().await?.agent_id;
        let descriptor = none_if_unsupported(self.client.descriptor_as_written(&id).await)?;
        let (ours, is_complete) = match none_if_unsupported(self.client.capabilities(&id).await) {
            Ok(ours) => (ours, true),
            // The protocol has no such path: a proxy may refuse it although the agent can be used.
            Err(error @ ClientError::Fault(_)) if !error.is_transient() => (None, false),
            Err(error) => return Err(error),
        };
        let is_ours = ours.is_some();
        let capabilities = match (ours, &descriptor) {
            (Some(ours), _) => Capabilities {
                threads: ours.threads,
                interrupts: ours.interrupts,
                callbacks: ours.callbacks,
                streaming: ours.streaming,
            },
            (None, Some(descriptor)) => capabilities_in(descriptor.as_str()),
            (None, None) => Capabilities::default(),
        };
        let descriptor = descriptor.and_then(|written| read_json(written).ok());
        Ok(AgentDescription { id, descriptor, capabilities, is_ours, is_complete })
    }

    async fn find(&self) -> Result<Agent, ClientError> {
        let Some(version) = &self.version else {
            return self.client.find_agent(&self.remote.agent).await;
        };
        let named = AgentSearchRequest {
            name: Some(self.remote.agent.clone()),
            version: Some(version.clone()),
            ..AgentSearchRequest::default()
        };
        let found = self.client.search_agents(&named).await?.into_iter().next();
        found.ok_or_else(|| {
            let why = format!("version {version} of the agent '{}' not found", self.remote.agent);
            let body = serde_json::json!({ "code": "agent_not_found", "description": why });
            ClientError::Fault(Box::new(Fault::read(404, body.to_string().as_bytes())))
        })
    }
}

/// A server's answer. `None` if it does not support the request. Any other refusal may be temporary: missing credentials, too many requests.
fn none_if_unsupported<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

#[derive(serde::Deserialize)]
struct Specified {
    specs: Specs,
}

#[derive(serde::Deserialize)]
struct Specs {
    #[serde(default)]
    capabilities: Capabilities,
}

fn capabilities_in(descriptor: &str) -> Capabilities {
    serde_json::from_str(descriptor)
        .map_or_else(|_| Capabilities::default(), |it: Specified| it.specs.capabilities)
}

// === impl DescribedAgent ===

impl DescribedAgent {
    pub(super) fn new(about: AgentDescription, base: &AgentCard) -> Self {
        let card = match &about.descriptor {
            Some(descriptor) => remote_card(base.clone(), descriptor).unwrap_or_else(|error| {
                tracing::warn!(agent = %base.name, "the agent's server describes it in a way that is not kept: {error}");
                AgentCard { input: remote_input_kind(descriptor), ..base.clone() }
            }),
            None => base.clone(),
        };
        let description = match base.description.as_str() {
            "" => card.description.clone(),
            configured => configured.to_owned(),
        };
        let card = AgentCard { description, ..card };
        let schemas = Schemas::of(&card).inspect_err(|error| {
            tracing::warn!(agent = %base.name, "nothing is checked against the agent's schemas: {error}");
        });
        Self { about, card, schemas: schemas.ok() }
    }

    pub(super) fn admit(&self, input: Input, config: Option<&Json>) -> Result<Input> {
        if let Some(config) = config {
            self.check_config(config)?;
        }
        match &self.schemas {
            Some(schemas) => schemas.admit(&self.card, input),
            None => shape::input(&self.card, input, SystemClock.now()),
        }
    }

    pub(super) fn check_answer(&self, interrupt: &Interrupt, answer: &Answer) -> Result<()> {
        self.schemas.as_ref().map_or(Ok(()), |it| it.check_answer(interrupt, answer))
    }

    pub(super) fn check_config(&self, config: &Json) -> Result<()> {
        self.schemas.as_ref().map_or(Ok(()), |it| it.check_config(config))
    }

    pub(super) fn check_state(&self, state: &Json) -> Result<()> {
        self.schemas.as_ref().map_or(Ok(()), |it| it.check_state(state))
    }

    /// Whether a payload fits the interrupt of this type that the agent declares.
    pub(super) fn is_payload_of(&self, kind: &str, payload: &Json) -> bool {
        self.schemas.as_ref().is_some_and(|it| it.is_payload_of(kind, payload))
    }

    /// The modes in which its runs are streamed. Empty if its server reports that it does not stream.
    pub(super) fn modes(&self) -> Vec<StreamMode> {
        let Streaming { values, custom } = self.about.capabilities.streaming.unwrap_or_default();
        let modes = [(values, StreamMode::Values), (custom, StreamMode::Custom)];
        modes.into_iter().filter(|(has, _)| *has == Some(true)).map(|(_, mode)| mode).collect()
    }

    /// Whether its state on a thread is a value that its descriptor declares.
    pub(super) fn has_state(&self) -> bool {
        self.card.state_schema.is_some() && self.card.input != InputKind::Chat
    }

    /// The form of its output, for the server at this address.
    pub(super) fn form(&self, url: &str) -> OutputForm {
        let ours = self.about.is_ours.then(|| url.trim_end_matches('/').to_owned());
        OutputForm { is_chat: self.card.input == InputKind::Chat, trilogue_url: ours }
    }
}
