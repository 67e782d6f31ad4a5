//! What the gateway needs of the rest of the server.

use std::sync::Arc;

use trilogue_domain::port::Clock;
use trilogue_runtime::Runtime;
use trilogue_store::{Admin, Configurations, Queue, Read, Tokens};

/// What the gateway needs of the rest of the server.
#[derive(Clone, Debug)]
pub struct Ports {
    pub runtime: Runtime,
    pub read: Arc<dyn Read>,
    pub tokens: Arc<dyn Tokens>,
    /// Tells durability, health and numbers, and backs up.
    pub admin: Arc<dyn Admin>,
    pub configurations: Arc<dyn Configurations>,
    /// Puts dead deliveries back.
    pub queue: Arc<dyn Queue>,
    pub clock: Arc<dyn Clock>,
    /// Reads what lies on other servers.
    pub egress: trilogue_egress::Client,
}
