use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use trilogue_domain::event::{
    InterruptEvent, MessageEvent, PlanEntry, RunEvent, StateEvent, ToolEvent, ToolStatus,
};
use trilogue_domain::{
    AgentName, Answer, Body, Code, Content, Event, Failure, Interrupt, InterruptId, InterruptKind,
    Json, MessageId, Outcome, Part, PrincipalId, Resolution, Role, RunId, RunKey, Survives,
    ThreadId, Times, Timestamp,
};

use super::*;

const THREAD: &str = "11111111-1111-4111-8111-111111111111";
const RUN: &str = "22222222-2222-4222-8222-222222222222";

fn show() -> ProjectionOptions {
    ProjectionOptions {
        strict: false,
        base: Arc::from("http://h/c"),
        max_inline_bytes: 1_000_000,
        input: false,
    }
}

fn strict() -> ProjectionOptions {
    ProjectionOptions { strict: true, ..show() }
}

fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

fn created() -> Body {
    let (run, agent) = (RunId::parse(RUN).unwrap(), AgentName::parse("a.b").unwrap());
    Body::Run(RunEvent::Created { run, agent, input: None, audit: None })
}

fn message_body(event: MessageEvent) -> Body {
    Body::Message(event)
}

fn message_started(message: &str) -> Body {
    message_body(MessageEvent::Started { message: id(message), role: Role::Agent, times: None })
}

fn delta(message: &str, text: &str) -> Body {
    message_body(MessageEvent::Delta { message: id(message), text: Arc::from(text) })
}

fn part(message: &str, part: Part) -> Body {
    message_body(MessageEvent::Part { message: id(message), part })
}

fn completed(message: &str) -> Body {
    message_body(MessageEvent::Completed { message: id(message) })
}

fn run_ended(outcome: Outcome) -> Body {
    Body::Run(RunEvent::Ended(outcome))
}

fn raised(name: &str, kind: InterruptKind) -> Body {
    Body::Interrupt(InterruptEvent::Raised(Box::new(Interrupt {
        id: InterruptId::parse(name).unwrap(),
        survives: Survives::Restart,
        ..Interrupt::new(kind)
    })))
}

fn resolved(name: &str) -> Body {
    let by = PrincipalId::parse("alice").unwrap();
    let answer = Answer::Message(Vec::new());
    resolved_so(name, Resolution::Answered { by, answer, digest: String::new(), extra: None })
}

fn resolved_so(name: &str, resolution: Resolution) -> Body {
    let interrupt = InterruptId::parse(name).unwrap();
    Body::Interrupt(InterruptEvent::Resolved { interrupt, resolution })
}

fn log(bodies: Vec<Body>) -> Vec<Event> {
    let all = [created(), Body::Run(RunEvent::Started)].into_iter().chain(bodies);
    (1_u64..)
        .zip(all)
        .map(|(number, body)| Event {
            number,
            run: Some(RunKey(1)),
            run_number: number,
            at: Timestamp::from_micros(i64::try_from(number).unwrap() * 1_000_000),
            body,
            original: None,
        })
        .collect()
}

fn push(projection: &mut Projection, events: &[Event]) -> Vec<Value> {
    let thread = ThreadId::parse(THREAD).unwrap();
    let out = events.iter().flat_map(|event| projection.push(event, &thread));
    out.map(|json| serde_json::from_slice(&json).unwrap()).collect()
}

fn run(show: ProjectionOptions, bodies: Vec<Body>) -> (Projection, Vec<Value>) {
    let mut projection = Projection::new(show);
    let events = push(&mut projection, &log(bodies));
    (projection, events)
}

