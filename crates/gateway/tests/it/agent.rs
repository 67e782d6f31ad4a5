//! An agent that follows its input: the first word chooses what it does.

use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::event::{
    Body, MessageEvent, PlanContent, PlanEntry, RunEvent, StateEvent, Subagent, SubagentState,
};
use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{
    AgentCard, Answer, Failure, Interrupt, InterruptKind, Json, MessageId, Part, Resolution, Role,
    Survives, ThreadId,
};
use trilogue_runtime::{Backend, Ending, Input, RunContext, Turn};
use trilogue_testkit::parts::chat_card;

#[derive(Debug)]
pub(crate) struct Puppet {
    card: AgentCard,
}

impl Puppet {
    pub(crate) fn new() -> Self {
        Self::with_name("puppet")
    }

    pub(crate) fn with_name(name: &str) -> Self {
        Self { card: chat_card(name, &["text/plain"], &["text/plain"]) }
    }

    pub(crate) fn configured(name: &str, schema: &serde_json::Value) -> Self {
        let mut puppet = Self::with_name(name);
        puppet.card.config_schema = Some(Json::from_value(schema));
        puppet
    }
}

fn stopped_failure<E: std::fmt::Display>(error: E) -> Failure {
    Failure { code: "stopped".to_owned(), message: error.to_string(), transient: false, data: None }
}

async fn emit(context: &RunContext, event: MessageEvent) -> Result<(), Failure> {
    context.emit(Body::Message(event), None).await.map_err(stopped_failure)
}

async fn say(context: &RunContext, parts: Vec<Part>) -> Result<(), Failure> {
    let message = MessageId::generate();
    emit(
        context,
        MessageEvent::Started { message: message.clone(), role: Role::Agent, times: None },
    )
    .await?;
    for part in parts {
        emit(context, MessageEvent::Part { message: message.clone(), part }).await?;
    }
    emit(context, MessageEvent::Completed { message }).await
}

