//! The author's trait: an agent, its turns and their outcomes.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::{Answer, Interrupt, Json, Message, MessageId, Part, Role, Survives};

use crate::card::Card;
use crate::context::{Context, RunInfo};
use crate::error::AgentError;
use crate::port::Host;
use crate::typed::to_json;

/// Something that can be run.
///
/// One value serves all runs at once; what belongs to a run is in the [`Context`], what belongs to a thread is its state.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// What the agent says of itself. Read once, when it is served.
    fn card(&self) -> Card;

    /// Executes one turn. When the run is cancelled, [`Context::cancelled`] says so; an agent that goes on is dropped after a grace period.
    ///
    /// # Errors
    /// What the run's caller is told. A `?` on what the context returns does the right thing.
    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError>;
}

/// What an agent is asked to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Begin.
    Start {
        /// What it was given.
        input: Input,
    },
    /// Go on after [`Outcome::Suspended`], perhaps in another process and days later.
    Resume {
        /// What was asked.
        interrupt: Box<Interrupt>,
        /// What was answered.
        answer: Answer,
        /// What the agent left when it suspended.
        saved: Json,
    },
}

/// A run's input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// Messages, oldest first: what an agent gets that declared [`Card::chat`].
    Messages(Vec<Message>),
    /// One JSON value that fits the schema: what an agent gets that declared [`Card::schema`].
    Value(Json),
}

/// How a turn ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The run is complete.
    Completed,
    /// The run waits for an answer without holding a task; it survives restarts.
    Suspended {
        /// What is asked.
        interrupt: Box<Interrupt>,
        /// What the agent needs to go on.
        saved: Json,
    },
}

/// Runs one turn of an agent over the ports of a run, and closes what the agent left open.
///
/// This is for whoever runs agents. Messages of a turn that fails stay unfinished, as the log should show.
///
/// # Errors
/// What the agent returned, or what kept its last words from being logged.
pub async fn run_turn(
    agent: &dyn Agent,
    turn: Turn,
    run: RunInfo,
    host: Arc<dyn Host>,
) -> Result<Outcome, AgentError> {
    let context = Context::new(run, host);
    if let Some(said) = turn.input().and_then(Input::prompt) {
        context.heard(said.id.clone());
    }
    let outcome = agent.run(turn, context.clone()).await?;
    context.close().await?;
    Ok(outcome)
}

// === impl Turn ===

impl Turn {
    /// The input of a start; `None` for a resume.
    #[must_use]
    pub fn input(&self) -> Option<&Input> {
        match self {
            Self::Start { input } => Some(input),
            Self::Resume { .. } => None,
        }
    }

    /// What the user said: [`Input::text`] of a start, the answer's text of a resume.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Start { input } => input.text(),
            Self::Resume { answer: Answer::Message(parts), .. } => {
                parts.iter().filter_map(Part::as_text).collect()
            }
            Self::Resume { answer: Answer::Option(option), .. } => option.clone(),
            Self::Resume { answer: Answer::Json(json), .. } => json.as_str().to_owned(),
        }
    }
}

// === impl Input ===

impl Input {
    /// The text of the newest user message; of a value its JSON.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Messages(_) => self.prompt().map(Message::text).unwrap_or_default(),
            Self::Value(json) => json.as_str().to_owned(),
        }
    }

    /// The message to answer: the newest of the user; without one the newest. `None` where the input is a value.
    #[must_use]
    pub fn prompt(&self) -> Option<&Message> {
        let messages = self.messages();
        messages.iter().rfind(|message| message.role.is_user()).or(messages.last())
    }

    /// The messages; none where the input is a value.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        match self {
            Self::Messages(messages) => messages,
            Self::Value(_) => &[],
        }
    }

    /// The value, as this type.
    ///
    /// # Errors
    /// `invalid_input` when the input is messages or does not fit the type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, AgentError> {
        let Self::Value(json) = self else {
            return Err(AgentError::invalid_input("the agent takes a JSON value, not messages"));
        };
        serde_json::from_slice(json.as_bytes())
            .map_err(|error| AgentError::invalid_input(format!("the input does not fit: {error}")))
    }
}

/// One message of a user, in plain text.
impl From<&str> for Input {
    fn from(text: &str) -> Self {
        let now = SystemClock.now();
        Self::Messages(vec![Message {
            id: MessageId::generate(),
            role: Role::User,
            parts: vec![Part::text(text)],
            created_at: Some(now),
            completed_at: Some(now),
        }])
    }
}

impl From<String> for Input {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Vec<Message>> for Input {
    fn from(messages: Vec<Message>) -> Self {
        Self::Messages(messages)
    }
}

impl From<Json> for Input {
    fn from(value: Json) -> Self {
        Self::Value(value)
    }
}

impl From<Value> for Input {
    fn from(value: Value) -> Self {
        Self::Value(Json::from_value(&value))
    }
}

impl<I: Into<Input>> From<I> for Turn {
    fn from(input: I) -> Self {
        Self::Start { input: input.into() }
    }
}

// === impl Outcome ===

impl Outcome {
    /// The run waits for an answer to this question and survives restarts; `saved` comes back with the answer.
    ///
    /// # Errors
    /// When the question's payload or `saved` is no JSON.
    pub fn suspended<Q>(question: Q, saved: impl Serialize) -> Result<Self, AgentError>
    where
        Q: TryInto<Interrupt, Error: Into<AgentError>>,
    {
        let interrupt = question.try_into().map_err(Into::into)?;
        let interrupt = Interrupt { survives: Survives::Restart, ..interrupt };
        Ok(Self::Suspended { interrupt: Box::new(interrupt), saved: to_json(&saved)? })
    }
}

/// A function that ends without a word about its outcome is complete.
impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Completed
    }
}
