//! What every request shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http::HeaderValue;
use tokio_util::sync::CancellationToken;
use trilogue_domain::Timestamp;
use trilogue_domain::port::Clock;
use trilogue_runtime::Runtime;
use trilogue_store::{Admin, Configurations, Queue, Read, Tokens};

use crate::access::guard::Guard;
use crate::access::tokens::Gatekeeper;
use crate::metrics::Meters;
use crate::mount::Mount;
use crate::options::Options;
use crate::routes::Router;
use crate::stream::feed::Feeds;
use crate::stream::sample::Samplers;

/// What the gateway needs of the rest of the server.
#[derive(Clone, Debug)]
pub struct Ports {
    /// Runs agents.
    pub runtime: Runtime,
    /// Reads the log and its rows.
    pub read: Arc<dyn Read>,
    /// Keeps tokens.
    pub tokens: Arc<dyn Tokens>,
    /// Tells durability, health and numbers, and backs up.
    pub admin: Arc<dyn Admin>,
    /// Keeps configured instances of agents.
    pub configurations: Arc<dyn Configurations>,
    /// Puts dead deliveries back.
    pub queue: Arc<dyn Queue>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Reads what lies on other servers.
    pub egress: trilogue_egress::Client,
}

/// What every request shares.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) ports: Ports,
    pub(crate) guard: Guard,
    pub(crate) gatekeeper: Gatekeeper,
    pub(crate) router: Router,
    pub(crate) feeds: Feeds,
    pub(crate) samplers: Samplers,
    pub(crate) meters: Meters,
    pub(crate) started_at: Timestamp,
    /// The agents as the Agent Connect Protocol names them.
    pub(crate) known: crate::faces::connect::KnownAgents,
    /// Keeps requests that bring a session in order.
    pub(crate) bringing: crate::faces::communication::InOrder,
    /// Keeps changes of a configured instance in order.
    pub(crate) configuring: crate::faces::communication::InOrder,
    /// Set when the server takes no more work.
    pub(crate) draining: Arc<AtomicBool>,
    /// Ends event streams.
    pub(crate) streams_end: CancellationToken,
    /// Set where an acknowledged event is less durable than an fsync makes it.
    pub(crate) weak_durability: Option<HeaderValue>,
    /// Makes request ids: random at the start, then counted.
    pub(crate) request_prefix: u32,
    pub(crate) requests: AtomicU64,
    /// Where the server is reached by everybody: scheme, host and what may follow, without a slash at the end.
    pub(crate) address: String,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.ports.runtime
    }

    pub(crate) fn read(&self) -> &Arc<dyn Read> {
        &self.ports.read
    }

    /// The absolute address of a mount for what many readers share: it names no host of one request.
    pub(crate) fn base_of(&self, mount: &Mount) -> String {
        format!("{}{}", self.address, mount.prefix)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn next_request_id(&self) -> String {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        format!("{:08x}-{number:x}", self.request_prefix)
    }
}
