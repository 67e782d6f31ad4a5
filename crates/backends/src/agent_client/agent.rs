use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;
use trilogue_domain::error::{Result, Violation};
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::{
    AgentCard, AgentName, Answer, Code, Error, Failure, Interrupt, Json, Principal, ThreadKey,
};
use trilogue_mapping::agent_client::{
    check_capabilities, fit, form_values, learned_card, prompt_capabilities, prompt_of_input,
};
use trilogue_mapping::shape;
use trilogue_runtime::{
    Availability, Backend, Ending, Input, ProcessFailure, Rewind, RunCaller, RunContext, Sessions,
    Turn,
};

use super::launch::{Launch, OnRewind};
use super::opening::{SessionOpener, check_folder};
use super::turns::run_turn;
use crate::child::{Children, InvalidSetting};
use crate::native::schema::Schema;
use crate::permission::{Rules, unattended};

/// How long an input with an image or a sound waits until the agent reports whether it accepts such blocks.
const LEARN_LIMIT: Duration = Duration::from_secs(20);
/// The content types whose blocks need a capability.
const MEDIA: [&str; 2] = ["image/", "audio/"];

#[derive(Clone)]
pub struct AgentClient(Arc<Inner>);

struct Inner {
    card: AgentCard,
    opener: Arc<SessionOpener>,
    /// Whether lists name it although no process of it has started.
    is_configured: bool,
}

// === impl AgentClient ===

impl AgentClient {
    /// An agent whose processes start when they are needed.
    /// Errors: `invalid_request` if the launch cannot work.
    pub fn new(
        card: AgentCard,
        launch: Launch,
        children: Arc<Children>,
        rules: Arc<Rules>,
    ) -> Result<Self> {
        Self::build(card, launch, children, rules, true)
    }

    /// As [`AgentClient::new`], for a command that may not be an agent: lists name it only after a successful start.
    pub fn of_command(card: AgentCard, launch: Launch, children: Arc<Children>) -> Result<Self> {
        Self::build(card, launch, children, Arc::default(), false)
    }

    fn build(
        card: AgentCard,
        launch: Launch,
        children: Arc<Children>,
        rules: Arc<Rules>,
        is_configured: bool,
    ) -> Result<Self> {
        check(&card.name, &launch)?;
        let name = Arc::from(card.name.as_str());
        let opener = Arc::new(SessionOpener::new(name, launch, children, rules));
        Ok(Self(Arc::new(Inner { card, opener, is_configured })))
    }

    /// Whether a process of it has started and answered.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.opener().pool.has_started()
    }

    /// Replaces the agent's launch. Running processes keep their sessions until they exit.
    /// Fails as [`AgentClient::new`].
    pub fn relaunch(&self, launch: Launch) -> Result<()> {
        check(&self.0.card.name, &launch)?;
        self.0.opener.relaunch(launch);
        Ok(())
    }

    pub(super) fn opener(&self) -> &Arc<SessionOpener> {
        &self.0.opener
    }
}

fn has_media(input: &Input) -> bool {
    let Input::Messages(messages) = input else { return false };
    let mut parts = messages.iter().flat_map(|message| &message.parts);
    parts.any(|part| MEDIA.iter().any(|kind| part.content_type.starts_with(kind)))
}

#[async_trait]
impl Backend for AgentClient {
    fn card(&self) -> &AgentCard {
        &self.0.card
    }

    fn learned_card(&self) -> Option<AgentCard> {
        let opener = self.opener();
        let greeting = opener.greetings.newest()?;
        Some(learned_card(&self.0.card, &greeting, &opener.offers.current()))
    }

    fn is_native(&self) -> bool {
        false
    }

    fn is_listed(&self) -> bool {
        self.0.is_configured || self.has_started()
    }

