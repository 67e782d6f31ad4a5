//! What all streams of a server share.

use std::sync::Arc;
use std::time::Duration;

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use trilogue_runtime::Runtime;
use trilogue_store::{Admin, Read};

use super::feed::Feeds;
use super::sample::Samplers;
use crate::access::authenticator::{Authenticator, Caller, revoked};
use crate::core::lifecycle::{Lifecycle, shutting_down};
use crate::core::meters::Meters;
use crate::core::options::Options;
use crate::core::ports::Ports;

/// What all streams of a server share.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) feeds: Feeds,
    pub(crate) samplers: Samplers,
    pub(crate) read: Arc<dyn Read>,
    pub(crate) runtime: Runtime,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) meters: Arc<Meters>,
    /// How often a stream without news says that it lives.
    pub(crate) heartbeat: Duration,
    /// How often the token of a stream is looked at.
    pub(crate) token_recheck: Duration,
    admin: Arc<dyn Admin>,
    authenticator: Arc<Authenticator>,
    max_streams: usize,
}

/// Counts a stream as open until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream(Arc<Meters>);

// === impl Streams ===

impl Streams {
    pub(crate) fn new(
        options: &Options,
        ports: &Ports,
        authenticator: &Arc<Authenticator>,
        lifecycle: &Arc<Lifecycle>,
        meters: &Arc<Meters>,
    ) -> Self {
        Self {
            feeds: Feeds::new(options.render_cache_bytes),
            samplers: Samplers::default(),
            read: Arc::clone(&ports.read),
            runtime: ports.runtime.clone(),
            lifecycle: Arc::clone(lifecycle),
            meters: Arc::clone(meters),
            heartbeat: options.heartbeat,
            token_recheck: options.token_recheck,
            admin: Arc::clone(&ports.admin),
            authenticator: Arc::clone(authenticator),
            max_streams: options.max_streams,
        }
    }

    /// Counts one more stream.
    ///
    /// # Errors
    /// `overloaded` when there are too many, `shutting_down`.
    pub(crate) fn open(&self) -> Result<OpenStream> {
        if self.lifecycle.has_ended_streams() {
            return Err(stopping());
        }
        self.meters.streams.add();
        let open = OpenStream(Arc::clone(&self.meters));
        if self.meters.streams.get() > self.max_streams as u64 {
            return Err(Error::new(
                Code::Overloaded,
                format!("{} event streams are open, which is the most", self.max_streams),
            )
            .hint("an operator may raise `server.limits.max_streams`"));
        }
        Ok(open)
    }

    /// # Errors
    /// When the caller's token works no more.
    pub(crate) async fn check_token(&self, caller: &Caller) -> Result<()> {
        if self.authenticator.still_admits(caller).await { Ok(()) } else { Err(revoked()) }
    }

    /// # Errors
    /// When nothing more will come: the client looks for the next life of the server.
    pub(crate) fn check_store(&self) -> Result<()> {
        match self.admin.health() {
            Err(error) if matches!(error.code(), Code::StoreReadOnly | Code::StoreCorrupt) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn stopping() -> Error {
    shutting_down().hint("connect again with the id of the last event that you have")
}

// === impl OpenStream ===

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.streams.remove();
    }
}
