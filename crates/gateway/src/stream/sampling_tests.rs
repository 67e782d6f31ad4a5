//! Tests the sampling of a real log, one step at a time.

use std::borrow::Cow;

use trilogue_domain::content::BlobRef;
use trilogue_domain::event::StateEvent;
use trilogue_domain::{
    AgentName, Interrupt, InterruptKind, Json, PrincipalId, RunStatus, TenantId, ThreadId,
    Timestamp,
};
use trilogue_store::memory::MemoryStore;
use trilogue_store::record::NoOriginals;
use trilogue_store::rows::ThreadRow;
use trilogue_store::{Append as _, Batch, Change, Draft};

use super::super::sample::Samplers;
use super::*;

/// Shows the number of outputs, and the question.
#[derive(Debug, Default)]
struct CountingFold {
    outputs: usize,
    shown: usize,
    asked: Option<InterruptId>,
}

#[derive(Debug)]
struct CountingView;

impl SampleView for CountingView {
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("counting")
    }

    fn begin(&self) -> Box<dyn SampleFold> {
        Box::new(CountingFold::default())
    }

    fn event(&self, id: &str, data: &[u8]) -> Bytes {
        Bytes::from([id.as_bytes(), b" ", data].concat())
    }

    fn removed_run_data(&self) -> Bytes {
        Bytes::from_static(b"gone")
    }
}

impl SampleFold for CountingFold {
    fn push(&mut self, event: &Event) {
        match &event.body {
            Body::Interrupt(InterruptEvent::Raised(interrupt)) => {
                self.asked = Some(interrupt.id.clone());
            }
            _ => self.outputs += 1,
        }
    }

    fn wants(&self, _: &BlobRef) -> bool {
        false
    }

    fn has_news(&self) -> bool {
        self.outputs > self.shown
    }

    fn snapshot(&mut self) -> Option<Bytes> {
        self.shown = self.outputs;
        Some(Bytes::from(self.outputs.to_string()))
    }

    fn end(&self) -> Option<Bytes> {
        Some(Bytes::from_static(b"?"))
    }

    fn pending_interrupt(&self) -> Option<InterruptId> {
        self.asked.clone()
    }
}

fn output() -> Body {
    Body::State(StateEvent::Output(Json::null()))
}

fn question() -> Body {
    Body::Interrupt(InterruptEvent::Raised(Box::new(Interrupt::new(InterruptKind::Custom(
        "whether".to_owned(),
    )))))
}

async fn run_of(store: &MemoryStore, events: &[Body]) -> RunRow {
    let at = Timestamp::from_micros(1);
    let (tenant, owner) = (TenantId::parse("a").unwrap(), PrincipalId::parse("p").unwrap());
    let thread = ThreadRow::new(
        store.next_thread_key(),
        ThreadId::parse("t").unwrap(),
        tenant.clone(),
        owner.clone(),
        at,
    );
    let run = RunRow {
        status: RunStatus::Interrupted,
        last_run_number: events.len() as u64,
        ..RunRow::new(
            store.next_run_key(),
            RunId::generate(),
            &thread,
            owner,
            AgentName::parse("agent").unwrap(),
            at,
        )
    };
    let mut draft = Draft::default();
    for body in events {
        draft.push(at, body, None).unwrap();
    }
    let reader: Arc<dyn trilogue_domain::port::ReadOriginal> = Arc::new(NoOriginals);
    let batch = Batch {
        thread: thread.key,
        epoch: 1,
        expected_last: 0,
        frames: draft.seal(thread.key, Some(run.key), 1, 1, &reader),
        changes: vec![Change::Thread(thread.clone()), Change::Run(Box::new(run.clone()))],
        blobs: Vec::new(),
        vital: false,
    };
    store.append(batch).await.unwrap();
    run
}

#[tokio::test]
async fn no_sample_overtakes_the_question_that_it_folded_in() {
    let store = MemoryStore::default();
    let run = run_of(&store, &[output(), question(), output()]).await;
    let read: Arc<dyn Read> = Arc::new(store);
    let watching = Samplers::default().watch(&read, &run, Arc::new(CountingView), true, false);
    let (sender, states) = watch::channel(State::default());
    let wanted = Arc::clone(watching.wanted());
    let mut sampling = SamplerTask::new(&read, &run, Arc::new(CountingView), wanted, sender);
    assert!(sampling.fold_next_page().await.unwrap());
    // A sample is due now.
    let now = Instant::now();
    (sampling.next_at, sampling.began_at.1) = (now, now);
    sampling.publish(false);
    assert!(states.borrow().newest.is_none() && states.borrow().end.is_none());
    assert!(!sampling.fold_next_page().await.unwrap());
    sampling.publish(true);
    let state = states.borrow().clone();
    // First the agent's output until then, and after it the question.
    assert_eq!(state.newest.unwrap().bytes, "1.v 1");
    assert_eq!(state.end.unwrap().bytes, "2 ?");
}

#[tokio::test]
async fn a_question_from_before_is_none_for_who_knows_more() {
    let asks = Some(InterruptId::generate());
    let end = |asks| Some(Arc::new(End { number: 4, bytes: Bytes::new(), interrupt: asks }));
    let state = State { last: 5, end: end(asks), ..State::default() };
    assert!(state.end_at(5).is_some());
    // The run had six events when the reader looked it up: one of them may be the answer.
    assert!(state.end_at(6).is_none());
    let ended = State { end: end(None), ..state };
    assert!(ended.end_at(6).is_some());
}
