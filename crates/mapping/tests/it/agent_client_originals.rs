//! Hosted agents' messages: their meaning, and that they are passed on unchanged.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use trilogue_domain::event::{
    MessageEvent, PlanContent, PlanEntry, StateEvent, ToolEvent, ToolStatus,
};
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{Body, Content, MessageId, Original, Part, ThreadId};
use trilogue_mapping::agent_client::{
    Gate, IdFormat, LINE, NOTIFICATION, OriginalReader, RESULT, Relay, UPDATE, VERSION,
    blocks_of_message, body_of_update, message_of_prompt, shown_id, without_booleans,
    without_sessions, without_title,
};
use trilogue_wire::agent_client::splice;

use super::agent_client_blocks::forms;
use super::sample::{THREAD, json_of, message_id, parsed};

fn body(update: &Value) -> Body {
    body_of_update(&json!({ "sessionId": "", "update": update }).to_string())
}

fn chunk(kind: &str, content: &Value) -> Value {
    json!({ "sessionUpdate": kind, "messageId": "m", "content": content })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

#[test]
fn an_empty_chunk_says_nothing_unless_it_carries_a_citation() {
    for kind in ["agent_message_chunk", "agent_thought_chunk"] {
        assert_eq!(body(&chunk(kind, &text(""))), Body::Opaque, "{kind}");
    }
    let mut cited = text("");
    cited["_meta"] = json!({ "trilogue": { "citation": { "url": "https://example.com" } } });
    let cited = body(&chunk("agent_message_chunk", &cited));
    assert!(matches!(cited, Body::Message(MessageEvent::Part { .. })), "{cited:?}");
}

#[test]
fn half_of_a_character_changes_no_other_member() {
    let update = r#"{"sessionId":"","update":{"sessionUpdate":"usage_update","used":1,"_meta":{"x":"\ud83d","y":"\ud83d\ude00"}}}"#;
    let Body::State(StateEvent::Custom { data, .. }) = body_of_update(update) else {
        panic!("it is lost")
    };
    let meta = json!({ "x": "\u{fffd}", "y": "\u{1f600}" });
    assert_eq!((&data.to_value()["used"], &data.to_value()["_meta"]), (&json!(1), &meta));
    // A client refuses a line with half of a character.
    let mut line = Vec::new();
    relay(IdFormat::Any).push_line_into(UPDATE, update.as_bytes(), &mut line).unwrap();
    let line: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(line["params"]["update"]["_meta"], meta);
    assert_eq!(line["params"]["sessionId"], THREAD);
}

#[test]
fn the_line_of_an_original_is_read_though_it_is_not_text() {
    let original = Original {
        dialect: Arc::from(LINE),
        version: VERSION,
        bytes: Bytes::from_static(b"{\xff}"),
    };
    let Body::State(StateEvent::Custom { kind, data }) = OriginalReader.read(&original).unwrap()
    else {
        panic!("it is lost")
    };
    assert_eq!((&*kind, data.as_str()), ("replaced_bytes", r#"{"bytes":3}"#));
    // No client gets it.
    assert_eq!(relay(IdFormat::Any).push_line_into(LINE, b"{}", &mut Vec::new()), None);
}

fn relay(ids: IdFormat) -> Relay {
    Relay::new(&ThreadId::parse(THREAD).unwrap(), ids)
}

#[test]
fn text_continues_its_message_and_other_blocks_are_parts_of_it() {
    let said = body(&chunk("agent_message_chunk", &text("a\n\u{1f600}")));
    let delta = MessageEvent::Delta { message: message_id("m"), text: Arc::from("a\n\u{1f600}") };
    assert_eq!(said, Body::Message(delta));
    // An empty text is a test of its own.
    for form in forms().into_iter().filter(|form| form["text"] != "") {
        let read = body(&chunk("agent_message_chunk", &form));
        let is_text = form["type"] == "text" && form.get("annotations").is_none();
        match read {
            Body::Message(MessageEvent::Delta { text, .. }) => {
                assert!(is_text, "{form}");
                assert_eq!(*text, *form["text"].as_str().unwrap());
            }
            Body::Message(MessageEvent::Part { message, part }) => {
                assert!(!is_text, "{form}");
                let mut shown = message_of_prompt(&[], message);
                shown.parts.push(part);
                let back = serde_json::to_value(blocks_of_message(&shown)).unwrap();
                assert_eq!(back, json!([form]));
            }
            other => panic!("{form} {other:?}"),
        }
    }
}

#[test]
fn a_chunk_whose_id_we_cannot_keep_gets_one_of_its_own() {
    let id = |given: Value| {
        let update = json!({ "sessionUpdate": "agent_message_chunk", "messageId": given, "content": text("x") });
        match body(&update) {
            Body::Message(MessageEvent::Delta { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    };
    let nil = MessageId::from_uuid(uuid::Uuid::nil());
    for none in [json!(null), json!(5), json!(""), json!({})] {
        assert_eq!(id(none), nil);
    }
    assert_eq!(id(json!("msg_1")).as_str(), "msg_1");
    let long = id(json!("x".repeat(300)));
    assert_ne!(long, nil);
    assert_eq!(long, id(json!("x".repeat(300))));
    assert_ne!(long, id(json!("a\nb")));
}

#[test]
fn thoughts_are_thoughts_where_they_are_text() {
    let thought = body(&chunk("agent_thought_chunk", &text("hm")));
    assert_eq!(
        thought,
        Body::Message(MessageEvent::Thought {
            message: MessageId::parse("m").ok(),
            text: Arc::from("hm")
        })
    );
    let image = json!({ "type": "image", "data": "", "mimeType": "image/png" });
    assert_eq!(body(&chunk("agent_thought_chunk", &image)), Body::Opaque);
}

#[test]
fn tool_calls_begin_go_on_and_end() {
    let call = |more: Value| {
        let mut update = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "T" });
        for (key, value) in more.as_object().unwrap() {
            update[key] = value.clone();
        }
        body(&update)
    };
    let started = |tool: &str, input: Option<Value>| {
        Body::Tool(ToolEvent::Started {
            call: "c".to_owned(),
            tool: tool.to_owned(),
            title: "T".to_owned(),
            input: input.as_ref().map(json_of),
            message: None,
        })
    };
    // Without a name and a kind, the tool has the title of the call.
    assert_eq!(call(json!({})), started("T", None));
    assert_eq!(call(json!({ "kind": "other" })), started("T", None));
    assert_eq!(call(json!({ "kind": "edit" })), started("edit", None));
    let named =
        json!({ "kind": "edit", "name": "write", "rawInput": { "a": [1] }, "status": "failed" });
    assert_eq!(call(named), started("write", Some(json!({ "a": [1] }))));
    assert_eq!(call(json!({ "rawInput": null, "name": 5 })), started("T", None));

    let update = |more: Value| {
        let mut update = more;
        update["sessionUpdate"] = json!("tool_call_update");
        update["toolCallId"] = json!("c");
        body(&update)
    };
    let updated =
        |content: Vec<Part>| Body::Tool(ToolEvent::Updated { call: "c".to_owned(), content });
    assert_eq!(update(json!({ "title": "U", "status": "in_progress" })), updated(Vec::new()));
    let shown = update(
        json!({ "content": [{ "type": "content", "content": text("x") }, "odd", { "type": "content" }] }),
    );
    assert_eq!(shown, updated(vec![Part::text("x")]));
    let ended = |status, output: Option<Value>| {
        Body::Tool(ToolEvent::Ended {
            call: "c".to_owned(),
            status,
            output: output.as_ref().map(json_of),
        })
    };
    assert_eq!(
        update(json!({ "status": "completed", "rawOutput": { "b": 2 } })),
        ended(ToolStatus::Completed, Some(json!({ "b": 2 })))
    );
    let content = json!([{ "type": "terminal", "terminalId": "t" }]);
    assert_eq!(
        update(json!({ "status": "failed", "content": content })),
        ended(ToolStatus::Failed, Some(content))
    );
    assert_eq!(
        update(json!({ "status": "completed", "rawOutput": null })),
        ended(ToolStatus::Completed, None)
    );
}

#[test]
fn diffs_and_terminals_of_a_tool_call_are_kept_as_they_came() {
    let items = [
        json!({ "type": "diff", "path": "/a", "oldText": null, "newText": "x" }),
        json!({ "type": "terminal", "terminalId": "t", "_meta": { "a": 1 } }),
        json!({ "type": "hologram", "x": 1 }),
    ];
    let update =
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "content": items });
    let Body::Tool(ToolEvent::Updated { content, .. }) = body(&update) else { panic!() };
    assert_eq!(content.len(), 3);
    for (part, item) in content.iter().zip(&items) {
        assert_eq!(&*part.content_type, "application/json");
        let Content::Text(text) = &part.content else { panic!() };
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), *item);
    }
}

