//! Follows references: what agents get, and what a face shows.

use std::sync::atomic::Ordering;

use trilogue_domain::{
    ClientHistory, Code, Input, Message, MessageId, Outcome, Part, Reference, Role, RunStatus,
    ThreadId, Timestamp, limits,
};
use trilogue_runtime::{RunRequest, StateAt, ThreadChoice};
use trilogue_store::rows::RunRow;

use crate::client_history::{address, history_of};
use crate::fixture::{TestServer, alice, new_run};

fn message_of(thread: &ThreadId, id: &str) -> Reference {
    Reference::Message { thread: Some(thread.clone()), id: MessageId::parse(id).unwrap() }
}

fn message(id: &str, text: &str) -> Message {
    Message {
        id: MessageId::parse(id).unwrap(),
        ..Message::new(Role::User, vec![Part::text(text)], None)
    }
}

fn failure(run: &RunRow) -> Code {
    match &run.outcome {
        Some(Outcome::Failed(failure)) => Code::from_text(failure.code.as_str()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn references_are_in_the_order_of_the_log() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let thread = ThreadId::parse("t").unwrap();
        server.replace(&thread, vec![address(3), address(3)]).await;
        let input = vec![message("in-1", "before"), message("in-2", "say:a result:1 say:b")];
        let new = RunRequest {
            input: Input::Messages(input),
            ..new_run("", ThreadChoice::Existing(thread.clone()))
        };
        let run = server.runtime.submit(&alice(), new).await.unwrap().settled.wait().await.unwrap();
        // An incomplete message has no row to refer to.
        let second =
            server.run(r#"bytes:10 set:{"n":1}"#, ThreadChoice::Existing(thread.clone())).await;
        // A failed run is not on the path.
        server.run("say:lost fail:x", ThreadChoice::Existing(thread.clone())).await;
        let entries = server.references(&thread).await;
        let id = |text: &str| message_of(&thread, text);
        assert_eq!(entries[..4], [address(3), address(3), id("in-1"), id("in-2")]);
        assert_eq!(entries[5], Reference::Result(run.id.clone()));
        assert_eq!(entries.len(), 8, "a, the result, b, and the second run's input");
        let mut said = Vec::new();
        for entry in [&entries[4], &entries[6]] {
            let Reference::Message { id, .. } = entry else { panic!("{entry:?}") };
            let row = server.store.message(&alice().scope(), &thread, id).await.unwrap().unwrap();
            assert_eq!(row.run, run.key);
            said.push(id.clone());
        }
        assert_ne!(said[0], said[1]);
        let path = server.path(&thread).await;
        assert_eq!(path[0].run, Some(second.key));
        let state = Some(StateAt::Value { checkpoint: path[0].id.clone() });
        assert_eq!(server.state_at(&thread).await, state);
    }
}

#[tokio::test]
async fn messages_and_results_of_other_threads_are_read_from_their_logs() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        server.fill_library(0..1);
        let other = server.thread().await;
        let script = r#"say:one result:{"n":1} say:two"#;
        let run = server.run(script, ThreadChoice::Existing(other.clone())).await;
        let there = server.references(&other).await;
        let thread = ThreadId::parse("t").unwrap();
        // Out of order, with one entry twice and one at a remote address.
        let entries = vec![
            there[3].clone(),
            address(0),
            Reference::Result(run.id.clone()),
            there[3].clone(),
            there[1].clone(),
        ];
        server.replace(&thread, entries.clone()).await;
        assert_eq!(server.agent_history(&thread).await, r#"two|far 0||two|one"#, "JSON is no text");
        let own = [entries, server.references(&thread).await[5..].to_vec()].concat();
        assert_eq!(server.references(&thread).await, own);

        server.runtime.remove_run(&alice(), &run.id).await.unwrap();
        let asks = server.run("history", ThreadChoice::Existing(thread.clone())).await;
        assert_eq!((asks.status, failure(&asks)), (RunStatus::Failed, Code::NotFound));
        let silent = server.run("say:fine", ThreadChoice::Existing(thread.clone())).await;
        assert_eq!(silent.status, RunStatus::Completed);
        // A reference to removed content does not keep the history from being continued.
        let longer = [server.references(&thread).await, vec![address(0)]].concat();
        server.replace(&thread, longer).await;
    }
}

#[tokio::test]
async fn large_content_of_another_thread_is_inlined() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let other = server.thread().await;
        let text = "x".repeat(limits::INLINE_CONTENT_BYTES + 1);
        let new = RunRequest {
            input: Input::Messages(vec![message("large", &text), message("small", "say:ok")]),
            ..new_run("", ThreadChoice::Existing(other.clone()))
        };
        server.runtime.submit(&alice(), new).await.unwrap().settled.wait().await.unwrap();
        let thread = ThreadId::parse("t").unwrap();
        let large = message_of(&other, "large");
        server.replace(&thread, vec![large]).await;
        assert_eq!(server.agent_history(&thread).await, text);
    }
}

