//! Agents that are written in Rust and run in this process.

mod input;
mod ports;
mod schema;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::{
    AgentCard, Answer, Code, Error, Failure, InputKind, Interrupt, InterruptKind, Json,
};
use trilogue_runtime::{Backend, Ending, Input, RunContext, Turn};
use trilogue_sdk::{Agent, AgentError, Outcome, RunInfo, conduct};

use ports::Ports;
use schema::Schema;

/// Makes a [`Backend`] of any [`Agent`]. Its schemas are compiled once.
pub struct NativeAgent {
    agent: Arc<dyn Agent>,
    card: AgentCard,
    schemas: Arc<Schemas>,
}

/// The compiled schemas of an agent's card.
#[derive(Debug)]
struct Schemas {
    input: Option<Schema>,
    config: Option<Schema>,
    /// Kind, schema of the question, schema of the answer.
    interrupts: Vec<(String, Schema, Schema)>,
}

// === impl NativeAgent ===

impl NativeAgent {
    /// Reads the agent's card and compiles its schemas.
    ///
    /// # Errors
    /// When its name is no agent name, or one of its schemas is none: the error names the schema.
    pub fn new(agent: impl Agent) -> Result<Self> {
        Self::from_arc(Arc::new(agent))
    }

    /// As [`NativeAgent::new`], of an agent that somebody else holds too.
    ///
    /// # Errors
    /// As [`NativeAgent::new`].
    pub fn from_arc(agent: Arc<dyn Agent>) -> Result<Self> {
        let card = agent.card().build()?;
        let schemas = Arc::new(Schemas::of(&card)?);
        Ok(Self { agent, card, schemas })
    }

    /// Checks a run's input and brings it into the form that the agent takes.
    ///
    /// # Errors
    /// `invalid_input`, naming the path of what does not fit.
    pub fn check_input(&self, input: Input) -> Result<Input> {
        input::admit(&self.card, self.schemas.input.as_ref(), input)
    }

    /// Checks a run's configuration. An agent without a schema for it takes any.
    ///
    /// # Errors
    /// `invalid_input`, naming the path of what does not fit.
    pub fn check_config(&self, config: &Json) -> Result<()> {
        let Some(schema) = &self.schemas.config else { return Ok(()) };
        schema.check(config).map_err(|why| {
            Error::new(
                Code::InvalidInput,
                format!("the configuration does not fit the agent '{}': {why}", self.card.name),
            )
            .hint("the agent's 'config_schema' says what fits")
        })
    }

    /// Checks the content of an answer against the interrupt's schema.
    ///
    /// # Errors
    /// `answer_invalid`, naming the path of what does not fit.
    pub fn check_answer(&self, interrupt: &Interrupt, answer: &Answer) -> Result<()> {
        self.schemas.check_answer(interrupt, answer)
    }
}

#[async_trait]
impl Backend for NativeAgent {
    fn card(&self) -> &AgentCard {
        &self.card
    }

    fn is_native(&self) -> bool {
        true
    }

    fn admit(&self, input: Input, config: Option<&Json>) -> Result<Input> {
        if let Some(config) = config {
            self.check_config(config)?;
        }
        self.check_input(input)
    }

    fn check_answer(&self, interrupt: &Interrupt, answer: &Answer) -> Result<()> {
        self.schemas.check_answer(interrupt, answer)
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        let run = RunInfo {
            run: context.run().clone(),
            thread: context.thread().clone(),
            agent: context.agent().clone(),
            config: context.config().cloned(),
        };
        let ports = Arc::new(Ports::new(context, Arc::clone(&self.schemas)));
        let outcome = conduct(self.agent.as_ref(), authors_turn(turn), run, ports).await;
        match outcome.map_err(AgentError::into_failure)? {
            Outcome::Completed => Ok(Ending::Completed),
            Outcome::Suspended { interrupt, saved } => {
                let checked = self.schemas.check_question(&interrupt);
                checked.map_err(|error| AgentError::from(error).into_failure())?;
                Ok(Ending::Suspended { interrupt, saved })
            }
        }
    }
}

