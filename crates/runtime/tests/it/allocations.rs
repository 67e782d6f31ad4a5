//! Measures the allocations of an agent's update on its way through the log.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;
use trilogue_domain::event::{MessageEvent, Original};
use trilogue_domain::{AgentCard, AgentName, Body, Failure, MessageId};
use trilogue_runtime::{
    Backend, Ending, Input, Options, RunContext, RunRequest, Runtime, ThreadChoice, Turn,
};
use trilogue_store::record::NoOriginals;
use trilogue_store::{Range, Store};

use crate::fixture::{HandClock, Scripted, alice, new_run, scope};

const READ_BYTES: usize = 1 << 20;

/// An agent whose events are all originals, as many as the input says.
#[derive(Debug)]
struct Relay {
    inner: Scripted,
    /// Its output, created before the counting starts.
    body: Body,
    original: Original,
    /// Receives how many events the reader has seen, if the agent waits for the reader.
    seen: Option<tokio::sync::Mutex<mpsc::Receiver<u64>>>,
}

#[async_trait]
impl Backend for Relay {
    fn card(&self) -> &AgentCard {
        &self.inner.card
    }

    fn is_native(&self) -> bool {
        false
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        let Turn::Start { input: Input::Messages(messages) } = turn else { panic!("{turn:?}") };
        let count: usize = messages[0].text().parse().unwrap();
        let mut emitted = 0;
        for _ in 0..count {
            context.emit(self.body.clone(), Some(self.original.clone())).await.unwrap();
            emitted += 1;
            if let Some(seen) = &self.seen {
                let mut seen = seen.lock().await;
                while seen.recv().await.unwrap() < emitted {}
            }
        }
        Ok(Ending::Completed)
    }
}

/// Sends `count` events through the log to a reader. Returns the allocations.
fn allocations(count: usize, one_by_one: bool) -> u64 {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let counted = allocation_counter::measure(|| tokio.block_on(relay(count, one_by_one)));
    counted.count_total
}

async fn relay(count: usize, one_by_one: bool) {
    let store: Arc<dyn Store> =
        trilogue_store::open("memory:", trilogue_store::Options::new(Arc::new(NoOriginals)))
            .await
            .unwrap();
    let (tell, seen) = mpsc::channel(8);
    let message = MessageId::generate();
    let agent = Arc::new(Relay {
        inner: Scripted::new("relay", false),
        body: Body::Message(MessageEvent::Delta { message, text: "hello".into() }),
        original: Original {
            dialect: "agent-client".into(),
            version: 1,
            bytes: Bytes::from_static(&[b'x'; 180]),
        },
        seen: one_by_one.then(|| tokio::sync::Mutex::new(seen)),
    });
    let runtime = Runtime::start(
        Options::default(),
        Arc::clone(&store),
        vec![agent],
        Arc::new(HandClock::default()),
        Arc::new(NoOriginals),
    )
    .await
    .unwrap();
    let thread = runtime.create_thread(&alice(), Default::default()).await.unwrap();
    let agent = AgentName::parse("relay").unwrap();
    let choice = ThreadChoice::Existing(thread.id.clone());
    let mut tail = store.tail(thread.key);
    let submitted = runtime
        .submit(&alice(), RunRequest { agent, ..new_run(&count.to_string(), choice) })
        .await
        .unwrap();
    let row = store.thread(&scope(), &thread.id).await.unwrap().unwrap();
    let (mut after, mut read, mut originals) = (0, 0, 0);
    while originals < count {
        tail.committed.wait_for(|last| *last > read).await.unwrap();
        let range = Range { run: Some(submitted.run.key), after, max_bytes: READ_BYTES };
        let frames = store.frames(row.key, range).await.unwrap();
        for frame in &frames {
            for record in frame.raw().unwrap().map(Result::unwrap) {
                if record.run_number > after && record.original.is_some() {
                    originals += 1;
                }
            }
            (after, read) = (frame.last_run(), frame.last());
        }
        if one_by_one && originals > 0 {
            // The agent may be gone after it received the last number.
            let _ = tell.send(originals as u64).await;
        }
    }
    submitted.settled.wait().await.unwrap();
}

/// Returns the allocations of one event, without the cost of the first ones.
fn each(one_by_one: bool) -> f64 {
    const FEW: u32 = 1_000;
    const MORE: u32 = 9_000;
    let few = allocations(FEW as usize, one_by_one);
    let many = allocations((FEW + MORE) as usize, one_by_one);
    f64::from(u32::try_from(many - few).unwrap()) / f64::from(MORE)
}

#[test]
fn an_update_among_many_costs_next_to_nothing() {
    let each = each(false);
    assert!(each < 0.1, "{each}");
}

#[test]
fn an_update_that_is_waited_for_costs_little() {
    let each = each(true);
    // The frame's bytes, their count and the frame; the append and its list; the reading and its list.
    assert!(each < 8.0, "{each}");
}
