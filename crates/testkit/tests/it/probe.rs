//! The contracts of store and runtime, through a peer with its own protocol.

use std::sync::Arc;
use std::time::Duration;

use trilogue_domain::event::MessageEvent;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::{Body, Code, Event, Json, Principal, RunStatus, ThreadId};
use trilogue_gateway::CallbackSecrets;
use trilogue_gateway::callback::{Sender, sign};
use trilogue_runtime::{
    Input, NewThread, Options, Rewind, RunRequest, Runtime, ThreadChoice, ThreadPatch, WhenHolding,
};
use trilogue_store::rows::{Page, QueueItem, QueueKind, RunRow};
use trilogue_store::{Batch, Change, Range, Store};
use trilogue_testkit::callback::Receiver;
use trilogue_testkit::parts::{new_run, principal, user_message};
use trilogue_testkit::probe::{self, Notification, ProbeAgent, ProbeDeliver, ProbeReader};

struct Fixture {
    runtime: Runtime,
    store: Arc<dyn Store>,
    agent: ProbeAgent,
    by: Principal,
    thread: ThreadId,
    _dir: tempfile::TempDir,
}

// === impl Fixture ===

impl Fixture {
    async fn open(engine: &str, rewind: Rewind) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = match engine {
            "memory" => "memory:".to_owned(),
            _ => format!("sqlite:{}", dir.path().join("probe.db").display()),
        };
        let reader = Arc::new(ProbeReader);
        let options = trilogue_store::Options::new(reader.clone());
        let store = trilogue_store::open(&url, options).await.unwrap();
        let agent = ProbeAgent::new("probe", rewind).unwrap();
        let runtime = Runtime::start(
            Options { callback_backoff: Duration::from_millis(1), ..Options::default() },
            Arc::clone(&store),
            vec![Arc::new(agent.clone())],
            Arc::new(SystemClock),
            reader,
        )
        .await
        .unwrap();
        let by = principal("t", "p");
        Self { runtime, store, agent, by, thread: ThreadId::generate(), _dir: dir }
    }

    async fn say(&self, text: &str) -> RunRow {
        let thread =
            NewThread { id: Some(self.thread.clone()), metadata: None, ..NewThread::default() };
        let input = Input::Messages(vec![user_message(text)]);
        let new = new_run("probe", ThreadChoice::Ensure(thread), input);
        let new = RunRequest { when_holding: WhenHolding::Strategy, ..new };
        let run = self.runtime.submit(&self.by, new).await.unwrap().settled.wait().await.unwrap();
        assert_eq!(run.status, RunStatus::Completed, "{:?}", run.outcome);
        run
    }

    async fn events(&self, run: Option<&RunRow>) -> Vec<Event> {
        let row = self.store.thread(&self.by.scope(), &self.thread).await.unwrap().unwrap();
        let range = Range { run: run.map(|run| run.key), after: 0, max_bytes: usize::MAX };
        let frames = self.store.frames(row.key, range).await.unwrap();
        frames.iter().flat_map(|frame| frame.events().unwrap().to_vec()).collect()
    }

    async fn answer(&self) -> String {
        let text = |event: &Event| match &event.body {
            Body::Message(MessageEvent::Delta { text, .. }) => Some(text.to_string()),
            _ => None,
        };
        self.events(None).await.iter().filter_map(text).next_back().unwrap_or_default()
    }
}

#[tokio::test]
async fn originals_are_kept_byte_for_byte_and_unknown_variants_are_events() {
    for engine in ["memory", "sqlite"] {
        let house = Fixture::open(engine, Rewind::Refuse).await;
        let run = house.say("hello").await;
        let events = house.events(Some(&run)).await;
        let originals: Vec<_> = events.iter().filter(|event| event.original.is_some()).collect();
        let names: Vec<_> = originals.iter().map(|event| event.body.name()).collect();
        assert_eq!(names, ["message.thought", "opaque", "message.delta"], "{engine}");
        let original = originals[1].original.as_ref().unwrap();
        assert_eq!((&*original.dialect, original.version), (probe::DIALECT, probe::VERSION));
        let sent = Notification::Unknown("wobble".to_owned(), serde_json::json!({"count": 1}));
        assert_eq!(original.bytes, sent.to_bytes(), "{engine}");
        let said = &originals[2].original.as_ref().unwrap().bytes;
        assert!(String::from_utf8_lossy(said).contains("x_unknown"), "an unknown member is lost");
    }
}

