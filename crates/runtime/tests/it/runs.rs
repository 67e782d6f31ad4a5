//! Runs: their logged events, the order of these, and their ends.

use std::sync::atomic::Ordering;

use trilogue_domain::{Code, Outcome, RunStatus, Strategy};
use trilogue_runtime::ThreadChoice;

use crate::fixture::{House, alice, new_run, until};

#[tokio::test]
async fn a_run_is_logged_once_and_in_order() {
    for house in [House::memory().await, House::sqlite().await] {
        let thread = house.thread().await;
        let run = house.run("say:hello say:world", ThreadChoice::Existing(thread)).await;
        assert_eq!(run.status, RunStatus::Completed);
        let names: Vec<_> =
            house.events(&run).await.iter().map(|event| event.body.name()).collect();
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
            house.events(&run).await.iter().map(|event| event.run_number).collect();
        assert_eq!(numbers, (1..=12).collect::<Vec<_>>());
        assert_eq!(house.stored(&run).await, run);
    }
}

#[tokio::test]
async fn a_synchronous_native_run_costs_one_commit() {
    let house = House::sqlite().await;
    let before = house.store.stats().await.unwrap().commits;
    let mut new = new_run("say:hello", ThreadChoice::Ephemeral);
    new.synchronous = true;
    let run = house.runtime.submit(&alice(), new).await.unwrap().settled.wait().await.unwrap();
    assert_eq!(run.status, RunStatus::Completed);
    assert_eq!(house.said(&run).await, "hello");
    assert_eq!(house.store.stats().await.unwrap().commits - before, 1);
}

#[tokio::test]
async fn a_synchronous_run_that_does_not_end_at_once_becomes_durable_all_the_same() {
    let house = House::sqlite().await;
    let mut new = new_run("gate say:late", ThreadChoice::Ephemeral);
    new.synchronous = true;
    let submitted = house.runtime.submit(&alice(), new).await.unwrap();
    until("the run is stored", || async {
        house.store.run(&alice().scope(), &submitted.run.id).await.unwrap().is_some()
    })
    .await;
    house.agent.gate.add_permits(1);
    let run = submitted.settled.wait().await.unwrap();
    assert_eq!(house.said(&run).await, "late");
}

#[tokio::test]
async fn a_long_stream_is_whole() {
    for house in [House::memory().await, House::sqlite().await] {
        let run = house.run("many:5000", ThreadChoice::Ephemeral).await;
        let events = house.events(&run).await;
        assert_eq!(events.len(), 6 + 3 * 5000);
        assert!(events.iter().zip(1..).all(|(event, number)| event.run_number == number));
        let expected: String = (0..5000).map(|number| number.to_string()).collect();
        assert_eq!(house.said(&run).await, expected);
    }
}

#[tokio::test]
async fn a_panic_is_that_runs_failure_and_its_text_stays_inside() {
    let house = House::memory().await;
    let run = house.run("say:before panic", ThreadChoice::Ephemeral).await;
    let Some(Outcome::Failed(failure)) = &run.outcome else { panic!("{run:?}") };
    assert_eq!(failure.code, Code::AgentPanicked.as_str());
    assert!(!format!("{:?}", house.events(&run).await).contains("secret text"));
    assert_eq!(house.said(&run).await, "before");
    let next = house.run("say:after", ThreadChoice::Ephemeral).await;
    assert_eq!(next.status, RunStatus::Completed);
}

#[tokio::test]
async fn runs_of_one_thread_take_turns() {
    let house = House::memory().await;
    let thread = house.thread().await;
    let first = house
        .runtime
        .submit(&alice(), new_run("gate say:one", ThreadChoice::Existing(thread.clone())))
        .await
        .unwrap();
    let second = house
        .runtime
        .submit(&alice(), new_run("history", ThreadChoice::Existing(thread.clone())))
        .await
        .unwrap();
    assert_eq!(second.run.status, RunStatus::Queued);
    let mut third = new_run("say:no", ThreadChoice::Existing(thread));
    third.strategy = Strategy::Reject;
    let refused = house.runtime.submit(&alice(), third).await.map(|_| ()).unwrap_err();
    assert_eq!(refused.code(), Code::ThreadBusy);
    house.agent.gate.add_permits(1);
    first.settled.wait().await.unwrap();
    let second = second.settled.wait().await.unwrap();
    assert_eq!(house.said(&second).await, "gate say:one|one");
}

#[tokio::test]
async fn failed_and_cancelled_runs_are_not_history() {
    let house = House::memory().await;
    let thread = house.thread().await;
    house.run("say:kept", ThreadChoice::Existing(thread.clone())).await;
    house.run("say:lost fail:no", ThreadChoice::Existing(thread.clone())).await;
    let last = house.run("history", ThreadChoice::Existing(thread)).await;
    assert_eq!(house.said(&last).await, "say:kept|kept");
}

