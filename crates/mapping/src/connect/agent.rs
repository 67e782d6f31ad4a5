use trilogue_domain::{AgentCard, DeclaredError};
use trilogue_wire::agent_connect::{
    Agent, AgentCapabilities, AgentErrors, AgentMetadata, AgentRef, AgentSchemas, Descriptor,
    ErrorDefinition, Json, PROTOCOL, SPEC_VERSION, Streaming,
};

use super::descriptor::{descriptor, generated};
use super::modes::{Modes, streamed};
use crate::native::json;

/// The namespace of ids for agents without their own: UUIDv5 of this and the name.
pub(super) const NAMESPACE: uuid::Uuid =
    uuid::Uuid::from_u128(0x3c0f_7a4e_58d1_4b0e_9e64_7d2b_51a6_c8f2);

/// Returns the agent's id on this face: its own, or one derived from its name.
pub fn agent_id(card: &AgentCard) -> String {
    match &card.id {
        Some(id) => id.to_string(),
        None => uuid::Uuid::new_v5(&NAMESPACE, card.name.as_str().as_bytes()).to_string(),
    }
}

/// Returns the agent's name on this face: its title, or its name in this server.
pub fn name(card: &AgentCard) -> &str {
    card.title.as_deref().unwrap_or(card.name.as_str())
}

/// Returns an agent in its form for lists.
pub fn agent(card: &AgentCard) -> Agent {
    let agent_id = agent_id(card);
    Agent { id: Some(agent_id.clone()), agent_id, configuration_id: None, metadata: metadata(card) }
}

pub(super) fn metadata(card: &AgentCard) -> AgentMetadata {
    AgentMetadata {
        reference: AgentRef {
            name: name(card).to_owned(),
            version: card.version.clone(),
            url: card.url.clone(),
        },
        description: card.description.clone(),
    }
}

/// Whether the agent can have configured instances: it declares a configuration.
pub fn is_configurable(card: &AgentCard) -> bool {
    card.config_schema.is_some()
}

/// Returns the agent's capabilities on this server. Every agent streams values, unless its author forbids it.
pub fn capabilities(card: &AgentCard) -> AgentCapabilities {
    let Modes { values, updates: custom } = streamed(card);
    AgentCapabilities {
        threads: card.abilities.threads,
        interrupts: !card.interrupts.is_empty(),
        callbacks: card.abilities.callbacks,
        streaming: (values || custom)
            .then_some(Streaming { values: Some(values), custom: Some(custom) }),
        protocol: PROTOCOL.to_owned(),
        spec_version: SPEC_VERSION.to_owned(),
        configurations: is_configurable(card),
        errors: !card.errors.is_empty(),
    }
}

pub fn schemas(card: &AgentCard) -> AgentSchemas {
    let written = descriptor(card);
    // The descriptor that overrides the card was parsed before; an unreadable one is not shown.
    let specs = match serde_json::from_str::<Descriptor>(written.as_str()) {
        Ok(descriptor) => descriptor.specs,
        Err(_) => generated(card).specs,
    };
    AgentSchemas {
        agent_id: agent_id(card),
        input_schema: specs.input,
        output_schema: specs.output,
        state_schema: specs.thread_state,
        config_schema: specs.config,
        interrupts: specs.interrupts.unwrap_or_default(),
        custom_streaming_update: specs.custom_streaming_update,
    }
}

pub fn errors(card: &AgentCard) -> AgentErrors {
    AgentErrors { agent_id: agent_id(card), errors: card.errors.iter().map(declared).collect() }
}

pub(super) fn declared(error: &DeclaredError) -> ErrorDefinition {
    ErrorDefinition {
        code: error.code.clone(),
        errcode: error.number,
        description: error.description.clone(),
        transient: error.transient,
        http_status: None,
        schema: error.data_schema.as_ref().map(json),
    }
}

/// Returns a schema that accepts everything.
pub(super) fn anything() -> Json {
    Json::from_value(&serde_json::json!({}))
}
