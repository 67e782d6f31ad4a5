//! Callbacks: retried until accepted, given up if refused, kept over a restart.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trilogue_domain::event::{InterruptEvent, RunEvent, StateEvent};
use trilogue_domain::port::{Clock, Deliver, Delivered, Delivery};
use trilogue_domain::{Answer, Body, Callback, Json, RunStatus};
use trilogue_runtime::{AnswerTo, Options, RunRequest, ThreadChoice};
use trilogue_store::rows::{InterruptFilter, Page, QueueItem, QueueKind, RetentionPolicy, RunRow};
use trilogue_store::{Batch, Change};

use crate::fixture::{TestServer, alice, new_run, on, scope, until};

/// A receiver that gives prepared answers, and remembers the deliveries.
#[derive(Debug, Default)]
struct Receiver {
    answers: Mutex<Vec<Delivered>>,
    came: Mutex<Vec<Delivery>>,
}

impl Receiver {
    fn answering(answers: impl IntoIterator<Item = Delivered>) -> Arc<Self> {
        let mut answers: Vec<_> = answers.into_iter().collect();
        answers.reverse();
        Arc::new(Self { answers: Mutex::new(answers), came: Mutex::default() })
    }

    fn attempts(&self) -> Vec<(String, u32)> {
        self.came
            .lock()
            .unwrap()
            .iter()
            .map(|delivery| (delivery.id.clone(), delivery.attempt))
            .collect()
    }
}

impl Deliver for Receiver {
    fn deliver<'a>(
        &'a self,
        delivery: &'a Delivery,
    ) -> Pin<Box<dyn Future<Output = Delivered> + Send + 'a>> {
        self.came.lock().unwrap().push(delivery.clone());
        let answer = self.answers.lock().unwrap().pop().unwrap_or(Delivered::Accepted);
        Box::pin(std::future::ready(answer))
    }
}

fn later() -> Delivered {
    Delivered::Later { error: "503".to_owned(), after: None }
}

async fn offer(server: &TestServer, key: &str) {
    let run = server.run("say:x", ThreadChoice::Ensure(Default::default())).await;
    let acquired = server.store.acquire(run.thread, "test").await.unwrap();
    let item = QueueItem {
        kind: QueueKind::Callback,
        key: key.to_owned(),
        due: server.clock.now(),
        tenant: alice().tenant,
        principal: alice().id,
        thread: Some(run.thread),
        reference: Json::parse("{}").unwrap(),
    };
    let batch = Batch {
        thread: run.thread,
        epoch: acquired.thread.epoch,
        expected_last: acquired.last,
        frames: Vec::new(),
        changes: vec![Change::Offer(item)],
        blobs: Vec::new(),
        vital: false,
    };
    server.store.append(batch).await.unwrap();
}

#[tokio::test]
async fn a_callback_is_tried_until_it_is_accepted() {
    let options = Options { callback_backoff: Duration::from_millis(1), ..Default::default() };
    let server = TestServer::with(options).await;
    let receiver = Receiver::answering([later(), later()]);
    server.runtime.deliver_with(receiver.clone());
    offer(&server, "one").await;
    for attempt in 1..=3 {
        until("the next attempt", || async {
            server.clock.advance(Duration::from_micros(50));
            receiver.attempts().len() == attempt
        })
        .await;
    }
    let one = |attempt| ("one".to_owned(), attempt);
    assert_eq!(receiver.attempts(), [one(1), one(2), one(3)]);
    until("it has left the queue", || async {
        server.store.next_due(QueueKind::Callback).await.unwrap().is_none()
    })
    .await;
    assert!(
        server.store.dead_deliveries(&scope(), &Page::default()).await.unwrap().rows.is_empty()
    );
}

#[tokio::test]
async fn a_refused_callback_is_kept_for_the_operator_and_can_be_sent_again() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let receiver = Receiver::answering([Delivered::Refused { error: "410 gone".to_owned() }]);
        server.runtime.deliver_with(receiver.clone());
        offer(&server, "one").await;
        let dead = || async {
            server.store.dead_deliveries(&scope(), &Page::default()).await.unwrap().rows
        };
        until("it is given up", || async { dead().await.len() == 1 }).await;
        let item = dead().await.remove(0);
        assert_eq!(item.error, "410 gone");
        assert!(server.store.revive(&scope(), item.id, server.clock.now()).await.unwrap());
        until("it is accepted", || async { receiver.attempts().len() == 2 }).await;
        until("the list is empty", || async { dead().await.is_empty() }).await;
    }
}

#[tokio::test]
async fn a_callback_survives_a_restart() {
    let server = TestServer::sqlite().await;
    offer(&server, "one").await;
    let server = server.crash().await;
    let receiver = Receiver::answering([]);
    server.runtime.deliver_with(receiver.clone());
    until("it is delivered", || async { receiver.attempts().len() == 1 }).await;
}

fn called_back(new: RunRequest) -> RunRequest {
    let url = "https://example.com/hook".into();
    let callback = Callback { url, status: true, values: true, updates: true };
    RunRequest { callback: Some(callback), ..new }
}