#[test]
fn plans_are_plans_and_the_rest_is_the_agents_own() {
    let plan = json!({ "sessionUpdate": "plan", "entries": [
        { "content": "a", "priority": "high", "status": "completed" }, { "content": 5 }, "odd"
    ] });
    let entry = PlanEntry { content: "a".to_owned(), status: "completed".to_owned() };
    assert_eq!(body(&plan), Body::State(StateEvent::Plan(vec![entry.clone()])));
    let by_id = |plan: Value| json!({ "sessionUpdate": "plan_update", "plan": plan });
    let updated = |content| Body::State(StateEvent::PlanUpdated { plan: "p".to_owned(), content });
    let items = json!({ "type": "items", "planId": "p", "entries": plan["entries"] });
    assert_eq!(body(&by_id(items)), updated(PlanContent::Entries(vec![entry])));
    let document = json!({ "type": "markdown", "planId": "p", "content": "# P", "path": "/p.md" });
    let content = PlanContent::Markdown { text: "# P".to_owned(), path: Some("/p.md".to_owned()) };
    assert_eq!(body(&by_id(document)), updated(content));
    let removed = json!({ "sessionUpdate": "plan_removed", "planId": "p" });
    let event = StateEvent::PlanRemoved { plan: "p".to_owned() };
    assert_eq!(body(&removed), Body::State(event));
    for kind in [
        "usage_update",
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "notice",
        "compaction_update",
        "compaction_summary_chunk",
    ] {
        let update = json!({ "sessionUpdate": kind, "any": ["thing"], "more": null });
        let Body::State(StateEvent::Custom { kind: read, data }) = body(&update) else {
            panic!("{kind}")
        };
        assert_eq!((read.as_str(), data.to_value()), (kind, update));
    }
}

