//! What the gateway needs of the rest of the server.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use trilogue_domain::port::Clock;
use trilogue_runtime::Runtime;
use trilogue_store::{Admin, Configurations, Queue, Read, Tokens};
use trilogue_wire::native::{AgentProcess, ProcessStderr};

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
    pub agent_processes: Arc<dyn AgentProcesses>,
}

/// The processes of the agents that this server hosts. They run as its user, and would answer their own questions in the user's name.
///
/// All but the counts block: they read files of the system.
pub trait AgentProcesses: fmt::Debug + Send + Sync {
    /// Whether a process is one of them, or may have been.
    fn has_process(&self, pid: u32) -> bool;
    /// Whether one of them, or a process of this user that is gone, is at the other end of a connection.
    fn has_peer(&self, peer: SocketAddr, server: SocketAddr) -> bool;
    /// Names this machine among those of a cluster, where that is known: processes of another one are not seen.
    fn machine(&self) -> String {
        String::new()
    }
    /// How many there are, and how many of them no run uses.
    fn counts(&self) -> (usize, usize);
    /// What each of them uses.
    fn list(&self) -> Vec<AgentProcess>;
    /// The end of what one of them wrote to its standard error; `None` where it is none of them.
    fn stderr(&self, pid: u32) -> Option<ProcessStderr>;
}

/// A server without hosted agents.
impl AgentProcesses for () {
    fn has_process(&self, _: u32) -> bool {
        false
    }

    fn has_peer(&self, _: SocketAddr, _: SocketAddr) -> bool {
        false
    }

    fn counts(&self) -> (usize, usize) {
        (0, 0)
    }

    fn list(&self) -> Vec<AgentProcess> {
        Vec::new()
    }

    fn stderr(&self, _: u32) -> Option<ProcessStderr> {
        None
    }
}