/// Returns the types of the events after created and in-progress, with their text.
fn line(events: &[Value]) -> Vec<String> {
    let texts = |message: &Value| -> String {
        let parts = message["parts"].as_array().unwrap();
        parts.iter().map(text_of).collect::<Vec<_>>().join("|")
    };
    let shown = events.iter().skip(2).map(|event| {
        let kind = event["type"].as_str().unwrap();
        match kind {
            "message.part" => format!("part {}", text_of(&event["part"])),
            "message.created" | "message.completed" => {
                format!("{} {}", &kind[8..], texts(&event["message"])).trim_end().to_owned()
            }
            "generic" => format!("generic {}", event["generic"]),
            other => other.to_owned(),
        }
    });
    shown.collect()
}

fn text_of(part: &Value) -> String {
    match (&part["content"], &part["metadata"]) {
        (Value::String(text), Value::Null) => text.clone(),
        (_, metadata) => {
            let step = |key: &str| metadata[key].as_str().unwrap_or_default();
            format!("<{}{}>", step("message"), step("tool_name"))
        }
    }
}

#[test]
fn a_whole_message_is_created_told_and_completed_with_its_own_times() {
    let at = |micros| Some(Timestamp::from_micros(micros));
    let times = Some(Times { created_at: at(1_700_000_000_000_001), completed_at: None });
    let (projection, events) = run(
        show(),
        vec![
            message_body(MessageEvent::Started { message: id("m"), role: Role::Agent, times }),
            part("m", Part::text("Howdy!")),
            completed("m"),
            run_ended(Outcome::Completed),
        ],
    );
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        types,
        [
            "run.created",
            "run.in-progress",
            "message.created",
            "message.part",
            "message.completed",
            "run.completed"
        ]
    );
    let message = json!({
        "role": "agent/a-b",
        "parts": [{
            "name": null, "content_type": "text/plain", "content": "Howdy!",
            "content_encoding": "plain", "content_url": null, "metadata": null
        }],
        "created_at": "2023-11-14T22:13:20.000001Z",
        "completed_at": null,
        "x_trilogue": {"message_id": "m"}
    });
    assert_eq!(events[2]["message"]["x_trilogue"], message["x_trilogue"]);
    assert_eq!(events[4]["message"], message);
    let run: Value = serde_json::from_slice(&projection.run()).unwrap();
    assert_eq!(events[5]["run"], run);
    assert_eq!(
        run,
        json!({
            "run_id": RUN, "agent_name": "a-b", "session_id": THREAD, "status": "completed",
            "await_request": null, "output": [message], "error": null,
            "created_at": "1970-01-01T00:00:01Z", "finished_at": "1970-01-01T00:00:06Z"
        })
    );
}

#[test]
fn streamed_text_comes_in_pieces_and_is_one_part_afterwards() {
    let (_, events) = run(
        show(),
        vec![
            message_started("m"),
            delta("m", "a\u{2028}"),
            delta("m", "b"),
            part("m", Part::text("whole")),
            part("m", Part::text("whole")),
            delta("m", "c"),
            completed("m"),
        ],
    );
    let line = line(&events);
    let told = ["created", "part a\u{2028}", "part b", "part whole", "part whole", "part c"];
    assert_eq!(line[..6], told);
    assert_eq!(line[6], "completed a\u{2028}b|whole|whole|c");
}

#[test]
fn what_fits_no_line_of_a_stream_is_escaped() {
    let mut projection = Projection::new(show());
    let thread = ThreadId::parse(THREAD).unwrap();
    let failure = Failure::of(Code::AgentFailed, "x\u{2029}");
    let bodies = vec![
        message_started("m"),
        delta("m", "a\u{2028}\u{85}"),
        completed("m"),
        run_ended(Outcome::Failed(failure)),
    ];
    for event in log(bodies) {
        for json in projection.push(&event, &thread) {
            let text = std::str::from_utf8(&json).unwrap();
            assert!(!text.contains(['\u{2028}', '\u{2029}', '\u{85}', '\n']), "{text}");
        }
    }
}