#[tokio::test]
async fn a_reader_resumes_within_the_wire_events_of_one_log_event() {
    let house = Fixture::open("sqlite", Rewind::Refuse).await;
    let run = house.say("hello").await;
    let events = house.events(Some(&run)).await;
    let whole: Vec<_> = events.iter().flat_map(probe::render).collect();
    assert_eq!(whole.len(), 2 * events.len());
    let row = house.store.thread(&house.by.scope(), &house.thread).await.unwrap().unwrap();
    for (index, seen) in whole.iter().enumerate() {
        let (after, skip) = probe::parse_cursor(&seen.id).unwrap();
        let range = Range { run: Some(run.key), after, max_bytes: usize::MAX };
        let frames = house.store.frames(row.key, range).await.unwrap();
        let rest: Vec<_> = frames
            .iter()
            .flat_map(|frame| frame.events().unwrap().to_vec())
            .filter(|event| event.run_number > after)
            .flat_map(|event| probe::render(&event))
            .skip(skip)
            .collect();
        assert_eq!(rest, whole[index + 1..], "after {}", seen.id);
    }
}

#[tokio::test]
async fn an_agent_with_its_own_memory_is_told_what_it_missed_and_no_more() {
    for engine in ["memory", "sqlite"] {
        let house = Fixture::open(engine, Rewind::Refuse).await;
        house.say("one").await;
        assert_eq!(house.answer().await, "1 texts remembered", "{engine}");
        house.say("two").await;
        assert_eq!(house.answer().await, "3 texts remembered", "{engine}");
        assert_eq!(house.agent.remembered_texts("session-1").len(), 4);

        // Its process is lost: a new session gets the whole history.
        house.agent.forget();
        house.say("three").await;
        assert_eq!(house.answer().await, "5 texts remembered", "{engine}");
        let remembered = house.agent.remembered_texts("session-2");
        assert_eq!(remembered[..2], ["one", "1 texts remembered"], "{engine}");
    }
}

#[tokio::test]
async fn a_head_does_not_move_behind_an_agent_that_cannot_forget() {
    for engine in ["memory", "sqlite"] {
        for (rewind, expected) in
            [(Rewind::Refuse, Err(Code::AgentMemoryNotRewindable)), (Rewind::Prime, Ok(()))]
        {
            let house = Fixture::open(engine, rewind).await;
            let first = house.say("one").await;
            house.say("two").await;
            let scope = house.by.scope();
            let path = house.store.path(&scope, &house.thread, None, 10).await.unwrap();
            let back = path.iter().find(|checkpoint| checkpoint.run == Some(first.key)).unwrap();
            let patch = ThreadPatch {
                values: Some(Json::empty_object()),
                from: Some(back.id.clone()),
                ..ThreadPatch::default()
            };
            let moved = house.runtime.patch_thread(&house.by, &house.thread, patch).await;
            assert_eq!(moved.map(|_| ()).map_err(|error| error.code()), expected, "{engine}");
            house.say("three").await;
            // An agent that got the history again knows only the first turn; one that was not moved knows both.
            let texts = if rewind == Rewind::Prime { 3 } else { 5 };
            assert_eq!(house.answer().await, format!("{texts} texts remembered"), "{engine}");
        }
    }
}

#[tokio::test]
async fn a_callback_offered_with_an_append_reaches_a_real_receiver_signed_and_once() {
    for engine in ["memory", "sqlite"] {
        let house = Fixture::open(engine, Rewind::Refuse).await;
        let receiver = Receiver::start().await.unwrap();
        receiver.answer_next([http::StatusCode::SERVICE_UNAVAILABLE]);
        let run = house.say("hello").await;
        let acquired = house.store.acquire(run.thread, "probe").await.unwrap();
        let reference = serde_json::json!({"url": receiver.url(), "run": run.id.as_str()});
        let item = QueueItem {
            kind: QueueKind::Callback,
            key: "msg_1".to_owned(),
            due: SystemClock.now(),
            tenant: house.by.tenant.clone(),
            principal: house.by.id.clone(),
            thread: Some(run.thread),
            reference: Json::from_value(&reference),
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
        let client =
            trilogue_egress::Client::new(trilogue_egress::Policy::local(), Default::default())
                .unwrap();
        let secrets = CallbackSecrets::new([bytes::Bytes::from_static(b"secret")]);
        let key = secrets.keys(&(&house.by).into(), &receiver.url())[0];
        let sender = Sender::new(client, secrets);
        house.runtime.deliver_with(Arc::new(ProbeDeliver::new(sender, Arc::new(SystemClock))));
        let came = receiver.wait_for(2, Duration::from_secs(20)).await.unwrap();
        for delivery in &came {
            let header = |name: &str| delivery.headers[name].to_str().unwrap();
            let seconds = header("webhook-timestamp").parse().unwrap();
            assert_eq!(header("webhook-id"), "msg_1");
            assert_eq!(header("webhook-signature"), sign(&key, "msg_1", seconds, &delivery.body));
        }
        trilogue_testkit::wait::until("the queue to be empty", Duration::from_secs(20), || async {
            let due = house.store.next_due(QueueKind::Callback).await.unwrap();
            due.is_none().then_some(())
        })
        .await
        .unwrap();
        assert_eq!(receiver.deliveries().len(), 2, "{engine}: it was accepted once");
        let dead = house.store.dead_deliveries(&house.by.scope(), &Page::default()).await.unwrap();
        assert!(dead.rows.is_empty());
    }
}
