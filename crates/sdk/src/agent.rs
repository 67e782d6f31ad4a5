//! The [`Agent`] trait, its turns and their outcomes.

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

/// An agent that can be run.
///
/// One value serves all runs at once. Data of one run is in the [`Context`]; data of a thread is in the thread's state.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// Returns the agent's card. Called once, when serving starts.
    fn card(&self) -> Card;

    /// Executes one turn. If the run is cancelled, [`Context::cancelled`] returns; an agent that does not end is dropped after a grace period.
    ///
    /// # Errors
    /// The error that the caller of the run receives. You can pass on every error of the context with `?`.
    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError>;
}

/// The task of one call to [`Agent::run`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Begins a run.
    Start {
        /// The input of the run.
        input: Input,
    },
    /// Resumes a run after [`Outcome::Suspended`], possibly in another process and days later.
    Resume {
        /// The question.
        interrupt: Box<Interrupt>,
        /// The answer to it.
        answer: Answer,
        /// The value that the agent saved when it suspended.
        saved: Json,
    },
}

/// A run's input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// Messages, oldest first. An agent with [`Card::chat`] gets this.
    Messages(Vec<Message>),
    /// One JSON value that fits the input schema. An agent with [`Card::schema`] gets this.
    Value(Json),
}

/// How a turn ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The run is complete.
    Completed,
    /// The run waits for an answer. It holds no task meanwhile, and it survives restarts.
    Suspended {
        /// The question.
        interrupt: Box<Interrupt>,
        /// The value that the agent needs to resume.
        saved: Json,
    },
}

/// Runs one turn of an agent over the ports of a run, and closes open messages and tool calls.
///
/// Only code that runs agents needs this. If a turn fails, its open messages stay unfinished in the log.
///
/// # Errors
/// The agent's error, or the error of the log while it takes the last events.
pub async fn run_turn(
    agent: &dyn Agent,
    turn: Turn,
    run: RunInfo,
    host: Arc<dyn Host>,
) -> Result<Outcome, AgentError> {
    let context = Context::new(run, host);
    if let Some(said) = turn.input().and_then(Input::prompt) {
        context.set_last_message(said.id.clone());
    }
    let outcome = agent.run(turn, context.clone()).await?;
    context.close().await?;
    Ok(outcome)
}

// === impl Turn ===

impl Turn {
    /// Returns the input of a start; `None` for a resume.
    #[must_use]
    pub fn input(&self) -> Option<&Input> {
        match self {
            Self::Start { input } => Some(input),
            Self::Resume { .. } => None,
        }
    }

    /// Returns the user's text: the [`Input::text`] of a start, or the text of the answer for a resume.
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
    /// Returns the text of [`Input::prompt`], or the JSON text of a value.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Messages(_) => self.prompt().map(Message::text).unwrap_or_default(),
            Self::Value(json) => json.as_str().to_owned(),
        }
    }

    /// Returns the message to answer: the newest user message, or the newest message if no user wrote one. `None` for a value.
    #[must_use]
    pub fn prompt(&self) -> Option<&Message> {
        let messages = self.messages();
        messages.iter().rfind(|message| message.role.is_user()).or(messages.last())
    }

    /// Returns the messages; empty for a value.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        match self {
            Self::Messages(messages) => messages,
            Self::Value(_) => &[],
        }
    }

    /// Deserializes the input value.
    ///
    /// # Errors
    /// `invalid_input` if the input is messages or does not fit the type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, AgentError> {
        let Self::Value(json) = self else {
            return Err(AgentError::invalid_input("the agent takes a JSON value, not messages"));
        };
        serde_json::from_slice(json.as_bytes())
            .map_err(|error| AgentError::invalid_input(format!("the input does not fit: {error}")))
    }
}

/// Makes one user message of plain text.
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
    /// Suspends the run until this question is answered. The run survives restarts, and `saved` comes back with the answer.
    ///
    /// # Errors
    /// If the question's payload or `saved` cannot be written as JSON.
    pub fn suspended<Q>(question: Q, saved: impl Serialize) -> Result<Self, AgentError>
    where
        Q: TryInto<Interrupt, Error: Into<AgentError>>,
    {
        let interrupt = question.try_into().map_err(Into::into)?;
        let interrupt = Interrupt { survives: Survives::Restart, ..interrupt };
        Ok(Self::Suspended { interrupt: Box::new(interrupt), saved: to_json(&saved)? })
    }
}

/// A function that returns no outcome completes the run.
impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Completed
    }
}