#[test]
fn steps_stand_in_the_message_that_is_open_or_in_the_one_that_follows() {
    let thought =
        |text: &str| message_body(MessageEvent::Thought { message: None, text: Arc::from(text) });
    let tool = |call: &str| {
        Body::Tool(ToolEvent::Started {
            call: call.to_owned(),
            tool: "look".to_owned(),
            title: "Look it up".to_owned(),
            input: Some(Json::from_value(&json!({ "q": 1 }))),
            message: None,
        })
    };
    let tool_ended = Body::Tool(ToolEvent::Ended {
        call: "c".to_owned(),
        status: ToolStatus::Completed,
        output: Some(Json::from_value(&json!(5))),
    });
    let (projection, events) = run(
        show(),
        vec![
            thought("h"),
            thought("m"),
            tool("c"),
            message_started("m"),
            delta("m", "x"),
            tool_ended,
            completed("m"),
            thought("late"),
            tool("left"),
            run_ended(Outcome::Completed),
        ],
    );
    let begun = |call: &str| {
        let begun = json!({
            "kind": "tool", "call_id": call, "status": "in_progress",
            "tool_name": "look", "message": "Look it up", "tool_input": { "q": 1 },
        });
        format!("generic {begun}")
    };
    assert_eq!(
        line(&events),
        [
            "created".to_owned(),
            "part <h>".to_owned(),
            "part <m>".to_owned(),
            begun("c"),
            "part x".to_owned(),
            "part <Look it uplook>".to_owned(),
            "completed <hm>|x|<Look it uplook>".to_owned(),
            "created".to_owned(),
            "part <late>".to_owned(),
            begun("left"),
            "part <Look it uplook>".to_owned(),
            "completed <late>|<Look it uplook>".to_owned(),
            "run.completed".to_owned(),
        ]
    );
    let call = json!({
        "kind": "trajectory", "message": "Look it up", "tool_name": "look",
        "tool_input": { "q": 1 }, "tool_output": { "value": 5 },
    });
    assert_eq!(events[7]["part"]["metadata"], call);
    let kinds: Vec<_> = projection.messages().iter().map(|message| message.kind).collect();
    assert_eq!(kinds, [Kind::Output, Kind::Steps]);
}

#[test]
fn messages_side_by_side_come_one_after_the_other() {
    let (_, events) = run(
        show(),
        vec![
            message_started("a"),
            delta("a", "a1"),
            message_started("b"),
            delta("b", "b1"),
            message_started("c"),
            completed("b"),
            delta("a", "a2"),
            delta("c", "c1"),
            completed("a"),
            completed("c"),
        ],
    );
    assert_eq!(
        line(&events),
        [
            "created",
            "part a1",
            "part a2",
            "completed a1a2",
            "created",
            "part b1",
            "completed b1",
            "created",
            "part c1",
            "completed c1"
        ]
    );
}

#[test]
fn a_waiting_run_asks_and_goes_on() {
    let (projection, events) = run(show(), vec![raised("i", InterruptKind::Message)]);
    assert_eq!(projection.awaiting().unwrap().id.as_str(), "i");
    let asked = &events[2];
    assert_eq!(
        (&asked["type"], &asked["run"]["status"]),
        (&json!("run.awaiting"), &json!("awaiting"))
    );
    let message = &asked["run"]["await_request"]["message"];
    assert_eq!(asked["run"]["await_request"]["type"], "message");
    assert_eq!((&message["role"], &message["parts"]), (&json!("agent/a-b"), &json!([])));
    let (projection, events) = run(
        show(),
        vec![raised("i", InterruptKind::Message), resolved("i"), Body::Run(RunEvent::Resumed)],
    );
    assert_eq!(line(&events), ["run.awaiting", "run.in-progress"]);
    assert_eq!(events[3]["run"]["await_request"], Value::Null);
    assert!(projection.awaiting().is_none());
}