    fn availability(&self) -> Option<Availability> {
        let opener = self.opener();
        if opener.authentication.needs_sign_in() {
            let hint = format!("sign in with `trilogue agents login {}`", self.0.card.name);
            return Some(Availability::unavailable(hint));
        }
        if opener.pool.is_paused() {
            let reason = "its program failed too often and is not started for a while";
            return Some(Availability::unavailable(reason));
        }
        // Known until the server ends: the metric would otherwise keep a value from before.
        let is_known = self.has_started() || opener.pool.last_failure().is_some();
        is_known.then_some(Availability::Available)
    }

    fn last_failure(&self) -> Option<ProcessFailure> {
        self.opener().pool.last_failure()
    }

    fn rewind(&self) -> Rewind {
        match self.opener().launch().on_rewind {
            OnRewind::Refuse => Rewind::Refuse,
            OnRewind::Prime => Rewind::Prime,
        }
    }

    /// Starts the agent for an input with an image or a sound: these need a capability that only the agent's greeting names.
    async fn learn(&self, by: &Principal, input: &Input) {
        let opener = self.opener();
        if has_media(input) && opener.greetings.newest().is_none() {
            // If the agent cannot start, the run fails with the reason later.
            drop(timeout(LEARN_LIMIT, opener.greet(by)).await);
        }
    }

    async fn authorize(&self, caller: &RunCaller<'_>, config: Json) -> Result<Json> {
        let (agent, opener) = (&self.0.card.name, self.opener());
        let launch = opener.launch();
        unattended::check(agent, caller, &config, &launch.unattended)?;
        check_folder(agent, &launch, &opener.accepted_folders, caller, config).await
    }

    fn admit(&self, input: Input, _config: Option<&Json>) -> Result<Input> {
        let input = shape::input(&self.0.card, input, SystemClock.now())?;
        if has_media(&input)
            && let Some(greeting) = self.opener().greetings.newest()
        {
            let prompt = prompt_of_input(&input, &[], self.opener().launch().citations());
            let takes = prompt_capabilities(&greeting);
            check_capabilities(&fit(prompt, &takes), &takes)?;
        }
        Ok(input)
    }

    /// Accepts an answer that matches the schema and that the agent can receive without a change of meaning.
    fn check_answer(&self, interrupt: &Interrupt, answer: &Answer) -> Result<()> {
        let invalid = |why: String, places: Vec<Violation>| {
            let message =
                format!("the answer does not fit the interrupt '{}': {why}", interrupt.id);
            Error::new(Code::AnswerInvalid, message)
                .violations(places)
                .hint("the interrupt's 'schema' says what fits; `false` declines")
        };
        let filled = form_values(interrupt, answer).map_err(|place| {
            let at = if place.path.is_empty() { "the value" } else { &place.path };
            invalid(format!("{at} {}", place.message), vec![place])
        })?;
        let (Some(value), Some(schema)) = (filled, &interrupt.schema) else { return Ok(()) };
        // An invalid schema accepts any answer.
        let Ok(schema) = Schema::compile(schema) else { return Ok(()) };
        schema.check(value).map_err(|why| invalid(why.to_string(), why.into_violations()))
    }

    fn check_cancel(&self, thread: ThreadKey) -> Result<()> {
        match self.opener().open_subagents.get(thread) {
            Some(session) if session.cancelled_session().is_none() => {
                let message =
                    "the sub-agent's work cannot be cancelled alone while its parent works";
                Err(Error::new(Code::SubagentNotCancellable, message)
                    .hint("cancel the open run of its parent's thread"))
            }
            _ => Ok(()),
        }
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        run_turn(self.opener(), turn, context).await
    }
}

fn check(agent: &AgentName, launch: &Launch) -> Result<()> {
    launch.check().map_err(|InvalidSetting { key, why, hint }| {
        let message = format!("the setting `{key}` of the agent '{agent}': {why}");
        Error::new(Code::InvalidRequest, message).hint(hint)
    })
}

impl fmt::Debug for AgentClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentClient").field("name", &self.0.card.name).finish_non_exhaustive()
    }
}