fn question(kind: InterruptKind, survives: Survives) -> Interrupt {
    let option = |id: &str, effect| PermissionOption::once(id, id, effect);
    let options = match kind {
        InterruptKind::Permission => {
            vec![option("yes", Effect::Allow), option("no", Effect::Reject)]
        }
        _ => Vec::new(),
    };
    Interrupt {
        prompt: vec![Part::text("may I?")],
        payload: Json::parse(r#"{"b":1.0,"a":2}"#).unwrap(),
        options,
        survives,
        ..Interrupt::new(kind)
    }
}

#[async_trait]
impl Backend for Puppet {
    fn card(&self) -> &AgentCard {
        &self.card
    }

    fn is_native(&self) -> bool {
        true
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        let text = match turn {
            Turn::Resume { answer, .. } => {
                say(&context, vec![Part::text(format!("{answer:?}"))]).await?;
                return Ok(Ending::Completed);
            }
            Turn::Rejoin { .. } => return Err(stopped_failure("the agent keeps nothing")),
            Turn::Start { input: Input::Messages(messages) } => {
                messages.iter().map(trilogue_domain::Message::text).collect::<String>()
            }
            Turn::Start { input: Input::Value(value) } => {
                context
                    .emit(Body::Run(RunEvent::Result(value)), None)
                    .await
                    .map_err(stopped_failure)?;
                return Ok(Ending::Completed);
            }
        };
        let (command, rest) = text.split_once(' ').unwrap_or((&text, ""));
        match command {
            "panic" => panic!("the secret plans"),
            "fail" => return Err(stopped_failure("as told")),
            "count" => {
                for number in 0..rest.parse::<u32>().unwrap() {
                    say(&context, vec![Part::text(format!("part {number}"))]).await?;
                    if number % 7 == 0 {
                        context.commit().await.map_err(stopped_failure)?;
                    }
                }
            }
            "large" => {
                let large = "x".repeat(100 * 1024);
                let data = Part::bytes("image/png", vec![7_u8; 5]).with_name("a.png");
                say(&context, vec![Part::text(large), data]).await?;
            }
            "stream" => {
                let message = MessageId::generate();
                let (id, role) = (message.clone(), Role::Agent);
                emit(&context, MessageEvent::Started { message: id, role, times: None }).await?;
                for _ in 0..rest.parse().unwrap_or(5) {
                    let (message, text) = (message.clone(), "x".repeat(40 * 1024).into());
                    emit(&context, MessageEvent::Delta { message, text }).await?;
                }
                emit(&context, MessageEvent::Completed { message }).await?;
            }
            "plans" => {
                let entry = |text: &str| PlanEntry {
                    content: text.to_owned(),
                    status: "pending".to_owned(),
                };
                let updated = |plan: &str, content| StateEvent::PlanUpdated {
                    plan: plan.to_owned(),
                    content,
                };
                let text = "- [x] read".to_owned();
                for event in [
                    updated("list", PlanContent::Entries(vec![entry("look")])),
                    updated("document", PlanContent::Markdown { text, path: None }),
                    StateEvent::PlanRemoved { plan: "list".to_owned() },
                ] {
                    context.emit(Body::State(event), None).await.map_err(stopped_failure)?;
                }
            }
            "subagent" => {
                let [thread, state] = rest.split(' ').collect::<Vec<_>>()[..] else {
                    panic!("{rest}")
                };
                let (state, stop_reason) = state.split_once(':').unwrap_or((state, ""));
                let stop_reason = Some(stop_reason.to_owned()).filter(|it| !it.is_empty());
                let event = StateEvent::Subagent(Subagent {
                    thread: ThreadId::parse(thread).unwrap(),
                    title: Some("Helper".to_owned()),
                    description: None,
                    state: (state != "none").then(|| SubagentState::from_text(state, stop_reason)),
                    can_cancel: false,
                });
                context.emit(Body::State(event), None).await.map_err(stopped_failure)?;
            }
            "state" => {
                let values = Json::parse(format!("{{\"said\":\"{rest}\"}}")).unwrap();
                let event = Body::State(StateEvent::Values(values));
                context.emit(event, None).await.map_err(stopped_failure)?;
            }
            "begin" => {
                say(&context, vec![Part::text("at work")]).await?;
                context.commit().await.map_err(stopped_failure)?;
                context.cancelled().await;
            }
            "sleep" => context.cancelled().await,
            "ask" => {
                for _ in 0..rest.parse::<u32>().unwrap_or(1) {
                    let asked = question(InterruptKind::Permission, Survives::Process);
                    let answer = context.ask(asked).await.map_err(stopped_failure)?;
                    let Resolution::Answered { answer: Answer::Option(option), .. } = answer else {
                        return Err(stopped_failure("no answer"));
                    };
                    say(&context, vec![Part::text(option)]).await?;
                }
            }
            "form" => {
                let schema = r#"{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}"#;
                let mut asked = question(InterruptKind::Form, Survives::Process);
                asked.schema = Some(Json::parse(schema).unwrap());
                let answer = context.ask(asked).await.map_err(stopped_failure)?;
                say(&context, vec![Part::text(format!("{answer:?}"))]).await?;
            }
            "suspend" => {
                let interrupt = Box::new(question(InterruptKind::Form, Survives::Restart));
                return Ok(Ending::Suspended { interrupt, saved: Json::null() });
            }
            _ => {
                let message = MessageId::generate();
                let began = MessageEvent::Started {
                    message: message.clone(),
                    role: Role::Agent,
                    times: None,
                };
                emit(&context, began).await?;
                let delta = MessageEvent::Delta { message: message.clone(), text: Arc::from(text) };
                emit(&context, delta).await?;
                emit(&context, MessageEvent::Completed { message }).await?;
            }
        }
        Ok(Ending::Completed)
    }
}
