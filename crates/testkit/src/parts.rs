//! What tests of agents and of the runtime are made of, with everything that may be absent left out.
#![expect(clippy::unwrap_used, reason = "a test writes names that are good")]

use trilogue_domain::agent::InputKind;
use trilogue_domain::{
    Abilities, AgentCard, AgentName, Message, MessageId, Part, Principal, PrincipalId, Rights,
    Role, Strategy, TenantId, Timestamp,
};
use trilogue_runtime::{Input, RunRequest, ThreadChoice, WhenHolding, WhenWaiting};

/// A card that declares nothing.
pub fn card(name: &str, input: InputKind) -> AgentCard {
    AgentCard {
        name: AgentName::parse(name).unwrap(),
        id: None,
        title: None,
        version: "1".to_owned(),
        url: None,
        description: "does what it is told".to_owned(),
        input,
        output_schema: None,
        state_schema: None,
        config_schema: None,
        update_schema: None,
        interrupts: Vec::new(),
        errors: Vec::new(),
        abilities: Abilities::default(),
        descriptor: None,
        input_content_types: Vec::new(),
        output_content_types: Vec::new(),
    }
}

/// The card of an agent that takes and gives content of these types.
pub fn chat_card(name: &str, reads: &[&str], writes: &[&str]) -> AgentCard {
    let types = |types: &[&str]| types.iter().map(|kind| (*kind).to_owned()).collect();
    let (input_content_types, output_content_types) = (types(reads), types(writes));
    AgentCard { input_content_types, output_content_types, ..card(name, InputKind::Chat) }
}

/// Somebody with every right.
pub fn principal(tenant: &str, id: &str) -> Principal {
    Principal {
        tenant: TenantId::parse(tenant).unwrap(),
        id: PrincipalId::parse(id).unwrap(),
        rights: Rights::all(),
        own: false,
    }
}

pub fn user_message(text: &str) -> Message {
    Message {
        id: MessageId::generate(),
        role: Role::User,
        parts: vec![Part::text(text)],
        created_at: Some(Timestamp::from_micros(0)),
        completed_at: None,
    }
}

/// A run with default settings.
pub fn new_run(agent: &str, thread: ThreadChoice, input: Input) -> RunRequest {
    RunRequest {
        agent: AgentName::parse(agent).unwrap(),
        thread,
        id: None,
        input,
        config: None,
        metadata: None,
        strategy: Strategy::default(),
        when_waiting: WhenWaiting::Start,
        when_holding: WhenHolding::Refuse,
        idempotency: None,
        not_before: None,
        rules: None,
        callback: None,
        request: None,
        synchronous: false,
    }
}
