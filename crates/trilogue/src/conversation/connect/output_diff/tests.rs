use serde_json::json;

use super::*;

fn lines(updates: &[Value]) -> Vec<String> {
    let mut diff = OutputDiff::default();
    let mut lines = Vec::new();
    for update in updates {
        let update = serde_json::from_str(&update.to_string()).unwrap();
        for event in diff.push(update) {
            lines.push(match event.body {
                EventBody::MessageStarted(it) => format!("{}: ", it.message_id),
                EventBody::MessageDelta(it) => format!("{} {}", it.message_id, it.text),
                EventBody::MessagePart(it) => {
                    format!("{} [{}]", it.message_id, it.part.name.unwrap_or(it.part.content_type))
                }
                EventBody::MessageCompleted(it) => format!("{}.", it.message_id),
                EventBody::StateCustom(it) => format!("{}={}", it.kind, it.data.as_str()),
                EventBody::RunResult(it) => format!("={}", it.value.as_str()),
                EventBody::RunEnded(it) => it.outcome.status.as_str().to_owned(),
                other => other.name().to_owned(),
            });
        }
    }
    lines
}

#[expect(clippy::needless_pass_by_value, reason = "what is made in place reads better")]
fn values(status: &str, values: Value) -> Value {
    json!({ "type": "values", "run_id": "r", "status": status, "values": values })
}

#[expect(clippy::needless_pass_by_value, reason = "what is made in place reads better")]
fn update(update: Value) -> Value {
    json!({ "type": "custom", "run_id": "r", "status": "pending", "update": update })
}

fn messages(texts: &[(&str, Value)]) -> Value {
    let one = |(role, content): &(&str, Value)| json!({ "role": role, "content": content });
    json!({ "messages": texts.iter().map(one).collect::<Vec<_>>() })
}

