//! Ports: what the core needs from outside and does not know how to do.

use std::fmt;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use crate::content::Message;
use crate::error::Error;
use crate::event::{Body, Original};
use crate::id::{PrincipalId, TenantId, ThreadKey};
use crate::json::Json;
use crate::time::Timestamp;

/// Tells the time. Injected, so that a test can hold it still.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Now.
    fn now(&self) -> Timestamp;
    /// Follows a jump of the machine's clock that has lasted. Returns by how much the time goes back with it: times from before the jump are too late by this.
    fn follow_jump(&self) -> Duration {
        Duration::ZERO
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// Reads the typed body of an event from its original bytes.
pub trait ReadOriginal: Send + Sync + fmt::Debug {
    /// The body, or [`Body::Opaque`] when the dialect has no word for it.
    ///
    /// # Errors
    /// When the dialect is not known or the bytes are not its own.
    fn read(&self, original: &Original) -> Result<Body, Error>;
}

/// Reads what a history that a client brought refers to elsewhere. What it reads is bounded in size and time by its implementation.
pub trait Fetch: Send + Sync + fmt::Debug {
    /// The message at this address.
    ///
    /// # Errors
    /// `egress_refused` where the address may not be reached, `peer_unavailable` where nothing readable lies there.
    fn message<'a>(&'a self, address: &'a str) -> Fetched<'a, Message>;

    /// The state at this address.
    ///
    /// # Errors
    /// As [`Fetch::message`].
    fn state<'a>(&'a self, address: &'a str) -> Fetched<'a, Json>;
}

/// What is being fetched.
pub type Fetched<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Holds an agent's output to rules that a face promises its clients.
pub trait CheckOutput: Send + Sync + fmt::Debug {
    /// Whether an event keeps the rules of this name.
    ///
    /// # Errors
    /// `output_invalid`, naming the part and the field.
    fn check(&self, rules: &str, body: &Body) -> Result<(), Error>;
}

/// Delivers a callback. The runtime's queue worker claims it, keeps its lease, and decides by the outcome when it is tried again.
pub trait Deliver: Send + Sync + fmt::Debug {
    /// Renders and sends one callback. A time-out of its own keeps it shorter than a minute.
    fn deliver<'a>(
        &'a self,
        delivery: &'a Delivery,
    ) -> Pin<Box<dyn Future<Output = Delivered> + Send + 'a>>;
}

/// A callback that is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// The same for every attempt, so that a receiver can tell a repetition.
    pub id: String,
    /// How often it is tried, this time included.
    pub attempt: u32,
    /// Whose it is.
    pub tenant: TenantId,
    /// In whose name it is sent.
    pub principal: PrincipalId,
    /// The thread it tells of.
    pub thread: Option<ThreadKey>,
    /// What the sender needs to know.
    pub reference: Json,
}

/// How an attempt to deliver went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delivered {
    /// The receiver has accepted it.
    Accepted,
    /// It may work later.
    Later {
        /// Why it did not work now.
        error: String,
        /// Not before this, where the receiver said so.
        after: Option<Duration>,
    },
    /// It will not work.
    Refused {
        /// Why.
        error: String,
    },
}

// === impl SystemClock ===

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}
