//! Checks our output against the schemas of the published document, and lists every known difference.

use jsonschema::Validator;
use serde_json::{Value, json};
use trilogue_wire::agent_communication::{
    AgentManifest, AgentsList, AwaitRequest, AwaitResume, CitationMetadata, ErrorBody, ErrorCode,
    Event, EventsList, Extra, Json, Link, LinkType, Message, MessagePart, Person, Role, Run,
    RunCreateRequest, RunMode, RunResumeRequest, RunStatus, Session, Time, TrajectoryMetadata,
    Uuid,
};

use crate::specs;

fn published() -> Option<Value> {
    let document = specs::document("agent_communication/openapi-0.2.0.yaml")?;
    let text = std::fs::read_to_string(document).unwrap();
    Some(serde_saphyr::from_str(&text).unwrap())
}

/// Returns a validator for one of the document's schemas, with the others at the paths of its references.
fn schema(document: &Value, name: &str) -> Validator {
    let root = json!({
        "$ref": format!("#/components/schemas/{name}"),
        "components": {"schemas": document["components"]["schemas"]},
    });
    jsonschema::options().should_validate_formats(true).build(&root).unwrap()
}

/// The document marks optional fields as `nullable`, which its version of the schema language does not define.
/// We write every field, with `null` for an absent value. Without the nulls the two can be compared.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_nulls(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        value => value,
    }
}

fn check_schema(document: &Value, name: &str, sample: impl serde::Serialize) -> Result<(), String> {
    let sample = without_nulls(serde_json::to_value(sample).unwrap());
    schema(document, name).validate(&sample).map_err(|error| format!("{name}: {error} in {sample}"))
}

fn time() -> Time {
    Time::parse("2026-11-20T23:50:09.133102Z").unwrap()
}

