use proptest::prelude::*;
use serde_json::{Value, json};
use trilogue_domain::event::Event as LogEvent;
use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{Json, Outcome, ThreadId, Timestamp};
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

/// Returns these bodies as the protocol shows them, as values without times.
fn render_bodies(bodies: Vec<Body>) -> Vec<Value> {
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
    let shown = render_bodies(bodies(&events));
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

/// The parts of one message, in every form in which servers send a whole message: in one kind of event or in several.
fn forms_of_a_message(parts: &[Value]) -> Vec<(&'static str, Vec<Value>)> {
    let message = |kind: &str, parts: &[Value], end: Value| {
        let message = json!({ "role": "user", "parts": parts, "completed_at": end });
        json!({ "type": format!("message.{kind}"), "message": message })
    };
    let end = || json!("2026-01-01T00:00:00Z");
    let (empty, created) = (message("created", &[], json!(null)), message("created", parts, end()));
    let begun = message("created", parts.get(..1).unwrap(), json!(null));
    let (completed, closed) =
        (message("completed", parts, end()), message("completed", &[], end()));
    let each = |parts: &[Value]| -> Vec<Value> {
        parts.iter().map(|part| json!({ "type": "message.part", "part": part })).collect()
    };
    let some = |parts: Vec<Value>, more: &[&Value]| -> Vec<Value> {
        parts.into_iter().chain(more.iter().map(|&event| event.clone())).collect()
    };
    let whole = json!([{ "role": "agent", "parts": parts }]);
    let output =
        json!({ "type": "run.completed", "run": run("completed", &json!({ "output": whole })) });
    vec![
        (
            "the official server's",
            some([vec![created.clone()], each(parts)].concat(), &[&completed, &output]),
        ),
        ("created", vec![created.clone(), closed.clone()]),
        ("part", some([vec![empty.clone()], each(parts)].concat(), &[&closed])),
        ("part alone", each(parts)),
        ("completed", vec![empty.clone(), completed.clone()]),
        ("completed alone", vec![completed.clone()]),
        ("created and completed", vec![created, completed.clone(), output.clone()]),
        (
            "part and completed",
            some([vec![empty.clone()], each(parts)].concat(), &[&completed, &output]),
        ),
        ("some of them in each", some([vec![begun], each(&parts[1..2])].concat(), &[&completed])),
        ("the run", vec![empty, output.clone()]),
        ("the run alone", vec![output]),
    ]
}

fn whole_message() -> Vec<Value> {
    vec![
        json!({ "content_type": "text/plain", "content": "Howdy!" }),
        json!({ "content_type": "image/png", "content": "aGk=", "content_encoding": "base64" }),
        json!({ "content_type": "text/plain", "content": "Howdy!" }),
        json!({ "content_type": "text/plain", "metadata": { "kind": "citation", "url": "https://a/" } }),
    ]
}

/// The content of the parts that the bodies make of a run's messages.
fn contents(bodies: &[Body]) -> Vec<Value> {
    let shown = render_bodies(bodies.to_vec());
    let messages = shown.iter().filter(|event| event["type"] == "message.part");
    messages.map(|event| event["part"]["content"].clone()).collect()
}

#[test]
fn each_part_comes_once_in_whichever_events_its_server_puts_it() {
    let parts = whole_message();
    let expected: Vec<Value> = parts.iter().map(|part| part["content"].clone()).collect();
    for (form, events) in forms_of_a_message(&parts) {
        assert_eq!(contents(&bodies(&events)), expected, "{form}");
    }
}

#[test]
fn a_run_that_is_read_again_goes_on_where_its_log_ends_in_every_form() {
    for (form, events) in forms_of_a_message(&whole_message()) {
        let whole = bodies(&events);
        for end in 0..=whole.len() {
            let (known, rest) = whole.split_at(end);
            let mut position = LoggedPosition::default();
            position.push(&Body::Run(trilogue_domain::event::RunEvent::Started));
            known.iter().for_each(|body| position.push(body));
            let mut again = remote().from_log(position);
            let read: Vec<_> =
                events.iter().flat_map(|value| again.push(event(value)).unwrap()).collect();
            assert_eq!(read, rest, "{form} after {end}");
        }
    }
}

/// A streamed run is polled after a restart, and a polled one is streamed.
#[test]
fn a_run_that_is_read_again_in_another_form_adds_nothing() {
    let forms = forms_of_a_message(&whole_message());
    for (form, events) in &forms {
        let mut position = LoggedPosition::default();
        position.push(&Body::Run(trilogue_domain::event::RunEvent::Started));
        bodies(events).iter().for_each(|body| position.push(body));
        for (other, events) in &forms {
            let mut again = remote().from_log(position.clone());
            let read: Vec<_> =
                events.iter().flat_map(|value| again.push(event(value)).unwrap()).collect();
            let is_part = |body: &Body| {
                matches!(
                    body,
                    Body::Message(MessageEvent::Delta { .. } | MessageEvent::Part { .. })
                )
            };
            assert!(!read.iter().any(is_part), "{form}, then {other}: {read:?}");
        }
    }
}

/// The official server keeps a message open while its agent asks; the stream after the answer continues it.
#[test]
fn a_message_that_is_open_at_a_question_goes_on_behind_the_answer() {
    let text = |text: &str| json!({ "content_type": "text/plain", "content": text });
    let part = |part: &str| json!({ "type": "message.part", "part": text(part) });
    let message = |parts: &[&str], end: Value| {
        let parts: Vec<_> = parts.iter().map(|&it| text(it)).collect();
        json!({ "role": "agent/chat", "parts": parts, "completed_at": end })
    };
    let asking = json!({ "output": [message(&["a"], json!(null))] });
    let before = [
        json!({ "type": "message.created", "message": message(&[], json!(null)) }),
        part("a"),
        json!({ "type": "run.awaiting", "run": run("awaiting", &asking) }),
    ];
    let end = json!("2026-01-01T00:00:00Z");
    for (form, after, expected) in [
        (
            "streamed",
            vec![
                part("b"),
                json!({ "type": "message.completed", "message": message(&["a", "b"], end.clone()) }),
            ],
            vec!["a", "b"],
        ),
        (
            "with nothing more",
            vec![json!({ "type": "message.completed", "message": message(&["a"], end.clone()) })],
            vec!["a"],
        ),
        (
            "polled",
            vec![
                json!({ "type": "run.completed", "run": run("completed", &json!({ "output": [message(&["a", "b"], end)] })) }),
            ],
            vec!["a", "b"],
        ),
    ] {
        let mut asked = remote();
        let mut bodies: Vec<_> =
            before.iter().flat_map(|value| asked.push(event(value)).unwrap()).collect();
        let kept = serde_json::to_value(asked.progress()).unwrap();
        let mut answered = remote().with_progress(serde_json::from_value(kept).unwrap());
        assert!(answered.open_message().is_some(), "{form}");
        let after = after.iter().flat_map(|value| answered.push(event(value)).unwrap());
        bodies.extend(after);
        assert_eq!(contents(&bodies), expected, "{form}");
        let count = |is: fn(&Body) -> bool| bodies.iter().filter(|body| is(body)).count();
        let begun = count(|it| matches!(it, Body::Message(MessageEvent::Started { .. })));
        let ended = count(|it| matches!(it, Body::Message(MessageEvent::Completed { .. })));
        assert_eq!((begun, ended), (1, 1), "{form}");
    }
}

#[test]
fn what_a_run_that_failed_had_said_is_kept_and_stays_unfinished() {
    let output = json!([{ "role": "agent", "completed_at": null, "parts": [{ "content_type": "text/plain", "content": "half" }] }]);
    let failed =
        json!({ "type": "run.failed", "run": run("failed", &json!({ "output": output })) });
    let bodies = bodies(&[failed]);
    assert_eq!(contents(&bodies), ["half"]);
    assert!(!bodies.iter().any(|it| matches!(it, Body::Message(MessageEvent::Completed { .. }))));
}

#[test]
fn texts_of_a_whole_message_stay_parts_of_their_own() {
    let texts = ["a", "b"].map(|text| json!({ "content_type": "text/plain", "content": text }));
    let created =
        json!({ "type": "message.created", "message": { "role": "user", "parts": texts } });
    let bodies = bodies(&[created]);
    let shown = render_bodies(
        [bodies, vec![Body::Run(trilogue_domain::event::RunEvent::Ended(Outcome::Completed))]]
            .concat(),
    );
    let message = shown.iter().find(|event| event["type"] == "message.completed").unwrap();
    assert_eq!(message["message"]["parts"].as_array().map(Vec::len), Some(2), "{message}");
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
fn members_of_a_message_that_the_protocol_does_not_have_go_there_as_they_came() {
    for parts in [json!([]), json!([text_part("x")]), json!([text_part("x"), text_part("y")])] {
        let sent = json!({ "role": "user", "parts": parts, "zzz": { "b": 1.5, "a": [null] }, "metadata": { "k": 1 } });
        let wire: WireMessage = read(sent.to_string().as_bytes(), Rules::Lenient).unwrap();
        let there = serde_json::to_value(wire_message(&read_message(wire).unwrap())).unwrap();
        assert_eq!((&there["zzz"], &there["metadata"]), (&sent["zzz"], &sent["metadata"]));
        let count = there["parts"].as_array().unwrap().len();
        assert_eq!(count, parts.as_array().unwrap().len(), "{there}");
        assert!(!there["parts"].to_string().contains("zzz"), "{there}");
    }
}

#[test]
fn a_message_goes_there_and_comes_back() {
    let message = Message {
        id: MessageId::parse("m").unwrap(),
        role: Role::User,
        parts: vec![Part::text("hi"), Part::bytes("image/png", &b"x"[..]).with_name("a")],
        created_at: Some(Timestamp::from_micros(1_000_000)),
        completed_at: None,
    };
    let sent = wire_message(&message);
    assert_eq!(read_message(sent).unwrap(), message);
}

fn contradictions(bodies: &[Body]) -> usize {
    bodies.iter().filter(|body| is_contradiction(body)).count()
}

fn text_part(text: &str) -> Value {
    json!({ "content_type": "text/plain", "content": text })
}

/// A message that is created with the first parts, streams the second and is completed with the third.
fn disagreeing(created: &[&str], streamed: &[&str], completed: &[&str]) -> Vec<Value> {
    let message = |kind: &str, parts: &[&str]| {
        let parts: Vec<_> = parts.iter().map(|&text| text_part(text)).collect();
        json!({ "type": kind, "message": { "role": "agent", "parts": parts } })
    };
    let part = |text: &&str| json!({ "type": "message.part", "part": text_part(text) });
    let mut events = vec![message("message.created", created)];
    events.extend(streamed.iter().map(part));
    events.push(message("message.completed", completed));
    let output = events.last().unwrap()["message"].clone();
    let run = run("completed", &json!({ "output": [output] }));
    events.push(json!({ "type": "run.completed", "run": run }));
    events
}

#[test]
fn an_end_that_contradicts_what_was_streamed_follows_it_and_the_log_says_so() {
    for (created, streamed, completed, expected) in [
        (vec!["AAA"], vec![], vec!["BBB"], vec!["AAA", "BBB"]),
        (vec![], vec!["AAA"], vec!["BBB"], vec!["AAA", "BBB"]),
        (vec!["AAA"], vec!["AAA"], vec!["BBB", "C"], vec!["AAA", "BBB", "C"]),
        (vec![], vec!["A", "B"], vec!["AB", "C"], vec!["A", "B", "C"]),
        (vec![], vec!["AB"], vec!["A"], vec!["AB"]),
        (vec!["two"], vec!["t", "hree"], vec!["two", "three"], vec!["two", "three"]),
    ] {
        let events = disagreeing(&created, &streamed, &completed);
        let bodies = bodies(&events);
        assert_eq!(contents(&bodies), expected, "{created:?}, {streamed:?}, {completed:?}");
        let is_contradicted = !completed.concat().starts_with(&expected.concat())
            || completed.concat().len() < expected.concat().len();
        assert_eq!(contradictions(&bodies), usize::from(is_contradicted), "{events:?}");
        let completions =
            bodies.iter().filter(|it| matches!(it, Body::Message(MessageEvent::Completed { .. })));
        assert_eq!(completions.count(), 1, "{events:?}");
    }
}

#[test]
fn a_strict_mount_refuses_an_end_that_contradicts_what_was_streamed() {
    let pushed = |events: Vec<Value>| {
        let mut run = remote().under_rules(Some(strict::RULES));
        events.iter().try_for_each(|value| run.push(event(value)).map(drop))
    };
    assert_eq!(pushed(disagreeing(&["A"], &["B"], &["A", "B"])), Ok(()));
    let error = pushed(disagreeing(&["AAA"], &[], &["BBB"])).unwrap_err();
    assert_eq!(error.code(), Code::ProtocolViolation);
}

#[test]
fn a_strict_mount_refuses_what_a_server_leaves_out_or_adds() {
    let (typed, untyped) = (text_part("x"), json!({ "content": "bare" }));
    let null_typed = json!({ "content_type": null, "content": "bare" });
    let message = |members: Value| json!({ "type": "message.created", "message": members });
    for (sent, why) in [
        (json!({ "type": "message.part", "part": typed }), None),
        (message(json!({ "role": "agent", "parts": [typed], "x_trilogue": { "a": 1 } })), None),
        (json!({ "type": "message.part", "part": untyped }), Some("content_type is missing")),
        (json!({ "type": "message.part", "part": null_typed }), Some("content_type is missing")),
        (
            message(json!({ "role": "agent", "parts": [null_typed] })),
            Some("content_type is missing"),
        ),
        (
            json!({ "type": "run.completed", "run": run("completed",
                &json!({ "output": [{ "role": "agent", "parts": [untyped] }] })) }),
            Some("content_type is missing"),
        ),
        (
            json!({ "type": "run.awaiting", "run": run("awaiting", &json!({ "await_request":
                { "type": "message", "message": { "role": "agent", "parts": [untyped] } } })) }),
            Some("content_type is missing"),
        ),
        (message(json!({ "parts": [typed] })), Some("role is missing")),
        (message(json!({ "role": "agent", "parts": [], "zzz": 1 })), Some("zzz is not a member")),
    ] {
        assert!(remote().push(event(&sent)).is_ok(), "{sent}");
        let pushed = remote().under_rules(Some(strict::RULES)).push(event(&sent));
        let refused = pushed.err().map(|error| (error.code(), error.message().to_owned()));
        let Some(why) = why else {
            assert_eq!(refused, None, "{sent}");
            continue;
        };
        let (code, message) = refused.unwrap();
        assert_eq!(code, Code::OutputInvalid, "{sent}");
        assert!(message.contains(why), "{sent}: {message}");
    }
}

/// A message of these many parts, every third an image, and no text the beginning of another.
fn numbered_parts(count: usize) -> Vec<Value> {
    let part = |number: usize| match number % 3 {
        2 => {
            json!({ "content_type": "image/png", "content": format!("{number:04}"), "content_encoding": "base64" })
        }
        _ => text_part(&format!("{number} ")),
    };
    (0..count).map(part).collect()
}

proptest! {
    /// A server creates a message with some of its parts, repeats any of these in any order, streams some of the rest, and completes it.
    #[test]
    fn whatever_a_server_repeats_each_part_of_the_message_comes_once_and_in_its_order(
        count in 1_usize..10,
        created in 0_usize..10,
        repeated in proptest::sample::subsequence((0..10).collect::<Vec<_>>(), 0..10).prop_shuffle(),
        streamed in 0_usize..10,
        says_all in any::<bool>(),
    ) {
        let whole = numbered_parts(count);
        let created = created.min(count);
        let message = |kind: &str, parts: &[Value]| json!({ "type": kind, "message": { "role": "agent", "parts": parts } });
        let part = |part: &Value| json!({ "type": "message.part", "part": part });
        let mut events = vec![message("message.created", &whole[..created])];
        events.extend(repeated.iter().filter(|&&it| it < created).map(|&it| part(&whole[it])));
        events.extend(whole[created..].iter().take(streamed).map(part));
        if says_all {
            events.push(message("message.completed", &whole));
        }
        let output = json!({ "output": [{ "role": "agent", "parts": whole }] });
        events.push(json!({ "type": "run.completed", "run": run("completed", &output) }));
        let bodies = bodies(&events);
        let expected: Vec<Value> = whole.iter().map(|part| part["content"].clone()).collect();
        prop_assert_eq!(contents(&bodies), expected);
        prop_assert_eq!(contradictions(&bodies), 0);
    }
}