#[test]
fn what_cannot_be_read_is_opaque_and_fails_nothing() {
    let deep = "[".repeat(100) + &"]".repeat(100);
    let texts = [
        String::new(),
        "null".to_owned(),
        "[]".to_owned(),
        "{".to_owned(),
        "{\"update\":".to_owned(),
        "{\"update\":{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"te"
            .to_owned(),
        "\u{0}\"\\".to_owned(),
        format!("{{\"update\":{{\"sessionUpdate\":\"usage_update\",\"deep\":{deep}}}}}"),
    ];
    for text in &texts {
        assert_eq!(body_of_update(text), Body::Opaque, "{text}");
    }
    for update in [
        json!(null),
        json!("x"),
        json!({}),
        json!({ "sessionUpdate": 5 }),
        json!({ "sessionUpdate": "future_update", "content": text("x") }),
        chunk("user_message_chunk", &text("x")),
        chunk("agent_message_chunk", &json!(null)),
        chunk("agent_message_chunk", &json!({ "type": "text" })),
        chunk("agent_message_chunk", &json!({ "type": 5, "text": "x" })),
        chunk("agent_message_chunk", &json!({ "type": "image", "data": "" })),
        chunk("agent_message_chunk", &json!({ "type": "resource", "resource": { "uri": "a" } })),
        chunk("agent_message_chunk", &json!({ "type": "resource_link", "uri": "a" })),
        chunk("agent_thought_chunk", &json!({ "text": "x" })),
        json!({ "sessionUpdate": "tool_call", "toolCallId": "c" }),
        json!({ "sessionUpdate": "tool_call", "title": "T" }),
        json!({ "sessionUpdate": "tool_call_update", "status": "completed" }),
        json!({ "sessionUpdate": "plan" }),
        json!({ "sessionUpdate": "plan_update", "plan": { "type": "items", "entries": [] } }),
        json!({ "sessionUpdate": "plan_update", "plan": { "type": "later", "planId": "p" } }),
        json!({ "sessionUpdate": "plan_removed", "planId": 1 }),
    ] {
        assert_eq!(body(&update), Body::Opaque, "{update}");
    }
}

