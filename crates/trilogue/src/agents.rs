//! The agents that a server runs: those of the configuration, and those of the program around it.

use std::collections::HashMap;
use std::sync::Arc;

use trilogue_backends::{NativeAgent, builtin};
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, AgentName, Answer, Code, Error, Failure, Interrupt, Json};
use trilogue_gateway::{Mount, Protocol};
use trilogue_mapping::communication;
use trilogue_runtime::{Backend, Ending, Input, Rewind, RunContext, Turn};
use trilogue_sdk::{Agent, async_trait};

use crate::config::{self, AgentKind};

/// Agents to serve. Collects agents of different types.
#[derive(Clone, Default)]
pub struct Agents(Vec<Arc<dyn Agent>>);

/// An agent that is served under another name than its own.
#[derive(Debug)]
struct Renamed {
    agent: NativeAgent,
    card: AgentCard,
}

/// The agents of the configuration.
///
/// # Errors
/// `invalid_request` for a name that is none, or a built-in agent that there is not.
pub(crate) fn configured(options: &config::Options) -> Result<Vec<Arc<dyn Backend>>> {
    options.agents.iter().map(|(name, agent)| configured_one(name, agent)).collect()
}

fn configured_one(name: &str, agent: &config::Agent) -> Result<Arc<dyn Backend>> {
    let name = AgentName::parse(name)?;
    let AgentKind::Builtin = agent.kind;
    let wanted = agent.builtin.as_deref().unwrap_or(name.as_str());
    let Some(found) = builtin::named(wanted, builtin::Options::default()) else {
        let error = Error::new(
            Code::InvalidRequest,
            format!("there is no built-in agent '{}' for `agents.{name}`", wanted.escape_debug()),
        );
        let all = builtin::NAMES.join(", ");
        return Err(match config::nearest(wanted, &builtin::NAMES) {
            Some(near) => {
                error.hint(format!("did you mean builtin = \"{near}\"? There are: {all}"))
            }
            None => error.hint(format!("set builtin to one of: {all}")),
        });
    };
    let agent = found?;
    if agent.card().name == name {
        return Ok(Arc::new(agent));
    }
    let card = AgentCard { name, ..agent.card().clone() };
    Ok(Arc::new(Renamed { agent, card }))
}

/// Every agent has a name of its own, on every face that is mounted.
///
/// # Errors
/// `already_exists`, naming the name that two have, or the two.
pub(crate) fn check_names(agents: &[Arc<dyn Backend>], mounts: &[Mount]) -> Result<()> {
    let mut names: Vec<_> = agents.iter().map(|agent| &agent.card().name).collect();
    names.sort();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        None if mounts.iter().any(|mount| mount.protocol == Protocol::Communication) => {
            check_face_names(&names)
        }
        None => Ok(()),
        Some(pair) => {
            Err(Error::new(Code::AlreadyExists, format!("two agents are called '{}'", pair[0]))
                .hint("serve one of them under another name"))
        }
    }
}

/// The Agent Communication Protocol shows names without dots.
fn check_face_names(names: &[&AgentName]) -> Result<()> {
    let mut shown = HashMap::new();
    for name in names {
        let face_name = communication::face_name(name);
        if let Some(other) = shown.insert(face_name.clone(), name) {
            return Err(Error::new(
                Code::AlreadyExists,
                format!("the agents '{other}' and '{name}' are both '{face_name}' where the Agent Communication Protocol is served"),
            )
            .hint("serve one of them under another name"));
        }
    }
    Ok(())
}

// === impl Agents ===

impl Agents {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With this agent.
    #[must_use]
    pub fn with(mut self, agent: impl Agent) -> Self {
        self.0.push(Arc::new(agent));
        self
    }

    /// The agents as the runtime takes them.
    ///
    /// # Errors
    /// When a name is no agent name, or a schema is none.
    pub fn into_backends(self) -> Result<Vec<Arc<dyn Backend>>> {
        let backend =
            |agent| -> Result<Arc<dyn Backend>> { Ok(Arc::new(NativeAgent::from_arc(agent)?)) };
        self.0.into_iter().map(backend).collect()
    }
}

impl<A: Agent> From<A> for Agents {
    fn from(agent: A) -> Self {
        Self::new().with(agent)
    }
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|agent| agent.card())).finish()
    }
}

// === impl Renamed ===

#[async_trait]
impl Backend for Renamed {
    fn card(&self) -> &AgentCard {
        &self.card
    }

    fn is_native(&self) -> bool {
        self.agent.is_native()
    }

    fn rewind(&self) -> Rewind {
        self.agent.rewind()
    }

    fn admit(&self, input: Input, config: Option<&Json>) -> Result<Input> {
        self.agent.admit(input, config)
    }

    fn check_answer(&self, interrupt: &Interrupt, answer: &Answer) -> Result<()> {
        self.agent.check_answer(interrupt, answer)
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        self.agent.run(turn, context).await
    }
}