fn message() -> Message {
    let step = TrajectoryMetadata {
        tool_name: Some("weather".to_owned()),
        tool_input: Some(Json::parse(r#"{"city":"Ulm"}"#).unwrap()),
        ..TrajectoryMetadata::default()
    };
    let cited = CitationMetadata {
        start_index: Some(0),
        end_index: Some(2),
        ..CitationMetadata::default()
    };
    let mut extra = Extra::new();
    extra.set("x_trilogue", Json::parse(r#"{"message_id":"m"}"#).unwrap());
    Message {
        role: Role::Named("echo".to_owned()),
        parts: vec![
            MessagePart { extra, ..MessagePart::text("hello") },
            MessagePart::text("cited").citation(cited),
            MessagePart::default().trajectory(step),
            MessagePart::base64("image/png", b"png").with_name("a.png"),
            MessagePart::url("application/pdf", "https://example.com/a.pdf"),
        ],
        created_at: time().into(),
        completed_at: time().into(),
        extension: None,
        ..Message::default()
    }
}

fn run(status: RunStatus) -> Run {
    Run {
        run_id: Uuid::generate(),
        agent_name: "echo".to_owned(),
        session_id: Some(Uuid::generate()),
        status,
        await_request: Some(AwaitRequest { message: message() }),
        output: vec![message()],
        error: Some(ErrorBody {
            data: Some(Json::parse("{}").unwrap()),
            ..ErrorBody::new(ErrorCode::ServerError, "x")
        }),
        created_at: time(),
        finished_at: Some(time()),
    }
}

fn manifest() -> AgentManifest {
    let mut manifest = AgentManifest::new("echo", "Says it again.");
    manifest.metadata.tags = Some(vec!["Chat".to_owned()]);
    manifest.metadata.created_at = Some(time());
    manifest.metadata.author = Some(Person {
        name: "P".to_owned(),
        email: Some("p@example.com".to_owned()),
        url: Some("https://example.com".to_owned()),
    });
    manifest.metadata.links =
        Some(vec![Link { kind: LinkType::Homepage, url: "https://example.com".to_owned() }]);
    manifest
}

fn events() -> Vec<Event> {
    let run = |status| Box::new(run(status));
    vec![
        Event::RunCreated { run: run(RunStatus::Created) },
        Event::RunInProgress { run: run(RunStatus::InProgress) },
        Event::MessageCreated { message: message() },
        Event::MessagePart { part: MessagePart::text("x") },
        Event::MessageCompleted { message: message() },
        Event::Generic { generic: Json::parse(r#"{"a":1}"#).unwrap() },
        Event::RunAwaiting { run: run(RunStatus::Awaiting) },
        Event::RunCompleted { run: run(RunStatus::Completed) },
        Event::RunFailed { run: run(RunStatus::Failed) },
        Event::RunCancelled { run: run(RunStatus::Cancelled) },
        Event::Error { error: ErrorBody::new(ErrorCode::NotFound, "x") },
    ]
}

#[test]
fn what_we_write_keeps_the_published_schemas() {
    let Some(document) = published() else { return };
    check_schema(&document, "Message", message()).unwrap();
    for part in message().parts {
        check_schema(&document, "MessagePart", part).unwrap();
    }
    for status in RunStatus::ALL {
        check_schema(&document, "Run", run(status)).unwrap();
    }
    for event in events() {
        check_schema(&document, "Event", event).unwrap();
    }
    check_schema(&document, "RunEventsListResponse", EventsList { events: events() }).unwrap();
    check_schema(&document, "AgentManifest", manifest()).unwrap();
    check_schema(&document, "AgentsListResponse", AgentsList { agents: vec![manifest()] }).unwrap();
    for code in [ErrorCode::ServerError, ErrorCode::InvalidInput, ErrorCode::NotFound] {
        check_schema(&document, "Error", ErrorBody::new(code, "x")).unwrap();
    }
    let session = Session {
        id: Uuid::generate(),
        history: vec!["https://example.com/resources/1".to_owned()],
        state: Some("https://example.com/state".to_owned()),
    };
    check_schema(&document, "Session", &session).unwrap();
    for mode in RunMode::ALL {
        let mut request = RunCreateRequest::new("echo", vec![message()], mode);
        request.session_id = Some(session.id);
        request.session = Some(session.clone());
        request.config = Some(Json::parse(r#"{"temperature":0.5}"#).unwrap());
        check_schema(&document, "RunCreateRequest", request).unwrap();
        let await_resume = AwaitResume { message: message() };
        let resume = RunResumeRequest { run_id: Some(Uuid::generate()), await_resume, mode };
        check_schema(&document, "RunResumeRequest", resume).unwrap();
    }
}

#[test]
fn the_schemas_can_refuse() {
    let Some(document) = published() else { return };
    let mut both = MessagePart::text("x");
    both.content_url = Some("https://example.com/".to_owned());
    assert!(check_schema(&document, "MessagePart", both).is_err());
    assert!(
        check_schema(
            &document,
            "MessagePart",
            json!({"content_type": "a/b", "content_url": "no url"})
        )
        .is_err()
    );
    assert!(
        check_schema(
            &document,
            "Message",
            json!({"role": "system", "parts": [{"content_type": "a/b"}]})
        )
        .is_err()
    );
    assert!(check_schema(&document, "Run", json!({"run_id": "x"})).is_err());
    assert!(check_schema(&document, "Event", json!({"type": "run.paused"})).is_err());
}

/// If official clients and servers differ from the document, we do the same as they do.
/// Each difference is listed here, with a proof that the document does not allow it.
#[test]
fn every_departure_from_the_document_is_known() {
    let Some(document) = published() else { return };
    let departs = |name: &str, sample: Value| {
        assert!(
            check_schema(&document, name, &sample).is_err(),
            "the document allows this now: {name} {sample}"
        );
    };
    let kept = |name: &str, sample: Value| check_schema(&document, name, &sample).unwrap();

    // Every field is written, with `null` for an absent value; the schemas allow no null.
    let nulls = serde_json::to_value(MessagePart::text("x")).unwrap();
    assert!(nulls["name"].is_null() && !schema(&document, "MessagePart").is_valid(&nulls));
    // A message may have no parts: it has none when it begins, and official clients send such messages.
    departs("Message", json!({"role": "user", "parts": []}));
    // A run may have no input.
    departs("RunCreateRequest", json!({"agent_name": "echo", "input": []}));
    // An agent's name only has to be valid in a role: with `_` and capitals too, of any length.
    for name in ["slow_echo", "Echo", "-x", "e".repeat(64).as_str()] {
        departs(
            "AgentManifest",
            json!({"name": name, "description": "", "input_content_types": ["*/*"], "output_content_types": ["*/*"]}),
        );
    }
    // The role and the content type may be absent, as in the compatible mode.
    departs("Message", json!({"parts": [{"content_type": "text/plain"}]}));
    departs("MessagePart", json!({"content": "x"}));
    // Only the path names the run to resume, and the mode may be absent.
    departs("RunResumeRequest", json!({"await_resume": {}, "mode": "sync"}));
    departs("RunResumeRequest", json!({"run_id": Uuid::generate(), "await_resume": {}}));
    // A session in a request may leave its id and its history to the server.
    departs("Session", json!({"history": []}));
    departs("Session", json!({"id": Uuid::generate()}));

    // Stricter than the document: a run awaits only messages, and history and state are http or https URLs.
    kept("AwaitRequest", json!({"anything": 1}));
    kept("Session", json!({"id": Uuid::generate(), "history": ["ftp://example.com/x"]}));
    // The strict mode is stricter too: the document allows a part with neither content nor URL, any text as a type, and invalid base64.
    kept("MessagePart", json!({"content_type": "text/plain"}));
    kept(
        "MessagePart",
        json!({"content_type": "zzz", "content": "!", "content_encoding": "base64"}),
    );
}
