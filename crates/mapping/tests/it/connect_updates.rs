//! An agent's own updates.

use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_domain::event::{MessageEvent, Original, PlanEntry, StateEvent, ToolEvent};
use trilogue_domain::{AgentCard, Body, Event, Role, RunId, ThreadId};
use trilogue_mapping::connect::Updates;

use crate::published::{assert_valid, document};
use crate::sample::{
    RUN, THREAD, chat, delta, event, full, json_of, message_started, output, parsed, result,
    run_started,
};

fn updates(card: &AgentCard, events: &[Event]) -> Vec<Value> {
    let (run, thread) = (RunId::parse(RUN).unwrap(), ThreadId::parse(THREAD).unwrap());
    let mut updates = Updates::new(card, &run, &thread);
    let document = document();
    let shown = events.iter().filter_map(|event| updates.push(event)).map(|bytes| parsed(&bytes));
    shown
        .inspect(|data| {
            let event = json!({ "id": "1", "event": "agent_event", "data": data });
            assert_valid(document.as_ref(), "RunOutputStream", &event);
            assert_eq!((&data["run_id"], &data["status"]), (&json!(RUN), &json!("pending")));
        })
        .collect()
}

fn custom(kind: &str, data: &Value) -> Event {
    event(Body::State(StateEvent::Custom { kind: kind.to_owned(), data: json_of(data) }))
}

fn work() -> Vec<Event> {
    let opaque = Event {
        original: Some(Original {
            dialect: Arc::from("d"),
            version: 2,
            bytes: bytes::Bytes::from_static(b"{\"x\":1}"),
        }),
        ..event(Body::Opaque)
    };
    let entry = PlanEntry { content: "c".to_owned(), status: "pending".to_owned() };
    vec![
        event(Body::Message(MessageEvent::Thought { message: None, text: Arc::from("hm") })),
        event(Body::Tool(ToolEvent::Started {
            call: "1".to_owned(),
            tool: "t".to_owned(),
            title: "T".to_owned(),
            input: Some(json_of(&json!([1]))),
            message: None,
        })),
        event(Body::State(StateEvent::Plan(vec![entry]))),
        event(delta("m", "hi")),
        opaque,
    ]
}

#[test]
fn an_update_is_shown_as_the_agent_gave_it() {
    let given = json!({ "progress": 0.5, "kind": "mine" });
    let shown = updates(&full(), &[event(run_started()), custom("progress", &given)]);
    assert_eq!(
        shown,
        [
            json!({ "type": "custom", "run_id": RUN, "status": "pending", "update": given, "kind": "progress" })
        ]
    );
    let shown = updates(&chat(), &[event(run_started()), custom("count", &json!(5))]);
    assert_eq!(shown[0]["update"], json!({ "kind": "count", "data": 5 }));
}

#[test]
fn an_agent_that_declares_its_updates_streams_nothing_else() {
    let mut events = vec![event(run_started())];
    events.extend(work());
    assert_eq!(updates(&full(), &events), Vec::<Value>::new());
}

#[test]
fn any_other_agent_streams_what_it_does_by_the_names_of_our_own_face() {
    let mut events = vec![event(run_started())];
    events.extend(work());
    let shown: Vec<Value> =
        updates(&chat(), &events).into_iter().map(|it| it["update"].clone()).collect();
    assert_eq!(
        shown,
        [
            json!({ "kind": "message.thought", "text": "hm" }),
            json!({ "kind": "tool.started", "call_id": "1", "tool": "t", "title": "T", "input": [1] }),
            json!({ "kind": "state.plan", "entries": [{ "content": "c", "status": "pending" }] }),
            json!({ "kind": "message.delta", "message_id": "m", "text": "hi" }),
            json!({ "kind": "opaque", "dialect": "d", "version": 2, "original": { "x": 1 } }),
        ]
    );
}

#[test]
fn input_and_output_are_no_updates() {
    let events = vec![
        event(message_started("in", Role::User)),
        event(delta("in", "hi")),
        event(run_started()),
        event(output(&json!({}))),
        event(result(&json!({}))),
        event(Body::State(StateEvent::Values(json_of(&json!({}))))),
    ];
    assert_eq!(updates(&chat(), &events), Vec::<Value>::new());
}
