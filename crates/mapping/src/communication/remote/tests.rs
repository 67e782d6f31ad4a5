use serde_json::{Value, json};
use trilogue_domain::event::Event as LogEvent;
use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{Json, ThreadId, Timestamp};
use trilogue_wire::agent_communication::read;

use super::*;
use crate::communication::{Projection, ProjectionOptions};

fn event(value: &Value) -> Event {
    read(value.to_string().as_bytes(), Rules::Lenient).unwrap()
}

fn remote() -> RemoteRun {
    RemoteRun::new("r", Role::NamedAgent("chat".into()))
}

fn bodies(events: &[Value]) -> Vec<Body> {
    let mut run = remote();
    events.iter().flat_map(|value| run.push(event(value)).unwrap()).collect()
}

fn run(status: &str, members: &Value) -> Value {
    let mut run = json!({
        "run_id": "01890a5d-ac96-774b-bcce-b302099a8057", "agent_name": "chat", "status": status,
        "created_at": "2026-01-01T00:00:00Z", "output": []
    });
    run.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    run
}

/// What our own face shows of these bodies, as values without times.
fn shown(bodies: Vec<Body>) -> Vec<Value> {
    let options = ProjectionOptions {
        strict: false,
        base: "http://here".into(),
        max_inline_bytes: 1 << 20,
        input: false,
    };
    let mut projection = Projection::new(options);
    let thread = ThreadId::parse("t").unwrap();
    let begun = Body::Run(trilogue_domain::event::RunEvent::Started);
    let mut shown = Vec::new();
    for (number, body) in std::iter::once(begun).chain(bodies).enumerate() {
        let event = LogEvent {
            number: number as u64 + 1,
            run: None,
            run_number: number as u64 + 1,
            at: Timestamp::from_micros(0),
            body,
            original: None,
        };
        for json in projection.push(&event, &thread) {
            shown.push(serde_json::from_slice(&json).unwrap());
        }
    }
    shown
}

#[test]
fn what_a_remote_agent_streams_is_shown_as_it_came() {
    let citation = json!({ "kind": "citation", "url": "https://example.com/", "title": "T",
        "description": "D", "start_index": 0, "end_index": 5 });
    let step = json!({ "kind": "trajectory", "message": "looks", "tool_name": "search",
        "tool_input": { "q": 1 }, "tool_output": { "hits": 2 } });
    let parts = [
        json!({ "content_type": "text/plain", "content": "Hello" }),
        json!({ "content_type": "image/png", "content": "aGk=", "content_encoding": "base64", "name": "x.png" }),
        json!({ "content_type": "text/plain", "metadata": citation }),
        json!({ "content_type": "text/plain", "metadata": step, "own": { "kept": 1 } }),
        json!({ "content_type": "text/plain", "content_url": "https://example.com/a.txt" }),
    ];
    let mut events = vec![
        json!({ "type": "message.created", "message": { "role": "agent/chat", "parts": [] } }),
    ];
    events.extend(parts.iter().map(|part| json!({ "type": "message.part", "part": part })));
    events.push(json!({ "type": "generic", "generic": { "mood": "good" } }));
    events.push(
        json!({ "type": "message.completed", "message": { "role": "agent/chat", "parts": parts } }),
    );
    let shown = shown(bodies(&events));
    let completed = shown.iter().find(|event| event["type"] == "message.completed").unwrap();
    let again = completed["message"]["parts"].as_array().unwrap();
    assert_eq!(again.len(), parts.len());
    for (again, part) in again.iter().zip(&parts) {
        for (name, value) in part.as_object().unwrap() {
            assert_eq!(again[name], *value, "{name} of {part}");
        }
    }
    assert!(shown.iter().any(|event| event["generic"] == json!({ "mood": "good" })));
}

#[test]
fn the_same_events_give_the_same_bodies() {
    let events = [
        json!({ "type": "message.created", "message": { "role": "agent", "parts": [] } }),
        json!({ "type": "message.part", "part": { "content": "a" } }),
        json!({ "type": "message.completed", "message": { "role": "agent", "parts": [{ "content": "a" }] } }),
        json!({ "type": "message.part", "part": { "content": "b" } }),
    ];
    assert_eq!(bodies(&events), bodies(&events));
    assert_eq!(bodies(&events).len(), 5);
}