impl Receiver {
    /// Returns the kind and run number of each delivery.
    fn delivered_events(&self) -> Vec<(String, u64)> {
        let came = self.came.lock().unwrap();
        let told = came.iter().map(|delivery| {
            let reference = delivery.reference.to_value();
            let of = reference["of"].as_str().unwrap().to_owned();
            (of, reference["number"].as_u64().unwrap())
        });
        told.collect()
    }

    fn ids(&self) -> Vec<String> {
        self.came.lock().unwrap().iter().map(|delivery| delivery.id.clone()).collect()
    }
}

/// Returns the callbacks that the client must get about a run: kind and number of the last event of each.
async fn to_tell(server: &TestServer, run: &RunRow) -> Vec<(String, u64)> {
    let events = server.events(run).await;
    let told = events.iter().filter_map(|event| {
        let of = match &event.body {
            Body::Interrupt(InterruptEvent::Raised(_)) | Body::Run(RunEvent::Ended(_)) => "status",
            Body::State(StateEvent::Custom { .. }) => "update",
            _ => return None,
        };
        Some((of.to_owned(), event.run_number))
    });
    told.collect()
}

#[tokio::test]
async fn a_client_is_told_in_order_what_its_run_does() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let script = r#"custom:1 say:a commit custom:2 output:{"a":1} commit custom:3 suspend:say:b+custom:4"#;
        let waits = server
            .submit(called_back(on(&server.main, script)))
            .await
            .settled
            .wait()
            .await
            .unwrap();
        assert_eq!(waits.status, RunStatus::Interrupted);
        let receiver = Receiver::answering([]);
        server.runtime.deliver_with(receiver.clone());
        let is_delivered =
            || async { server.store.next_due(QueueKind::Callback).await.unwrap().is_none() };
        until("all was delivered", is_delivered).await;
        let to = AnswerTo::Run(waits.id.clone());
        server.runtime.answer(&alice(), to, Answer::Json(Json::null())).await.unwrap();
        let ended = server.runtime.wait_until_settled(&alice(), &waits.id).await.unwrap();
        assert_eq!(ended.status, RunStatus::Completed);
        until("all was delivered", is_delivered).await;
        let told = receiver.delivered_events();
        let numbers: Vec<_> = told.iter().map(|(_, number)| *number).collect();
        assert!(numbers.is_sorted(), "{told:?}");
        let others: Vec<_> = told.iter().filter(|(of, _)| of != "values").cloned().collect();
        assert_eq!(others, to_tell(&server, &ended).await);
        assert_eq!(others.iter().filter(|(of, _)| of == "status").count(), 2);
        // The values were replaced while they waited: one delivery before the question, and one with the answer's effect.
        let values = told.iter().filter(|(of, _)| of == "values").count();
        assert!((2..=3).contains(&values), "{told:?}");
        let mut ids = receiver.ids();
        assert!(ids.iter().all(|id| id.starts_with(ended.id.as_str())), "{ids:?}");
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), told.len(), "each delivery has an id of its own");
    }
}

#[tokio::test]
async fn a_client_is_told_only_of_what_it_asked_for() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let url: Arc<str> = "https://example.com/hook".into();
        let none = Callback { url, status: false, values: false, updates: false };
        for (callback, expected) in [
            (Callback { status: true, ..none.clone() }, vec!["status"]),
            (Callback { values: true, ..none.clone() }, vec!["values"]),
            (Callback { updates: true, ..none.clone() }, vec!["update", "update"]),
            (none, vec![]),
        ] {
            let thread = server.thread().await;
            let mut new = on(&thread, "custom:1 say:x custom:2");
            new.callback = Some(callback);
            server.submit(new).await.settled.wait().await.unwrap();
            let mut told = Vec::new();
            let now = server.clock.now();
            loop {
                let until = now.after(Duration::from_secs(30));
                let claims = server.store.claim(QueueKind::Callback, now, until, 9).await.unwrap();
                let Some(claim) = claims.first() else { break };
                told.push(claim.item.reference.to_value()["of"].as_str().unwrap().to_owned());
                assert!(server.store.finish(claim).await.unwrap());
            }
            assert_eq!(told, expected);
        }
    }
}

#[tokio::test]
async fn a_receiver_that_fails_gets_the_rest_later_and_in_order() {
    let options = Options { callback_backoff: Duration::from_millis(1), ..Default::default() };
    for server in [TestServer::with(options.clone()).await, TestServer::sqlite_with(options).await]
    {
        let run = server.submit(called_back(on(&server.main, "custom:1 custom:2 custom:3")));
        let run = run.await.settled.wait().await.unwrap();
        let refused = Delivered::Refused { error: "410".to_owned() };
        let receiver = Receiver::answering([later(), later(), Delivered::Accepted, refused]);
        server.runtime.deliver_with(receiver.clone());
        until("all was tried", || async {
            server.clock.advance(Duration::from_micros(50));
            receiver.delivered_events().len() == 6
        })
        .await;
        let numbers: Vec<_> =
            receiver.delivered_events().into_iter().map(|(_, number)| number).collect();
        let expected: Vec<_> = to_tell(&server, &run).await.into_iter().map(|one| one.1).collect();
        assert_eq!(numbers[..3], [expected[0]; 3]);
        assert_eq!(numbers[2..], expected, "one that is given up holds nobody back");
    }
}

