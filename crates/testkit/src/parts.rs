//! Test data for agents and the runtime, without optional members.
#![expect(clippy::unwrap_used, reason = "a test writes names that are good")]

use trilogue_domain::agent::InputKind;
use trilogue_domain::{
    AgentCard, AgentName, Message, Part, Principal, PrincipalId, Rights, Role, TenantId, Timestamp,
};
use trilogue_runtime::{Input, RunRequest, ThreadChoice};

/// A card that declares nothing.
pub fn card(name: &str, input: InputKind) -> AgentCard {
    AgentCard {
        version: "1".to_owned(),
        description: "does what it is told".to_owned(),
        ..AgentCard::new(AgentName::parse(name).unwrap(), input)
    }
}

/// The card of an agent that accepts and produces content of these types.
pub fn chat_card(name: &str, reads: &[&str], writes: &[&str]) -> AgentCard {
    let types = |types: &[&str]| types.iter().map(|kind| (*kind).to_owned()).collect();
    let (input_content_types, output_content_types) = (types(reads), types(writes));
    AgentCard { input_content_types, output_content_types, ..card(name, InputKind::Chat) }
}

/// A caller with every right.
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
        completed_at: None,
        ..Message::new(Role::User, vec![Part::text(text)], Some(Timestamp::from_micros(0)))
    }
}

/// A run with default settings.
pub fn new_run(agent: &str, thread: ThreadChoice, input: Input) -> RunRequest {
    RunRequest::new(AgentName::parse(agent).unwrap(), thread, input)
}
