//! Ports: the services that the core needs from outside.

use std::fmt;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use crate::content::Message;
use crate::error::Error;
use crate::event::{Body, Original};
use crate::id::{PrincipalId, TenantId, ThreadKey};
use crate::json::Json;
use crate::time::Timestamp;

/// Returns the time. Injected, so that a test can stop it.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
    /// Follows a lasting jump of the system clock. Returns by how much the time moves back; times from before the jump are too late by this duration.
    fn follow_jump(&self) -> Duration {
        Duration::ZERO
    }
}

/// What a look at the program at the other end of a connection found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerFinding {
    /// Whether it belongs to an agent, or may.
    pub is_of_agent: bool,
    /// Whether another look would find the same until the connection is passed on to another program.
    pub is_lasting: bool,
}

/// The system clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// Reads the typed body of an event from its original bytes.
pub trait ReadOriginal: Send + Sync + fmt::Debug {
    /// Returns the body, or [`Body::Opaque`] if the dialect has no matching event.
    ///
    /// # Errors
    /// If the dialect is unknown or the bytes do not belong to it.
    fn read(&self, original: &Original) -> Result<Body, Error>;

    /// Returns a peer's description of a sub-agent with the state left open, in the same dialect. `None` if the dialect has no such event.
    fn without_subagent_state(&self, described: &Original) -> Option<Original> {
        let _ = described;
        None
    }
}

/// Fetches the messages and states that a history from a client refers to. The implementation limits size and time.
pub trait Fetch: Send + Sync + fmt::Debug {
    /// Returns the message at this address.
    ///
    /// # Errors
    /// `egress_refused` if the address is not allowed; `peer_unavailable` if it has no readable message.
    fn message<'a>(&'a self, address: &'a str) -> Fetched<'a, Message>;

    /// Returns the state at this address.
    ///
    /// # Errors
    /// Like [`Fetch::message`].
    fn state<'a>(&'a self, address: &'a str) -> Fetched<'a, Json>;
}

/// The future of a fetch.
pub type Fetched<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Checks an agent's output against the rules that a protocol promises its clients.
pub trait CheckOutput: Send + Sync + fmt::Debug {
    /// Checks an event against the rules with this name.
    ///
    /// # Errors
    /// `output_invalid` with the part and the field.
    fn check(&self, rules: &str, body: &Body) -> Result<(), Error>;
}

/// Delivers callbacks. The runtime's queue worker claims a callback, keeps its lease, and decides from the outcome when to retry.
pub trait Deliver: Send + Sync + fmt::Debug {
    /// Renders and sends one callback. Its own timeout keeps it below a minute.
    fn deliver<'a>(
        &'a self,
        delivery: &'a Delivery,
    ) -> Pin<Box<dyn Future<Output = Delivered> + Send + 'a>>;
}

/// A callback that is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// The id. All attempts have the same id, so that a receiver can detect a repeated delivery.
    pub id: String,
    /// The number of attempts, including this one.
    pub attempt: u32,
    /// The tenant.
    pub tenant: TenantId,
    /// The principal for which the callback is sent.
    pub principal: PrincipalId,
    /// The thread that the callback is about.
    pub thread: Option<ThreadKey>,
    /// The data that the sender needs.
    pub reference: Json,
}

/// The outcome of an attempt to deliver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delivered {
    /// The receiver accepted the callback.
    Accepted,
    /// A later attempt may succeed.
    Later {
        /// The reason of the failure.
        error: String,
        /// The earliest time of the next attempt, if the receiver states one.
        after: Option<Duration>,
    },
    /// No attempt can succeed.
    Refused {
        /// The reason.
        error: String,
    },
}

// === impl PeerFinding ===

impl PeerFinding {
    /// What every look finds until the connection is passed on.
    #[must_use]
    pub const fn lasting(is_of_agent: bool) -> Self {
        Self { is_of_agent, is_lasting: true }
    }

    /// What the next look may not find.
    #[must_use]
    pub const fn passing(is_of_agent: bool) -> Self {
        Self { is_of_agent, is_lasting: false }
    }
}

// === impl SystemClock ===

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}