#[tokio::test]
async fn the_next_question_is_told_when_the_one_before_was_answered() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let run = server.submit(called_back(on(&server.main, "ask ask"))).await.run;
        let receiver = Receiver::answering([]);
        server.runtime.deliver_with(receiver.clone());
        for count in 1..=2 {
            until("it is told of the question", || async {
                receiver.delivered_events().iter().filter(|(of, _)| of == "status").count() == count
            })
            .await;
            let filter = InterruptFilter { pending: true, ..Default::default() };
            let pending =
                server.store.interrupts(&scope(), &filter, &Page::default()).await.unwrap();
            let to = AnswerTo::Interrupt(pending.rows[0].interrupt.id.clone());
            server.runtime.answer(&alice(), to, Answer::Json(Json::null())).await.unwrap();
        }
        let ended = server.runtime.wait_until_settled(&alice(), &run.id).await.unwrap();
        until("it is told of the end", || async {
            receiver
                .delivered_events()
                .last()
                .is_some_and(|(of, number)| of == "status" && *number == ended.last_run_number)
        })
        .await;
    }
}

#[tokio::test]
async fn nobody_is_told_of_a_run_that_is_gone() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let script = "custom:1 commit until-cancelled";
        let rolled_back = server.submit(called_back(on(&server.main, script))).await.run;
        until("something waits to be delivered", || async {
            server.store.next_due(QueueKind::Callback).await.unwrap().is_some()
        })
        .await;
        server.runtime.roll_back(&alice(), &rolled_back.id).await.unwrap();
        assert_eq!(server.store.next_due(QueueKind::Callback).await.unwrap(), None);
        let ended = server.submit(called_back(on(&server.main, "custom:1"))).await;
        let ended = ended.settled.wait().await.unwrap();
        assert!(server.store.next_due(QueueKind::Callback).await.unwrap().is_some());
        server.runtime.remove_run(&alice(), &ended.id).await.unwrap();
        assert_eq!(server.store.next_due(QueueKind::Callback).await.unwrap(), None);
    }
}

#[tokio::test]
async fn retention_waits_until_a_client_was_told() {
    let retention = RetentionPolicy {
        max_age: Some(Duration::ZERO),
        max_stateless_age: None,
        max_runs_per_thread: None,
        max_runs_per_tenant: None,
    };
    let retention_interval = Duration::from_millis(2);
    let options = Options { retention, retention_interval, ..Options::default() };
    for server in [TestServer::with(options.clone()).await, TestServer::sqlite_with(options).await]
    {
        let thread = server.thread().await;
        let told = server.submit(called_back(on(&thread, "say:x"))).await;
        let told = told.settled.wait().await.unwrap();
        let other = server.run("say:y", ThreadChoice::Existing(thread)).await;
        server.clock.advance(Duration::from_secs(1));
        until("the other is gone", || server.is_gone(&other)).await;
        assert!(!server.is_gone(&told).await);
        server.runtime.deliver_with(Receiver::answering([]));
        until("it goes when its client was told", || server.is_gone(&told)).await;
    }
}

#[tokio::test]
async fn what_is_due_is_delivered_after_a_restart_and_the_lost_run_too() {
    let server = TestServer::sqlite().await;
    let thread = server.thread().await;
    let ended = server.submit(called_back(on(&thread, "custom:1 say:x"))).await;
    let ended = ended.settled.wait().await.unwrap();
    let lost = server.submit(called_back(on(&thread, "custom:1 commit forever"))).await.run;
    until("it is at work", || async { server.events(&lost).await.len() > 5 }).await;
    let server = server.crash().await;
    let receiver = Receiver::answering([]);
    server.runtime.deliver_with(receiver.clone());
    until("all was delivered", || async {
        server.store.next_due(QueueKind::Callback).await.unwrap().is_none()
    })
    .await;
    let lost = server.stored(&lost).await;
    assert_eq!(lost.status, RunStatus::Failed);
    let ids = receiver.ids();
    let of = |run: &RunRow| -> Vec<_> {
        let told = receiver.delivered_events().into_iter().zip(&ids);
        let told = told.filter(|((of, _), id)| of != "values" && id.starts_with(run.id.as_str()));
        told.map(|(told, _)| told).collect()
    };
    for run in [&ended, &lost] {
        assert_eq!(of(run), to_tell(&server, run).await);
    }
}

#[tokio::test]
async fn a_short_synchronous_run_is_one_append_whether_or_not_somebody_is_called_back() {
    let server = TestServer::memory().await;
    for new in [
        new_run("say:x", ThreadChoice::Stateless),
        called_back(new_run("say:x custom:1", ThreadChoice::Stateless)),
    ] {
        let before = server.store.stats().await.unwrap().commits;
        let submitted = server.submit(RunRequest { synchronous: true, ..new }).await;
        submitted.settled.wait().await.unwrap();
        assert_eq!(server.store.stats().await.unwrap().commits - before, 1);
    }
}
