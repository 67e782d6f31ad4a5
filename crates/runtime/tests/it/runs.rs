//! Runs: their logged events, the order of these, and their ends.

use std::sync::atomic::Ordering;

use trilogue_domain::{Code, Outcome, RunStatus, Strategy};
use trilogue_runtime::ThreadChoice;

use crate::fixture::{TestServer, alice, new_run, until};

#[tokio::test]
async fn a_run_is_logged_once_and_in_order() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let thread = server.thread().await;
        let run = server.run("say:hello say:world", ThreadChoice::Existing(thread)).await;
        assert_eq!(run.status, RunStatus::Completed);
        let names: Vec<_> =
            server.events(&run).await.iter().map(|event| event.body.name()).collect();
        assert_eq!(
            names,
            [
                "run.created",
                "message.started",
                "message.part",
                "message.completed",
                "run.started",
                "message.started",
                "message.delta",
                "message.completed",
                "message.started",
                "message.delta",
                "message.completed",
                "run.ended",
            ]
        );
        let numbers: Vec<_> =
            server.events(&run).await.iter().map(|event| event.run_number).collect();
        assert_eq!(numbers, (1..=12).collect::<Vec<_>>());
        assert_eq!(server.stored(&run).await, run);
    }
}

#[tokio::test]
async fn a_synchronous_native_run_costs_one_commit_and_one_frame() {
    let server = TestServer::sqlite().await;
    let before = server.store.stats().await.unwrap();
    let mut new = new_run("say:hello", ThreadChoice::Ephemeral);
    new.synchronous = true;
    let run = server.runtime.submit(&alice(), new).await.unwrap().settled.wait().await.unwrap();
    assert_eq!(run.status, RunStatus::Completed);
    assert_eq!(server.output_text(&run).await, "hello");
    let after = server.store.stats().await.unwrap();
    assert_eq!((after.commits - before.commits, after.frames - before.frames), (1, 1));
    let numbers: Vec<_> =
        server.events(&run).await.iter().map(|event| (event.number, event.run_number)).collect();
    assert_eq!(numbers, (1..=9).map(|number| (number, number)).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_synchronous_run_that_does_not_end_at_once_becomes_durable_all_the_same() {
    let server = TestServer::sqlite().await;
    let mut new = new_run("gate say:late", ThreadChoice::Ephemeral);
    new.synchronous = true;
    let submitted = server.runtime.submit(&alice(), new).await.unwrap();
    until("the run is stored", || async {
        server.store.run(&alice().scope(), &submitted.run.id).await.unwrap().is_some()
    })
    .await;
    server.agent.gate.add_permits(1);
    let run = submitted.settled.wait().await.unwrap();
    assert_eq!(server.output_text(&run).await, "late");
}

#[tokio::test]
async fn a_long_stream_is_whole() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let run = server.run("many:5000", ThreadChoice::Ephemeral).await;
        let events = server.events(&run).await;
        assert_eq!(events.len(), 6 + 3 * 5000);
        assert!(events.iter().zip(1..).all(|(event, number)| event.run_number == number));
        let expected: String = (0..5000).map(|number| number.to_string()).collect();
        assert_eq!(server.output_text(&run).await, expected);
    }
}

#[tokio::test]
async fn a_panic_is_that_runs_failure_and_its_text_stays_inside() {
    let server = TestServer::memory().await;
    let run = server.run("say:before panic", ThreadChoice::Ephemeral).await;
    let Some(Outcome::Failed(failure)) = &run.outcome else { panic!("{run:?}") };
    assert_eq!(failure.code, Code::AgentPanicked.as_str());
    assert!(!format!("{:?}", server.events(&run).await).contains("secret text"));
    assert_eq!(server.output_text(&run).await, "before");
    let next = server.run("say:after", ThreadChoice::Ephemeral).await;
    assert_eq!(next.status, RunStatus::Completed);
}

#[tokio::test]
async fn runs_of_one_thread_take_turns() {
    let server = TestServer::memory().await;
    let thread = server.thread().await;
    let first = server
        .runtime
        .submit(&alice(), new_run("gate say:one", ThreadChoice::Existing(thread.clone())))
        .await
        .unwrap();
    let second = server
        .runtime
        .submit(&alice(), new_run("history", ThreadChoice::Existing(thread.clone())))
        .await
        .unwrap();
    assert_eq!(second.run.status, RunStatus::Queued);
    let mut third = new_run("say:no", ThreadChoice::Existing(thread));
    third.strategy = Strategy::Reject;
    let refused = server.runtime.submit(&alice(), third).await.map(|_| ()).unwrap_err();
    assert_eq!(refused.code(), Code::ThreadBusy);
    server.agent.gate.add_permits(1);
    first.settled.wait().await.unwrap();
    let second = second.settled.wait().await.unwrap();
    assert_eq!(server.output_text(&second).await, "gate say:one|one");
}

