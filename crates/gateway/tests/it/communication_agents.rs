//! Agents for the tests of the Agent Communication Protocol; each does one thing.

use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::agent::InputKind;
use trilogue_domain::event::{Body, MessageEvent, RunEvent, StateEvent, ToolEvent, ToolStatus};
use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{
    AgentCard, Answer, Citation, Code, Error, Failure, Interrupt, InterruptKind, Json, Message,
    MessageId, Part, PartMetadata, Resolution, Result, Role, Survives, Times, Timestamp,
};
use trilogue_mapping::shape;
use trilogue_runtime::{Backend, Ending, Input, RunContext, Turn};
use trilogue_testkit::parts::chat_card;

#[derive(Debug)]
pub(crate) struct Actor {
    card: AgentCard,
    native: bool,
}

const NAMES: [&str; 21] = [
    "echo",
    "history",
    "awaiter",
    "asker",
    "form",
    "two",
    "failer",
    "raiser",
    "sleeper",
    "talker",
    "sessioner",
    "stater",
    "large",
    "setter",
    "valuer",
    "holder",
    "sloppy",
    "org.dotted.name",
    "typed",
    "recaller",
    "reuser",
];

pub(crate) fn all() -> Vec<Arc<dyn Backend>> {
    NAMES.iter().map(|name| Arc::new(Actor::new(name)) as Arc<dyn Backend>).collect()
}

fn json(text: &'static str) -> Json {
    Json::parse(text).unwrap()
}

// === impl Actor ===