#[test]
fn growing_text_is_sent_on_once() {
    let shown = lines(&[
        values("pending", json!({ "answer": "Hel" })),
        values("pending", json!({ "answer": "Hello" })),
        values("pending", json!({ "answer": "Hello" })),
        values("success", json!({ "answer": "Hello." })),
    ]);
    // The end has the value too; the terminal shows it only if no message came.
    assert_eq!(shown, ["1: ", "1 Hel", "1 lo", "1.", r#"={"answer":"Hello."}"#, "completed"]);
    let shown = lines(&[
        values("pending", json!({ "message": "a" })),
        values("success", json!({ "message": "ab" })),
    ]);
    assert_eq!(shown, ["1: ", "1 a", "1 b", "1.", r#"={"message":"ab"}"#, "completed"]);
    let shown = lines(&[values("success", json!({ "approved_by": "x" }))]);
    assert_eq!(shown, [r#"={"approved_by":"x"}"#, "completed"]);
}

#[test]
fn messages_grow_one_after_the_other_and_those_of_others_are_left_out() {
    let user = ("user", json!("hi"));
    let shown = lines(&[
        values("pending", messages(&[("assistant", json!("before")), user.clone()])),
        values(
            "pending",
            messages(&[("assistant", json!("before")), user.clone(), ("assistant", json!("a"))]),
        ),
        values(
            "pending",
            messages(&[
                user.clone(),
                ("assistant", json!("ab")),
                ("assistant", json!([{ "type": "text", "text": "c" }])),
            ]),
        ),
        values(
            "success",
            messages(&[
                user,
                ("assistant", json!("ab")),
                (
                    "assistant",
                    json!([
                        { "type": "text", "text": "cd" },
                        { "type": "file", "metadata": { "name": "a.bin", "content": "AA==", "content_encoding": "base64" } },
                        { "type": "text", "text": "e" },
                    ]),
                ),
            ]),
        ),
    ]);
    let all =
        ["1: ", "1 a", "1 b", "1.", "2: ", "2 c", "2 d", "2 [a.bin]", "2 e", "2.", "completed"];
    assert_eq!(shown, all);
}

#[test]
fn a_text_that_is_replaced_becomes_a_new_message() {
    let shown = lines(&[
        values("pending", json!({ "message": "Hello" })),
        values("success", json!({ "message": "Goodbye" })),
    ]);
    let all = [
        "1: ",
        "1 Hello",
        "1.",
        "2: ",
        "2 Goodbye",
        "2.",
        r#"={"message":"Goodbye"}"#,
        "completed",
    ];
    assert_eq!(shown, all);
}

#[test]
fn the_reference_servers_messages_are_read() {
    let shown = lines(&[values(
        "success",
        json!({ "messages": [{ "type": "human", "content": "x" }, { "type": "assistant", "content": "X" }] }),
    )]);
    assert_eq!(shown, ["1: ", "1 X", "1.", "completed"]);
    let odd = json!({ "messages": [{ "role": "assistant", "content": [{ "type": "image_url", "image_url": "x" }] }, 7] });
    assert_eq!(
        lines(&[values("success", odd)]),
        ["1: ", "1 [application/json]", "1.", "completed"]
    );
    assert_eq!(lines(&[values("success", json!(null))]), ["=null", "completed"]);
}

#[test]
fn the_output_of_a_server_that_sends_events_adds_nothing() {
    let shown = lines(&[
        update(json!({ "kind": "message.started", "message_id": "m", "role": "assistant" })),
        update(json!({ "kind": "message.delta", "message_id": "m", "text": "a" })),
        values("pending", messages(&[("assistant", json!("a"))])),
        update(json!({ "kind": "tool.started", "call_id": "c", "tool": "t", "title": "T" })),
        update(json!({ "kind": "message.completed", "message_id": "m" })),
        values("success", messages(&[("assistant", json!("a"))])),
    ]);
    assert_eq!(shown, ["m: ", "m a", "tool.started", "m.", "completed"]);
}

#[test]
fn an_agents_own_updates_are_sent_on_unchanged() {
    let mut named = update(json!({ "done": 1 }));
    named["kind"] = "progress".into();
    let mut wrapped = update(json!({ "kind": "progress", "data": 7 }));
    wrapped["kind"] = "progress".into();
    // An update with the name of a native event, but not its content.
    let odd = update(json!({ "kind": "message.delta" }));
    let shown = lines(&[named, wrapped, update(json!({ "a": 1 })), odd]);
    assert_eq!(
        shown,
        [
            r#"progress={"done":1}"#,
            "progress=7",
            r#"update={"a":1}"#,
            r#"update={"kind":"message.delta"}"#
        ]
    );
}

#[test]
fn an_end_has_its_reason() {
    let end = |status: &str, error: Value| {
        let mut event =
            json!({ "type": "error", "run_id": "r", "status": status, "description": "no" });
        event.as_object_mut().unwrap().extend(error.as_object().unwrap().clone());
        let event = serde_json::from_str(&event.to_string()).unwrap();
        let EventBody::RunEnded(ended) = OutputDiff::default().push(event).pop().unwrap().body
        else {
            panic!("it has not ended");
        };
        ended.outcome
    };
    let failed = end(
        "error",
        json!({ "errcode": 1, "code": "agent_error", "transient": true, "data": { "reason": "mail.lost" } }),
    );
    let error = failed.error.unwrap();
    assert_eq!((failed.status, error.code.as_str()), (RunStatus::Failed, "mail.lost"));
    assert!(error.transient);
    let bare = end("error", json!({ "errcode": 0 })).error.unwrap();
    assert_eq!((bare.code.as_str(), bare.message.as_str()), ("error 0", "no"));
    assert_eq!(end("error", json!({ "errcode": 5 })).status, RunStatus::Cancelled);
    let late = end("timeout", json!({ "errcode": 4, "data": { "reason": "await_timeout" } }));
    assert_eq!((late.status, late.reason.as_deref()), (RunStatus::TimedOut, Some("await_timeout")));
}
