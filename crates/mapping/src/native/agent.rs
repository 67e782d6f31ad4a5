use trilogue_domain::{self as domain, AgentCard, InputKind};
use trilogue_wire::native::{Agent, AgentCommand, AgentInput, AgentInputKind, DeclaredInterrupt};

use super::json;

pub fn agent(card: &AgentCard, unavailable: Option<&str>) -> Agent {
    let input = match &card.input {
        InputKind::Chat => AgentInput { kind: AgentInputKind::Chat, schema: None },
        InputKind::Schema(schema) => {
            AgentInput { kind: AgentInputKind::Schema, schema: Some(json(schema)) }
        }
    };
    let interrupts = card.interrupts.iter().map(|declared| DeclaredInterrupt {
        kind: declared.kind.clone(),
        payload_schema: json(&declared.payload_schema),
        answer_schema: json(&declared.answer_schema),
    });
    Agent {
        name: card.name.as_str().to_owned(),
        title: card.title.clone(),
        version: card.version.clone(),
        description: card.description.clone(),
        input,
        output_schema: card.output_schema.as_ref().map(json),
        state_schema: card.state_schema.as_ref().map(json),
        config_schema: card.config_schema.as_ref().map(json),
        interrupts: interrupts.collect(),
        input_content_types: card.input_content_types.clone(),
        output_content_types: card.output_content_types.clone(),
        commands: card.commands.iter().map(command).collect(),
        unavailable: unavailable.map(str::to_owned),
        last_failure: None,
        takes_folder: false,
    }
}

fn command(command: &domain::AgentCommand) -> AgentCommand {
    AgentCommand { name: command.name.clone(), description: command.description.clone() }
}
