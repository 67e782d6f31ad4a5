//! Converts agents' cards to descriptors, and back.

use trilogue_domain::error::Result;
use trilogue_domain::{
    Abilities, AgentCard, Code, DeclaredError, DeclaredInterrupt, Error, InputKind, Json,
    Violation, limits,
};
use trilogue_wire::agent_connect as wire;
use trilogue_wire::agent_connect::{
    Capabilities, Descriptor, ErrorDefinition, InterruptSpec, Manifest, Specs, Streaming,
};

use super::agent::{anything, declared, metadata};
use super::chat;
use crate::native::{json, read_json};

/// Returns the agent's descriptor: its author's, member for member, or one built from its card.
pub fn descriptor(card: &AgentCard) -> Json {
    match &card.descriptor {
        Some(written) => written.clone(),
        None => serde_json::to_vec(&generated(card))
            .ok()
            .and_then(|text| Json::parse(text).ok())
            .unwrap_or_else(Json::null),
    }
}

pub(super) fn generated(card: &AgentCard) -> Descriptor {
    let Abilities { threads, callbacks, streams_values, streams_updates, system_prompt: _ } =
        card.abilities;
    let is_chat = card.input == InputKind::Chat;
    let streaming = (streams_values.is_some() || streams_updates.is_some())
        .then_some(Streaming { values: streams_values, custom: streams_updates });
    let some = |schema: &Option<Json>| schema.as_ref().map(json);
    let of_chat = |schema: fn() -> wire::Json| is_chat.then(schema);
    Descriptor {
        metadata: metadata(card),
        specs: Specs {
            capabilities: Capabilities {
                threads,
                interrupts: !card.interrupts.is_empty(),
                callbacks,
                streaming,
            },
            input: match &card.input {
                InputKind::Chat => chat::input(&card.commands),
                InputKind::Schema(schema) => json(schema),
            },
            output: some(&card.output_schema)
                .or_else(|| of_chat(chat::output))
                .unwrap_or_else(anything),
            config: some(&card.config_schema).unwrap_or_else(anything),
            custom_streaming_update: (streams_updates == Some(true)).then(|| {
                let any_object = || wire::Json::from_value(&serde_json::json!({"type": "object"}));
                some(&card.update_schema).unwrap_or_else(any_object)
            }),
            thread_state: some(&card.state_schema)
                .or_else(|| of_chat(chat::state))
                .filter(|_| threads),
            interrupts: (!card.interrupts.is_empty())
                .then(|| card.interrupts.iter().map(interrupt).collect()),
            errors: (!card.errors.is_empty()).then(|| card.errors.iter().map(declared).collect()),
        },
    }
}

fn interrupt(declared: &DeclaredInterrupt) -> InterruptSpec {
    InterruptSpec {
        interrupt_type: declared.kind.clone(),
        interrupt_payload: json(&declared.payload_schema),
        resume_payload: json(&declared.answer_schema),
    }
}

/// Overrides the card with a written descriptor: name, schemas, interrupts, errors and abilities are those of the descriptor.
/// `file` is a descriptor, or a manifest of either form. An agent that takes messages still takes them.
/// Errors: `invalid_request`, naming every rule that the file breaks and its location.
pub fn card(file: &Json, base: AgentCard) -> Result<AgentCard> {
    let manifest =
        Manifest::read(file.as_bytes()).map_err(|violation| descriptor_error(vec![violation]))?;
    let broken = manifest.descriptor.check();
    if !broken.is_empty() {
        return Err(descriptor_error(broken));
    }
    let Descriptor { metadata, specs } = manifest.descriptor;
    let errors = specs.errors.unwrap_or_default();
    if errors.len() > limits::MAX_AGENT_ERRORS {
        let most = format!("has more than {} errors", limits::MAX_AGENT_ERRORS);
        return Err(descriptor_error(vec![wire::Violation::new("/specs/errors", most)]));
    }
    let is_chat = base.input == InputKind::Chat;
    let streaming = specs.capabilities.streaming;
    let read = |schema: Option<wire::Json>| schema.map(read_json).transpose();
    Ok(AgentCard {
        title: Some(metadata.reference.name),
        version: metadata.reference.version,
        url: metadata.reference.url,
        description: metadata.description,
        input: match base.input {
            InputKind::Chat => InputKind::Chat,
            InputKind::Schema(_) => InputKind::Schema(read_json(specs.input)?),
        },
        output_schema: if is_chat { base.output_schema } else { Some(read_json(specs.output)?) },
        state_schema: if is_chat { base.state_schema } else { read(specs.thread_state)? },
        // A schema without content declares no configuration.
        config_schema: Some(read_json(specs.config)?)
            .filter(|schema| schema.to_value() != serde_json::json!({})),
        update_schema: read(specs.custom_streaming_update)?,
        interrupts: specs
            .interrupts
            .unwrap_or_default()
            .into_iter()
            .map(read_interrupt)
            .collect::<Result<_>>()?,
        errors: errors.into_iter().map(read_error).collect::<Result<_>>()?,
        abilities: Abilities {
            threads: specs.capabilities.threads,
            callbacks: specs.capabilities.callbacks,
            streams_values: streaming.and_then(|streaming| streaming.values),
            streams_updates: streaming.and_then(|streaming| streaming.custom),
            system_prompt: None,
        },
        descriptor: Some(read_json(manifest.written)?),
        ..base
    })
}

fn read_interrupt(spec: InterruptSpec) -> Result<DeclaredInterrupt> {
    Ok(DeclaredInterrupt {
        kind: spec.interrupt_type,
        payload_schema: read_json(spec.interrupt_payload)?,
        answer_schema: read_json(spec.resume_payload)?,
    })
}

fn read_error(definition: ErrorDefinition) -> Result<DeclaredError> {
    Ok(DeclaredError {
        code: definition.code,
        number: definition.errcode,
        description: definition.description,
        transient: definition.transient,
        data_schema: definition.schema.map(read_json).transpose()?,
    })
}

fn descriptor_error(broken: Vec<wire::Violation>) -> Error {
    let rules: Vec<String> =
        broken.iter().map(|it| format!("{}: {}", it.path, it.message)).collect();
    let violations = broken
        .into_iter()
        .map(|violation| Violation { path: violation.path, message: violation.message })
        .collect();
    let message = format!("the descriptor breaks its rules: {}", rules.join("; "));
    Error::new(Code::InvalidRequest, message)
        .hint("an Agent ACP descriptor has `metadata` and `specs`; a manifest or an agent record holds one")
        .violations(violations)
}