impl Actor {
    fn new(name: &str) -> Self {
        let (reads, writes): (&[_], &[_]) = match name {
            "typed" => (&["text/plain"], &["text/html", "text/css"]),
            _ => (&["*/*"], &["*/*"]),
        };
        let mut card = chat_card(name, reads, writes);
        card.description = format!("plays {name}");
        if name == "valuer" {
            card.input = InputKind::Schema(json(r#"{"type":"object","required":["n"]}"#));
        }
        card.config_schema =
            (name == "setter").then(|| json(r#"{"type":"object","required":["temperature"]}"#));
        Self { card, native: name != "holder" }
    }

    async fn start(&self, input: Input, context: &RunContext) -> Result<Ending, Failure> {
        let messages = match input {
            Input::Messages(messages) => messages,
            Input::Value(value) => {
                emit(context, Body::Run(RunEvent::Result(value))).await?;
                return Ok(Ending::Completed);
            }
        };
        match self.card.name.as_str() {
            "history" => {
                let before = context.history().await.map_err(|error| to_failure(&error))?;
                for message in before.into_iter().chain(messages) {
                    repeat(context, message).await?;
                }
            }
            "awaiter" => return Ok(suspended(InterruptKind::Message, Vec::new())),
            "form" => return Ok(suspended(InterruptKind::Form, vec![Part::text("how many?")])),
            "asker" | "holder" => {
                let answer = context.ask(permission("may I?")).await.map_err(stopped_failure)?;
                say(context, vec![Part::text(chosen(answer)?)]).await?;
            }
            "two" => {
                let (one, two) = tokio::join!(
                    context.ask(permission("first?")),
                    context.ask(permission("second?"))
                );
                let both = [
                    chosen(one.map_err(stopped_failure)?)?,
                    chosen(two.map_err(stopped_failure)?)?,
                ];
                say(context, vec![Part::text(both.join("+"))]).await?;
            }
            // Its message has the same id in every thread.
            "reuser" => {
                let id = MessageId::parse("m-1").unwrap();
                let text = messages.iter().map(Message::text).collect::<String>();
                message(context, beginning_of(&id)).await?;
                message(context, MessageEvent::Delta { message: id.clone(), text: text.into() })
                    .await?;
                message(context, MessageEvent::Completed { message: id }).await?;
            }
            "failer" => {
                begin(context).await?;
                return Err(wrong("told to fail"));
            }
            "raiser" => return Err(wrong("told to fail")),
            "sleeper" => {
                begin(context).await?;
                context.commit().await.map_err(stopped_failure)?;
                context.cancelled().await;
            }
            "talker" => talk(context).await?,
            "sessioner" => say(context, vec![Part::text(context.thread().as_str())]).await?,
            "stater" => {
                let text = messages.iter().map(Message::text).collect::<String>();
                let state = Json::from_value(&serde_json::json!({ "said": text }));
                emit(context, Body::State(StateEvent::Values(state))).await?;
            }
            "recaller" => {
                let state = context.load_state().await.map_err(|error| to_failure(&error))?;
                let text =
                    state.map_or_else(|| "nothing".to_owned(), |json| json.as_str().to_owned());
                say(context, vec![Part::text(text)]).await?;
            }
            "large" => {
                let large = "x".repeat(100 * 1024);
                say(context, vec![Part::text(large), Part::bytes("image/png", vec![7_u8; 80_000])])
                    .await?;
            }
            "setter" => {
                let config = context.config().map_or("none", |config| config.as_str());
                say(context, vec![Part::text(config)]).await?;
            }
            "sloppy" => {
                let citation =
                    Citation { url: Some("https://a.example".to_owned()), ..Citation::default() };
                let citation = Part::annotation(PartMetadata::Citation(citation));
                let text = messages.iter().map(Message::text).collect::<String>();
                let kind = if text == "annotate" { "text/plain" } else { "no type" };
                say(context, vec![citation, Part::new(kind, Part::text("x").content)]).await?;
            }
            _ => {
                for message in messages {
                    repeat(context, message).await?;
                }
            }
        }
        Ok(Ending::Completed)
    }
}

#[async_trait]
impl Backend for Actor {
    fn card(&self) -> &AgentCard {
        &self.card
    }

    fn is_native(&self) -> bool {
        self.native
    }

    fn admit(&self, input: Input, config: Option<&Json>) -> Result<Input> {
        let fits = |config: &Json| config.to_value()["temperature"].is_number();
        if self.card.config_schema.is_some() && !config.is_none_or(fits) {
            return Err(Error::new(Code::InvalidInput, "config.temperature is not a number"));
        }
        match self.card.input {
            InputKind::Chat => Ok(input),
            InputKind::Schema(_) => shape::input(&self.card, input, Timestamp::from_micros(0)),
        }
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        match turn {
            Turn::Start { input } => self.start(input, &context).await,
            Turn::Resume { answer, .. } => {
                let text = match answer {
                    Answer::Message(parts) => {
                        let text: String = parts.iter().filter_map(Part::as_text).collect();
                        if text.is_empty() { "empty".to_owned() } else { text }
                    }
                    Answer::Json(json) => json.as_str().to_owned(),
                    Answer::Option(option) => option,
                };
                say(&context, vec![Part::text(text)]).await?;
                Ok(Ending::Completed)
            }
            Turn::Rejoin { .. } => Err(stopped_failure("the agent keeps nothing")),
        }
    }
}

fn stopped_failure<E: std::fmt::Display>(error: E) -> Failure {
    Failure { code: "stopped".to_owned(), message: error.to_string(), transient: false, data: None }
}

fn to_failure(error: &Error) -> Failure {
    Failure::of(error.code(), error.message())
}

fn wrong(message: &str) -> Failure {
    Failure {
        code: "invalid_input".to_owned(),
        message: message.to_owned(),
        transient: false,
        data: None,
    }
}

fn permission(question: &str) -> Interrupt {
    let option = |id: &str, name: &str, effect| PermissionOption::once(id, name, effect);
    let options =
        vec![option("go", "Go ahead", Effect::Allow), option("halt", "Rather not", Effect::Reject)];
    let prompt = vec![Part::text(question)];
    Interrupt { options, ..question_of(InterruptKind::Permission, prompt, Survives::Process) }
}

fn question_of(kind: InterruptKind, prompt: Vec<Part>, survives: Survives) -> Interrupt {
    let schema = (kind == InterruptKind::Form).then(|| {
        json(r#"{"type":"object","required":["count"],"properties":{"count":{"type":"integer"}}}"#)
    });
    Interrupt { prompt, schema, survives, ..Interrupt::new(kind) }
}

fn suspended(kind: InterruptKind, prompt: Vec<Part>) -> Ending {
    let interrupt = Box::new(question_of(kind, prompt, Survives::Restart));
    Ending::Suspended { interrupt, saved: Json::null() }
}

fn chosen(resolution: Resolution) -> Result<String, Failure> {
    match resolution {
        Resolution::Answered { answer: Answer::Option(option), .. } => Ok(option),
        _ => Err(stopped_failure("no answer")),
    }
}

async fn emit(context: &RunContext, body: Body) -> Result<(), Failure> {
    context.emit(body, None).await.map_err(|error| match error {
        trilogue_runtime::EmitError::Refused(error) => to_failure(&error),
        stop => stopped_failure(stop),
    })
}

async fn message(context: &RunContext, event: MessageEvent) -> Result<(), Failure> {
    emit(context, Body::Message(event)).await
}

/// Sends a message back unchanged, with its times.
async fn repeat(context: &RunContext, said: Message) -> Result<(), Failure> {
    let times = Times { created_at: said.created_at, completed_at: said.completed_at };
    parts(context, said.parts, Some(times)).await
}

async fn say(context: &RunContext, said: Vec<Part>) -> Result<(), Failure> {
    parts(context, said, None).await
}

async fn parts(context: &RunContext, said: Vec<Part>, times: Option<Times>) -> Result<(), Failure> {
    let id = MessageId::generate();
    message(context, MessageEvent::Started { message: id.clone(), role: Role::Agent, times })
        .await?;
    for part in said {
        message(context, MessageEvent::Part { message: id.clone(), part }).await?;
    }
    message(context, MessageEvent::Completed { message: id }).await
}

async fn begin(context: &RunContext) -> Result<(), Failure> {
    let id = MessageId::generate();
    let role = Role::Agent;
    message(context, MessageEvent::Started { message: id.clone(), role, times: None }).await?;
    message(context, MessageEvent::Delta { message: id, text: Arc::from("half") }).await
}

fn beginning_of(id: &MessageId) -> MessageEvent {
    MessageEvent::Started { message: id.clone(), role: Role::Agent, times: None }
}

/// Emits everything that a run's stream can contain.
async fn talk(context: &RunContext) -> Result<(), Failure> {
    let id = MessageId::generate();
    message(context, MessageEvent::Thought { message: None, text: Arc::from("let me see") })
        .await?;
    message(context, beginning_of(&id)).await?;
    for text in ["one ", "two\u{2028}", "three"] {
        message(context, MessageEvent::Delta { message: id.clone(), text: Arc::from(text) })
            .await?;
        context.commit().await.map_err(stopped_failure)?;
    }
    let artifact = Part::json(&json(r#"{"a":1}"#)).with_name("data.json");
    message(context, MessageEvent::Part { message: id.clone(), part: artifact }).await?;
    message(context, MessageEvent::Completed { message: id }).await?;
    let generic =
        StateEvent::Custom { kind: "generic".to_owned(), data: json(r#"{"progress":0.5}"#) };
    emit(context, Body::State(generic)).await?;
    let tool = ToolEvent::Started {
        call: "c1".to_owned(),
        tool: "search".to_owned(),
        title: "Search".to_owned(),
        input: Some(json(r#"{"q":"x"}"#)),
        message: None,
    };
    emit(context, Body::Tool(tool)).await?;
    let ended = ToolEvent::Ended {
        call: "c1".to_owned(),
        status: ToolStatus::Completed,
        output: Some(json("[1]")),
    };
    emit(context, Body::Tool(ended)).await?;
    say(context, vec![Part::url("text/html", "https://a.example/x"), Part::bytes("image/png", "x")])
        .await
}
