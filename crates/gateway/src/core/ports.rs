//! What the gateway needs of the rest of the server.

use std::sync::Arc;

use trilogue_domain::port::Clock;
use trilogue_runtime::Runtime;
use trilogue_store::{Admin, Configurations, Queue, Read, Tokens};

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
