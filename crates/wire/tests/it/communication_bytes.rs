//! The written bytes: field order, nulls, and objects made from rendered parts.

use trilogue_wire::agent_communication::{
    AgentManifest, AgentsList, Annotations, AwaitRequest, Capability, CitationMetadata, Dependency,
    DependencyType, ErrorBody, ErrorCode, Event, EventKind, EventsList, Extra, Json, Link,
    LinkType, Message, MessagePart, Metadata, Person, PlatformUi, Role, Rules, Run,
    RunCreateRequest, RunMode, RunStatus, RunsList, Session, Time, TrajectoryMetadata, UiTool,
    UiType, Uuid, read, splice, sse,
};

use crate::communication::written;

const PART: &str = r#"{"name":null,"content_type":"text/plain","content":"Howdy!","content_encoding":"plain","content_url":null,"metadata":null}"#;

fn time(text: &str) -> Time {
    Time::parse(text).unwrap()
}

fn id(text: &str) -> Uuid {
    text.parse().unwrap()
}

fn howdy() -> Message {
    Message {
        role: Role::Named("echo".to_owned()),
        parts: vec![MessagePart::text("Howdy!")],
        created_at: time("2026-11-20T23:50:09.133102Z").into(),
        completed_at: time("2026-11-20T23:50:09.133111Z").into(),
        ..Message::default()
    }
}

fn completed() -> Run {
    Run {
        run_id: id("2a4496e1-b907-4b65-9cec-2ae5658024fe"),
        agent_name: "echo".to_owned(),
        session_id: Some(id("87cd7dc0-0c0f-4f3c-8a53-6d8f3f2a7b11")),
        status: RunStatus::Completed,
        await_request: None,
        output: vec![howdy()],
        error: None,
        created_at: time("2026-11-20T23:50:09.146119Z"),
        finished_at: Some(time("2026-11-20T23:50:09.149047Z")),
    }
}

fn completed_text() -> String {
    format!(
        r#"{{"run_id":"2a4496e1-b907-4b65-9cec-2ae5658024fe","agent_name":"echo","session_id":"87cd7dc0-0c0f-4f3c-8a53-6d8f3f2a7b11","status":"completed","await_request":null,"output":[{{"role":"agent/echo","parts":[{PART}],"created_at":"2026-11-20T23:50:09.133102Z","completed_at":"2026-11-20T23:50:09.133111Z"}}],"error":null,"created_at":"2026-11-20T23:50:09.146119Z","finished_at":"2026-11-20T23:50:09.149047Z"}}"#
    )
}

#[test]
fn a_completed_run_is_what_the_reference_server_sends() {
    assert_eq!(written(|out| completed().write(out)), completed_text());
    assert_eq!(read(completed_text().as_bytes(), Rules::Lenient), Ok(completed()));
}

#[test]
fn a_new_run_has_every_field_with_its_null() {
    let run = Run {
        status: RunStatus::Created,
        output: Vec::new(),
        finished_at: None,
        session_id: None,
        ..completed()
    };
    assert_eq!(
        written(|out| run.write(out)),
        r#"{"run_id":"2a4496e1-b907-4b65-9cec-2ae5658024fe","agent_name":"echo","session_id":null,"status":"created","await_request":null,"output":[],"error":null,"created_at":"2026-11-20T23:50:09.146119Z","finished_at":null}"#
    );
}

