//! An agent that a test controls step by step. It can report when its steps are on disk.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::{Mutex, mpsc, oneshot};
use trilogue_domain::agent::InputKind;
use trilogue_domain::event::{Body, RunEvent, StateEvent};
use trilogue_domain::{Abilities, AgentCard, Failure, Interrupt, InterruptKind, Json};
use trilogue_runtime::{Backend, Ending, RunContext, Turn};
use trilogue_testkit::parts;

#[derive(Debug)]
pub(crate) enum Step {
    Output(Value),
    Update(Value),
    Ask,
    /// Reports when all steps before it are on disk.
    Sync(oneshot::Sender<()>),
    Fail,
    End(Value),
}

#[derive(Debug)]
pub(crate) struct Fountain {
    card: AgentCard,
    steps: Mutex<mpsc::UnboundedReceiver<Step>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Hand(mpsc::UnboundedSender<Step>);

pub(crate) fn card(name: &str) -> AgentCard {
    let object = || Json::parse(r#"{"type":"object"}"#).unwrap();
    AgentCard {
        output_schema: Some(object()),
        update_schema: Some(object()),
        abilities: Abilities {
            streams_values: Some(true),
            streams_updates: Some(true),
            ..Abilities::default()
        },
        ..parts::card(name, InputKind::Schema(object()))
    }
}

fn stopped_failure<E: std::fmt::Display>(error: E) -> Failure {
    Failure { code: "stopped".to_owned(), message: error.to_string(), transient: false, data: None }
}

fn json(value: &Value) -> Json {
    Json::from_value(value)
}

// === impl Fountain ===

impl Fountain {
    pub(crate) fn new() -> (Arc<Self>, Hand) {
        let (sender, steps) = mpsc::unbounded_channel();
        let agent = Self { card: card("fountain"), steps: Mutex::new(steps) };
        (Arc::new(agent), Hand(sender))
    }
}

// === impl Hand ===

impl Hand {
    pub(crate) fn take(&self, step: Step) {
        self.0.send(step).unwrap();
    }

    /// Returns once all steps so far are on disk.
    pub(crate) async fn sync(&self) {
        let (done, is_done) = oneshot::channel();
        self.take(Step::Sync(done));
        tokio::time::timeout(crate::rig::LIMIT, is_done).await.unwrap().unwrap();
    }
}

#[async_trait]
impl Backend for Fountain {
    fn card(&self) -> &AgentCard {
        &self.card
    }

    fn is_native(&self) -> bool {
        true
    }

    async fn run(&self, _: Turn, context: RunContext) -> Result<Ending, Failure> {
        let mut steps = self.steps.lock().await;
        loop {
            let step = tokio::select! {
                step = steps.recv() => step,
                () = context.cancelled() => return Err(stopped_failure("cancelled")),
            };
            let body = match step {
                None => return Err(stopped_failure("the test is over")),
                Some(Step::Fail) => return Err(stopped_failure("as told")),
                Some(Step::Sync(done)) => {
                    context.commit().await.map_err(stopped_failure)?;
                    // The test may have stopped waiting.
                    let _ = done.send(());
                    continue;
                }
                Some(Step::Ask) => {
                    let asked = Interrupt {
                        payload: json(&serde_json::json!({"may": "I"})),
                        ..Interrupt::new(InterruptKind::Custom("whether".to_owned()))
                    };
                    context.ask(asked).await.map_err(stopped_failure)?;
                    continue;
                }
                Some(Step::Output(value)) => Body::State(StateEvent::Output(json(&value))),
                Some(Step::Update(data)) => {
                    let kind = "drop".to_owned();
                    Body::State(StateEvent::Custom { kind, data: json(&data) })
                }
                Some(Step::End(value)) => {
                    let result = Body::Run(RunEvent::Result(json(&value)));
                    context.emit(result, None).await.map_err(stopped_failure)?;
                    return Ok(Ending::Completed);
                }
            };
            context.emit(body, None).await.map_err(stopped_failure)?;
        }
    }
}

/// An agent that returns its input at once.
#[derive(Debug)]
pub(crate) struct Quick {
    card: AgentCard,
}

impl Quick {
    pub(crate) fn new(name: &str) -> Arc<Self> {
        let config_schema = Some(Json::parse(r#"{"type":"object"}"#).unwrap());
        Arc::new(Self { card: AgentCard { config_schema, ..card(name) } })
    }
}

#[async_trait]
impl Backend for Quick {
    fn card(&self) -> &AgentCard {
        &self.card
    }

    fn is_native(&self) -> bool {
        true
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        let value = match turn {
            Turn::Start { input: trilogue_runtime::Input::Value(value) } => value,
            _ => Json::empty_object(),
        };
        let values = Body::State(StateEvent::Values(value.clone()));
        context.emit(values, None).await.map_err(stopped_failure)?;
        context.emit(Body::Run(RunEvent::Result(value)), None).await.map_err(stopped_failure)?;
        Ok(Ending::Completed)
    }
}