impl fmt::Debug for NativeAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeAgent").field("name", &self.card.name).finish_non_exhaustive()
    }
}

fn authors_turn(turn: Turn) -> trilogue_sdk::Turn {
    match turn {
        Turn::Start { input } => {
            let input = match input {
                Input::Messages(messages) => trilogue_sdk::Input::Messages(messages),
                Input::Value(value) => trilogue_sdk::Input::Value(value),
            };
            trilogue_sdk::Turn::Start { input }
        }
        Turn::Resume { interrupt, answer, saved } => {
            trilogue_sdk::Turn::Resume { interrupt, answer, saved }
        }
    }
}

// === impl Schemas ===

impl Schemas {
    fn of(card: &AgentCard) -> Result<Self> {
        let compile = |what: &str, json: &Json| {
            Schema::compile(json).map_err(|why| {
                Error::new(
                    Code::InvalidRequest,
                    format!("the {what} of the agent '{}' is no JSON Schema: {why}", card.name),
                )
                .hint("schemas are self-contained: no remote references")
            })
        };
        let optional = |what: &str, json: Option<&Json>| json.map(|json| compile(what, json));
        let input = match &card.input {
            InputKind::Chat => None,
            InputKind::Schema(schema) => Some(compile("input schema", schema)?),
        };
        // Nothing is checked against these two, but a face shows them.
        optional("output schema", card.output_schema.as_ref()).transpose()?;
        optional("state schema", card.state_schema.as_ref()).transpose()?;
        let config = optional("configuration schema", card.config_schema.as_ref()).transpose()?;
        let interrupts = card.interrupts.iter().map(|declared| {
            let payload = compile("payload schema of an interrupt", &declared.payload_schema)?;
            let answer = compile("answer schema of an interrupt", &declared.answer_schema)?;
            Ok((declared.kind.clone(), payload, answer))
        });
        Ok(Self { input, config, interrupts: interrupts.collect::<Result<_>>()? })
    }

    /// Checks what an agent asks, so that an answer to it can be checked later.
    fn check_question(&self, interrupt: &Interrupt) -> Result<()> {
        if let Some((payload, _)) = self.declared(interrupt) {
            payload.check(&interrupt.payload).map_err(|why| {
                Error::new(
                    Code::AgentFailed,
                    format!("the agent asked what its card does not declare: {why}"),
                )
            })?;
        }
        match &interrupt.schema {
            Some(schema) => Schema::compile(schema).map(drop).map_err(|why| {
                Error::new(
                    Code::AgentFailed,
                    format!("the agent asked for an answer by what is no JSON Schema: {why}"),
                )
            }),
            None => Ok(()),
        }
    }

    fn check_answer(&self, interrupt: &Interrupt, answer: &Answer) -> Result<()> {
        let Answer::Json(value) = answer else { return Ok(()) };
        let checked = match (&interrupt.schema, self.declared(interrupt)) {
            (Some(schema), _) => Schema::compile(schema).and_then(|schema| schema.check(value)),
            (None, Some((_, schema))) => schema.check(value),
            (None, None) => Ok(()),
        };
        checked.map_err(|why| {
            Error::new(
                Code::AnswerInvalid,
                format!("the answer does not fit the interrupt '{}': {why}", interrupt.id),
            )
            .hint("the interrupt's 'schema' says what fits")
        })
    }

    /// The schemas of question and answer of a kind that the card declares.
    fn declared(&self, interrupt: &Interrupt) -> Option<(&Schema, &Schema)> {
        let InterruptKind::Custom(kind) = &interrupt.kind else { return None };
        let declared = self.interrupts.iter().find(|(name, ..)| name == kind)?;
        Some((&declared.1, &declared.2))
    }
}
