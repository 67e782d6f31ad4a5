//! What comes from hosted agents, as the other faces show it.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use trilogue_domain::event::RunEvent;
use trilogue_domain::{Body, Event, Input, InputKind, Original, RunId, ThreadId, Timestamp};
use trilogue_mapping::agent_client::{RESULT, UPDATE, VERSION, body_of_update, message_of_prompt};
use trilogue_mapping::communication::{Projection, ProjectionOptions};
use trilogue_mapping::{connect, native, shape};
use trilogue_wire::agent_client::{ContentBlock, Rules, read};

use super::sample::{RUN, THREAD, begun, chat, json_of, message_id, parsed};

fn thread() -> ThreadId {
    ThreadId::parse(THREAD).unwrap()
}

fn logged(update: &Value) -> Event {
    let params = json!({ "sessionId": "", "update": update }).to_string();
    let body = body_of_update(&params);
    let original =
        Original { dialect: Arc::from(UPDATE), version: VERSION, bytes: Bytes::from(params) };
    Event { original: Some(original), ..super::sample::event(body) }
}

fn begin() -> [Event; 2] {
    let created = Body::Run(RunEvent::Created {
        run: RunId::parse(RUN).unwrap(),
        agent: chat().name,
        input: None,
    });
    [created, begun()].map(super::sample::event)
}

fn on_communication(update: &Value) -> Vec<Value> {
    let mut shown = Projection::new(ProjectionOptions {
        strict: false,
        base: Arc::from(""),
        max_inline_bytes: 0,
        input: false,
    });
    for event in begin() {
        shown.push(&event, &thread());
    }
    shown.push(&logged(update), &thread()).iter().map(|event| parsed(event)).collect()
}

fn on_connect(update: &Value) -> Value {
    let mut updates = connect::Updates::new(&chat(), &RunId::parse(RUN).unwrap(), &thread());
    for event in begin() {
        updates.push(&event);
    }
    parsed(&updates.push(&logged(update)).unwrap())["update"].clone()
}

fn on_native(update: &Value) -> Value {
    serde_json::to_value(native::event::event(&logged(update), 1, Some(RUN), &thread())).unwrap()
}

fn carried(update: &Value) -> Value {
    json!({ "protocol": "agent_client", "update": update })
}

#[test]
fn a_tool_call_keeps_what_the_others_have_no_word_for() {
    let update = json!({
        "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Edit", "name": "write", "kind": "edit",
        "status": "pending", "locations": [{ "path": "/a", "line": 3 }], "rawInput": { "a": 1 },
        "content": [{ "type": "diff", "path": "/a", "newText": "x" }], "own": 1.5,
    });
    let part = &on_communication(&update).pop().unwrap()["part"];
    assert_eq!(part["metadata"]["tool_name"], "write");
    assert_eq!(part["metadata"]["tool_input"], json!({ "a": 1 }));
    assert_eq!(part["x_trilogue"], carried(&update));
    let custom = on_connect(&update);
    assert_eq!((&custom["kind"], &custom["tool"]), (&json!("tool.started"), &json!("write")));
    assert_eq!(custom["trilogue"], carried(&update));
    let event = on_native(&update);
    assert_eq!((&event["type"], &event["title"]), (&json!("tool.started"), &json!("Edit")));
    assert_eq!(event["original"]["value"]["update"], update);
}

#[test]
fn what_a_tool_call_makes_is_shown() {
    let diff = json!({ "type": "diff", "path": "/a", "newText": "x" });
    let update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "content": [
        { "type": "content", "content": { "type": "text", "text": "out", "annotations": { "priority": 1 } } }, diff,
    ] });
    let generic = &on_communication(&update)[0]["generic"];
    assert_eq!((&generic["kind"], &generic["call_id"]), (&json!("tool"), &json!("c")));
    assert_eq!(generic["content"][0]["content"], "out");
    assert_eq!(generic["content"][0]["x_trilogue"]["block"]["annotations"]["priority"], 1);
    assert_eq!(
        serde_json::from_str::<Value>(generic["content"][1]["content"].as_str().unwrap()).unwrap(),
        diff
    );
    assert_eq!(generic["x_trilogue"], carried(&update));
    assert_eq!(on_connect(&update)["trilogue"], carried(&update));
    let ended = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "rawOutput": { "b": 1 } });
    let part = &on_communication(&ended).pop().unwrap()["part"];
    assert_eq!(part["metadata"]["tool_output"], json!({ "b": 1 }));
    assert_eq!(part["x_trilogue"], carried(&ended));
}

