//! Notifications that an agent waits for an answer, through a real runtime and to a real receiver.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use trilogue_domain::port::SystemClock;
use trilogue_domain::{Answer, DeliveryId, InterruptId, Principal, ThreadId};
use trilogue_egress::Policy;
use trilogue_gateway::callback::{Sender, Undelivered, sign};
use trilogue_gateway::{AddressNotifier, NoticeDelivery, Notifier, Ports};
use trilogue_runtime::{AnswerTo, Input, NewThread, Runtime, ThreadChoice};
use trilogue_store::Store;
use trilogue_store::memory::MemoryStore;
use trilogue_store::record::NoOriginals;
use trilogue_store::rows::{InterruptFilter, Page, QueueKind};
use trilogue_testkit::callback::{Delivery, Receiver};
use trilogue_testkit::parts::{new_run, principal, user_message};
use trilogue_testkit::until;

use crate::agent::Puppet;
use crate::rig::{LIMIT, callback_key, callback_secrets};

struct Scene {
    ports: Ports,
    store: Arc<dyn Store>,
    by: Principal,
    receiver: Receiver,
}

impl Scene {
    async fn start(policy: Policy) -> Self {
        let scene = Self::silent().await;
        let client = trilogue_egress::Client::new(policy, trilogue_egress::Options::default());
        let sender = Sender::new(client.unwrap(), callback_secrets());
        let owner = (&principal("alpha", "owner")).into();
        let to = AddressNotifier::new(scene.receiver.url(), owner, sender, &scene.ports);
        scene.notify_with(Arc::new(to));
        scene
    }

    async fn silent() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let clock = Arc::new(SystemClock);
        let options = trilogue_runtime::Options {
            notify: true,
            callback_backoff: Duration::from_millis(20),
            ..trilogue_runtime::Options::default()
        };
        let agents = vec![Arc::new(Puppet::new()) as _];
        let originals = Arc::new(NoOriginals);
        let runtime =
            Runtime::start(options, Arc::clone(&store), agents, Arc::clone(&clock) as _, originals);
        let ports = Ports {
            runtime: runtime.await.unwrap(),
            read: Arc::clone(&store) as _,
            tokens: Arc::clone(&store) as _,
            admin: Arc::clone(&store) as _,
            configurations: Arc::clone(&store) as _,
            queue: Arc::clone(&store) as _,
            clock,
            egress: trilogue_egress::Client::new(
                Policy::default(),
                trilogue_egress::Options::default(),
            )
            .unwrap(),
            agent_processes: Arc::new(()),
        };
        let by = principal("alpha", "alice");
        Self { ports, store, by, receiver: Receiver::start().await.unwrap() }
    }

    fn notify_with(&self, to: Arc<dyn Notifier>) {
        self.ports.runtime.notify_with(Arc::new(NoticeDelivery::new(&self.ports, to)));
    }

    /// Runs a puppet command on a new thread, and returns the question that it asks.
    async fn ask(&self, command: &str) -> InterruptId {
        let thread = ThreadId::generate();
        let to = ThreadChoice::Ensure(NewThread {
            id: Some(thread.clone()),
            metadata: None,
            ..NewThread::default()
        });
        let new = new_run("puppet", to, Input::Messages(vec![user_message(command)]));
        self.ports.runtime.submit(&self.by, new).await.unwrap();
        let filter = InterruptFilter { run: None, pending: true, thread: Some(thread) };
        let page = Page { limit: 10, after: None, skip: 0 };
        let asked = async || {
            let found = self.store.interrupts(&self.by.scope(), &filter, &page).await.unwrap();
            found.rows.into_iter().next().map(|row| row.interrupt.id)
        };
        until("the question", LIMIT, asked).await.unwrap()
    }

    async fn answer(&self, interrupt: &InterruptId) {
        let to = AnswerTo::Interrupt(interrupt.clone());
        let yes = Answer::Option("yes".to_owned());
        self.ports.runtime.answer(&self.by, to, yes).await.unwrap();
    }

    async fn wait_for_empty_queue(&self) {
        let settled = async || {
            let due = self.store.next_due(QueueKind::Notify).await.unwrap();
            due.is_none().then_some(())
        };
        until("the queue", LIMIT, settled).await.unwrap();
    }

    async fn delivered(&self, count: usize) -> Vec<Delivery> {
        let arrived = async || (self.receiver.deliveries().len() >= count).then_some(());
        until("deliveries", LIMIT, arrived).await.unwrap();
        self.receiver.deliveries()
    }

    /// The body of a delivery; its signature must be valid.
    fn checked(&self, delivery: &Delivery) -> Value {
        let header = |name: &str| delivery.headers[name].to_str().unwrap();
        let seconds: i64 = header("webhook-timestamp").parse().unwrap();
        let key = callback_key("alpha", "owner", &self.receiver.url());
        let expected = sign(&key, header("webhook-id"), seconds, &delivery.body);
        assert_eq!(header("webhook-signature"), expected);
        serde_json::from_slice(&delivery.body).unwrap()
    }
}