#[tokio::test]
async fn a_result_is_a_message_of_its_agent_in_its_own_thread_too() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let run = server.run("result:[7]", ThreadChoice::Existing(server.main.clone())).await;
        let shown = server.run("roles", ThreadChoice::Existing(server.main.clone())).await;
        assert_eq!(
            server.output_text(&shown).await,
            format!("user text/plain|agent/script application/json [7] {}", run.id)
        );
    }
}

#[tokio::test]
async fn addresses_are_read_in_order_some_at_a_time_and_each_once() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        server.fill_library(0..40);
        let thread = ThreadId::parse("t").unwrap();
        let mut entries: Vec<_> = (0..40).map(address).collect();
        entries.extend([address(7), address(0)]);
        server.replace(&thread, entries).await;
        assert!(server.library.asked.lock().unwrap().is_empty(), "nobody has asked yet");
        server.run("say:x", ThreadChoice::Existing(thread.clone())).await;
        assert!(server.library.asked.lock().unwrap().is_empty(), "nor has this agent");
        let told = server.agent_history(&thread).await;
        let mut expected: Vec<_> = (0..40).map(|number| format!("far {number}")).collect();
        expected.extend(["far 7", "far 0", "say:x", "x"].map(str::to_owned));
        assert_eq!(told, expected.join("|"));
        let mut asked = server.library.asked.lock().unwrap().clone();
        assert_eq!(asked.len(), 40);
        asked.sort();
        asked.dedup();
        assert_eq!(asked.len(), 40, "each once");
        let at_once = server.library.at_once.load(Ordering::SeqCst);
        assert!((2..=8).contains(&at_once), "{at_once} at once");
    }
}

#[tokio::test]
async fn what_cannot_be_read_fails_the_run_that_asks() {
    let server = TestServer::memory().await;
    server.fill_library(0..1);
    let thread = ThreadId::parse("t").unwrap();
    server.replace(&thread, vec![address(0), address(1)]).await;
    let run = server.run("history", ThreadChoice::Existing(thread.clone())).await;
    assert_eq!(failure(&run), Code::PeerUnavailable);
    let half = "x".repeat(limits::MAX_FETCHED_BYTES / 2 + 1);
    for number in 0..2 {
        server.library.put(&format!("http://example.com/{number}"), half.clone());
    }
    let run = server.run("history", ThreadChoice::Existing(thread.clone())).await;
    assert_eq!(failure(&run), Code::BodyTooLarge);
    let state =
        ClientHistory { entries: Vec::new(), state: Some("http://example.com/none".into()) };
    server.runtime.replace_history(&alice(), &thread, state).await.unwrap();
    let run = server.run("state", ThreadChoice::Existing(thread)).await;
    assert_eq!(failure(&run), Code::PeerUnavailable);
}

#[tokio::test(start_paused = true)]
async fn without_a_reader_addresses_are_refused() {
    let server = TestServer::bare().await;
    let thread = ThreadId::parse("t").unwrap();
    let state = Some("http://example.com/state".into());
    let brought = ClientHistory { state, ..history_of(vec![address(0)]) };
    server.runtime.replace_history(&alice(), &thread, brought).await.unwrap();
    for word in ["history", "state"] {
        let run = server.run(word, ThreadChoice::Existing(thread.clone())).await;
        assert_eq!(failure(&run), Code::EgressRefused);
    }
}

#[tokio::test]
async fn stated_times_stay_as_stated() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let thread = server.thread().await;
        let stated =
            Message { created_at: Some(Timestamp::from_micros(7)), ..message("stated", "say:x") };
        let new = RunRequest {
            input: Input::Messages(vec![message("unknown", "a"), stated]),
            ..new_run("", ThreadChoice::Existing(thread.clone()))
        };
        server.runtime.submit(&alice(), new).await.unwrap().settled.wait().await.unwrap();
        let run = server.run("times", ThreadChoice::Existing(thread)).await;
        let now = trilogue_domain::port::Clock::now(&*server.clock).as_micros();
        assert_eq!(
            server.output_text(&run).await,
            format!("None None|Some(7) None|Some({now}) Some({now})")
        );
    }
}
