//! A real runtime on the store in memory, with agents and somebody who uses them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use trilogue_backends::NativeAgent;
use trilogue_domain::event::RunEvent;
use trilogue_domain::port::SystemClock;
use trilogue_domain::{
    AgentName, Body, Failure, Outcome as Ended, Principal, PrincipalId, Rights, Strategy, TenantId,
    ThreadId, Transcript,
};
use trilogue_runtime::{
    AnswerTo, Backend, Input, NewRun, NewThread, Runtime, ThreadChoice, WhenHolding, WhenWaiting,
};
use trilogue_sdk::Interrupt;
use trilogue_sdk::prelude::*;
use trilogue_store::record::NoOriginals;
use trilogue_store::rows::{InterruptFilter, Page, RunRow};
use trilogue_store::{Range, Store};

/// The longest that a test waits for anything.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

/// A runtime with agents, one thread and somebody who uses it.
pub(super) struct House {
    pub(super) store: Arc<dyn Store>,
    pub(super) runtime: Runtime,
    pub(super) by: Principal,
    pub(super) thread: ThreadId,
}

impl House {
    pub(super) async fn with(agents: Vec<NativeAgent>) -> Self {
        let originals = Arc::new(NoOriginals);
        let options = trilogue_store::Options::new(originals.clone());
        let store = trilogue_store::open("memory:", options).await.unwrap();
        let agents = agents.into_iter().map(|agent| Arc::new(agent) as Arc<dyn Backend>).collect();
        let clock = Arc::new(SystemClock);
        let options = trilogue_runtime::Options::default();
        let runtime =
            Runtime::start(options, Arc::clone(&store), agents, clock, originals).await.unwrap();
        let by = Principal {
            tenant: TenantId::parse("default").unwrap(),
            id: PrincipalId::parse("alice").unwrap(),
            rights: Rights::all(),
            own: false,
        };
        Self { store, runtime, by, thread: ThreadId::generate() }
    }

    pub(super) fn run(&self, agent: &str, input: Input) -> NewRun {
        let thread = NewThread { id: Some(self.thread.clone()), metadata: None };
        NewRun {
            agent: AgentName::parse(agent).unwrap(),
            thread: ThreadChoice::Ensure(thread),
            id: None,
            input,
            config: None,
            metadata: None,
            strategy: Strategy::default(),
            when_waiting: WhenWaiting::Start,
            when_holding: WhenHolding::Refuse,
            idempotency: None,
            not_before: None,
            rules: None,
            callback: None,
            request: None,
            synchronous: false,
        }
    }

    /// Gives a run its input and waits until it has ended or waits.
    pub(super) async fn settle(&self, agent: &str, input: Input) -> RunRow {
        let submitted = self.runtime.submit(&self.by, self.run(agent, input)).await.unwrap();
        tokio::time::timeout(DEADLINE, submitted.settled.wait()).await.unwrap().unwrap()
    }

    pub(super) async fn pending(&self, run: &RunRow) -> Interrupt {
        let filter = InterruptFilter { run: Some(run.id.clone()), pending: true, thread: None };
        let page = Page { limit: 10, after: None, skip: 0 };
        let listing = self.store.interrupts(&self.by.scope(), &filter, &page).await.unwrap();
        listing.rows.into_iter().next().unwrap().interrupt
    }

    /// Answers what a run waits for, and waits again.
    pub(super) async fn answer(&self, run: &RunRow, answer: Answer) -> RunRow {
        let interrupt = self.pending(run).await;
        let to = AnswerTo::Interrupt(interrupt.id);
        self.runtime.answer(&self.by, to, answer).await.unwrap();
        let settled = self.runtime.settled(&self.by, &run.id);
        tokio::time::timeout(DEADLINE, settled).await.unwrap().unwrap()
    }

    /// What a run logged.
    pub(super) async fn events(&self, run: &RunRow) -> Vec<trilogue_domain::Event> {
        let scope = self.by.scope();
        let thread = self.store.thread(&scope, &run.thread_id).await.unwrap().unwrap();
        let mut events = Vec::new();
        loop {
            let after = events.last().map_or(0, |event: &trilogue_domain::Event| event.run_number);
            let range = Range { run: Some(run.key), after, max_bytes: 1 << 20 };
            let frames = self.store.frames(&thread, range).await.unwrap();
            if frames.is_empty() {
                return events;
            }
            for frame in frames {
                events.extend(frame.events().unwrap().iter().cloned());
            }
        }
    }

    pub(super) async fn messages(&self, run: &RunRow) -> Vec<Message> {
        let mut transcript = Transcript::default();
        for event in self.events(run).await {
            transcript.push(&event);
        }
        transcript.into_messages()
    }

    pub(super) async fn result(&self, run: &RunRow) -> Option<Value> {
        self.events(run).await.into_iter().find_map(|event| match event.body {
            Body::Run(RunEvent::Result(value)) => Some(value.to_value()),
            _ => None,
        })
    }
}

pub(super) fn native(agent: impl Agent) -> NativeAgent {
    NativeAgent::new(agent).unwrap()
}

pub(super) fn value(value: &Value) -> Input {
    Input::Value(Json::from_value(value))
}

/// One message of a user.
pub(super) fn said(text: &str) -> Input {
    Input::Messages(trilogue_sdk::Input::from(text).messages().to_vec())
}

/// Why a run failed.
pub(super) fn failure(run: &RunRow) -> Failure {
    match &run.outcome {
        Some(Ended::Failed(failure)) => failure.clone(),
        other => panic!("it did not fail: {other:?}"),
    }
}