#[tokio::test]
async fn a_run_stops_when_asked_and_is_dropped_when_it_does_not() {
    let house = House::with(trilogue_runtime::Options {
        cancel_grace: std::time::Duration::from_millis(20),
        ..Default::default()
    })
    .await;
    for script in ["until-cancelled say:bye", "forever"] {
        let submitted =
            house.runtime.submit(&alice(), new_run(script, ThreadChoice::Ephemeral)).await.unwrap();
        let run = house.runtime.cancel(&alice(), &submitted.run.id).await.unwrap();
        assert_eq!(run.status, RunStatus::Cancelling);
        let run = submitted.settled.wait().await.unwrap();
        assert_eq!(run.status, RunStatus::Cancelled, "{script}");
        let again = house.runtime.cancel(&alice(), &run.id).await.unwrap_err();
        assert_eq!(again.code(), Code::RunEnded);
    }
}

#[tokio::test]
async fn an_idempotency_key_names_one_run() {
    for house in [House::memory().await, House::sqlite().await] {
        let keyed = |text: &str, request: u8| {
            let mut new = new_run(text, ThreadChoice::Ephemeral);
            new.idempotency = Some(("key".to_owned(), [request; 32]));
            new
        };
        let alice = alice();
        let both = tokio::join!(
            house.runtime.submit(&alice, keyed("say:a", 1)),
            house.runtime.submit(&alice, keyed("say:a", 1)),
        );
        let (one, two) = (both.0.unwrap(), both.1.unwrap());
        assert_eq!(one.run.id, two.run.id);
        assert_ne!(one.created, two.created);
        assert_eq!(one.settled.wait().await.unwrap(), two.settled.wait().await.unwrap());
        assert_eq!(house.agent.turns.load(Ordering::SeqCst), 1);
        let other = house.runtime.submit(&alice, keyed("say:b", 2)).await.map(|_| ()).unwrap_err();
        assert_eq!(other.code(), Code::IdempotencyMismatch);
    }
}

#[tokio::test]
async fn a_run_that_was_taken_in_between_is_joined_where_its_twin_would_be_refused() {
    for house in [House::memory().await, House::sqlite().await] {
        let keyed = |key: &str| {
            let mut new = new_run("gate", ThreadChoice::Existing(house.main.clone()));
            new.strategy = Strategy::Reject;
            new.idempotency = Some((key.to_owned(), [1; 32]));
            new
        };
        let first = house.submit(keyed("key")).await;
        // Both lookups had happened before either submission.
        let twin = house.runtime.submit_unknown(&alice(), keyed("key")).await.unwrap();
        assert_eq!((&twin.run.id, twin.created), (&first.run.id, false));
        let other = house.runtime.submit_unknown(&alice(), keyed("other")).await;
        assert_eq!(other.map(|_| ()).unwrap_err().code(), Code::ThreadBusy);
        house.agent.gate.add_permits(1);
        assert_eq!(first.settled.wait().await.unwrap(), twin.settled.wait().await.unwrap());
    }
}

#[tokio::test]
async fn a_taken_run_id_refuses_that_run_and_harms_no_other() {
    for house in [House::memory().await, House::sqlite().await] {
        let at_work = house
            .runtime
            .submit(&alice(), new_run("gate say:done", ThreadChoice::Existing(house.main.clone())))
            .await
            .unwrap();
        let mut twin = new_run("say:twin", ThreadChoice::Existing(house.main.clone()));
        twin.id = Some(at_work.run.id.clone());
        let refused = house.runtime.submit(&alice(), twin).await.map(|_| ()).unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists);
        house.agent.gate.add_permits(1);
        let run = at_work.settled.wait().await.unwrap();
        assert_eq!((run.status, house.said(&run).await), (RunStatus::Completed, "done".to_owned()));
    }
}

#[tokio::test]
async fn large_content_is_stored_beside_the_log_and_read_back_whole() {
    for house in [House::memory().await, House::sqlite().await] {
        let thread = house.thread().await;
        let run = house.run("bytes:200000", ThreadChoice::Existing(thread.clone())).await;
        assert_eq!(run.status, RunStatus::Completed);
        assert!(format!("{:?}", house.events(&run).await).contains("Blob"));
        let history = house.run("history", ThreadChoice::Existing(thread)).await;
        assert_eq!(history.status, RunStatus::Completed);
    }
}

#[tokio::test]
async fn an_owner_without_work_leaves_memory() {
    let house = House::with(trilogue_runtime::Options {
        owner_idle: std::time::Duration::from_millis(1),
        ..Default::default()
    })
    .await;
    for _ in 0..50 {
        house.run("say:x", ThreadChoice::Ephemeral).await;
    }
    house.run("suspend:say:x", ThreadChoice::Ensure(Default::default())).await;
    until("owners have left", || async { house.runtime.status().owners == 0 }).await;
}