#[tokio::test]
async fn each_new_interrupt_is_told_once_with_a_signature() {
    let scene = Scene::start(Policy::local()).await;
    let mut told = Vec::new();
    for (count, (command, kind)) in
        [("ask", "permission"), ("form", "form"), ("suspend", "form")].into_iter().enumerate()
    {
        let id = scene.ask(command).await;
        let body = scene.checked(scene.delivered(count + 1).await.last().unwrap());
        let row = scene.store.interrupt(&scene.by.scope(), &id).await.unwrap().unwrap();
        let expected = json!({
            "type": "interrupt.raised",
            "interrupt_id": id.as_str(),
            "run_id": row.run_id.as_str(),
            "thread_id": row.thread_id.as_str(),
            "agent": "puppet",
            "kind": kind,
            "title": "may I?",
            "answer": format!("trilogue approve {id}"),
        });
        assert_eq!(body, expected);
        told.push(id);
    }
    scene.wait_for_empty_queue().await;
    assert_eq!(scene.receiver.deliveries().len(), 3);
}

#[tokio::test]
async fn a_receiver_that_fails_is_tried_three_times_and_then_left() {
    let scene = Scene::start(Policy::local()).await;
    scene.receiver.answer_next([StatusCode::SERVICE_UNAVAILABLE; 9]);
    let id = scene.ask("ask").await;
    let deliveries = scene.delivered(3).await;
    let bodies: Vec<_> = deliveries.iter().map(|delivery| scene.checked(delivery)).collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    let ids: Vec<_> = deliveries.iter().map(|it| &it.headers["webhook-id"]).collect();
    assert!(ids.iter().all(|it| *it == ids[0]));
    scene.wait_for_empty_queue().await;
    assert_eq!(scene.receiver.deliveries().len(), 3);
    // The question stays open.
    let row = scene.store.interrupt(&scene.by.scope(), &id).await.unwrap().unwrap();
    assert_eq!(row.resolution, None);
}

#[tokio::test]
async fn ssrf_through_the_address_is_refused() {
    let scene = Scene::start(Policy::default()).await;
    scene.ask("ask").await;
    scene.wait_for_empty_queue().await;
    assert!(scene.receiver.deliveries().is_empty());
}

/// Records each notice and always fails.
#[derive(Debug, Default)]
struct FailingNotifier(Mutex<Vec<Value>>);

#[async_trait]
impl Notifier for FailingNotifier {
    async fn notify(&self, _: &DeliveryId, notice: Bytes) -> Result<(), Undelivered> {
        self.0.lock().unwrap().push(serde_json::from_slice(&notice).unwrap());
        let (reason, after) = ("deaf".to_owned(), Some(Duration::from_secs(3600)));
        Err(Undelivered { reason, retry: true, after })
    }
}

#[tokio::test]
async fn what_was_answered_meanwhile_is_not_told_again() {
    let scene = Scene::silent().await;
    let answered = scene.ask("ask").await;
    scene.answer(&answered).await;
    let deaf = Arc::new(FailingNotifier::default());
    scene.notify_with(Arc::clone(&deaf) as _);
    let asked = scene.ask("ask").await;
    let heard = async || {
        let told = deaf.0.lock().unwrap();
        told.first().map(|told| told["interrupt_id"].as_str().unwrap().to_owned())
    };
    assert_eq!(until("a notice", LIMIT, heard).await.unwrap(), asked.as_str());
    // A retry is due in an hour; the answer cancels it.
    scene.answer(&asked).await;
    scene.wait_for_empty_queue().await;
    assert_eq!(deaf.0.lock().unwrap().len(), 1);
}