#[test]
fn plans_keep_their_priorities() {
    let update = json!({ "sessionUpdate": "plan", "entries": [{ "content": "a", "priority": "high", "status": "pending" }] });
    let generic = &on_communication(&update)[0]["generic"];
    assert_eq!(
        (&generic["kind"], &generic["entries"][0]["content"]),
        (&json!("plan"), &json!("a"))
    );
    assert_eq!(generic["x_trilogue"]["update"], update);
    assert_eq!(on_connect(&update)["trilogue"]["update"], update);
    assert_eq!(on_native(&update)["type"], "state.plan");
}

#[test]
fn usage_modes_and_commands_are_the_agents_own_updates() {
    for kind in [
        "usage_update",
        "current_mode_update",
        "available_commands_update",
        "config_option_update",
        "notice",
    ] {
        let update = json!({ "sessionUpdate": kind, "own": [1] });
        let generic = &on_communication(&update)[0]["generic"];
        assert_eq!((&generic["kind"], &generic["data"]), (&json!(kind), &update));
        assert_eq!(on_connect(&update), update);
        let event = on_native(&update);
        assert_eq!(
            (&event["type"], &event["kind"], &event["data"]),
            (&json!("state.custom"), &json!(kind), &update)
        );
    }
}

#[test]
fn what_nobody_knows_is_shown_as_it_came() {
    let update = json!({ "sessionUpdate": "future_update", "n": 1 });
    let original = json!({ "sessionId": "", "update": update });
    let generic = &on_communication(&update)[0]["generic"];
    assert_eq!((&generic["kind"], &generic["original"]), (&json!("opaque"), &original));
    assert_eq!(on_connect(&update)["original"], original);
    assert_eq!(on_native(&update)["original"]["value"], original);
}

#[test]
fn an_agents_own_word_for_the_end_is_shown() {
    let mut event = logged(&json!({}));
    let original = Original {
        dialect: Arc::from(RESULT),
        version: VERSION,
        bytes: Bytes::from_static(br#"{"stopReason":"refusal"}"#),
    };
    event.body = trilogue_domain::port::ReadOriginal::read(
        &trilogue_mapping::agent_client::Originals,
        &original,
    )
    .unwrap();
    event.original = Some(original);
    let mut shown = Projection::new(ProjectionOptions {
        strict: false,
        base: Arc::from(""),
        max_inline_bytes: 0,
        input: false,
    });
    for event in begin() {
        shown.push(&event, &thread());
    }
    let generic = &parsed(&shown.push(&event, &thread())[0])["generic"];
    assert_eq!(
        (&generic["kind"], &generic["data"]),
        (&json!("turn_result"), &json!({ "stopReason": "refusal" }))
    );
}

#[test]
fn an_agent_by_schema_takes_a_prompt() {
    let schema = json!({ "type": "object", "properties": { "message": { "type": "string" } } });
    let card = trilogue_domain::AgentCard { input: InputKind::Schema(json_of(&schema)), ..chat() };
    let value = |blocks: Value| {
        let blocks: Vec<ContentBlock> = blocks
            .as_array()
            .unwrap()
            .iter()
            .map(|block| read(block.to_string().as_bytes(), Rules::Lenient).unwrap())
            .collect();
        let message = message_of_prompt(&blocks, message_id("u"));
        match shape::input(&card, Input::Messages(vec![message]), Timestamp::from_micros(1))
            .unwrap()
        {
            Input::Value(value) => value.to_value(),
            Input::Messages(messages) => panic!("{messages:?}"),
        }
    };
    let text = json!({ "type": "text", "text": "hi" });
    let file =
        json!({ "type": "resource", "resource": { "uri": "file:///a", "text": "long file" } });
    assert_eq!(value(json!([text, file])), json!({ "message": "hi" }));
    let data = json!({ "type": "resource", "resource": { "uri": "file:///a.json", "text": "{\"message\":\"there\"}", "mimeType": "application/json" } });
    assert_eq!(value(json!([text, data])), json!({ "message": "there" }));
}
