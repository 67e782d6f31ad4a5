//! Checks our output against the schemas of the published document.
//!
//! The document allows whole numbers as input and output, but its choice between `integer` and `number` accepts no whole number: these samples have fractions.

use serde_json::{Value, json};
use trilogue_wire::agent_connect::{
    Agent, AgentMetadata, AgentRef, Block, CustomUpdate, Descriptor, ErrorUpdate, InterruptUpdate,
    Json, Message, MessageContent, Object, Run, RunCreate, RunError, RunInterrupt, RunOutput,
    RunOutputStream, RunResult, RunStatus, RunWaitResponse, StreamPayload, Thread,
    ThreadCheckpoint, ThreadPatch, ThreadState, ThreadStatus, Time, ValuesUpdate, decode, sse,
};

use crate::connect::{check_schema, published};

const ID: &str = "3f1e2549-5799-4321-91ae-2a4881d55526";

fn value(sample: &impl serde::Serialize) -> Value {
    serde_json::to_value(sample).unwrap()
}

fn text(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn object(members: &str) -> Object {
    Object::new(text(members)).unwrap()
}

fn message() -> Message {
    let picture = Block {
        kind: "image".to_owned(),
        metadata: json!({ "content_url": "https://example.com/a.png" }).as_object().cloned(),
        ..Block::default()
    };
    Message {
        id: Some("m".to_owned()),
        metadata: json!({ "k": 1 }).as_object().cloned(),
        content: MessageContent::Blocks(vec![Block::text("hello"), picture]),
        ..Message::text("assistant", "")
    }
}

fn run(status: RunStatus) -> Run {
    Run {
        run_id: ID.to_owned(),
        thread_id: Some(ID.to_owned()),
        agent_id: ID.to_owned(),
        configuration_id: Some(ID.to_owned()),
        created_at: Time::from_micros(1_763_683_200_000_120),
        updated_at: Time::from_micros(1_763_683_200_000_000),
        status,
        phase: Some("running".to_owned()),
        creation: object(
            r#"{"agent_id":"x","input":{"message":"hi"},"stream_mode":null,"on_disconnect":"cancel"}"#,
        ),
    }
}

fn run_interrupt() -> RunInterrupt {
    RunInterrupt {
        interrupt: text(r#"{"approval":{"question":"?"}}"#),
        interrupt_type: Some("approval".to_owned()),
        interrupt_payload: Some(text(r#"{"question":"?"}"#)),
        interrupt_id: Some("i".to_owned()),
        resume_schema: Some(text("{}")),
    }
}

fn run_error() -> RunError {
    RunError {
        run_id: ID.to_owned(),
        errcode: 1,
        description: "boom".to_owned(),
        code: Some("agent_error".to_owned()),
        transient: false,
        data: Some(text(r#"{"reason":"x"}"#)),
    }
}

fn outputs() -> Vec<RunOutput> {
    let result = |values: &str| {
        let (values, messages) = (Some(text(values)), Some(vec![message()]));
        RunOutput::Result(RunResult { result: values.clone(), values, messages })
    };
    vec![
        result(r#"{"message":"hi"}"#),
        result("5.5"),
        result("[1]"),
        RunOutput::Result(RunResult::default()),
        RunOutput::Interrupt(run_interrupt()),
        RunOutput::Error(run_error()),
    ]
}

fn payloads() -> Vec<StreamPayload> {
    let values = |status, result: Option<Json>| {
        StreamPayload::Values(ValuesUpdate {
            run_id: ID.to_owned(),
            status,
            values: text(r#"{"message":"hi"}"#),
            messages: None,
            result,
        })
    };
    vec![
        values(RunStatus::Pending, None),
        values(RunStatus::Success, Some(text("5"))),
        StreamPayload::Custom(CustomUpdate {
            run_id: Some(ID.to_owned()),
            status: RunStatus::Pending,
            update: object(r#"{"progress":1.0}"#),
            kind: Some("progress".to_owned()),
        }),
        StreamPayload::Interrupt(InterruptUpdate {
            run_id: ID.to_owned(),
            status: RunStatus::Interrupted,
            asked: run_interrupt(),
        }),
        StreamPayload::Error(ErrorUpdate { status: RunStatus::Timeout, error: run_error() }),
    ]
}

#[test]
fn runs_and_what_comes_of_them_keep_the_published_schemas() {
    let Some(document) = published("openapi-0.2.3.json") else { return };
    for status in RunStatus::ALL {
        let shown = serde_json::to_value(run(status)).unwrap();
        check_schema(&document, "RunStateless", &shown).unwrap();
        check_schema(&document, "RunStateful", &shown).unwrap();
    }
    for output in outputs() {
        check_schema(&document, "RunOutput", &serde_json::to_value(&output).unwrap()).unwrap();
        let waited = RunWaitResponse {
            run: Some(run(RunStatus::Success)),
            output: Some(output),
            kind: Some("result".to_owned()),
            result: Some(text("5")),
            interrupt_type: None,
            interrupt_payload: None,
            errcode: Some(1),
            description: Some("it failed".to_owned()),
        };
        let shown = serde_json::to_value(&waited).unwrap();
        check_schema(&document, "RunWaitResponseStateless", &shown).unwrap();
        check_schema(&document, "RunWaitResponseStateful", &shown).unwrap();
    }
    for data in payloads() {
        let event = RunOutputStream { id: "1".to_owned(), event: sse::EVENT.to_owned(), data };
        check_schema(&document, "RunOutputStream", &serde_json::to_value(&event).unwrap()).unwrap();
    }
}

#[test]
fn agents_and_threads_keep_the_published_schemas() {
    let Some(document) = published("openapi-0.2.3.json") else { return };
    let agent = Agent {
        agent_id: ID.to_owned(),
        configuration_id: Some(ID.to_owned()),
        metadata: AgentMetadata {
            reference: AgentRef {
                name: "a".to_owned(),
                version: "1".to_owned(),
                url: Some("https://example.com/a".to_owned()),
            },
            description: String::new(),
        },
        id: Some(ID.to_owned()),
    };
    check_schema(&document, "Agent", &serde_json::to_value(agent).unwrap()).unwrap();
    let thread = Thread {
        thread_id: "abc".to_owned(),
        created_at: Time::from_micros(0),
        updated_at: Time::from_micros(-1),
        metadata: Object::default(),
        status: ThreadStatus::Interrupted,
        values: Some(text(r#"{"messages":[]}"#)),
        messages: Some(vec![message()]),
    };
    check_schema(&document, "Thread", &serde_json::to_value(thread).unwrap()).unwrap();
    let state = ThreadState {
        checkpoint: ThreadCheckpoint { checkpoint_id: ID.to_owned() },
        values: text("[1]"),
        messages: None,
        metadata: Some(object(r#"{"source":"loop"}"#)),
    };
    check_schema(&document, "ThreadState", &serde_json::to_value(state).unwrap()).unwrap();
}

#[test]
fn what_a_client_sends_keeps_the_published_schemas_and_comes_back_the_same() {
    let Some(document) = published("openapi-0.2.3.json") else { return };
    let bodies = [
        json!({}),
        json!({ "agent_id": "x", "input": 5.5, "metadata": { "k": 1 }, "stream_mode": ["values", "custom"] }),
        json!({
            "input": { "message": "hi" },
            "config": { "tags": ["a"], "recursion_limit": 3, "configurable": { "style": "formal" } },
            "webhook": "https://example.com/callme",
            "stream_mode": "custom",
            "on_disconnect": "continue",
            "multitask_strategy": "enqueue",
            "after_seconds": 3,
            "on_completion": "keep",
            "if_not_exists": "create"
        }),
    ];
    for body in bodies {
        let request: RunCreate = decode(body.to_string().as_bytes()).unwrap();
        let written = serde_json::to_value(&request).unwrap();
        assert_eq!(written, body);
        check_schema(&document, "RunCreateStateful", &written).unwrap();
        check_schema(&document, "RunCreateStateless", &written).unwrap();
    }
    let patch = json!({
        "checkpoint": { "checkpoint_id": ID },
        "values": { "messages": [] },
        "messages": [{ "role": "user", "content": "hi" }]
    });
    let request: ThreadPatch = decode(patch.to_string().as_bytes()).unwrap();
    let written = serde_json::to_value(&request).unwrap();
    assert_eq!(written, patch);
    check_schema(&document, "ThreadPatch", &written).unwrap();
}

#[test]
fn outputs_and_events_read_back() {
    for output in outputs() {
        let written = serde_json::to_vec(&output).unwrap();
        assert_eq!(decode::<RunOutput>(&written).unwrap(), output);
    }
    for payload in payloads() {
        let written = serde_json::to_vec(&payload).unwrap();
        assert_eq!(decode::<StreamPayload>(&written).unwrap(), payload);
    }
    let odd = decode::<RunOutput>(br#"{"type":"other"}"#).unwrap_err();
    assert!(odd.message.contains("other"), "{odd}");
}

#[test]
fn the_published_descriptor_reads_keeps_the_rules_and_is_written_the_same() {
    let (Some(document), Some(published)) =
        (published("openapi-0.2.3.json"), published("mailcomposer.json"))
    else {
        return;
    };
    let descriptor: Descriptor = decode(published.to_string().as_bytes()).unwrap();
    assert_eq!(descriptor.check(), []);
    let written: Value = serde_json::to_value(&descriptor).unwrap();
    assert_eq!(written, published);
    check_schema(&document, "AgentACPDescriptor", &written).unwrap();
}

#[test]
fn our_own_schemas_describe_what_we_write_and_read() {
    #[track_caller]
    fn fits<T: schemars::JsonSchema>(samples: impl IntoIterator<Item = Value>) {
        let schema = serde_json::to_value(schemars::schema_for!(T)).unwrap();
        let schema = jsonschema::validator_for(&schema).unwrap();
        for sample in samples {
            if let Err(error) = schema.validate(&sample) {
                panic!("{}: {error} in {sample}", T::schema_name());
            }
        }
    }
    fits::<RunOutput>(outputs().iter().map(value));
    fits::<StreamPayload>(payloads().iter().map(value));
    fits::<Run>(RunStatus::ALL.map(|status| value(&run(status))));
    fits::<Message>([value(&message()), json!({ "role": "user", "content": "hi" })]);
    fits::<RunCreate>([
        json!({}),
        json!({ "stream_mode": ["values"], "callback": "http://x/", "after_seconds": 1 }),
        json!({ "callback": { "url": "http://x/", "events": ["status"] }, "config": 5 }),
    ]);
    fits::<RunOutputStream>(
        payloads().iter().map(|it| json!({ "id": "1", "event": "agent_event", "data": value(it) })),
    );
}