#[tokio::test]
async fn failed_and_cancelled_runs_are_not_history() {
    let server = TestServer::memory().await;
    let thread = server.thread().await;
    server.run("say:kept", ThreadChoice::Existing(thread.clone())).await;
    server.run("say:lost fail:no", ThreadChoice::Existing(thread.clone())).await;
    let last = server.run("history", ThreadChoice::Existing(thread)).await;
    assert_eq!(server.output_text(&last).await, "say:kept|kept");
}

#[tokio::test]
async fn a_run_stops_when_asked_and_is_dropped_when_it_does_not() {
    let server = TestServer::with(trilogue_runtime::Options {
        cancel_grace: std::time::Duration::from_millis(20),
        ..Default::default()
    })
    .await;
    for script in ["until-cancelled say:bye", "forever"] {
        let submitted = server
            .runtime
            .submit(&alice(), new_run(script, ThreadChoice::Ephemeral))
            .await
            .unwrap();
        let run = server.runtime.cancel(&alice(), &submitted.run.id).await.unwrap();
        assert_eq!(run.status, RunStatus::Cancelling);
        let run = submitted.settled.wait().await.unwrap();
        assert_eq!(run.status, RunStatus::Cancelled, "{script}");
        let again = server.runtime.cancel(&alice(), &run.id).await.unwrap_err();
        assert_eq!(again.code(), Code::RunEnded);
    }
}

#[tokio::test]
async fn an_idempotency_key_names_one_run() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let keyed = |text: &str, request: u8| {
            let mut new = new_run(text, ThreadChoice::Ephemeral);
            new.idempotency = Some(("key".to_owned(), [request; 32]));
            new
        };
        let alice = alice();
        let both = tokio::join!(
            server.runtime.submit(&alice, keyed("say:a", 1)),
            server.runtime.submit(&alice, keyed("say:a", 1)),
        );
        let (one, two) = (both.0.unwrap(), both.1.unwrap());
        assert_eq!(one.run.id, two.run.id);
        assert_ne!(one.created, two.created);
        assert_eq!(one.settled.wait().await.unwrap(), two.settled.wait().await.unwrap());
        assert_eq!(server.agent.turns.load(Ordering::SeqCst), 1);
        let other = server.runtime.submit(&alice, keyed("say:b", 2)).await.map(|_| ()).unwrap_err();
        assert_eq!(other.code(), Code::IdempotencyMismatch);
    }
}

#[tokio::test]
async fn a_run_that_was_taken_in_between_is_joined_where_its_twin_would_be_refused() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let keyed = |key: &str| {
            let mut new = new_run("gate", ThreadChoice::Existing(server.main.clone()));
            new.strategy = Strategy::Reject;
            new.idempotency = Some((key.to_owned(), [1; 32]));
            new
        };
        let first = server.submit(keyed("key")).await;
        // Both lookups had happened before either submission.
        let twin = server.runtime.submit_skipping_key_lookup(&alice(), keyed("key")).await.unwrap();
        assert_eq!((&twin.run.id, twin.created), (&first.run.id, false));
        let other = server.runtime.submit_skipping_key_lookup(&alice(), keyed("other")).await;
        assert_eq!(other.map(|_| ()).unwrap_err().code(), Code::ThreadBusy);
        server.agent.gate.add_permits(1);
        assert_eq!(first.settled.wait().await.unwrap(), twin.settled.wait().await.unwrap());
    }
}

#[tokio::test]
async fn a_taken_run_id_refuses_that_run_and_harms_no_other() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let at_work = server
            .runtime
            .submit(&alice(), new_run("gate say:done", ThreadChoice::Existing(server.main.clone())))
            .await
            .unwrap();
        let mut twin = new_run("say:twin", ThreadChoice::Existing(server.main.clone()));
        twin.id = Some(at_work.run.id.clone());
        let refused = server.runtime.submit(&alice(), twin).await.map(|_| ()).unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists);
        server.agent.gate.add_permits(1);
        let run = at_work.settled.wait().await.unwrap();
        assert_eq!(
            (run.status, server.output_text(&run).await),
            (RunStatus::Completed, "done".to_owned())
        );
    }
}

#[tokio::test]
async fn large_content_is_stored_beside_the_log_and_read_back_whole() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let thread = server.thread().await;
        let run = server.run("bytes:200000", ThreadChoice::Existing(thread.clone())).await;
        assert_eq!(run.status, RunStatus::Completed);
        assert!(format!("{:?}", server.events(&run).await).contains("Blob"));
        let history = server.run("history", ThreadChoice::Existing(thread)).await;
        assert_eq!(history.status, RunStatus::Completed);
    }
}

#[tokio::test]
async fn an_owner_without_work_leaves_memory() {
    let server = TestServer::with(trilogue_runtime::Options {
        owner_idle: std::time::Duration::from_millis(1),
        ..Default::default()
    })
    .await;
    for _ in 0..50 {
        server.run("say:x", ThreadChoice::Ephemeral).await;
    }
    server.run("suspend:say:x", ThreadChoice::Ensure(Default::default())).await;
    until("owners have left", || async { server.runtime.status().owners == 0 }).await;
}
