//! Notices: every new interrupt is notified once while it waits.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trilogue_domain::port::{Deliver, Delivered, Delivery};
use trilogue_domain::{Answer, Json, RunStatus};
use trilogue_runtime::{AnswerTo, Options};
use trilogue_store::rows::{InterruptFilter, InterruptRow, Page, QueueKind, RunRow};

use crate::fixture::{TestServer, alice, on, scope, until};

/// A receiver of notices that gives a prepared answer.
#[derive(Debug)]
struct Bell {
    answer: Delivered,
    rung: Mutex<Vec<Delivery>>,
}

impl Bell {
    fn answering(answer: Delivered) -> Arc<Self> {
        Arc::new(Self { answer, rung: Mutex::default() })
    }

    fn rung(&self) -> usize {
        self.rung.lock().unwrap().len()
    }
}

impl Deliver for Bell {
    fn deliver<'a>(
        &'a self,
        delivery: &'a Delivery,
    ) -> Pin<Box<dyn Future<Output = Delivered> + Send + 'a>> {
        self.rung.lock().unwrap().push(delivery.clone());
        Box::pin(std::future::ready(self.answer.clone()))
    }
}

fn options() -> Options {
    let callback_backoff = Duration::from_millis(1);
    Options { notify: true, callback_backoff, ..Options::default() }
}

async fn pending(server: &TestServer, run: &RunRow) -> InterruptRow {
    let filter = InterruptFilter { thread: None, run: Some(run.id.clone()), pending: true };
    let listing = server.store.interrupts(&scope(), &filter, &Page::default()).await.unwrap();
    listing.rows.into_iter().next().expect("an interrupt is pending")
}

async fn is_empty(server: &TestServer) -> bool {
    server.store.next_due(QueueKind::Notify).await.unwrap().is_none()
}

async fn interrupted(server: &TestServer, script: &str) -> RunRow {
    let thread = server.thread().await;
    let run = server.submit(on(&thread, script)).await.settled.wait().await.unwrap();
    assert_eq!(run.status, RunStatus::Interrupted);
    run
}

#[tokio::test]
async fn somebody_is_told_of_a_new_interrupt() {
    for server in [TestServer::with(options()).await, TestServer::sqlite_with(options()).await] {
        let bell = Bell::answering(Delivered::Accepted);
        server.runtime.notify_with(bell.clone());
        for script in ["ask", "suspend:say:b"] {
            let before = bell.rung();
            let run = interrupted(&server, script).await;
            until("it was told", || async { bell.rung() > before }).await;
            let interrupt = pending(&server, &run).await.interrupt.id;
            let delivery = bell.rung.lock().unwrap().last().unwrap().clone();
            assert_eq!((&*delivery.id, delivery.attempt), (interrupt.as_str(), 1));
            assert_eq!(delivery.thread, Some(run.thread));
            let expected = serde_json::json!({
                "thread": run.thread.0,
                "thread_id": run.thread_id.as_str(),
                "run": run.key.0,
                "run_id": run.id.as_str(),
                "agent": "script",
                "interrupt": interrupt.as_str(),
            });
            assert_eq!(delivery.reference.to_value(), expected);
            until("it has left the queue", || is_empty(&server)).await;
        }
        assert_eq!(bell.rung(), 2);
    }
}

#[tokio::test]
async fn nobody_is_told_of_what_was_answered_meanwhile() {
    for server in [TestServer::with(options()).await, TestServer::sqlite_with(options()).await] {
        let run = interrupted(&server, "suspend:say:b").await;
        assert!(!is_empty(&server).await);
        let to = AnswerTo::Interrupt(pending(&server, &run).await.interrupt.id);
        let answer = Answer::Json(Json::null());
        server.runtime.answer(&alice(), to, answer).await.unwrap();
        assert!(is_empty(&server).await);
        // An interrupt that waits when the server stops is notified after the next start.
        let waiting = interrupted(&server, "suspend:say:b").await;
        server.runtime.cancel(&alice(), &waiting.id).await.unwrap();
        assert!(is_empty(&server).await, "cancelling resolves it");
        let erased = interrupted(&server, "suspend:say:b").await;
        server.runtime.erase_thread(&alice(), &erased.thread_id).await.unwrap();
        assert!(is_empty(&server).await);
    }
}

#[tokio::test]
async fn a_notice_that_cannot_be_delivered_is_dropped_after_three_attempts() {
    let server = TestServer::with(options()).await;
    let bell = Bell::answering(Delivered::Later { error: "503".to_owned(), after: None });
    server.runtime.notify_with(bell.clone());
    interrupted(&server, "suspend:say:b").await;
    for attempt in 1..=3 {
        until("the next attempt", || async {
            server.clock.advance(Duration::from_micros(50));
            bell.rung() == attempt
        })
        .await;
    }
    until("it is dropped", || is_empty(&server)).await;
    assert_eq!(bell.rung(), 3);
    assert!(
        server.store.dead_deliveries(&scope(), &Page::default()).await.unwrap().rows.is_empty()
    );
    let refusing = TestServer::with(options()).await;
    let bell = Bell::answering(Delivered::Refused { error: "410".to_owned() });
    refusing.runtime.notify_with(bell.clone());
    interrupted(&refusing, "suspend:say:b").await;
    until("it was told", || async { bell.rung() == 1 }).await;
    until("it is dropped", || is_empty(&refusing)).await;
}

#[tokio::test]
async fn without_the_setting_nothing_is_offered() {
    let server = TestServer::memory().await;
    interrupted(&server, "suspend:say:b").await;
    assert!(is_empty(&server).await);
}
