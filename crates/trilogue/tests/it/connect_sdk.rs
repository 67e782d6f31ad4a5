//! The SDK's client of the Agent Connect Protocol against Trilogue servers, including ones with agents of this test.

use std::sync::Arc;
use std::time::Duration;

use trilogue::Agents;
use trilogue::sdk::prelude::*;
use trilogue_sdk::client;
use trilogue_sdk::client::connect::{
    AgentSearchRequest, CancelAction, Client, ConfigurationCreate, ConfigurationPatch,
    ConfigurationSearchRequest, NewRun, Object, Resume, RunAt, RunOutput, RunSearchRequest,
    RunStatus, RunStream, StreamMode, StreamPayload, ThreadCheckpoint, ThreadCreate, ThreadPatch,
    ThreadSearchRequest, ThreadStatus,
};
use trilogue_wire::native::Json as Raw;

use crate::sdk_server::Server;
use crate::tearing_transport::TearingTransport;

async fn counts(turn: Turn, context: Context) -> Result<(), AgentError> {
    #[derive(serde::Deserialize, Default)]
    struct Config {
        slow: bool,
    }
    let slow = context.config::<Config>()?.slow;
    for number in 0..turn.text().parse().unwrap_or(0_u32) {
        context.text(format!("{number} ")).await?;
        if slow {
            context.commit().await?;
            context.wait(Duration::from_millis(20)).await?;
        }
    }
    Ok(())
}

fn asks_card() -> Card {
    let answer = json!({ "type": "object", "properties": { "ok": { "type": "boolean" } }, "required": ["ok"] });
    Card::schema("asks", "Asks twice.", json!({})).output(json!({ "type": "object" })).interrupt(
        "approval",
        json!({}),
        answer,
    )
}

async fn asks(turn: Turn, context: Context) -> Result<Outcome, AgentError> {
    let ask = |number: u32| {
        let question = Question::custom("approval").payload(json!({ "number": number }));
        Outcome::suspended(question, json!(number))
    };
    match turn {
        Turn::Start { .. } => ask(1),
        Turn::Resume { ref saved, .. } if saved.to_value() == json!(1) => ask(2),
        Turn::Resume { ref answer, .. } => {
            let Answer::Json(answer) = answer else { return Ok(Outcome::Completed) };
            context.result(json!({ "last": answer.to_value() })).await?;
            Ok(Outcome::Completed)
        }
    }
}

async fn start() -> Server {
    Server::start(
        Agents::new()
            .with(
                agent_fn("counts", "", counts).with_card(
                    Card::chat("counts", "Counts to what it hears.")
                        .streams(true, true)
                        .config(json!({ "properties": { "slow": { "type": "boolean" } } })),
                ),
            )
            .with(agent_fn("asks", "", asks).with_card(asks_card())),
    )
    .await
}

fn client_of(server: &Server) -> Client {
    torn_client(server, usize::MAX).0
}

/// A client whose first stream breaks after this many bytes, the second after twice as many, and so on.
fn torn_client(server: &Server, bytes: usize) -> (Client, Arc<TearingTransport>) {
    let transport = TearingTransport::new(server.address, bytes);
    let mut options = client::Options::at("/connect");
    options.delay = Duration::from_millis(1);
    (Client::new(Arc::<TearingTransport>::clone(&transport), options), transport)
}

fn count(number: &str) -> NewRun {
    NewRun::new("counts", json!({ "message": number }))
}

fn object(json: &str) -> Option<Object> {
    Object::new(Raw::parse(json).unwrap())
}