#[test]
fn of_several_questions_the_oldest_is_shown_and_then_the_next() {
    let (_, events) = run(
        show(),
        vec![
            raised("one", InterruptKind::Form),
            raised("two", InterruptKind::Permission),
            resolved("one"),
            resolved("two"),
            Body::Run(RunEvent::Resumed),
        ],
    );
    assert_eq!(line(&events), ["run.awaiting", "run.awaiting", "run.in-progress"]);
    let asked = |event: &Value| event["run"]["await_request"]["message"]["parts"].clone();
    for (event, name, kind) in [(2, "one", "form"), (3, "two", "permission")] {
        let parts = asked(&events[event]);
        assert_eq!(parts[0]["x_trilogue"]["interrupt_id"], name);
        let data: Value = serde_json::from_str(parts[1]["content"].as_str().unwrap()).unwrap();
        assert_eq!((&data["interrupt_id"], &data["kind"]), (&json!(name), &json!(kind)));
    }
}

#[test]
fn a_run_that_was_answered_waits_for_nobody_even_before_its_turn() {
    let (projection, events) =
        run(show(), vec![raised("i", InterruptKind::Message), resolved("i")]);
    assert_eq!(line(&events), ["run.awaiting"]);
    let now: Value = serde_json::from_slice(&projection.run()).unwrap();
    assert_eq!((&now["status"], &now["await_request"]), (&json!("in-progress"), &Value::Null));
}

#[test]
fn questions_that_go_with_their_run_are_not_asked() {
    let ends = [
        Resolution::Cancelled,
        Resolution::Withdrawn { reason: Code::AgentLost },
        Resolution::TimedOut { option: None },
    ];
    for resolution in ends {
        let (projection, events) = run(
            show(),
            vec![
                raised("one", InterruptKind::Form),
                raised("two", InterruptKind::Form),
                resolved_so("one", resolution.clone()),
                resolved_so("two", resolution),
                run_ended(Outcome::Cancelled { reason: None }),
            ],
        );
        assert_eq!(line(&events), ["run.awaiting", "run.cancelled"]);
        assert!(projection.awaiting().is_none());
    }
    let rejected = Resolution::TimedOut { option: Some("no".to_owned()) };
    let (_, events) = run(
        show(),
        vec![
            raised("one", InterruptKind::Permission),
            raised("two", InterruptKind::Form),
            resolved_so("one", rejected),
        ],
    );
    assert_eq!(line(&events), ["run.awaiting", "run.awaiting"]);
}

#[test]
fn twenty_thousand_pieces_are_folded_and_copied_at_every_step() {
    let mut bodies = vec![message_started("a")];
    bodies.extend((0..20_000).map(|_| delta("a", "word ")));
    bodies.extend([completed("a"), run_ended(Outcome::Completed)]);
    let (mut projection, thread) = (Projection::new(show()), ThreadId::parse(THREAD).unwrap());
    let (mut bytes, mut copies) = (0, Vec::new());
    for event in log(bodies) {
        bytes += projection.push(&event, &thread).iter().map(Bytes::len).sum::<usize>();
        copies.push(projection.clone());
    }
    // Each piece is sent once alone, once in its message and once in the run.
    assert!(bytes < 20_000 * 250, "{bytes}");
    assert_eq!(copies.len(), 20_005);
    let half: Value = serde_json::from_slice(&copies[10_002].run()).unwrap();
    assert_eq!(half["output"][0]["parts"][0]["content"], "word ".repeat(10_000));
}

#[test]
fn five_thousand_messages_wait_behind_an_open_one_and_come_in_order() {
    let mut bodies = vec![message_started("first")];
    for number in 0..5_000 {
        let message = format!("m{number}");
        bodies.extend([message_started(&message), delta(&message, &message), completed(&message)]);
    }
    bodies.push(completed("first"));
    let (_, events) = run(show(), bodies);
    let line = line(&events);
    assert_eq!(line.len(), 2 + 3 * 5_000);
    assert_eq!(line[1], "completed");
    assert_eq!(line[2..5], ["created", "part m0", "completed m0"]);
    assert_eq!(line.last().unwrap(), "completed m4999");
}

