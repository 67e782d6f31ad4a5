//! Hosted agents' updates in the other protocols.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use trilogue_domain::event::RunEvent;
use trilogue_domain::{Body, Event, Input, InputKind, Original, RunId, ThreadId, Timestamp};
use trilogue_mapping::agent_client::{RESULT, UPDATE, VERSION, body_of_update, message_of_prompt};
use trilogue_mapping::communication::{Projection, ProjectionOptions};
use trilogue_mapping::{connect, native, shape};
use trilogue_wire::agent_client::{ContentBlock, Rules, read};

use super::sample::{RUN, THREAD, chat, json_of, message_id, parsed, run_started};

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
        audit: None,
    });
    [created, run_started()].map(super::sample::event)
}

fn on_communication(update: &Value) -> Vec<Value> {
    told_on_communication(std::slice::from_ref(update))
}

/// The events that a client of the Agent Communication Protocol receives of a run with these updates, including its end.
fn told_on_communication(updates: &[Value]) -> Vec<Value> {
    let mut shown = Projection::new(ProjectionOptions {
        strict: false,
        base: Arc::from(""),
        max_inline_bytes: 0,
        input: false,
    });
    for event in begin() {
        shown.push(&event, &thread());
    }
    let mut told = Vec::new();
    for update in updates {
        told.extend(shown.push(&logged(update), &thread()));
    }
    told.iter().map(|event| parsed(event)).collect()
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
    let generic = &on_communication(&update)[0]["generic"];
    let begun = json!({
        "kind": "tool", "call_id": "c", "status": "in_progress", "tool_name": "write",
        "message": "Edit", "tool_input": { "a": 1 }, "x_trilogue": carried(&update),
    });
    assert_eq!(*generic, begun);
    let custom = on_connect(&update);
    assert_eq!((&custom["kind"], &custom["tool"]), (&json!("tool.started"), &json!("write")));
    assert_eq!(custom["trilogue"], carried(&update));
    let event = on_native(&update);
    assert_eq!((&event["type"], &event["title"]), (&json!("tool.started"), &json!("Edit")));
    assert_eq!(event["original"]["value"]["update"], update);
}

/// The document's example (message metadata), produced by a hosted agent.
#[test]
fn a_tool_call_is_one_step_with_its_input_and_its_output() {
    let begun = json!({
        "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Ask for the weather", "kind": "fetch",
        "status": "pending", "rawInput": {}, "content": [], "own": 1.5,
    });
    let named = json!({
        "sessionUpdate": "tool_call_update", "toolCallId": "c", "name": "weather_api",
        "title": "The weather in San Francisco", "status": "in_progress",
        "rawInput": { "location": "San Francisco, CA" }, "kind": null,
    });
    let output = json!({ "temperature": 72, "condition": "sunny" });
    let ended = json!({
        "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "rawOutput": output,
    });
    let told = told_on_communication(&[begun, named, ended]);
    let parts: Vec<_> = told.iter().filter(|event| event["type"] == "message.part").collect();
    assert_eq!(parts.len(), 1, "{told:?}");
    let step = json!({
        "kind": "trajectory", "message": "The weather in San Francisco", "tool_name": "weather_api",
        "tool_input": { "location": "San Francisco, CA" }, "tool_output": output,
    });
    assert_eq!(parts[0]["part"]["metadata"], step);
    let whole = json!({
        "sessionUpdate": "tool_call", "toolCallId": "c", "title": "The weather in San Francisco",
        "kind": "fetch", "status": "completed", "rawInput": { "location": "San Francisco, CA" },
        "content": [], "own": 1.5, "name": "weather_api", "rawOutput": output,
    });
    assert_eq!(parts[0]["part"]["x_trilogue"], carried(&whole));
    // A call that begins as completed, and one that failed.
    for (status, message) in [("completed", "T"), ("failed", "T: the tool failed")] {
        let whole = json!({
            "sessionUpdate": "tool_call", "toolCallId": "d", "title": "T", "kind": "other",
            "status": status, "rawOutput": [1],
        });
        let told = told_on_communication(std::slice::from_ref(&whole));
        assert_eq!(told.iter().filter(|event| event["type"] == "generic").count(), 0);
        let step = &told.last().unwrap()["part"]["metadata"];
        assert_eq!((&step["message"], &step["tool_name"]), (&json!(message), &json!("T")));
        assert_eq!(step["tool_output"], json!({ "value": [1] }));
    }
}

#[test]
fn pieces_of_one_thought_join_and_another_thought_is_another_step() {
    let piece = |id: &str, text: &str| json!({ "sessionUpdate": "agent_thought_chunk", "messageId": id, "content": { "type": "text", "text": text } });
    let said = json!({ "sessionUpdate": "agent_message_chunk", "messageId": "m", "content": { "type": "text", "text": "so" } });
    let mut shown = Projection::new(ProjectionOptions {
        strict: false,
        base: Arc::from(""),
        max_inline_bytes: 0,
        input: false,
    });
    let pieces = [piece("a", "I "), piece("a", "think"), piece("b", "again"), said];
    let events = begin().into_iter().chain(pieces.iter().map(logged));
    for event in events {
        shown.push(&event, &thread());
    }
    let run = parsed(&shown.run());
    let parts = run["output"][0]["parts"].as_array().unwrap().iter();
    let steps: Vec<_> = parts.map(|part| part["metadata"]["message"].clone()).collect();
    assert_eq!(steps[..2], [json!("I think"), json!("again")], "{run}");
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
fn plans_by_id_have_the_same_ids_everywhere() {
    let entry = json!({ "content": "a", "priority": "high", "status": "pending" });
    let items = json!({
        "sessionUpdate": "plan_update", "plan": { "type": "items", "planId": "p", "entries": [entry] },
    });
    let document = json!({
        "sessionUpdate": "plan_update",
        "plan": { "type": "markdown", "planId": "q", "content": "# Q", "path": "/q.md" },
    });
    let removed = json!({ "sessionUpdate": "plan_removed", "planId": "p" });
    let entries = json!([{ "content": "a", "status": "pending" }]);
    for (update, kind, shown) in [
        (items, "plan_updated", json!({ "plan_id": "p", "entries": entries })),
        (document, "plan_updated", json!({ "plan_id": "q", "markdown": "# Q", "path": "/q.md" })),
        (removed, "plan_removed", json!({ "plan_id": "p" })),
    ] {
        let with = |mut members: Value, own: Value| {
            members.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
            members
        };
        let generic = with(json!({ "kind": kind, "x_trilogue": carried(&update) }), shown.clone());
        assert_eq!(on_communication(&update)[0]["generic"], generic);
        let custom = json!({ "kind": format!("state.{kind}"), "trilogue": carried(&update) });
        assert_eq!(on_connect(&update), with(custom, shown.clone()));
        let native = on_native(&update);
        assert_eq!(native["type"], format!("state.{kind}"));
        for (name, value) in shown.as_object().unwrap() {
            assert_eq!(native[name], *value);
        }
    }
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
        &trilogue_mapping::agent_client::OriginalReader,
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
