//! Agents that are written with the SDK and run in this process.

mod calls;
mod input;
mod ports;
mod rules;
pub(crate) mod schema;
mod schema_steps;
pub(crate) mod schemas;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Answer, Code, Failure, Interrupt, Json};
use trilogue_runtime::{Backend, Ending, Input, RunCaller, RunContext, Turn};
use trilogue_sdk::{Agent, AgentError, Outcome, RunInfo, run_turn};

use crate::permission::{Rules, unattended};
use ports::Ports;
use rules::RulesMember;
use schemas::Schemas;

pub struct NativeAgent {
    agent: Arc<dyn Agent>,
    card: AgentCard,
    schemas: Arc<Schemas>,
    rules: Arc<Rules>,
    rules_member: RulesMember,
}

// === impl NativeAgent ===

impl NativeAgent {
    /// Reads the agent's card and compiles its schemas.
    /// Fails if its card cannot be built, or one of its schemas is invalid: the error names it.
    pub fn new(agent: impl Agent) -> Result<Self> {
        Self::from_arc(Arc::new(agent))
    }

    pub fn from_arc(agent: Arc<dyn Agent>) -> Result<Self> {
        let card = agent.card().build()?;
        let schemas = Arc::new(Schemas::of(&card)?);
        let rules_member = RulesMember::of(&card);
        Ok(Self { agent, card, schemas, rules: Arc::default(), rules_member })
    }

    /// The same agent with another card, such as one with another name. Fails if one of the new card's schemas is invalid.
    pub fn with_card(self, card: AgentCard) -> Result<Self> {
        let schemas = Arc::new(Schemas::of(&card)?);
        let rules_member = RulesMember::of(&card);
        Ok(Self { agent: self.agent, card, schemas, rules: self.rules, rules_member })
    }

    /// The same agent with these permission rules. They use the members `kind`, `tool` and `path` of a permission's payload, where `path` is a string or a list of strings.
    #[must_use]
    pub fn with_rules(self, rules: Arc<Rules>) -> Self {
        Self { rules, ..self }
    }

    /// Runs the agent until it completes, or suspends with an interrupt that no rule decides.
    async fn run_until_asked(
        &self,
        mut turn: trilogue_sdk::Turn,
        run: RunInfo,
        ports: &Arc<Ports>,
    ) -> Result<Outcome, AgentError> {
        loop {
            let host = Arc::clone(ports);
            let outcome = run_turn(self.agent.as_ref(), turn, run.clone(), host).await?;
            let Outcome::Suspended { mut interrupt, saved } = outcome else { return Ok(outcome) };
            ports.check_interrupt(&mut interrupt)?;
            let Some(applied) = ports.decide(&interrupt).await? else {
                return Ok(Outcome::Suspended { interrupt, saved });
            };
            let answer = applied.answer();
            turn = trilogue_sdk::Turn::Resume { interrupt, answer, saved };
        }
    }

    /// Converts a run's input to the form that the agent takes, and checks it. Fails with `invalid_input`, which names the paths that do not fit.
    pub fn check_input(&self, input: Input) -> Result<Input> {
        self.schemas.admit(&self.card, input)
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

    async fn authorize(&self, caller: &RunCaller<'_>, config: Json) -> Result<Json> {
        if self.rules_member != RulesMember::Agent {
            unattended::check_rules(&self.card.name, caller, &config)?;
        }
        Ok(config)
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

    fn check_config(&self, config: &Json) -> Result<()> {
        match self.rules_member.config_of_agent(config)? {
            Some(config) => self.schemas.check_config(&config),
            None => Ok(()),
        }
    }

    fn check_state(&self, state: &Json) -> Result<()> {
        self.schemas.check_state(state)
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        let Some(turn) = sdk_turn(turn) else {
            return Err(Failure::of(Code::Internal, "an agent in this process is nowhere else"));
        };
        let config = context.config().map(|config| self.rules_member.config_of_agent(config));
        let config =
            config.transpose().map_err(|error| Failure::of(error.code(), error.message()))?;
        let config = config.flatten();
        let run = RunInfo {
            run: context.run().clone(),
            thread: context.thread().clone(),
            agent: context.agent().clone(),
            config: config.as_deref().or(self.schemas.default_config()).cloned(),
        };
        let rules = self.rules_member.rules_of_run(&self.rules, context.config());
        let schemas = Arc::clone(&self.schemas);
        let ports = Arc::new(Ports::new(context, schemas, rules));
        let outcome = self.run_until_asked(turn, run, &ports).await;
        let ending = match outcome {
            Ok(Outcome::Completed) => ports.check_intact().map(|()| Ending::Completed),
            Ok(Outcome::Suspended { mut interrupt, saved }) => ports
                .check_interrupt(&mut interrupt)
                .map(|()| Ending::Suspended { interrupt, saved }),
            // A violation takes precedence over the error that the agent made of it.
            Err(error) => Err(ports.check_intact().err().unwrap_or(error)),
        };
        ending.map_err(|error| self.schemas.declared_failure(error.into_failure()))
    }
}

impl fmt::Debug for NativeAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeAgent").field("name", &self.card.name).finish_non_exhaustive()
    }
}

fn sdk_turn(turn: Turn) -> Option<trilogue_sdk::Turn> {
    Some(match turn {
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
        Turn::Rejoin { .. } => return None,
    })
}
