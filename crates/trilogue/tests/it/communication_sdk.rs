//! The SDK's client of the Agent Communication Protocol against Trilogue servers, including ones with agents of this test.

use std::sync::Arc;
use std::time::Duration;

use trilogue::Agents;
use trilogue::sdk::prelude::*;
use trilogue_sdk::client;
use trilogue_sdk::client::communication::{Client, Filter, NewRun, RunStream, Session};
use trilogue_wire::agent_communication::{
    ErrorCode, Event, Message, MessagePart, Role, RunStatus, Time,
};

use crate::sdk_server::Server;
use crate::tearing_transport::TearingTransport;

async fn history_echo(turn: Turn, context: Context) -> Result<(), AgentError> {
    for message in context.history().await? {
        context.repeat(&message).await?;
    }
    for message in turn.input().map(Input::messages).unwrap_or_default() {
        context.repeat(message).await?;
    }
    Ok(())
}

async fn awaiter(turn: Turn, context: Context) -> Result<Outcome, AgentError> {
    match turn {
        Turn::Start { .. } => {
            context.text("Hello.").await?;
            Outcome::suspended(Question::message(""), json!(null))
        }
        Turn::Resume { ref answer, .. } => {
            let parts = if let Answer::Message(parts) = answer { parts.len() } else { 99 };
            context.text(format!("{parts} parts: {}.", turn.text())).await?;
            Ok(Outcome::Completed)
        }
    }
}

async fn counts(turn: Turn, context: Context) -> Result<(), AgentError> {
    #[derive(serde::Deserialize, Default)]
    struct Config {
        slow: bool,
    }
    let slow = context.config::<Config>()?.slow;
    for number in 0..turn.text().parse().unwrap_or(0_u32) {
        context.part(Part::text(format!("{number} "))).await?;
        if slow {
            context.commit().await?;
            context.wait(Duration::from_millis(20)).await?;
        }
    }
    Ok(())
}

async fn fails(_: Turn, context: Context) -> Result<(), AgentError> {
    context.text("half").await?;
    Err(AgentError::invalid_input("not that"))
}

async fn start() -> Server {
    let agents = Agents::new()
        .with(agent_fn("history_echo", "Says what was said, then what it hears.", history_echo))
        .with(agent_fn("awaiter", "Awaits two messages.", awaiter))
        .with(
            agent_fn("counts", "", counts).with_card(
                Card::chat("counts", "Counts to what it hears, a part a number.")
                    .config(json!({ "properties": { "slow": { "type": "boolean" } } })),
            ),
        )
        .with(agent_fn("fails", "Fails.", fails));
    Server::start(agents).await
}

fn client_of(server: &Server) -> Client {
    torn_client(server, usize::MAX).0
}

/// A client whose first stream breaks after this many bytes, the second after twice as many, and so on.
fn torn_client(server: &Server, bytes: usize) -> (Client, Arc<TearingTransport>) {
    let transport = TearingTransport::new(server.address, bytes);
    let mut options = client::Options::at("/communication");
    options.delay = Duration::from_millis(1);
    (Client::new(Arc::<TearingTransport>::clone(&transport), options), transport)
}

async fn all(stream: &mut RunStream) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(streamed) = stream.next().await.unwrap() {
        events.push(streamed.event);
    }
    events
}

fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(Message::plain_text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_does_what_it_says() {
    let server = start().await;
    let client = client_of(&server);
    client.ping().await.unwrap();
    let agents = client.agents().await.unwrap().agents;
    assert_eq!(agents.len(), 4);
    assert_eq!(client.agents_page(2, 1).await.unwrap().agents, agents[1..3]);
    assert_eq!(client.agent("awaiter").await.unwrap().description, "Awaits two messages.");
    assert_eq!(client.agent("nobody").await.unwrap_err().code(), Some("agent_not_found"));

    // Times keep their microseconds.
    let at = Time::parse("2026-11-20T23:50:09.133102Z").unwrap();
    let said =
        Message { created_at: at.into(), completed_at: at.into(), ..Message::text("Howdy!") };
    let run = client.run_sync(NewRun::new("history_echo", said.clone())).await.unwrap();
    assert_eq!(run.status, RunStatus::Completed);
    let [answer] = &run.output[..] else { panic!("{run:?}") };
    // The answer adds only its own id to the sent message.
    assert!(answer.extension.is_some(), "{answer:?}");
    let extension = answer.extension.clone();
    let said = Message { role: Role::Named("history_echo".to_owned()), extension, ..said };
    assert_eq!(*answer, said);

    let started = client.run_async(NewRun::new("counts", "3").idempotency_key("k")).await.unwrap();
    let again = client.run_async(NewRun::new("counts", "3").idempotency_key("k")).await.unwrap();
    assert_eq!(started.run_id, again.run_id);
    let events = all(&mut client.follow(started.run_id, None)).await;
    assert_eq!(client.events(started.run_id).await.unwrap().events, events);
    let run = client.run(started.run_id).await.unwrap();
    assert_eq!(run.output[0].parts.len(), 3);
    let filter = Filter { agent_name: Some("counts".to_owned()), ..Filter::default() };
    let runs = client.runs(&filter).await.unwrap();
    assert_eq!(runs.runs.iter().map(|run| run.run_id).collect::<Vec<_>>(), [run.run_id]);
    client.cancel(run.run_id).await.unwrap_err();

    let failed = client.run_sync(NewRun::new("fails", "x")).await.unwrap();
    assert_eq!(failed.status, RunStatus::Failed);
    assert_eq!(failed.error.unwrap().code, ErrorCode::InvalidInput);
    assert_eq!(texts(&failed.output), ["half"]);

    let slow = NewRun::new("counts", "1000000").config(json!({ "slow": true }));
    let mut stream = client.run_stream(slow).await.unwrap();
    stream.next().await.unwrap();
    client.cancel(stream.run().unwrap()).await.unwrap();
    let last = all(&mut stream).await.pop().unwrap();
    assert!(matches!(last, Event::RunCancelled { .. }), "{last:?}");
    let refused = client.run_sync(NewRun::new("counts", "1").config(json!({ "slow": 7 }))).await;
    assert!(refused.unwrap_err().to_string().contains("slow"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_awaits_and_is_resumed_in_every_mode() {
    let server = start().await;
    let client = client_of(&server);
    let awaiting = || client.run_sync(NewRun::new("awaiter", Vec::<Message>::new()));
    let run = awaiting().await.unwrap();
    assert_eq!(run.status, RunStatus::Awaiting);
    assert_eq!(run.await_request.unwrap().message.parts, []);
    let done = client.resume_sync(run.run_id, Vec::<MessagePart>::new()).await.unwrap();
    assert_eq!(texts(&done.output), ["Hello.", "0 parts: ."]);
    assert_eq!(done.await_request, None);
    client.resume_sync(run.run_id, "again").await.unwrap_err();

    let run = awaiting().await.unwrap().run_id;
    client.resume_async(run, "Bob").await.unwrap();
    let events = all(&mut client.follow(run, None)).await;
    assert!(
        matches!(events.last(), Some(Event::RunCompleted { run }) if texts(&run.output)[1] == "1 parts: Bob.")
    );

    let run = awaiting().await.unwrap().run_id;
    let mut stream = client.resume_stream(run, "Ada").await.unwrap();
    let events = all(&mut stream).await;
    assert!(matches!(events.first(), Some(Event::RunInProgress { .. })), "{events:?}");
    assert!(matches!(events.last(), Some(Event::RunCompleted { .. })), "{events:?}");

    let mut stream = client.run_stream(NewRun::new("awaiter", "x")).await.unwrap();
    let mut events = all(&mut stream).await;
    assert!(matches!(events.last(), Some(Event::RunAwaiting { .. })), "{events:?}");
    stream.resume("Eve").await.unwrap();
    events.extend(all(&mut stream).await);
    let whole = client.events(stream.run().unwrap()).await.unwrap().events;
    assert_eq!(events, whole);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_again_and_again_gives_every_event_once() {
    let server = start().await;
    for bytes in [500, 700, 1_100] {
        let (client, wire) = torn_client(&server, bytes);
        let new = NewRun::new("counts", "30").config(json!({ "slow": true }));
        let mut stream = client.run_stream(new).await.unwrap();
        let events = all(&mut stream).await;
        assert!(wire.streams() > 3, "it broke");
        let whole = client_of(&server).events(stream.run().unwrap()).await.unwrap().events;
        assert_eq!(events, whole, "torn after {bytes} bytes");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_moves_between_servers_and_keeps_its_history() {
    let (a, b) = (start().await, start().await);
    let (on_a, on_b) = (client_of(&a), client_of(&b));
    let mut session = Session::new();
    let say = |text: &str| NewRun::new("history_echo", text);
    let run = session.run_sync(&on_a, say("one")).await.unwrap();
    assert_eq!(texts(&run.output), ["one"]);
    let run = session.run_sync(&on_a, say("two")).await.unwrap();
    assert_eq!(texts(&run.output), ["one", "one", "two"]);
    // Server A has the history, and B reads it there.
    let run = session.run_sync(&on_b, say("three")).await.unwrap();
    let before = ["one", "one", "two", "one", "one", "two"];
    assert_eq!(texts(&run.output), [&before[..], &["three"]].concat());
    assert_eq!(run.session_id, Some(session.id()));
    let known = session.refresh().await.unwrap().clone();
    let at = |server: &Server| {
        let base = format!("http://{}/communication/resources/", server.address);
        known.history.iter().filter(|address| address.starts_with(&base)).count()
    };
    assert_eq!((at(&a), at(&b)), (6, 8));
    // The session moves back to A, which has an older version of its history.
    let run = session.run_sync(&on_a, say("four")).await.unwrap();
    assert_eq!(run.output.len(), 6 + 8 + 1);
    assert_eq!(session.refresh().await.unwrap().history.len(), 14 + 1 + 15);
    // A client that knows only the session's id.
    let mut other = Session::continued(session.id());
    let run = other.run_sync(&on_a, say("five")).await.unwrap();
    assert_eq!(run.output.len(), 30 + 1);
    a.stop().await;
    b.stop().await;
}