#[test]
fn a_run_that_fails_or_is_cancelled_keeps_what_was_begun() {
    for (outcome, kind) in [
        (Outcome::Failed(Failure::of(Code::InvalidInput, "no")), "run.failed"),
        (Outcome::Cancelled { reason: None }, "run.cancelled"),
        (Outcome::TimedOut { reason: Code::AwaitTimeout }, "run.failed"),
    ] {
        let bodies = vec![
            message_started("m"),
            delta("m", "half"),
            message_started("n"),
            delta("n", "held"),
            run_ended(outcome.clone()),
        ];
        let (projection, events) = run(show(), bodies);
        assert_eq!(line(&events), ["created", "part half", "created", "part held", kind]);
        let output = &events.last().unwrap()["run"]["output"];
        assert_eq!(output[0]["completed_at"], Value::Null);
        assert_eq!(output[0]["parts"][0]["content"], "half");
        assert!(projection.messages().iter().all(|message| !message.complete));
        assert_eq!(events.last().unwrap()["run"]["error"].is_null(), kind == "run.cancelled");
    }
}

#[test]
fn a_run_that_is_to_stop_says_so_without_an_event() {
    let (projection, events) = run(show(), vec![Body::Run(RunEvent::Cancelling { reason: None })]);
    assert_eq!(line(&events), [""; 0]);
    let run: Value = serde_json::from_slice(&projection.run()).unwrap();
    assert_eq!(run["status"], "cancelling");
}

#[test]
fn a_value_is_a_message_of_its_own() {
    let value = Json::from_value(&json!({ "message": "done", "n": 1 }));
    let (projection, events) = run(
        show(),
        vec![
            message_body(MessageEvent::Thought { message: None, text: Arc::from("hm") }),
            Body::Run(RunEvent::Result(value)),
            run_ended(Outcome::Completed),
        ],
    );
    let completed = r#"completed <hm>|done|{"message":"done","n":1}"#;
    assert_eq!(
        line(&events),
        [
            "created",
            "part <hm>",
            "part done",
            r#"part {"message":"done","n":1}"#,
            completed,
            "run.completed"
        ]
    );
    assert_eq!(projection.messages()[0].kind, Kind::Result);
}

#[test]
fn what_the_protocol_has_no_word_for_is_generic() {
    let custom = |kind: &str, data: Value| {
        let data = Json::from_value(&data);
        Body::State(StateEvent::Custom { kind: kind.to_owned(), data })
    };
    let plan = PlanEntry { content: "look".to_owned(), status: "pending".to_owned() };
    let (_, events) = run(
        show(),
        vec![
            custom("mood", json!([1])),
            custom("generic", json!({ "any": "thing" })),
            Body::State(StateEvent::Plan(vec![plan])),
            Body::Opaque,
            Body::State(StateEvent::Values(Json::null())),
        ],
    );
    assert_eq!(
        line(&events),
        [
            r#"generic {"data":[1],"kind":"mood"}"#,
            r#"generic {"any":"thing"}"#,
            r#"generic {"entries":[{"content":"look","status":"pending"}],"kind":"plan"}"#,
            r#"generic {"kind":"opaque"}"#,
        ]
    );
}

#[test]
fn large_content_is_inline_while_there_is_room_and_a_link_beyond() {
    let mut projection = Projection::new(ProjectionOptions { max_inline_bytes: 100_000, ..show() });
    let blob = trilogue_domain::content::BlobRef { hash: [7; 32], length: 70_000, is_text: true };
    push(&mut projection, &log(vec![message_started("m")]));
    assert!(projection.can_inline(&blob));
    let large = Part::text("x".repeat(70_000));
    let linked = Part::new("text/plain", Content::Blob(blob.clone()));
    let events = push(&mut projection, &log(vec![part("m", large), part("m", linked)])[2..]);
    assert!(!projection.can_inline(&blob));
    let url = events[1]["part"]["content_url"].as_str().unwrap();
    assert_eq!(url, format!("http://h/c/sessions/{THREAD}/blobs/{}", "07".repeat(32)));
}