#[test]
fn originals_are_read_by_their_dialect_and_version() {
    let original = |dialect: &str, version, bytes: &str| Original {
        dialect: Arc::from(dialect),
        version,
        bytes: Bytes::from(bytes.to_owned()),
    };
    let read = |original: &Original| OriginalReader.read(original);
    let update = json!({ "sessionId": "", "update": chunk("agent_message_chunk", &text("x")) });
    let said = read(&original(UPDATE, VERSION, &update.to_string())).unwrap();
    assert!(matches!(said, Body::Message(MessageEvent::Delta { .. })), "{said:?}");
    let result = read(&original(RESULT, VERSION, r#"{"stopReason":"refusal"}"#)).unwrap();
    let Body::State(StateEvent::Custom { kind, data }) = result else { panic!("{result:?}") };
    assert_eq!((kind.as_str(), data.as_str()), ("turn_result", r#"{"stopReason":"refusal"}"#));
    assert_eq!(read(&original(NOTIFICATION, VERSION, "{}")), Ok(Body::Opaque));
    assert!(read(&original("other", VERSION, "{}")).is_err());
    // The next version of an update is that of a tool call's content alone.
    let update = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "status": "failed" });
    let update = json!({ "sessionId": "", "update": update }).to_string();
    let content = read(&original(UPDATE, VERSION + 1, &update)).unwrap();
    assert!(matches!(content, Body::Tool(ToolEvent::Updated { .. })), "{content:?}");
    // The one after it is that of an update that begins a call and ends it.
    let end = read(&original(UPDATE, VERSION + 2, &update)).unwrap();
    assert!(matches!(end, Body::Tool(ToolEvent::Ended { .. })), "{end:?}");
    assert!(read(&original(UPDATE, VERSION + 3, "{}")).is_err());
    assert!(read(&original(RESULT, VERSION + 1, "{}")).is_err());
    let broken = Original { bytes: Bytes::from_static(b"\xff"), ..original(UPDATE, VERSION, "") };
    assert!(read(&broken).is_err());
}

/// The update that a client receives for an agent's update.
fn given_on(sent: &str, ids: IdFormat) -> (String, Gate) {
    let (cut, _) = splice::cut_session(sent).unwrap();
    let mut out = b"before".to_vec();
    let relayed = relay(ids).push_into(UPDATE, cut.as_bytes(), &mut out).unwrap();
    assert_eq!(relayed.method, "session/update");
    let mut line = Vec::new();
    assert_eq!(relay(ids).push_line_into(UPDATE, cut.as_bytes(), &mut line), Some(relayed.gate));
    let params = String::from_utf8(out.split_off(6)).unwrap();
    let expected =
        format!("{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{params}}}\n");
    assert_eq!(String::from_utf8(line).unwrap(), expected);
    (params, relayed.gate)
}

#[test]
fn an_update_is_given_on_with_nothing_changed_but_its_session() {
    let sent = "{ \"update\" : {\"sessionUpdate\":\"future\", \"n\":1.0,\"sessionId\":\"sess-0\"} ,\"sessionId\":\t\"sess-0\", \"x\":[ ] ,\"session\\u0049d\":\"twice\"}";
    let expected = sent
        .replacen("\t\"sess-0\"", &format!("\t\"{THREAD}\""), 1)
        .replace("\"twice\"", &format!("\"{THREAD}\""));
    assert_eq!(given_on(sent, IdFormat::Any), (expected, Gate::Opaque));
}

#[test]
fn a_session_that_stands_first_is_set_wherever_else_it_stands_too() {
    let id = format!("\"{THREAD}\"");
    for (sent, expected) in [
        (
            r#"{"sessionId":"s","update":{}}"#.to_owned(),
            format!(r#"{{"sessionId":{id},"update":{{}}}}"#),
        ),
        (
            r#"{"sessionId":"s\"x","update":{}}"#.to_owned(),
            format!(r#"{{"sessionId":{id},"update":{{}}}}"#),
        ),
        (
            r#"{"sessionId":"s","update":{"sessionId":"s"},"sessionId":"t"}"#.to_owned(),
            format!(r#"{{"sessionId":{id},"update":{{"sessionId":"s"}},"sessionId":{id}}}"#),
        ),
        (
            r#"{"sessionId":"s","update":{"a":"\u0041"},"session\u0049d":"t"}"#.to_owned(),
            format!(r#"{{"sessionId":{id},"update":{{"a":"\u0041"}},"session\u0049d":{id}}}"#),
        ),
    ] {
        assert_eq!(given_on(&sent, IdFormat::Any).0, expected);
    }
}

#[test]
fn giving_on_allocates_nothing_and_reading_text_little() {
    let update = chunk("agent_message_chunk", &text("a piece of what an agent says"));
    let params = json!({ "update": update }).to_string();
    let first = format!("{{\"sessionId\":\"\",{}", &params[1..]);
    let last = format!("{},\"sessionId\":\"\"}}", &params[..params.len() - 1]);
    for params in [first, last] {
        let relay = relay(IdFormat::Any);
        let mut out = Vec::with_capacity(1024);
        let relayed = allocation_counter::measure(|| {
            relay.push_line_into(UPDATE, params.as_bytes(), &mut out).unwrap();
        });
        assert_eq!(relayed.count_total, 0);
        // One allocation for the message's id, and one for the text.
        let read = allocation_counter::measure(|| drop(body_of_update(&params)));
        assert!(read.count_total <= 2, "{read:?}");
    }
}

#[test]
fn ids_that_are_no_uuids_are_given_on_as_they_are_or_become_some() {
    let sent = |id: &str| {
        format!(
            r#"{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","messageId":"{id}","content":{{"type":"text","text":"x"}}}}}}"#
        )
    };
    let shown = |id: &str, ids| {
        let (params, gate) = given_on(&sent(id), ids);
        assert_eq!(gate, Gate::Always);
        let value: Value = serde_json::from_str(&params).unwrap();
        value["update"]["messageId"].as_str().unwrap().to_owned()
    };
    let upper = "9B1DEB4D-3B7D-4BAD-9BDD-2B0D7B3DCB6D";
    for id in ["msg_1", "", upper] {
        assert_eq!(shown(id, IdFormat::Any), id);
    }
    assert_eq!(shown(upper, IdFormat::Uuid), upper);
    assert_eq!(shown("", IdFormat::Uuid), "");
    let derived = shown("msg_1", IdFormat::Uuid);
    assert_eq!(uuid::Uuid::parse_str(&derived).unwrap().get_version_num(), 5);
    assert_eq!(derived, shown_id(IdFormat::Uuid, THREAD, "msg_1"));
    assert_ne!(derived, shown_id(IdFormat::Uuid, "another", "msg_1"));
    assert_ne!(derived, shown_id(IdFormat::Uuid, THREAD, "msg_2"));
    assert_eq!(shown_id(IdFormat::Any, THREAD, "msg_1"), "msg_1");
}

#[test]
fn gates_say_whom_an_update_is_for() {
    let option = |kind: &str| json!({ "id": "o", "name": "O", "type": kind });
    for (update, gate) in [
        (json!({ "sessionUpdate": "notice" }), Gate::Notices),
        (json!({ "sessionUpdate": "compaction_update" }), Gate::Compaction),
        (json!({ "sessionUpdate": "compaction_summary_chunk" }), Gate::Compaction),
        (
            json!({ "sessionUpdate": "config_option_update", "configOptions": [option("select")] }),
            Gate::Always,
        ),
        (
            json!({ "sessionUpdate": "config_option_update", "configOptions": [option("select"), option("boolean")] }),
            Gate::BooleanConfig,
        ),
        (json!({ "sessionUpdate": "user_message_chunk" }), Gate::Always),
        (json!({ "sessionUpdate": "session_info_update", "title": "T" }), Gate::Title),
        (json!({ "sessionUpdate": "plan" }), Gate::Plan),
        (json!({ "sessionUpdate": "plan_update" }), Gate::PlanById),
        (json!({ "sessionUpdate": "plan_removed" }), Gate::PlanById),
        (json!({ "sessionUpdate": "prompt_suggestions_update" }), Gate::PromptSuggestions),
        (json!({ "sessionUpdate": "cursor_update" }), Gate::AgentCursors),
        (json!({ "sessionUpdate": "subagent_update" }), Gate::Subagents),
        (json!({ "sessionUpdate": "session_message" }), Gate::Subagents),
        (json!({ "sessionUpdate": "_later" }), Gate::Opaque),
        (
            json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "session", "content": [{ "type": "terminal", "terminalId": "t" }] }),
            Gate::Always,
        ),
        (
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "content": [{ "type": "session", "sessionId": "s" }] }),
            Gate::ToolSession,
        ),
        (json!(5), Gate::Opaque),
    ] {
        let sent = json!({ "sessionId": "s", "update": update }).to_string();
        assert_eq!(given_on(&sent, IdFormat::Any).1, gate, "{update}");
    }
    let sent = json!({ "sessionId": "s", "update": { "sessionUpdate": "config_option_update", "configOptions": [option("boolean"), option("select")], "x": 1 } });
    let stripped = parsed(&without_booleans(sent.to_string().as_bytes()));
    assert_eq!(stripped["update"]["configOptions"], json!([option("select")]));
    assert_eq!(stripped["update"]["x"], 1);
    let content =
        json!([{ "type": "session", "sessionId": "s" }, { "type": "terminal", "terminalId": "t" }]);
    let sent = json!({ "sessionId": "s", "update": { "sessionUpdate": "tool_call_update", "toolCallId": "c", "content": content } });
    let stripped = parsed(&without_sessions(sent.to_string().as_bytes()));
    assert_eq!(stripped["update"]["content"], json!([{ "type": "terminal", "terminalId": "t" }]));
    assert_eq!(without_booleans(b"odd"), b"odd");
    let sent = json!({ "sessionId": "s", "update": { "sessionUpdate": "session_info_update", "title": "T", "x": 1 } });
    let stripped = parsed(&without_title(sent.to_string().as_bytes()));
    assert_eq!(stripped["update"], json!({ "sessionUpdate": "session_info_update", "x": 1 }));
}

#[test]
fn other_notifications_are_given_on_by_their_own_method() {
    let line = |original: &Value| {
        let mut out = Vec::new();
        let gate = relay(IdFormat::Any).push_line_into(
            NOTIFICATION,
            original.to_string().as_bytes(),
            &mut out,
        );
        (gate, out)
    };
    let (gate, told) =
        line(&json!({ "method": "_vendor/\"x", "params": { "sessionId": "", "a": 1 } }));
    assert_eq!(gate, Some(Gate::Always));
    assert_eq!(
        parsed(&told),
        json!({ "jsonrpc": "2.0", "method": "_vendor/\"x", "params": { "sessionId": THREAD, "a": 1 } })
    );
    let (_, told) = line(&json!({ "method": "a" }));
    assert_eq!(parsed(&told), json!({ "jsonrpc": "2.0", "method": "a" }));
    let (_, told) = line(&json!({ "method": "a", "params": [1] }));
    assert_eq!(parsed(&told)["params"], json!([1]));
    let (_, told) =
        line(&json!({ "method": "elicitation/complete", "params": { "elicitationId": "e" } }));
    assert_eq!(parsed(&told)["params"], json!({ "elicitationId": "e" }));
    assert_eq!(line(&json!({ "params": {} })), (None, Vec::new()));
    let mut out = Vec::new();
    assert_eq!(relay(IdFormat::Any).push_into(RESULT, b"{}", &mut out), None);
    assert_eq!(relay(IdFormat::Any).push_into("other", b"{}", &mut out), None);
    assert_eq!(relay(IdFormat::Any).push_into(UPDATE, b"\xff", &mut out), None);
    assert!(out.is_empty());
}

#[test]
fn a_session_id_with_anything_in_it_stays_json() {
    let thread = ThreadId::parse("a \"b\" \\ \u{1f600}").unwrap();
    let mut out = Vec::new();
    Relay::new(&thread, IdFormat::Any)
        .push_into(UPDATE, b"{\"sessionId\":\"\",\"update\":{}}", &mut out)
        .unwrap();
    assert_eq!(parsed(&out)["sessionId"], thread.as_str());
}

/// JSON with white space in every place where it is allowed.
fn spaced(value: &Value, space: &str) -> String {
    let join = |items: Vec<String>| items.join(&format!("{space},{space}"));
    match value {
        Value::Array(items) => format!(
            "[{space}{}{space}]",
            join(items.iter().map(|item| spaced(item, space)).collect())
        ),
        Value::Object(members) => {
            let all = members.iter().map(|(key, value)| {
                format!("{}{space}:{space}{}", Value::from(key.as_str()), spaced(value, space))
            });
            format!("{{{space}{}{space}}}", join(all.collect()))
        }
        leaf => leaf.to_string(),
    }
}

fn any_update() -> impl Strategy<Value = Value> {
    let kinds = [
        "agent_message_chunk",
        "agent_thought_chunk",
        "user_message_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "plan_update",
        "usage_update",
        "future",
    ];
    let content = prop::sample::select(forms());
    let key =
        prop_oneof![Just("sessionId".to_owned()), Just("update".to_owned()), "[a-z\"\\\\]{1,5}"];
    let extra = prop::collection::btree_map(key, ".{0,10}".prop_map(Value::from), 0..3);
    (prop::sample::select(kinds.to_vec()), content, ".{0,6}", extra).prop_map(
        |(kind, content, id, extra)| {
            let mut update = Value::Object(extra.into_iter().collect());
            update["sessionUpdate"] = json!(kind);
            update["content"] = content;
            update["messageId"] = json!(id);
            update["toolCallId"] = json!(id);
            update
        },
    )
}

proptest! {
    #[test]
    fn what_is_given_on_differs_only_in_the_ids(update in any_update(), space in "[ \t]{0,2}", session in "[^\u{0}-\u{1f}]{0,9}", is_first: bool) {
        let session = Value::from(session).to_string();
        let update = spaced(&update, &space);
        let (before, after) = if is_first {
            (format!("{{{space}\"sessionId\":{space}"), format!(",\"update\":{update}{space}}}"))
        } else {
            (format!("{{\"update\":{space}{update}{space},\"sessionId\":"), format!("{space},\"x\":1}}"))
        };
        let sent = format!("{before}{session}{after}");
        let expected = format!("{before}\"{THREAD}\"{after}");
        prop_assert_eq!(given_on(&sent, IdFormat::Any).0, expected);
    }

    #[test]
    fn nothing_that_comes_panics(text in ".{0,80}", cut in 0_usize..200, update in any_update()) {
        let whole = json!({ "sessionId": "", "update": update }).to_string();
        let cut = whole.floor_char_boundary(cut);
        let _ = body_of_update(&text);
        let _ = body_of_update(&whole[..cut]);
        let mut out = Vec::new();
        for dialect in [UPDATE, NOTIFICATION, RESULT] {
            for ids in [IdFormat::Any, IdFormat::Uuid] {
                let _ = relay(ids).push_into(dialect, text.as_bytes(), &mut out);
                let _ = relay(ids).push_line_into(dialect, &whole.as_bytes()[..cut], &mut out);
            }
        }
        let _ = without_booleans(text.as_bytes());
    }
}
