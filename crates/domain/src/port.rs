//! Ports: what the core needs from outside and does not know how to do.

use std::fmt;
use std::time::SystemTime;

use crate::error::Error;
use crate::event::{Body, Original};
use crate::time::Timestamp;

/// Tells the time. Injected, so that a test can hold it still.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Now.
    fn now(&self) -> Timestamp;
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

// === impl SystemClock ===

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}