/// Reads a stream to its end; returns the texts of its values, and its updates.
async fn updates_of(stream: &mut RunStream) -> (Vec<String>, Vec<String>, RunStatus) {
    let (mut texts, mut updates, mut status) = (Vec::new(), Vec::new(), RunStatus::Pending);
    while let Some(streamed) = stream.next().await.unwrap() {
        assert_eq!(status, RunStatus::Pending, "nothing comes behind the end");
        status = streamed.event.status();
        match streamed.event {
            StreamPayload::Values(update) => {
                let text = update.values.to_value()["message"].as_str().map(str::to_owned);
                texts.push(text.unwrap_or_default());
            }
            StreamPayload::Custom(update) => updates.push(update.update.as_str().to_owned()),
            StreamPayload::Interrupt(_) | StreamPayload::Error(_) => {}
        }
    }
    (texts, updates, status)
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_and_what_they_declare_are_read() {
    let server = start().await;
    let client = client_of(&server);
    assert_eq!(client.agents().await.unwrap().len(), 2);
    let found = client.find_agent("asks").await.unwrap();
    let id = found.agent_id.as_str();
    assert_eq!(client.agent(id).await.unwrap(), found);
    let named = AgentSearchRequest { name: Some("asks".to_owned()), ..Default::default() };
    assert_eq!(client.search_agents(&named).await.unwrap(), std::slice::from_ref(&found));
    let descriptor = client.descriptor(id).await.unwrap();
    assert_eq!(descriptor.specs.interrupts.unwrap()[0].interrupt_type, "approval");
    assert!(client.capabilities(id).await.unwrap().interrupts);
    assert_eq!(client.schemas(id).await.unwrap().interrupts.len(), 1);
    assert!(client.openapi(id).await.unwrap().to_value().get("paths").is_some());
    assert!(!client.authentication().await.unwrap().required);
    assert_eq!(client.agent_authentication(id).await.unwrap().agent_id.as_deref(), Some(id));
    assert!(client.errors().await.unwrap().len() > 20);
    assert_eq!(client.agent_errors(id).await.unwrap().errors, []);
    let error = client.find_agent("nobody").await.unwrap_err();
    assert_eq!(error.code(), Some("agent_not_found"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_instances_are_run() {
    let server = start().await;
    let client = client_of(&server);
    let config = |json: &str| Some(Raw::parse(json).unwrap());
    let new = ConfigurationCreate { config: config(r#"{"slow":false}"#), ..Default::default() };
    let made = client.create_configuration("counts", &new).await.unwrap();
    let id = made.configuration_id.as_str();
    assert_eq!(client.configuration("counts", id).await.unwrap(), made);
    let run = NewRun::new(id, json!({ "message": "2" }));
    let run = client.run_and_wait(run).await.unwrap().run.unwrap();
    assert_eq!(run.configuration_id.as_deref(), Some(id));
    let patch = ConfigurationPatch { config: config(r#"{"slow":true}"#), ..Default::default() };
    let patched = client.patch_configuration("counts", id, &patch).await.unwrap();
    assert_eq!(patched.config.as_str(), r#"{"slow":true}"#);
    let all = ConfigurationSearchRequest::default();
    assert_eq!(client.search_configurations("counts", &all).await.unwrap(), [patched]);
    client.delete_configuration("counts", id).await.unwrap();
    let error = client.configuration("counts", id).await.unwrap_err();
    assert_eq!(error.code(), Some("configuration_not_found"));
    let error = client.create_configuration("asks", &new).await.unwrap_err();
    assert_eq!(error.code(), Some("configuration_not_supported"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_created_waited_for_found_and_removed() {
    let server = start().await;
    let client = client_of(&server);
    let waited = client.run_and_wait(count("2").metadata(json!({ "k": "v" }))).await.unwrap();
    let Some(RunOutput::Result(result)) = waited.output else { panic!("{waited:?}") };
    assert_eq!(result.values.unwrap().to_value()["message"], "0 1 ");
    let run = waited.run.unwrap();
    assert_eq!(client.run(run.run_id.as_str()).await.unwrap().status, RunStatus::Success);
    let found = RunSearchRequest { metadata: object(r#"{"k":"v"}"#), ..Default::default() };
    let ids = |runs: Vec<trilogue_sdk::client::connect::Run>| {
        runs.into_iter().map(|run| run.run_id).collect::<Vec<_>>()
    };
    assert_eq!(ids(client.search_runs(&found).await.unwrap()), [run.run_id.as_str()]);

    let again = count("1").idempotency_key("k");
    let first = client.create_run(again.clone()).await.unwrap();
    assert_eq!(first.status, RunStatus::Pending);
    assert_eq!(client.create_run(again).await.unwrap().run_id, first.run_id);

    let slow = || count("1000000").config(json!({ "slow": true }));
    let run = client.create_run(slow()).await.unwrap().run_id;
    let within = client.wait_within(run.as_str(), Duration::from_millis(50)).await.unwrap();
    assert!(within.is_none(), "{within:?}");
    client.cancel(run.as_str(), true, CancelAction::Interrupt).await.unwrap();
    let Some(RunOutput::Error(error)) = client.wait(run.as_str()).await.unwrap().output else {
        panic!("it was cancelled")
    };
    assert_eq!((error.errcode, error.code.as_deref()), (5, Some("run_cancelled")));
    client.delete_run(run.as_str()).await.unwrap();
    assert_eq!(client.run(run.as_str()).await.unwrap_err().code(), Some("run_not_found"));

    let run = client.create_run(slow()).await.unwrap().run_id;
    client.cancel(run.as_str(), true, CancelAction::Rollback).await.unwrap();
    assert_eq!(client.run(run.as_str()).await.unwrap_err().code(), Some("run_not_found"));
    let error = client.create_run(count("1").config(json!({ "slow": 7 }))).await.unwrap_err();
    assert_eq!(error.code(), Some("config_schema_violation"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_asks_is_resumed_in_every_form() {
    let server = start().await;
    let client = client_of(&server);
    let waited = client.run_and_wait(NewRun::new("asks", json!({}))).await.unwrap();
    let run = waited.run.unwrap().run_id;
    let Some(RunOutput::Interrupt(asked)) = waited.output else { panic!("it asks") };
    assert_eq!(asked.interrupt.to_value(), json!({ "approval": { "number": 1 } }));
    let wrong = client.resume(run.as_str(), Resume::new(json!({ "ok": 7 }))).await.unwrap_err();
    assert_eq!(wrong.code(), Some("resume_schema_violation"));
    let yes = || Resume::new(json!({ "ok": true }));
    let id = asked.interrupt_id.unwrap();
    client.resume(run.as_str(), yes().for_interrupt("approval", id)).await.unwrap();
    client.wait(run.as_str()).await.unwrap();
    let mut stream = client.resume_stream(run.as_str(), yes().of_type("approval")).await.unwrap();
    let mut last = None;
    while let Some(streamed) = stream.next().await.unwrap() {
        last = Some(streamed);
    }
    let Some(StreamPayload::Values(update)) = last.map(|it| it.event) else { panic!("it ended") };
    assert_eq!(update.values.to_value(), json!({ "last": { "ok": true } }));
    let late = client.resume(run.as_str(), yes()).await.unwrap_err();
    assert_eq!(late.code(), Some("run_not_interrupted"));

    let mut stream = client.run_stream(NewRun::new("asks", json!({}))).await.unwrap();
    for _ in 0..2 {
        assert_eq!(updates_of(&mut stream).await.2, RunStatus::Interrupted);
        stream.resume(yes()).await.unwrap();
    }
    assert_eq!(updates_of(&mut stream).await.2, RunStatus::Success);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_keep_what_runs_leave() {
    let server = start().await;
    let client = client_of(&server);
    let new = ThreadCreate { metadata: object(r#"{"a":1}"#), ..Default::default() };
    let thread = client.create_thread(&new).await.unwrap();
    let id = thread.thread_id.as_str();
    let twice = ThreadCreate { thread_id: Some(id.to_owned()), ..Default::default() };
    assert_eq!(client.create_thread(&twice).await.unwrap_err().code(), Some("thread_exists"));
    let waited = client.run_and_wait(count("2").on_thread(id)).await.unwrap();
    let run = waited.run.unwrap().run_id;
    let at = RunAt::on_thread(id, run.as_str());
    assert_eq!(client.run(at.clone()).await.unwrap().thread_id.as_deref(), Some(id));
    assert_eq!(updates_of(&mut client.join(at.clone(), None)).await.2, RunStatus::Success);
    assert_eq!(client.thread_runs(id, Some(1), Some(0)).await.unwrap()[0].run_id, run);
    let shown = client.thread(id).await.unwrap();
    assert!(shown.values.unwrap().as_str().contains("0 1 "));
    let idle = ThreadSearchRequest {
        status: Some(ThreadStatus::Idle),
        metadata: object(r#"{"a":1}"#),
        ..Default::default()
    };
    assert_eq!(client.search_threads(&idle).await.unwrap()[0].thread_id, id);
    let history = client.thread_history(id, Some(5), None).await.unwrap();
    let checkpoint = &history[0].checkpoint.checkpoint_id;
    assert_eq!(
        client.thread_history(id, None, Some(checkpoint)).await.unwrap().len(),
        history.len() - 1
    );
    let patch = ThreadPatch { metadata: object(r#"{"b":2}"#), ..Default::default() };
    let patched = client.patch_thread(id, &patch).await.unwrap();
    assert_eq!(patched.metadata.as_json().to_value(), json!({ "a": 1, "b": 2 }));
    let lost = ThreadPatch {
        checkpoint: Some(ThreadCheckpoint { checkpoint_id: "nowhere".to_owned() }),
        values: Some(Raw::parse("{}").unwrap()),
        ..Default::default()
    };
    let error = client.patch_thread(id, &lost).await.unwrap_err();
    assert_eq!(error.code(), Some("checkpoint_not_found"));
    let copy = client.copy_thread(id).await.unwrap();
    assert_ne!(copy.thread_id, id);
    assert!(copy.values.unwrap().as_str().contains("0 1 "));
    client.delete_run(at).await.unwrap();
    client.delete_thread(id).await.unwrap();
    assert_eq!(client.thread(id).await.unwrap_err().code(), Some("thread_not_found"));
    let on_new = count("1").on_new_thread("mine");
    client.run_and_wait(on_new).await.unwrap();
    assert_eq!(client.thread("mine").await.unwrap().status, ThreadStatus::Idle);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_again_and_again_ends_with_the_whole_output() {
    let server = start().await;
    let whole: String = (0..30).map(|number| format!("{number} ")).collect();
    for bytes in [700, 1_100] {
        let (client, wire) = torn_client(&server, bytes);
        let new = count("30").config(json!({ "slow": true }));
        let mut stream = client.run_stream(new).await.unwrap();
        let (texts, _, status) = updates_of(&mut stream).await;
        assert_eq!(status, RunStatus::Success);
        assert!(wire.streams() > 1, "it broke");
        assert_eq!(texts.last(), Some(&whole), "torn after {bytes} bytes");
        for pair in texts.windows(2) {
            assert!(pair[1].starts_with(&pair[0]), "values grow: {pair:?}");
        }
        let run = client.run(stream.run().unwrap()).await.unwrap();
        assert_eq!(run.status, RunStatus::Success, "a break does not cancel it");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_come_once_and_in_order_over_breaks() {
    let server = start().await;
    let both = || {
        let new = count("30").config(json!({ "slow": true }));
        new.streaming([StreamMode::Values, StreamMode::Custom])
    };
    let (client, wire) = torn_client(&server, 900);
    let mut stream = client.run_stream(both()).await.unwrap();
    let (_, updates, status) = updates_of(&mut stream).await;
    assert_eq!(status, RunStatus::Success);
    assert!(wire.streams() > 1, "it broke");
    let again = updates_of(&mut client_of(&server).join(stream.run().unwrap(), None)).await.1;
    assert_eq!(updates, again);
    assert!(updates.len() >= 30, "{updates:?}");
    server.stop().await;
}
