//! The calls of the Agent Connect Protocol client over a scripted transport.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json as value};
use trilogue_sdk::client::connect::{
    AgentSearchRequest, CancelAction, Client, ConfigurationCreate, ConfigurationPatch,
    ConfigurationSearchRequest, NewRun, Resume, RunAt, RunOutput, RunSearchRequest, RunStatus,
    StreamMode, ThreadCreate, ThreadPatch, ThreadSearchRequest, ThreadStatus,
};
use trilogue_sdk::client::{ClientError, Options, Request, Transport, TransportError};
use trilogue_wire::native::Json;

use crate::script::{Script, Scripted, header, json};

pub(crate) const AGENT: &str = "3f1e2549-5799-4321-91ae-2a4881d55526";
pub(crate) const RUN: &str = "35acf935-0000-4000-8000-000000000001";

pub(crate) type Answered = Result<Scripted, TransportError>;

pub(crate) fn client(script: &Arc<Script>) -> Client {
    Client::new(Arc::clone(script) as Arc<dyn Transport>, Options::at("/connect/"))
}

pub(crate) fn body(request: &Request) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

pub(crate) fn paths(script: &Script) -> Vec<String> {
    let named = |request: Request| {
        let path = request.path.strip_prefix("/connect").unwrap().to_owned();
        format!("{} {path}", request.method.as_str())
    };
    script.requests().into_iter().map(named).collect()
}

pub(crate) fn run(status: &str) -> String {
    format!(
        r#"{{"run_id":"{RUN}","thread_id":null,"agent_id":"{AGENT}","created_at":"2026-11-20T23:53:06.156959","updated_at":"2026-11-20T23:53:06.156959","status":"{status}","creation":{{"agent_id":"{AGENT}","webhook":null,"stream_mode":null}}}}"#
    )
}

