//! Callbacks: tried again until accepted, given up when refused, kept over a restart.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trilogue_domain::Json;
use trilogue_domain::port::{Clock, Deliver, Delivered, Delivery};
use trilogue_runtime::{Options, ThreadChoice};
use trilogue_store::rows::{Page, QueueItem, QueueKind};
use trilogue_store::{Batch, Change};

use crate::fixture::{House, alice, scope, until};

/// A receiver that answers as it was told to, and remembers what came.
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

async fn offer(house: &House, key: &str) {
    let run = house.run("say:x", ThreadChoice::Ensure(Default::default())).await;
    let acquired = house.store.acquire(run.thread, "test").await.unwrap();
    let item = QueueItem {
        kind: QueueKind::Callback,
        key: key.to_owned(),
        due: house.clock.now(),
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
    house.store.append(batch).await.unwrap();
}

#[tokio::test]
async fn a_callback_is_tried_until_it_is_accepted() {
    let options = Options { callback_backoff: Duration::from_millis(1), ..Default::default() };
    let house = House::with(options).await;
    let receiver = Receiver::answering([later(), later()]);
    house.runtime.deliver_with(receiver.clone());
    offer(&house, "one").await;
    for attempt in 1..=3 {
        until("the next attempt", || async {
            house.clock.advance(Duration::from_micros(50));
            receiver.attempts().len() == attempt
        })
        .await;
    }
    let one = |attempt| ("one".to_owned(), attempt);
    assert_eq!(receiver.attempts(), [one(1), one(2), one(3)]);
    until("it has left the queue", || async {
        house.store.next_due(QueueKind::Callback).await.unwrap().is_none()
    })
    .await;
    assert!(house.store.dead_deliveries(&scope(), &Page::default()).await.unwrap().rows.is_empty());
}

#[tokio::test]
async fn a_refused_callback_is_kept_for_the_operator_and_can_be_sent_again() {
    for house in [House::memory().await, House::sqlite().await] {
        let receiver = Receiver::answering([Delivered::Refused { error: "410 gone".to_owned() }]);
        house.runtime.deliver_with(receiver.clone());
        offer(&house, "one").await;
        let dead = || async {
            house.store.dead_deliveries(&scope(), &Page::default()).await.unwrap().rows
        };
        until("it is given up", || async { dead().await.len() == 1 }).await;
        let item = dead().await.remove(0);
        assert_eq!(item.error, "410 gone");
        assert!(house.store.revive(&scope(), item.id, house.clock.now()).await.unwrap());
        until("it is accepted", || async { receiver.attempts().len() == 2 }).await;
        until("the list is empty", || async { dead().await.is_empty() }).await;
    }
}

#[tokio::test]
async fn a_callback_survives_a_restart() {
    let house = House::sqlite().await;
    offer(&house, "one").await;
    let house = house.crash().await;
    let receiver = Receiver::answering([]);
    house.runtime.deliver_with(receiver.clone());
    until("it is delivered", || async { receiver.attempts().len() == 1 }).await;
}