#[test]
fn a_strict_mount_fills_what_the_documents_require() {
    let thought = message_body(MessageEvent::Thought { message: None, text: Arc::from("hm") });
    let (_, events) = run(strict(), vec![thought.clone()]);
    assert_eq!(events[3]["part"]["content"], "");
    let (_, events) = run(show(), vec![thought]);
    assert_eq!(events[3]["part"]["content"], Value::Null);
}

#[test]
fn the_input_is_kept_where_somebody_looks_at_it() {
    let given = |message: &str, role| {
        let times = Some(Times::default());
        message_body(MessageEvent::Started { message: id(message), role, times })
    };
    let role = Role::NamedAgent(Arc::from("x.y"));
    let mut events = log(Vec::new());
    let start = events.pop().unwrap();
    let bodies = [given("q", role), part("q", Part::text("hi")), completed("q")];
    events.extend(bodies.into_iter().map(|body| Event { body, ..start.clone() }));
    events.push(start);
    let mut kept = Projection::new(ProjectionOptions { input: true, ..show() });
    assert_eq!(push(&mut kept, &events).len(), 2, "input makes no events");
    let said = kept.messages();
    assert_eq!((said[0].kind, said[0].id.as_ref()), (Kind::Input, Some(&id("q"))));
    let message: Value = serde_json::from_slice(&said[0].json).unwrap();
    assert_eq!((&message["role"], &message["created_at"]), (&json!("agent/x-y"), &Value::Null));
    let run: Value = serde_json::from_slice(&kept.run()).unwrap();
    assert_eq!(run["output"], json!([]));
    let mut other = Projection::new(show());
    push(&mut other, &events);
    assert!(other.messages().is_empty());
}

#[test]
fn an_answer_reads_the_same_without_its_metadata() {
    let step = message_body(MessageEvent::Thought { message: None, text: Arc::from("secret") });
    let (_, events) = run(
        show(),
        vec![step, message_started("m"), delta("m", "an"), delta("m", "swer"), completed("m")],
    );
    let message = &events.last().unwrap()["message"];
    let text: String = message["parts"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|part| part["content"].as_str())
        .collect();
    assert_eq!(text, "answer");
}

fn any_body() -> impl Strategy<Value = Body> {
    let name = prop_oneof![Just("a"), Just("b"), Just("c")];
    prop_oneof![
        name.clone().prop_map(message_started),
        (name.clone(), "[a-z]{0,3}").prop_map(|(name, text)| delta(name, &text)),
        (name.clone(), "[a-z]{0,3}").prop_map(|(name, text)| part(name, Part::text(text))),
        name.clone().prop_map(completed),
        "[a-z]{1,3}".prop_map(|text| message_body(MessageEvent::Thought {
            message: None,
            text: Arc::from(text)
        })),
        name.clone().prop_map(|name| raised(name, InterruptKind::Message)),
        name.prop_map(resolved),
        Just(Body::Run(RunEvent::Resumed)),
        Just(Body::Run(RunEvent::Result(Json::null()))),
        "[a-c]".prop_map(|call| tool_started(&call)),
        "[a-c]".prop_map(|call| tool_ended(&call)),
    ]
}

fn tool_started(call: &str) -> Body {
    let (tool, title) = ("search".to_owned(), String::new());
    Body::Tool(ToolEvent::Started {
        call: call.to_owned(),
        tool,
        title,
        input: None,
        message: None,
    })
}

fn tool_ended(call: &str) -> Body {
    let (status, output) = (ToolStatus::Completed, Some(Json::from_value(&json!("x"))));
    Body::Tool(ToolEvent::Ended { call: call.to_owned(), status, output })
}

fn any_end() -> impl Strategy<Value = Body> {
    prop_oneof![
        Just(Body::Run(RunEvent::Cancelling { reason: None })),
        Just(run_ended(Outcome::Completed)),
        Just(run_ended(Outcome::Cancelled { reason: None })),
        Just(run_ended(Outcome::Failed(Failure::of(Code::AgentFailed, "no")))),
        Just(run_ended(Outcome::TimedOut { reason: Code::AwaitTimeout })),
    ]
}

