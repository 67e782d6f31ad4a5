//! Agents of the Agent Client Protocol: child processes that are spoken to on their standard streams.
//!
//! # Invariants
//! - What an agent says in a session is dealt with in the order in which it came, and the run ends after the last of it is logged.
//! - An update is logged as it came, but for the session's id, which is cut out, and a message's id, which is put in where it is missing.
//! - A session is bound before its first prompt. One that the agent does not remember any more is never replaced in silence.
//! - What a client opened a session with is kept in memory and nowhere else, but for where it works.

mod answer;
mod breaker;
mod callers;
mod calls;
mod card;
mod desk;
mod fit;
mod inbox;
mod large;
mod launch;
mod met;
mod meta;
mod open;
mod opened;
mod original;
mod pool;
mod priming;
mod process;
mod profile;
mod ready;
mod replay;
mod router;
mod seat;
mod session;
mod sessions;
mod settings;
mod speaking;
mod threads;
mod trouble;
mod turn;
mod working;

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::lock;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::{AgentCard, Answer, Failure, Interrupt, Json};
use trilogue_mapping::shape;
use trilogue_runtime::{Backend, Ending, Input, Rewind, RunContext, Sessions, Turn};

use crate::child::Children;
use crate::permission::Rules;

pub use card::card;
pub use launch::{ClientMeta, ClientTools, Launch, Processes};

use met::Met;
use pool::Pool;
use threads::Threads;

/// An agent of the Agent Client Protocol.
#[derive(Clone)]
pub struct AgentClient(Arc<Inner>);

struct Inner {
    card: AgentCard,
    launch: Mutex<Arc<Launch>>,
    rules: Arc<Rules>,
    pool: Pool,
    threads: Arc<Threads>,
    /// How the agent greets clients of each profile.
    met: Arc<Met>,
    authenticated: Mutex<Authenticated>,
}

/// How the agent was authenticated with last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Authenticated {
    /// Not in this life of the server: what a thread remembers holds.
    #[default]
    NotYet,
    /// In this way.
    By(String),
    /// Somebody has logged out since: nobody authenticates before a client does.
    LoggedOut,
}

// === impl AgentClient ===

impl AgentClient {
    /// An agent that is started when somebody needs it.
    ///
    /// # Errors
    /// `invalid_request` where the launch cannot work.
    pub fn new(
        card: AgentCard,
        launch: Launch,
        children: Arc<Children>,
        rules: Arc<Rules>,
    ) -> Result<Self> {
        launch.check(&card.name)?;
        let threads = Arc::<Threads>::default();
        let launch = Arc::new(launch);
        let met = Arc::new(Met::new(Arc::clone(&launch)));
        let name = Arc::from(card.name.as_str());
        let pool = Pool::new(name, children, Arc::clone(&threads), Arc::clone(&met));
        Ok(Self(Arc::new(Inner {
            card,
            launch: Mutex::new(launch),
            rules,
            pool,
            threads,
            met,
            authenticated: Mutex::default(),
        })))
    }

    /// Starts it so from now on. Processes that run go on with their sessions until they end.
    ///
    /// # Errors
    /// As [`AgentClient::new`].
    pub fn relaunch(&self, launch: Launch) -> Result<()> {
        launch.check(&self.0.card.name)?;
        if **lock(&self.0.launch) == launch {
            return Ok(());
        }
        let launch = Arc::new(launch);
        *lock(&self.0.launch) = Arc::clone(&launch);
        self.0.met.renew(launch);
        self.0.pool.reset();
        Ok(())
    }
}

#[async_trait]
impl Backend for AgentClient {
    fn card(&self) -> &AgentCard {
        &self.0.card
    }

    fn is_native(&self) -> bool {
        false
    }

    fn rewind(&self) -> Rewind {
        if self.0.launch().primes_on_rewind { Rewind::Prime } else { Rewind::Refuse }
    }

    fn admit(&self, input: Input, _config: Option<&Json>) -> Result<Input> {
        shape::input(&self.0.card, input, SystemClock.now())
    }

    fn check_answer(&self, interrupt: &Interrupt, answer: &Answer) -> Result<()> {
        fit::answer(interrupt, answer)
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        Arc::clone(&self.0).run(turn, context).await
    }
}

impl fmt::Debug for AgentClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentClient").field("name", &self.0.card.name).finish_non_exhaustive()
    }
}