#[test]
fn output_that_no_event_brought_comes_with_the_end() {
    let message = |text: &str| json!({ "role": "agent", "parts": [{ "content": text }] });
    let end = json!({ "type": "run.completed",
        "run": run("completed", &json!({ "output": [message("one"), message("two")] })) });
    let texts = |bodies: &[Body]| -> Vec<String> {
        let text = |body: &Body| match body {
            Body::Message(MessageEvent::Delta { text, .. }) => Some(text.to_string()),
            _ => None,
        };
        bodies.iter().filter_map(text).collect()
    };
    assert_eq!(texts(&bodies(std::slice::from_ref(&end))), ["one", "two"]);
    let silent = json!({ "type": "message.completed", "message": message("one") });
    assert_eq!(texts(&bodies(&[silent, end])), ["one", "two"]);
}

#[test]
fn a_question_of_a_server_of_ours_comes_back_whole_and_any_other_wants_a_message() {
    let asked = Interrupt {
        id: InterruptId::parse("theirs").unwrap(),
        payload: Json::from_value(&json!({ "command": "rm" })),
        options: vec![
            PermissionOption::once("a", "Allow", Effect::Allow),
            PermissionOption { always: true, ..PermissionOption::once("r", "No", Effect::Reject) },
        ],
        ..Interrupt::new(InterruptKind::Permission)
    };
    let parts = super::super::await_message::parts(&asked, false, |_| String::new());
    let parts: Vec<Value> = parts.iter().map(|it| serde_json::from_slice(it).unwrap()).collect();
    let waiting = |parts: &[Value]| {
        let message = json!({ "role": "agent", "parts": parts });
        let request = json!({ "type": "message", "message": message });
        let run = run("awaiting", &json!({ "await_request": request }));
        read::<Run>(run.to_string().as_bytes(), Rules::Lenient).unwrap()
    };
    let (known, theirs) = remote_interrupt(&waiting(&parts)).unwrap();
    assert_eq!(theirs.as_deref(), Some("theirs"));
    assert_eq!((&known.kind, &known.options), (&asked.kind, &asked.options));
    assert_eq!(
        (known.payload, known.prompt, known.survives),
        (asked.payload, vec![], Survives::Restart)
    );
    let (foreign, theirs) = remote_interrupt(&waiting(&[json!({ "content": "Who?" })])).unwrap();
    assert_eq!((foreign.kind, theirs), (InterruptKind::Message, None));
    assert_eq!(foreign.prompt, [Part::text("Who?")]);
}

#[test]
fn answers_are_messages() {
    let said =
        |answer: Answer| serde_json::to_value(remote_answer(&answer)).unwrap()["parts"].clone();
    let value = |value: &Value| Answer::Json(Json::from_value(value));
    assert_eq!(said(Answer::Option("once".to_owned()))[0]["content"], "once");
    assert_eq!(said(value(&json!("Bob")))[0]["content"], "Bob");
    let form = said(value(&json!({ "approved": true })));
    assert_eq!(
        (&form[0]["content_type"], &form[0]["content"]),
        (&json!("application/json"), &json!("{\"approved\":true}"))
    );
    let parts = said(Answer::Message(vec![Part::text("hi")]));
    assert_eq!(parts[0]["content"], "hi");
    assert_eq!(parts[0].get("x_trilogue"), None);
}

#[test]
fn a_failure_keeps_the_reason_and_the_details() {
    let failure =
        |value: Value| remote_failure(&read(value.to_string().as_bytes(), Rules::Lenient).unwrap());
    let ours = failure(json!({ "code": "server_error", "message": "m",
        "data": { "reason": "quota", "transient": true, "details": [1] } }));
    assert_eq!((ours.code.as_str(), ours.transient), ("quota", true));
    assert_eq!(ours.data.unwrap().as_str(), "[1]");
    let theirs = failure(json!({ "code": "server_error", "message": "m", "data": { "x": 1 } }));
    assert_eq!((theirs.code.as_str(), theirs.transient), ("agent_failed", false));
    assert_eq!(theirs.data.unwrap().as_str(), "{\"x\":1}");
}

#[test]
fn a_message_goes_there_and_comes_back() {
    let message = Message {
        id: MessageId::parse("m").unwrap(),
        role: Role::User,
        parts: vec![Part::text("hi"), Part::bytes("image/png", &b"x"[..]).named("a")],
        created_at: Some(Timestamp::from_micros(1_000_000)),
        completed_at: None,
    };
    let sent = wire_message(&message);
    assert_eq!(read_message(sent).unwrap(), message);
}
