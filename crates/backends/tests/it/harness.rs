//! The harness of these tests: a real runtime on the memory store, with agents and one principal.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use trilogue_backends::NativeAgent;
use trilogue_domain::event::RunEvent;
use trilogue_domain::port::{ReadOriginal, SystemClock};
use trilogue_domain::{Body, Event, Failure, Outcome as Ended, Principal, ThreadId, Transcript};
use trilogue_runtime::{
    AnswerTo, Backend, Input, NewThread, Options, RunRequest, Runtime, Submitted, ThreadChoice,
};
use trilogue_sdk::Interrupt;
use trilogue_sdk::prelude::*;
use trilogue_store::record::NoOriginals;
use trilogue_store::rows::{InterruptFilter, Page, RunRow};
use trilogue_store::{Range, Store};
pub(crate) use trilogue_testkit::parts::new_run;
use trilogue_testkit::parts::principal;

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Harness {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runtime: Runtime,
    pub(crate) by: Principal,
    pub(crate) thread: ThreadId,
}

impl Harness {
    pub(crate) async fn with(agents: Vec<NativeAgent>) -> Self {
        let agents = agents.into_iter().map(|agent| Arc::new(agent) as Arc<dyn Backend>).collect();
        Self::start(agents, Arc::new(NoOriginals), Options::default()).await
    }

    /// Starts a runtime with these agents and settings.
    pub(crate) async fn start(
        agents: Vec<Arc<dyn Backend>>,
        originals: Arc<dyn ReadOriginal>,
        options: Options,
    ) -> Self {
        let settings = trilogue_store::Options::new(Arc::clone(&originals));
        let store = trilogue_store::open("memory:", settings).await.unwrap();
        let clock = Arc::new(SystemClock);
        let runtime =
            Runtime::start(options, Arc::clone(&store), agents, clock, originals).await.unwrap();
        let by = principal("default", "alice");
        Self { store, runtime, by, thread: ThreadId::generate() }
    }

    pub(crate) fn run(&self, agent: &str, input: Input) -> RunRequest {
        let thread =
            NewThread { id: Some(self.thread.clone()), metadata: None, ..NewThread::default() };
        new_run(agent, ThreadChoice::Ensure(thread), input)
    }

    pub(crate) async fn settle(&self, agent: &str, input: Input) -> RunRow {
        settle(self.runtime.submit(&self.by, self.run(agent, input)).await.unwrap()).await
    }

    pub(crate) async fn wait_until_settled(&self, run: &RunRow) -> RunRow {
        let settled = self.runtime.wait_until_settled(&self.by, &run.id);
        tokio::time::timeout(DEADLINE, settled).await.unwrap().unwrap()
    }

    pub(crate) async fn pending(&self, run: &RunRow) -> Interrupt {
        let filter = InterruptFilter { run: Some(run.id.clone()), pending: true, thread: None };
        let page = Page { limit: 10, after: None, skip: 0 };
        let listing = self.store.interrupts(&self.by.scope(), &filter, &page).await.unwrap();
        listing.rows.into_iter().next().unwrap().interrupt
    }

    pub(crate) async fn answer(&self, run: &RunRow, answer: Answer) -> RunRow {
        let interrupt = self.pending(run).await;
        let to = AnswerTo::Interrupt(interrupt.id);
        self.runtime.answer(&self.by, to, answer).await.unwrap();
        self.wait_until_settled(run).await
    }

    pub(crate) async fn events(&self, run: &RunRow) -> Vec<Event> {
        let key = Some(run.key);
        let mut events = self.log(&run.thread_id).await;
        events.retain(|event| event.run == key);
        events
    }

    pub(crate) async fn log(&self, thread: &ThreadId) -> Vec<Event> {
        let row = self.store.thread(&self.by.scope(), thread).await.unwrap().unwrap();
        let mut events: Vec<Event> = Vec::new();
        loop {
            let after = events.last().map_or(0, |event| event.number);
            let range = Range { run: None, after, max_bytes: 1 << 20 };
            let frames = self.store.frames(row.key, range).await.unwrap();
            let before = events.len();
            for frame in frames {
                let new = frame.events().unwrap().iter().filter(|event| event.number > after);
                events.extend(new.cloned());
            }
            if events.len() == before {
                return events;
            }
        }
    }

    pub(crate) async fn messages(&self, run: &RunRow) -> Vec<Message> {
        let mut transcript = Transcript::default();
        for event in self.events(run).await {
            transcript.push(&event);
        }
        transcript.into_messages()
    }

    pub(crate) async fn result(&self, run: &RunRow) -> Option<Value> {
        self.events(run).await.into_iter().find_map(|event| match event.body {
            Body::Run(RunEvent::Result(value)) => Some(value.to_value()),
            _ => None,
        })
    }
}

pub(crate) async fn settle(submitted: Submitted) -> RunRow {
    tokio::time::timeout(DEADLINE, submitted.settled.wait()).await.unwrap().unwrap()
}

pub(crate) fn native(agent: impl Agent) -> NativeAgent {
    NativeAgent::new(agent).unwrap()
}

pub(crate) fn value(value: &Value) -> Input {
    Input::Value(Json::from_value(value))
}

pub(crate) fn user_input(text: &str) -> Input {
    Input::Messages(trilogue_sdk::Input::from(text).messages().to_vec())
}

pub(crate) fn failure(run: &RunRow) -> Failure {
    match &run.outcome {
        Some(Ended::Failed(failure)) => failure.clone(),
        other => panic!("it did not fail: {other:?}"),
    }
}