#[test]
fn an_awaiting_and_a_failed_run_say_what_for_and_why() {
    let mut run = Run { status: RunStatus::Awaiting, output: Vec::new(), ..completed() };
    run.await_request = Some(AwaitRequest { message: Message { parts: Vec::new(), ..howdy() } });
    run.error = Some(ErrorBody {
        data: Some(Json::parse("{}").unwrap()),
        ..ErrorBody::new(ErrorCode::InvalidInput, "no\n")
    });
    let text = written(|out| run.write(out));
    assert!(text.contains(r#""status":"awaiting","await_request":{"type":"message","message":{"role":"agent/echo","parts":[],"created_at":"#), "{text}");
    assert!(
        text.contains(
            r#""error":{"code":"invalid_input","message":"no\n","data":{}},"created_at""#
        ),
        "{text}"
    );
    assert_eq!(read(text.as_bytes(), Rules::Lenient), Ok(run));
}

#[test]
fn times_that_are_left_to_the_receiver_are_not_written() {
    let request = RunCreateRequest::new("echo", vec![Message::text("hi")], RunMode::Async);
    assert_eq!(
        serde_json::to_string(&request).unwrap(),
        r#"{"agent_name":"echo","session_id":null,"session":null,"input":[{"role":"user","parts":[{"name":null,"content_type":"text/plain","content":"hi","content_encoding":"plain","content_url":null,"metadata":null}]}],"mode":"async"}"#
    );
}

#[test]
fn metadata_has_its_kind_first_and_every_field() {
    let part = MessagePart::text("x")
        .citation(CitationMetadata { end_index: Some(3), ..CitationMetadata::default() });
    assert!(written(|out| part.write(out)).ends_with(
        r#""metadata":{"kind":"citation","start_index":null,"end_index":3,"url":null,"title":null,"description":null}}"#
    ));
    let step = TrajectoryMetadata {
        tool_input: Some(Json::parse(r#"{"b":1.0,"a":2}"#).unwrap()),
        ..TrajectoryMetadata::default()
    };
    assert!(written(|out| MessagePart::text("x").trajectory(step).write(out)).ends_with(
        r#""metadata":{"kind":"trajectory","message":null,"tool_name":null,"tool_input":{"b":1.0,"a":2},"tool_output":null}}"#
    ));
    let other = Metadata::Other(Json::parse(r#"{"kind":"mood","z":[1.50]}"#).unwrap());
    let part = MessagePart { metadata: Some(other), ..MessagePart::text("x") };
    assert!(written(|out| part.write(out)).ends_with(r#""metadata":{"kind":"mood","z":[1.50]}}"#));
}

#[test]
fn extra_members_follow_in_their_order() {
    let mut extra = Extra::new();
    for (name, value) in [("z", "1"), ("a", "\"é\""), ("m", "null"), ("z", "2.0")] {
        extra.set(name, Json::parse(value).unwrap());
    }
    let part = MessagePart { extra: extra.clone(), ..MessagePart::text("x") };
    assert!(
        written(|out| part.write(out)).ends_with(r#""metadata":null,"z":2.0,"a":"é","m":null}"#)
    );
    assert_eq!(extra.take("z").unwrap().as_str(), "2.0");
    assert_eq!((extra.get("z"), extra.get("m")), (None, Some(&Json::null())));
    assert_eq!(extra.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "m"]);
}

#[test]
fn text_is_written_as_utf_8_with_the_short_escapes() {
    let part = MessagePart::text("é\u{1F600}\"\\/\n\t\u{8}\u{c}\r\u{1}\u{7f}");
    assert!(
        written(|out| part.write(out))
            .contains("\"content\":\"é\u{1F600}\\\"\\\\/\\n\\t\\b\\f\\r\\u0001\u{7f}\"")
    );
}

#[test]
fn a_manifest_has_every_field_of_its_metadata() {
    assert_eq!(
        written(|out| AgentManifest::new("echo", "").write(out)),
        r#"{"name":"echo","description":"","metadata":{"annotations":null,"documentation":null,"license":null,"programming_language":null,"natural_languages":null,"framework":null,"capabilities":null,"domains":null,"tags":null,"created_at":null,"updated_at":null,"author":null,"contributors":null,"links":null,"dependencies":null,"recommended_models":null},"input_content_types":["*/*"],"output_content_types":["*/*"]}"#
    );
    let mut manifest = AgentManifest::new("a", "d");
    let mut extra = Extra::new();
    extra.set("env", Json::parse(r#"[{"name":"KEY"}]"#).unwrap());
    let person = Person { name: "P".to_owned(), email: None, url: None };
    let metadata = &mut manifest.metadata;
    metadata.annotations = Some(Annotations {
        beeai_ui: Some(PlatformUi {
            ui_type: UiType::HandsOff,
            user_greeting: None,
            display_name: None,
            tools: vec![UiTool { name: "t".to_owned(), description: "d".to_owned() }],
            extra: Extra::new(),
        }),
        extra: extra.clone(),
    });
    metadata.capabilities =
        Some(vec![Capability { name: "c".to_owned(), description: "d".to_owned() }]);
    metadata.author = Some(person.clone());
    metadata.contributors = Some(vec![person]);
    metadata.links = Some(vec![Link { kind: LinkType::SourceCode, url: "https://h/".to_owned() }]);
    metadata.dependencies =
        Some(vec![Dependency { kind: DependencyType::Tool, name: "t".to_owned() }]);
    metadata.updated_at = Some(time("2026-01-01T00:00:00Z"));
    metadata.extra = extra;
    let text = written(|out| manifest.write(out));
    for piece in [
        r#"{"annotations":{"beeai_ui":{"ui_type":"hands-off","user_greeting":null,"display_name":null,"tools":[{"name":"t","description":"d"}]},"env":[{"name":"KEY"}]},"documentation":null"#,
        r#""capabilities":[{"name":"c","description":"d"}],"#,
        r#""updated_at":"2026-01-01T00:00:00Z","author":{"name":"P","email":null,"url":null},"contributors":[{"name":"P","email":null,"url":null}],"links":[{"type":"source-code","url":"https://h/"}],"dependencies":[{"type":"tool","name":"t"}],"recommended_models":null,"env":[{"name":"KEY"}]}"#,
    ] {
        assert!(text.contains(piece), "{piece}\nis not in\n{text}");
    }
    assert_eq!(read(text.as_bytes(), Rules::Compatible), Ok(manifest));
}

#[test]
fn a_session_is_what_the_reference_server_sends() {
    let session = Session {
        id: id("22222222-2222-4222-8222-222222222222"),
        history: vec![
            "http://127.0.0.1:18000/resources/6571659e-0000-4000-8000-000000000000".to_owned(),
        ],
        state: None,
    };
    assert_eq!(
        serde_json::to_string(&session).unwrap(),
        r#"{"id":"22222222-2222-4222-8222-222222222222","history":["http://127.0.0.1:18000/resources/6571659e-0000-4000-8000-000000000000"],"state":null}"#
    );
}

fn about(kind: EventKind) -> Event {
    let run = Box::new(completed());
    match kind {
        EventKind::MessageCreated => Event::MessageCreated { message: howdy() },
        EventKind::MessagePart => Event::MessagePart { part: MessagePart::text("Howdy!") },
        EventKind::MessageCompleted => Event::MessageCompleted { message: howdy() },
        EventKind::Generic => Event::Generic { generic: Json::parse(r#"{"a":1}"#).unwrap() },
        EventKind::RunCreated => Event::RunCreated { run },
        EventKind::RunInProgress => Event::RunInProgress { run },
        EventKind::RunAwaiting => Event::RunAwaiting { run },
        EventKind::RunCompleted => Event::RunCompleted { run },
        EventKind::RunFailed => Event::RunFailed { run },
        EventKind::RunCancelled => Event::RunCancelled { run },
        EventKind::Error => Event::Error { error: ErrorBody::new(ErrorCode::ServerError, "x") },
    }
}

#[test]
fn events_have_their_type_first() {
    let rows = [
        (EventKind::MessageCreated, "message.created", "message"),
        (EventKind::MessagePart, "message.part", "part"),
        (EventKind::MessageCompleted, "message.completed", "message"),
        (EventKind::Generic, "generic", "generic"),
        (EventKind::RunCreated, "run.created", "run"),
        (EventKind::RunInProgress, "run.in-progress", "run"),
        (EventKind::RunAwaiting, "run.awaiting", "run"),
        (EventKind::RunCompleted, "run.completed", "run"),
        (EventKind::RunFailed, "run.failed", "run"),
        (EventKind::RunCancelled, "run.cancelled", "run"),
        (EventKind::Error, "error", "error"),
    ];
    assert_eq!(rows.len(), EventKind::ALL.len());
    for (kind, name, member) in rows {
        let event = about(kind);
        let text = written(|out| event.write(out));
        assert!(text.starts_with(&format!(r#"{{"type":"{name}","{member}":{{"#)), "{text}");
        assert_eq!((event.kind(), event.run().is_some()), (kind, member == "run"));
        assert_eq!(read(text.as_bytes(), Rules::Lenient), Ok(event));
    }
    assert_eq!(
        written(|out| about(EventKind::MessagePart).write(out)),
        format!(r#"{{"type":"message.part","part":{PART}}}"#)
    );
}

#[test]
fn rendered_parts_put_together_are_the_same_bytes() {
    let part = written(|out| splice::text_part(out, ["How", "", "dy!"]));
    assert_eq!(part, PART);
    assert_eq!(
        written(|out| splice::text_part(out, ["\"a", "\n\u{1}", "é\\"])),
        written(|out| MessagePart::text("\"a\n\u{1}é\\").write(out))
    );
    let mut message = howdy();
    message.parts = vec![MessagePart::text("Howdy!"); 3];
    let times = (message.created_at.time(), message.completed_at.time());
    let spliced = written(|out| splice::message(out, &message.role, [&part; 3], times.0, times.1));
    assert_eq!(spliced, written(|out| message.write(out)));

    let growing = Message { completed_at: None.into(), parts: Vec::new(), ..howdy() };
    let empty = written(|out| splice::message(out, &growing.role, [""; 0], times.0, None));
    assert_eq!(empty, written(|out| growing.write(out)));

    let error = ErrorBody::new(ErrorCode::NotFound, "gone");
    let run = Run {
        output: vec![message, growing.clone()],
        error: Some(error.clone()),
        await_request: Some(AwaitRequest { message: growing }),
        ..completed()
    };
    let head = splice::RunHead {
        run_id: run.run_id,
        agent_name: &run.agent_name,
        session_id: run.session_id,
        status: run.status,
        awaits: Some(empty.as_bytes()),
        error: Some(&error),
        created_at: run.created_at,
        finished_at: run.finished_at,
    };
    let whole = written(|out| splice::run(out, &head, [&spliced, &empty]));
    assert_eq!(whole, written(|out| run.write(out)));

    for kind in EventKind::ALL {
        let event = serde_json::to_value(about(kind)).unwrap();
        let inner = match about(kind) {
            Event::MessageCreated { message } | Event::MessageCompleted { message } => {
                written(|out| message.write(out))
            }
            Event::MessagePart { part } => written(|out| part.write(out)),
            Event::Generic { generic } => generic.as_str().to_owned(),
            Event::Error { error } => written(|out| error.write(out)),
            event => written(|out| event.run().unwrap().write(out)),
        };
        assert!(event.get(kind.member()).is_some());
        assert_eq!(
            written(|out| splice::event(out, kind, inner.as_bytes())),
            written(|out| about(kind).write(out))
        );
    }
}

#[test]
fn lists_put_together_are_the_same_bytes() {
    let manifest = AgentManifest::new("a", "d");
    let agent = written(|out| manifest.write(out));
    let agents = AgentsList { agents: vec![manifest.clone(), manifest] };
    assert_eq!(
        written(|out| splice::agents(out, [&agent, &agent])),
        serde_json::to_string(&agents).unwrap()
    );
    let event = written(|out| about(EventKind::Generic).write(out));
    let events = EventsList { events: vec![about(EventKind::Generic)] };
    assert_eq!(
        written(|out| splice::events(out, [&event])),
        serde_json::to_string(&events).unwrap()
    );
    let run = completed_text();
    for next in [None, Some("n\"")] {
        let runs = RunsList { runs: vec![completed(), completed()], next: next.map(str::to_owned) };
        assert_eq!(
            written(|out| splice::runs(out, [&run, &run], next)),
            serde_json::to_string(&runs).unwrap()
        );
    }
}

#[test]
fn line_separators_are_escaped_for_streams_and_nothing_else_changes() {
    let safe = |text: &str| {
        written(|out| {
            out.extend_from_slice(text.as_bytes());
            sse::safe(out);
        })
    };
    let text = "{\"a\":\"\u{85}x\u{2028}\u{2029}\u{2028}\",\n \"b\":\r\n\"\u{2027}\u{202a}\u{c2}\u{e2}é–\"}";
    assert_eq!(
        safe(text),
        "{\"a\":\"\\u0085x\\u2028\\u2029\\u2028\",  \"b\":  \"\u{2027}\u{202a}\u{c2}\u{e2}é–\"}"
    );
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(value(&safe(text)), value(text));
    assert_eq!(safe(""), "");
    assert_eq!(safe(PART), PART);
    let part = MessagePart::text("a\u{2028}b");
    assert_eq!(safe(&written(|out| part.write(out))), PART.replace("Howdy!", "a\\u2028b"));
}
