use proptest::prelude::*;
use serde_json::{Value, json};
use trilogue_domain::{AgentCard, AgentName, InputKind};

use super::*;
use crate::connect::{Updates, Values, ValuesOptions};

fn payload(value: &Value) -> StreamPayload {
    serde_json::from_value(value.clone()).unwrap()
}

fn values(status: &str, values: &Value) -> StreamPayload {
    payload(&json!({ "type": "values", "run_id": "r", "status": status, "values": values }))
}

fn output(is_chat: bool, ours: bool) -> RemoteOutput {
    let ours = ours.then(|| "http://there/connect".to_owned());
    RemoteOutput::new(
        "r",
        Role::NamedAgent("chat".into()),
        OutputForm { is_chat, trilogue_url: ours },
    )
}

fn bodies(output: &mut RemoteOutput, events: &[StreamPayload]) -> Vec<Body> {
    events.iter().flat_map(|event| output.push(event).unwrap()).collect()
}

/// Returns the pieces of messages, and the names of all other bodies.
fn describe_bodies(bodies: &[Body]) -> Vec<String> {
    let one = |body: &Body| match body {
        Body::Message(MessageEvent::Delta { text, .. }) => format!("+{text}"),
        Body::Message(MessageEvent::Part { part, .. }) => {
            format!("part {}", part.as_text().unwrap_or(&part.content_type))
        }
        Body::Run(RunEvent::Result(value)) => format!("result {}", value.as_str()),
        Body::State(StateEvent::Output(value)) => format!("output {}", value.as_str()),
        other => other.name().to_owned(),
    };
    bodies.iter().map(one).collect()
}

fn assistant(id: Option<&str>, text: &str) -> Value {
    json!({ "role": "assistant", "content": text, "id": id })
}

#[test]
fn text_streams_as_it_grows_and_messages_end_with_the_next_or_the_run() {
    let mut chat = output(true, false);
    let said = |all: &[Value]| json!({ "messages": all });
    let events = [
        values("pending", &said(&[assistant(Some("1"), "He")])),
        values("pending", &said(&[assistant(Some("1"), "Hello")])),
        values("pending", &said(&[assistant(Some("1"), "Hello"), assistant(Some("2"), "B")])),
        values("success", &said(&[assistant(Some("1"), "Hello"), assistant(Some("2"), "Bye")])),
    ];
    assert_eq!(
        describe_bodies(&bodies(&mut chat, &events)),
        [
            "message.started",
            "+He",
            "+llo",
            "message.completed",
            "message.started",
            "+B",
            "+ye",
            "message.completed"
        ]
    );
}

#[test]
fn what_was_said_before_on_the_thread_is_no_output() {
    let mut chat = output(true, false);
    let before = json!({ "role": "user", "content": "hi" });
    let all =
        json!({ "messages": [before, assistant(None, "old"), before, assistant(None, "new")] });
    let events = [values("pending", &all), values("success", &all)];
    assert_eq!(
        describe_bodies(&bodies(&mut chat, &events)),
        ["message.started", "+new", "message.completed"]
    );
}

#[test]
fn values_without_messages_are_said_or_are_the_result() {
    let mut chat = output(true, false);
    let end = [
        values("pending", &json!({ "message": "a" })),
        values("success", &json!({ "message": "ab" })),
    ];
    assert_eq!(
        describe_bodies(&bodies(&mut chat, &end)),
        ["message.started", "+a", "+b", "message.completed"]
    );
    let odd = [values("success", &json!({ "messages": [assistant(None, "a")], "score": 1 }))];
    assert_eq!(
        describe_bodies(&bodies(&mut output(true, false), &odd)).last().unwrap(),
        "result {\"score\":1}"
    );
    let mut schema = output(false, false);
    let count = |number: u64| json!({ "count": number });
    let events = [
        values("pending", &count(1)),
        values("pending", &count(1)),
        values("pending", &count(2)),
        values("success", &count(2)),
    ];
    assert_eq!(
        describe_bodies(&bodies(&mut schema, &events)),
        ["output {\"count\":1}", "output {\"count\":2}", "result {\"count\":2}"]
    );
    assert_eq!(
        describe_bodies(&bodies(&mut output(false, false), &[values("success", &json!(null))])),
        ["result null"]
    );
}

#[test]
fn another_version_of_a_message_is_a_message_of_its_own() {
    let mut chat = output(true, false);
    let said = |text: &str| json!({ "messages": [assistant(Some("1"), text)] });
    let events = [values("pending", &said("Hell")), values("success", &said("Goodbye"))];
    assert_eq!(
        describe_bodies(&bodies(&mut chat, &events)),
        [
            "message.started",
            "+Hell",
            "message.completed",
            "message.started",
            "+Goodbye",
            "message.completed"
        ]
    );
}