pub(crate) fn waited(status: &str, output: &str) -> Answered {
    json(200, &format!(r#"{{"run":{},"output":{output}}}"#, run(status)))
}

fn agent() -> String {
    format!(
        r#"{{"agent_id":"{AGENT}","metadata":{{"ref":{{"name":"org.echo","version":"0.1.0","url":null}},"description":"Says."}}}}"#
    )
}

fn thread(status: &str) -> String {
    format!(
        r#"{{"thread_id":"t","created_at":"2026-11-20T23:53:06.156959","updated_at":"2026-11-20T23:53:06Z","metadata":{{"a":1}},"status":"{status}","values":null,"messages":null}}"#
    )
}

fn configuration() -> String {
    format!(
        r#"{{"configuration_id":"c","agent_id":"{AGENT}","config":{{"a":1}},"metadata":{{}},"created_at":"2026-11-20T23:53:06Z","updated_at":"2026-11-20T23:53:06Z"}}"#
    )
}

fn list(items: &[String]) -> Answered {
    json(200, &format!("[{}]", items.join(",")))
}

#[tokio::test]
async fn agents_are_asked_for_as_the_protocol_says() {
    let spec = r#"{"capabilities":{"threads":false,"interrupts":false,"callbacks":false,"streaming":null},"input":{"type":"string"},"output":{"type":"string"},"custom_streaming_update":null,"thread_state":null,"config":{},"interrupts":null}"#;
    let metadata = r#"{"ref":{"name":"n","version":"1"},"description":"d"}"#;
    let script = Script::new(vec![
        list(&[agent()]),
        list(&[agent(), agent()]),
        json(200, &agent()),
        json(200, &format!(r#"{{"metadata":{metadata},"specs":{spec}}}"#)),
        json(
            200,
            r#"{"threads":true,"interrupts":false,"callbacks":true,"protocol":"acp-connect","spec_version":"0.2.3","configurations":true,"errors":true}"#,
        ),
        json(
            200,
            &format!(
                r#"{{"agent_id":"{AGENT}","input_schema":{{}},"output_schema":true,"config_schema":{{}}}}"#
            ),
        ),
        json(200, r#"{"openapi":"3.1.1"}"#),
        json(
            200,
            r#"{"agent_id":"x","required":true,"security":[{"bearer":[]}],"schemes":{"bearer":{"type":"http"}}}"#,
        ),
        json(200, r#"{"required":false,"security":[{}],"schemes":{}}"#),
        json(
            200,
            r#"{"agent_id":"x","errors":[{"code":"c","errcode":10000,"description":"d","transient":true}]}"#,
        ),
        json(200, "[]"),
    ]);
    let client = client(&script);
    let named = AgentSearchRequest { name: Some("org.echo".to_owned()), ..Default::default() };
    assert_eq!(client.search_agents(&named).await.unwrap()[0].metadata.reference.url, None);
    assert_eq!(client.agents().await.unwrap().len(), 2);
    assert_eq!(client.agent("a/b").await.unwrap().agent_id, AGENT);
    let descriptor = client.descriptor(AGENT).await.unwrap();
    assert_eq!(descriptor.specs.input.as_str(), r#"{"type":"string"}"#);
    assert!(client.capabilities(AGENT).await.unwrap().configurations);
    assert_eq!(client.schemas(AGENT).await.unwrap().output_schema.as_str(), "true");
    assert_eq!(client.openapi(AGENT).await.unwrap().as_str(), r#"{"openapi":"3.1.1"}"#);
    assert!(client.agent_authentication(AGENT).await.unwrap().required);
    assert!(!client.authentication().await.unwrap().required);
    assert!(client.agent_errors(AGENT).await.unwrap().errors[0].transient);
    assert_eq!(client.errors().await.unwrap(), []);
    let of = |end: &str| format!("GET /agents/{AGENT}/{end}");
    assert_eq!(
        paths(&script),
        [
            "POST /agents/search".to_owned(),
            "POST /agents/search".to_owned(),
            "GET /agents/a%2Fb".to_owned(),
            of("descriptor"),
            of("capabilities"),
            of("schemas"),
            of("openapi"),
            of("authentication"),
            "GET /authentication".to_owned(),
            of("errors"),
            "GET /errors".to_owned(),
        ]
    );
    assert_eq!(body(&script.requests()[0]), value!({ "name": "org.echo" }));
    assert_eq!(body(&script.requests()[1]), value!({}));
}

#[tokio::test]
async fn an_agent_is_found_by_its_id_or_else_by_its_name() {
    let unknown = || json(404, r#"{"detail":"Agent \"org.echo\" not found"}"#);
    let script = Script::new(vec![
        json(200, &agent()),
        unknown(),
        list(&[agent()]),
        unknown(),
        list(&[]),
        json(401, r#"{"detail":"Invalid API Key"}"#),
    ]);
    let client = client(&script);
    assert_eq!(client.find_agent(AGENT).await.unwrap().agent_id, AGENT);
    assert_eq!(client.find_agent("org.echo").await.unwrap().agent_id, AGENT);
    let error = client.find_agent("org.echo").await.unwrap_err();
    assert!(error.to_string().contains("not found"), "{error}");
    let error = client.find_agent("org.echo").await.unwrap_err();
    assert_eq!(error.to_string(), "Invalid API Key");
    assert_eq!(script.requests().len(), 6, "a refusal for other reasons is passed on at once");
}

#[tokio::test]
async fn configured_instances_are_kept_below_their_agent() {
    let one = || json(200, &configuration());
    let script = Script::new(vec![one(), one(), one(), json(204, ""), list(&[configuration()])]);
    let client = client(&script);
    let config = Json::parse(r#"{"a":1}"#).unwrap();
    let new = ConfigurationCreate { config: Some(config.clone()), ..Default::default() };
    assert_eq!(client.create_configuration("x", &new).await.unwrap().configuration_id, "c");
    client.configuration("x", "c").await.unwrap();
    let patch = ConfigurationPatch { config: Some(config), ..Default::default() };
    client.patch_configuration("x", "c", &patch).await.unwrap();
    client.delete_configuration("x", "c").await.unwrap();
    let all = ConfigurationSearchRequest::default();
    assert_eq!(client.search_configurations("x", &all).await.unwrap().len(), 1);
    assert_eq!(
        paths(&script),
        [
            "POST /agents/x/configurations",
            "GET /agents/x/configurations/c",
            "PATCH /agents/x/configurations/c",
            "DELETE /agents/x/configurations/c",
            "POST /agents/x/configurations/search",
        ]
    );
    assert_eq!(body(&script.requests()[0]), value!({ "config": { "a": 1 } }));
}

#[tokio::test]
async fn runs_are_asked_for_with_a_thread_and_without() {
    let one = || json(200, &run("pending"));
    let done = || waited("success", r#"{"type":"result","values":{"message":"hi"}}"#);
    let script = Script::new(vec![
        one(),
        done(),
        one(),
        done(),
        one(),
        json(204, ""),
        json(200, "null"),
        list(&[run("error")]),
        one(),
        done(),
        one(),
        one(),
        json(204, ""),
        json(204, ""),
    ]);
    let client = client(&script);
    let new = NewRun::new("echo", value!({ "message": "hi" })).metadata(value!({ "k": 1 }));
    let streamed = new.clone().config(value!({ "style": "formal" })).idempotency_key("order-7");
    client.create_run(streamed.streaming([StreamMode::Values])).await.unwrap();
    let waited = client.run_and_wait(new.clone()).await.unwrap();
    assert_eq!(waited.run.unwrap().status, RunStatus::Success);
    assert_eq!(client.run(RUN).await.unwrap().run_id, RUN);
    let Some(RunOutput::Result(result)) = client.wait(RUN).await.unwrap().output else { panic!() };
    assert_eq!(result.values.unwrap().as_str(), r#"{"message":"hi"}"#);
    client.resume(RUN, Resume::new(value!({ "answer": "yes" }))).await.unwrap();
    client.cancel(RUN, false, CancelAction::Interrupt).await.unwrap();
    client.delete_run(RUN).await.unwrap();
    let failed = RunSearchRequest { status: Some(RunStatus::Error), ..Default::default() };
    assert_eq!(client.search_runs(&failed).await.unwrap()[0].status, RunStatus::Error);
    let on_thread = NewRun::new("echo", 7).on_new_thread("t");
    client.create_run(on_thread.clone()).await.unwrap();
    client.run_and_wait(on_thread).await.unwrap();
    let at = RunAt::on_thread("t", "r");
    client.run(at.clone()).await.unwrap();
    client.resume(at.clone(), Resume::new(value!(true)).of_type("approval")).await.unwrap();
    client.cancel(at.clone(), true, CancelAction::Rollback).await.unwrap();
    client.delete_run(at).await.unwrap();
    let at = format!("/runs/{RUN}");
    assert_eq!(
        paths(&script),
        [
            "POST /runs".to_owned(),
            "POST /runs/wait".to_owned(),
            format!("GET {at}"),
            format!("GET {at}/wait"),
            format!("POST {at}"),
            format!("POST {at}/cancel"),
            format!("DELETE {at}"),
            "POST /runs/search".to_owned(),
            "POST /threads/t/runs".to_owned(),
            "POST /threads/t/runs/wait".to_owned(),
            "GET /threads/t/runs/r".to_owned(),
            "POST /threads/t/runs/r".to_owned(),
            "POST /threads/t/runs/r/cancel?wait=true&action=rollback".to_owned(),
            "DELETE /threads/t/runs/r".to_owned(),
        ]
    );
    let requests = script.requests();
    assert_eq!(header(&requests[0], "idempotency-key"), Some("order-7"));
    assert_eq!(
        body(&requests[0]),
        value!({
            "agent_id": "echo", "input": { "message": "hi" }, "metadata": { "k": 1 },
            "config": { "configurable": { "style": "formal" } }, "stream_mode": "values",
        })
    );
    assert_eq!(body(&requests[4]), value!({ "answer": "yes" }));
    assert_eq!(
        body(&requests[8]),
        value!({ "agent_id": "echo", "input": 7, "if_not_exists": "create" })
    );
    assert_eq!(
        body(&requests[11]),
        value!({ "interrupt_type": "approval", "resume_payload": true })
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_its_time_and_outlives_breaks() {
    let interrupted = r#"{"type":"interrupt","interrupt":{"approval":{"q":1}}}"#;
    let script = Script::new(vec![
        json(204, ""),
        waited("interrupted", interrupted),
        Err(TransportError::new("connection reset")),
        json(503, ""),
        json(200, &format!("\n\n{{\"run\":{},\"output\":{interrupted}}}", run("interrupted"))),
        json(404, ""),
    ]);
    let client = client(&script);
    let within = |millis| client.wait_within(RUN, Duration::from_millis(millis));
    assert!(within(1_500).await.unwrap().is_none());
    assert!(within(2_000).await.unwrap().is_some());
    let Some(RunOutput::Interrupt(asked)) = client.wait(RUN).await.unwrap().output else {
        panic!()
    };
    assert_eq!(asked.interrupt.as_str(), r#"{"approval":{"q":1}}"#);
    let error = client.wait(RUN).await.unwrap_err();
    assert!(matches!(&error, ClientError::Fault(fault) if fault.is_foreign()), "{error}");
    assert_eq!(paths(&script)[0], format!("GET /runs/{RUN}/wait?timeout=1.500"));
    assert_eq!(paths(&script)[2..], vec![format!("GET /runs/{RUN}/wait"); 4]);
}

#[tokio::test]
async fn threads_are_asked_for_as_the_protocol_says() {
    let state = r#"{"checkpoint":{"checkpoint_id":"c"},"values":{"message":"hi"},"messages":null,"metadata":{"step":1}}"#;
    let one = || json(200, &thread("idle"));
    let script = Script::new(vec![
        one(),
        list(&[thread("busy")]),
        one(),
        one(),
        one(),
        json(200, "null"),
        list(&[state.to_owned()]),
        list(&[run("success")]),
    ]);
    let client = client(&script);
    let made = client.create_thread(&ThreadCreate::default()).await.unwrap();
    assert_eq!((made.thread_id.as_str(), made.status), ("t", ThreadStatus::Idle));
    let busy = ThreadSearchRequest { status: Some(ThreadStatus::Busy), ..Default::default() };
    assert_eq!(client.search_threads(&busy).await.unwrap().len(), 1);
    client.thread("t").await.unwrap();
    client.patch_thread("t", &ThreadPatch::default()).await.unwrap();
    client.copy_thread("t").await.unwrap();
    client.delete_thread("t").await.unwrap();
    let states = client.thread_history("t", Some(3), Some("c")).await.unwrap();
    assert_eq!(states[0].checkpoint.checkpoint_id, "c");
    assert_eq!(client.thread_runs("t", None, None).await.unwrap().len(), 1);
    assert_eq!(
        paths(&script),
        [
            "POST /threads",
            "POST /threads/search",
            "GET /threads/t",
            "PATCH /threads/t",
            "POST /threads/t/copy",
            "DELETE /threads/t",
            "GET /threads/t/history?limit=3&before=c",
            "GET /threads/t/runs",
        ]
    );
    assert_eq!(body(&script.requests()[0]), value!({ "metadata": {} }));
}

#[tokio::test]
async fn what_the_reference_server_cannot_read_is_left_out() {
    let strict = |member: &str| {
        json(422, &format!(r#"{{"detail":[{{"loc":["query","{member}"],"msg":"no"}}]}}"#))
    };
    let script = Script::new(vec![
        strict("limit"),
        list(&[run("success"), run("error"), run("timeout")]),
        strict("stream_mode"),
        json(200, &run("pending")),
        json(422, r#"{"detail":"At least one of 'name' or 'version' must be provided"}"#),
    ]);
    let client = client(&script);
    let runs = client.thread_runs("t", Some(1), Some(1)).await.unwrap();
    assert_eq!(runs.iter().map(|run| run.status).collect::<Vec<_>>(), [RunStatus::Error]);
    let new = NewRun::new("x", "hi").streaming([StreamMode::Values, StreamMode::Custom]);
    client.create_run(new).await.unwrap();
    let error = client.agents().await.unwrap_err();
    assert!(error.hint().unwrap().contains("only by their names"), "{error}");
    assert_eq!(
        paths(&script)[..2],
        ["GET /threads/t/runs?limit=1&offset=1", "GET /threads/t/runs"]
    );
    assert_eq!(body(&script.requests()[2])["stream_mode"], value!(["values", "custom"]));
    assert_eq!(body(&script.requests()[3]), value!({ "agent_id": "x", "input": "hi" }));
}

#[tokio::test]
async fn a_refusal_says_its_code_and_a_wrong_answer_says_where() {
    let refused = r#"{"code":"thread_busy","errcode":4092,"description":"it is busy","transient":true,"data":{"a":1},"hint":"wait"}"#;
    let script = Script::new(vec![
        json(409, refused),
        json(200, &run("running")),
        json(200, "{"),
        json(200, &format!("[{}]", "7,".repeat(3))),
    ]);
    let client = client(&script);
    let error = client.run(RUN).await.unwrap_err();
    assert_eq!((error.code(), error.hint()), (Some("thread_busy"), Some("wait")));
    assert_eq!(error.to_string(), "it is busy");
    assert!(error.is_transient());
    let error = client.run(RUN).await.unwrap_err().to_string();
    assert!(error.contains("/status") && error.contains("running"), "{error}");
    client.run(RUN).await.unwrap_err();
    client.run(RUN).await.unwrap_err();
}