/// Returns the parts of a message after joining neighbouring pieces: their texts, and a step's mark.
fn joined(parts: &[Value]) -> String {
    parts.iter().map(text_of).collect::<String>().replace("><", "")
}

/// Returns what a reader of the stream collects: the messages, each as its joined parts, with whether it was completed.
fn gathered(events: &[Value]) -> Vec<(String, bool)> {
    let (mut messages, mut open): (Vec<(String, bool)>, Vec<Value>) = (Vec::new(), Vec::new());
    for event in events {
        match event["type"].as_str().unwrap() {
            "message.created" => {
                messages.push((String::new(), false));
                open.clear();
            }
            "message.part" => {
                open.push(event["part"].clone());
                messages.last_mut().expect("a part belongs to a message").0 = joined(&open);
            }
            "message.completed" => {
                let last = messages.last_mut().expect("what is completed was created");
                assert!(!last.1, "a message is completed once");
                last.1 = true;
                let whole = joined(event["message"]["parts"].as_array().unwrap());
                assert_eq!(whole, last.0, "the whole message is what was told of it");
            }
            _ => {}
        }
    }
    messages
}

proptest! {
    #[test]
    fn the_stream_tells_what_the_run_holds_at_its_end(mut bodies in proptest::collection::vec(any_body(), 0..40), end in any_end()) {
        bodies.push(end);
        let (projection, events) = run(show(), bodies);
        let told = gathered(&events);
        prop_assert!(!projection.has_ended() || events.last().unwrap()["run"]["finished_at"].is_string());
        let run: Value = serde_json::from_slice(&projection.run()).unwrap();
        let output = run["output"].as_array().unwrap();
        let held: Vec<(String, bool)> = output
            .iter()
            .map(|message| (joined(message["parts"].as_array().unwrap()), message["completed_at"].is_string()))
            .collect();
        prop_assert_eq!(told, held);
    }

    #[test]
    fn a_copy_goes_on_as_the_original_would(mut bodies in proptest::collection::vec(any_body(), 0..40), end in any_end(), cut in 0_usize..40) {
        bodies.push(end);
        let events = log(bodies);
        let cut = cut.min(events.len());
        let mut whole = Projection::new(show());
        let all = push(&mut whole, &events);
        let mut half = Projection::new(show());
        let mut told = push(&mut half, &events[..cut]);
        let mut copy = half.clone();
        drop(push(&mut half, &events[cut..]));
        told.extend(push(&mut copy, &events[cut..]));
        prop_assert_eq!(all, told);
        prop_assert_eq!(whole.run(), copy.run());
    }
}

#[test]
fn what_a_user_answers_is_said_and_no_output() {
    let answer = || MessageEvent::Started { message: id("u"), role: Role::User, times: None };
    let bodies = || {
        vec![
            message_started("m"),
            delta("m", "asks"),
            message_body(answer()),
            part("u", Part::text("answers")),
            completed("u"),
            delta("m", " on"),
            completed("m"),
        ]
    };
    let (projection, events) = run(show(), bodies());
    let told = Value::from(events).to_string();
    assert!(!told.contains("answers") && told.contains("asks on"), "{told}");
    assert_eq!(projection.output().len(), 1);
    let (projection, _) = run(ProjectionOptions { input: true, ..show() }, bodies());
    let all = projection.messages();
    let kinds: Vec<_> = all.iter().map(|said| (said.kind, said.complete)).collect();
    assert_eq!(kinds, [(Kind::Input, true), (Kind::Output, true)]);
    let heard: Value = serde_json::from_slice(&all[0].json).unwrap();
    assert_eq!(
        (&heard["role"], &heard["parts"][0]["content"]),
        (&json!("user"), &json!("answers"))
    );
    assert_eq!(projection.output().len(), 1);
}