#[test]
fn after_a_question_only_what_is_new_is_told() {
    let asked = payload(&json!({
        "type": "interrupt", "run_id": "r", "status": "interrupted", "interrupt": { "a": {} }
    }));
    let (first, second) = (assistant(None, "Well"), assistant(None, "Done"));
    let mut before = output(true, false);
    let events = [values("pending", &json!({ "messages": [first] })), asked];
    assert_eq!(
        describe_bodies(&bodies(&mut before, &events)),
        ["message.started", "+Well", "message.completed"]
    );
    let mut after = output(true, false).with_progress(before.progress());
    let end = values("success", &json!({ "messages": [first, second] }));
    assert_eq!(
        describe_bodies(&bodies(&mut after, &[end])),
        ["message.started", "+Done", "message.completed"]
    );
}

#[test]
fn an_update_of_another_server_is_custom_and_one_of_ours_is_what_it_was() {
    let update = |kind: Option<&str>, update: Value| {
        let mut event =
            json!({ "type": "custom", "run_id": "r", "status": "pending", "update": update });
        if let Some(kind) = kind {
            event["kind"] = kind.into();
        }
        payload(&event)
    };
    let thought = json!({ "kind": "message.thought", "text": "hm" });
    let foreign = bodies(&mut output(true, false), &[update(None, thought.clone())]);
    assert!(
        matches!(&foreign[0], Body::State(StateEvent::Custom { kind, .. }) if kind == "custom")
    );
    let ours = bodies(&mut output(true, true), &[update(None, thought)]);
    assert!(
        matches!(&ours[0], Body::Message(MessageEvent::Thought { text, .. }) if &**text == "hm")
    );
    let wrapped = update(Some("step"), json!({ "kind": "step", "data": 5 }));
    let wrapped = bodies(&mut output(true, true), &[wrapped]);
    let expected =
        StateEvent::Custom { kind: "step".to_owned(), data: Json::from_value(&json!(5)) };
    assert_eq!(wrapped, [Body::State(expected)]);
}

/// One action of an agent.
#[derive(Clone, Debug)]
enum Act {
    Say(usize, String),
    Show(usize),
    Finish(usize),
    Update(u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..3_usize, "[a-zé]{1,4}").prop_map(|(at, text)| Act::Say(at, text)),
        1 => (0..3_usize).prop_map(Act::Show),
        1 => (0..3_usize).prop_map(Act::Finish),
        1 => any::<u8>().prop_map(Act::Update),
    ]
}

/// Returns the log of an agent with these actions: at most three messages, each begun once.
fn log(acts: &[Act]) -> Vec<Body> {
    let id = |at: usize| MessageId::parse(&format!("m{at}")).unwrap();
    let mut out = vec![Body::Run(RunEvent::Started)];
    let mut open = [None, None, None];
    for act in acts {
        let (Act::Say(at, _) | Act::Show(at) | Act::Finish(at)) = act else {
            let Act::Update(number) = act else { continue };
            let data = Json::from_value(&json!({ "number": number }));
            out.push(Body::State(StateEvent::Custom { kind: "step".to_owned(), data }));
            continue;
        };
        let message = id(*at);
        let is_open = open[*at].get_or_insert_with(|| {
            let message = message.clone();
            out.push(Body::Message(MessageEvent::Started {
                message,
                role: Role::Agent,
                times: None,
            }));
            true
        });
        if !*is_open {
            continue;
        }
        out.push(Body::Message(match act {
            Act::Say(_, text) => MessageEvent::Delta { message, text: text.as_str().into() },
            Act::Show(_) => {
                MessageEvent::Part { message, part: Part::url("image/png", "http://x/y.png") }
            }
            Act::Finish(_) | Act::Update(_) => {
                *is_open = false;
                MessageEvent::Completed { message }
            }
        }));
    }
    out
}

/// Returns what our own face sends of a log: a sample after the events with the given numbers, and every update.
fn render_payloads(log: &[Body], samples: &[usize], with_updates: bool) -> Vec<StreamPayload> {
    let card = AgentCard::new(AgentName::parse("chat").unwrap(), InputKind::Chat);
    let run = trilogue_domain::RunId::parse("r").unwrap();
    let thread = trilogue_domain::ThreadId::parse("t").unwrap();
    let options = ValuesOptions {
        card: std::sync::Arc::new(card.clone()),
        base: "http://there".into(),
        max_inline_bytes: 1 << 20,
    };
    let (mut values, mut updates) =
        (Values::new(options, &run, &thread), Updates::new(&card, &run, &thread));
    let mut out = Vec::new();
    let read = |bytes: bytes::Bytes| serde_json::from_slice(&bytes).unwrap();
    let end = Body::Run(RunEvent::Ended(trilogue_domain::Outcome::Completed));
    for (number, body) in log.iter().chain([&end]).enumerate() {
        let event = trilogue_domain::Event {
            number: number as u64 + 1,
            run: None,
            run_number: number as u64 + 1,
            at: Timestamp::from_micros(0),
            body: body.clone(),
            original: None,
        };
        values.push(&event);
        let update = updates.push(&event);
        let is_own = matches!(body, Body::State(_));
        out.extend(update.filter(|_| with_updates || is_own).map(read));
        if samples.contains(&number) {
            out.extend(values.snapshot().map(read));
        }
    }
    out.extend(values.terminal().map(read));
    out
}

