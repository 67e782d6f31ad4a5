//! Agents, events and questions for the tests.

use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_domain::event::{InterruptEvent, MessageEvent, RunEvent, StateEvent};
use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{
    Abilities, AgentCard, AgentName, Body, DeclaredError, DeclaredInterrupt, Event, InputKind,
    Interrupt, InterruptId, InterruptKind, Json, Message, MessageId, Outcome, Role, RunId, RunKey,
    Survives, ThreadId, Timestamp,
};
use trilogue_mapping::connect::{Links, Values, ValuesOptions};

pub(crate) const RUN: &str = "22222222-2222-4222-8222-222222222222";
pub(crate) const THREAD: &str = "11111111-1111-4111-8111-111111111111";

pub(crate) fn json_of(value: &Value) -> Json {
    Json::from_value(value)
}

pub(crate) fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// An agent that takes messages and declares nothing.
pub(crate) fn chat() -> AgentCard {
    AgentCard {
        version: "1.0.0".to_owned(),
        description: "Says it again.".to_owned(),
        ..AgentCard::new(AgentName::parse("echo").unwrap(), InputKind::Chat)
    }
}

pub(crate) fn full() -> AgentCard {
    let schema = |value: Value| Some(json_of(&value));
    let text = json!({ "type": "string" });
    AgentCard {
        name: AgentName::parse("full").unwrap(),
        id: Some(Arc::from("3f1e2549-5799-4321-91ae-2a4881d55526")),
        title: Some("org.example.full".to_owned()),
        url: Some("https://example.com/full".to_owned()),
        input: InputKind::Schema(json_of(&json!({
            "type": "object",
            "properties": { "message": { "$ref": "#/$defs/Text" } },
            "$defs": { "Text": text }
        }))),
        output_schema: schema(json!({ "type": "object", "properties": { "message": text } })),
        state_schema: schema(json!({ "type": "object", "properties": { "log": {} } })),
        config_schema: schema(json!({
            "type": "object",
            "properties": { "style": text, "key": { "type": "string", "writeOnly": true } }
        })),
        update_schema: schema(json!({ "type": "object", "required": ["progress"] })),
        interrupts: vec![DeclaredInterrupt {
            kind: "approval".to_owned(),
            payload_schema: json_of(&json!({ "type": "object" })),
            answer_schema: json_of(&json!({ "type": "object", "properties": { "ok": {} } })),
        }],
        errors: vec![DeclaredError {
            code: "quota".to_owned(),
            number: 10_001,
            description: "Too much.".to_owned(),
            transient: true,
            data_schema: schema(json!({ "type": "object" })),
        }],
        abilities: Abilities {
            streams_values: Some(true),
            streams_updates: Some(true),
            ..Abilities::default()
        },
        ..chat()
    }
}

pub(crate) fn links() -> Links {
    Links::new(&Arc::from("http://h/connect"), &ThreadId::parse(THREAD).unwrap())
}

pub(crate) fn event(body: Body) -> Event {
    Event {
        number: 1,
        run: Some(RunKey(1)),
        run_number: 1,
        at: Timestamp::from_micros(1),
        body,
        original: None,
    }
}

pub(crate) fn values(card: AgentCard, bodies: Vec<Body>) -> Values {
    let show = ValuesOptions {
        card: Arc::new(card),
        base: Arc::from("http://h/connect"),
        max_inline_bytes: 100_000,
    };
    let (run, thread) = (RunId::parse(RUN).unwrap(), ThreadId::parse(THREAD).unwrap());
    let mut values = Values::new(show, &run, &thread);
    for body in bodies {
        values.push(&event(body));
    }
    values
}

pub(crate) fn run_started() -> Body {
    Body::Run(RunEvent::Started)
}

pub(crate) fn run_ended(outcome: Outcome) -> Body {
    Body::Run(RunEvent::Ended(outcome))
}

pub(crate) fn result(value: &Value) -> Body {
    Body::Run(RunEvent::Result(json_of(value)))
}

pub(crate) fn output(value: &Value) -> Body {
    Body::State(StateEvent::Output(json_of(value)))
}

pub(crate) fn message_id(id: &str) -> MessageId {
    MessageId::parse(id).unwrap()
}

pub(crate) fn message_started(id: &str, role: Role) -> Body {
    Body::Message(MessageEvent::Started { message: message_id(id), role, times: None })
}

pub(crate) fn delta(id: &str, text: &str) -> Body {
    Body::Message(MessageEvent::Delta { message: message_id(id), text: Arc::from(text) })
}

pub(crate) fn completed(id: &str) -> Body {
    Body::Message(MessageEvent::Completed { message: message_id(id) })
}

pub(crate) fn raised(interrupt: Interrupt) -> Body {
    Body::Interrupt(InterruptEvent::Raised(Box::new(interrupt)))
}

pub(crate) fn interrupt(id: &str, kind: InterruptKind, payload: &Value) -> Interrupt {
    let options = match kind {
        InterruptKind::Permission => {
            vec![PermissionOption::once("once", "Just now", Effect::Allow)]
        }
        _ => Vec::new(),
    };
    Interrupt {
        id: InterruptId::parse(id).unwrap(),
        payload: json_of(payload),
        options,
        survives: Survives::Restart,
        ..Interrupt::new(kind)
    }
}

pub(crate) fn approval(id: &str) -> Interrupt {
    let kind = InterruptKind::Custom("approval".to_owned());
    interrupt(id, kind, &json!({ "question": "?" }))
}

/// The events that log a message.
pub(crate) fn message_bodies(message: &Message) -> Vec<Body> {
    let id = || message.id.clone();
    let mut bodies =
        vec![MessageEvent::Started { message: id(), role: message.role.clone(), times: None }];
    bodies.extend(
        message.parts.iter().map(|part| MessageEvent::Part { message: id(), part: part.clone() }),
    );
    bodies.push(MessageEvent::Completed { message: id() });
    bodies.into_iter().map(Body::Message).collect()
}