/// Returns the text and the media of each message, by its first appearance, and the updates.
fn content(bodies: &[Body]) -> (Vec<(String, String)>, Vec<Json>) {
    let mut said: Vec<(String, String)> = Vec::new();
    let mut updates = Vec::new();
    for body in bodies {
        match body {
            Body::Message(message) => {
                let Some(id) = message.message() else { continue };
                if !said.iter().any(|(known, _)| known == id.as_str()) {
                    said.push((id.as_str().to_owned(), String::new()));
                }
                let (_, text) = said.iter_mut().find(|(known, _)| known == id.as_str()).unwrap();
                match message {
                    MessageEvent::Delta { text: more, .. } => text.push_str(more),
                    MessageEvent::Part { .. } => text.push('#'),
                    MessageEvent::Completed { .. } => text.push('.'),
                    _ => {}
                }
            }
            Body::State(StateEvent::Custom { data, .. }) => updates.push(data.clone()),
            _ => {}
        }
    }
    (said, updates)
}

/// Returns the log with every message complete, as after its run's end.
fn whole(log: &[Body]) -> (Vec<(String, String)>, Vec<Json>) {
    let (mut said, updates) = content(log);
    for (_, text) in &mut said {
        if !text.ends_with('.') {
            text.push('.');
        }
    }
    (said, updates)
}

proptest! {
    /// With any samples, and any restart during the reading, nothing is lost or doubled.
    #[test]
    fn a_run_of_a_server_of_ours_comes_whole(
        acts in prop::collection::vec(act(), 0..24),
        samples in prop::collection::vec(0..40_usize, 0..12),
        again in prop::collection::vec(0..40_usize, 0..12),
        cut in 0..60_usize,
    ) {
        let log = log(&acts);
        let expected = whole(&log);
        let mut first = output(true, true);
        let told = bodies(&mut first, &render_payloads(&log, &samples, true));
        prop_assert_eq!(&content(&told), &expected);
        // First the part that was logged before a restart, and then everything again with other samples.
        let mut kept: Vec<Body> = told.into_iter().take(cut).collect();
        let mut position = LoggedPosition::default();
        position.push(&Body::Run(RunEvent::Started));
        kept.iter().for_each(|body| position.push(body));
        let mut second = output(true, true).from_log(position);
        kept.extend(bodies(&mut second, &render_payloads(&log, &again, true)));
        prop_assert_eq!(content(&kept), expected);
    }

    /// The same if only values are streamed, for an agent that writes one message after the other.
    #[test]
    fn values_alone_bring_every_message_whole(
        texts in prop::collection::vec(prop::collection::vec("[a-zé]{1,4}", 1..5), 0..4),
        samples in prop::collection::vec(0..40_usize, 0..12),
        again in prop::collection::vec(0..40_usize, 0..12),
        cut in 0..40_usize,
    ) {
        let mut acts = Vec::new();
        for (at, pieces) in texts.into_iter().take(3).enumerate() {
            acts.extend(pieces.into_iter().map(|text| Act::Say(at, text)));
            acts.push(Act::Finish(at));
        }
        let log = log(&acts);
        let expected = whole(&log);
        for ours in [true, false] {
            let told = bodies(&mut output(true, ours), &render_payloads(&log, &samples, false));
            let texts = |bodies: &[Body]| -> Vec<String> {
                content(bodies).0.into_iter().map(|(_, text)| text).collect()
            };
            let all: Vec<String> = expected.0.iter().map(|(_, text)| text.clone()).collect();
            prop_assert_eq!(&texts(&told), &all);
            let mut kept: Vec<Body> = told.into_iter().take(cut).collect();
            let mut position = LoggedPosition::default();
            position.push(&Body::Run(RunEvent::Started));
            kept.iter().for_each(|body| position.push(body));
            let mut second = output(true, ours).from_log(position);
            kept.extend(bodies(&mut second, &render_payloads(&log, &again, false)));
            prop_assert_eq!(texts(&kept), all);
        }
    }
}
