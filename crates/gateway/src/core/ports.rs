//! The ports to the rest of the server.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use trilogue_domain::port::{Clock, PeerFinding};
use trilogue_runtime::Runtime;
use trilogue_store::{Admin, Configurations, Queue, Read, Tokens};
use trilogue_wire::native::{AgentProcess, ProcessStderr};

/// The ports to the rest of the server.
#[derive(Clone, Debug)]
pub struct Ports {
    pub runtime: Runtime,
    pub read: Arc<dyn Read>,
    pub tokens: Arc<dyn Tokens>,
    /// Reports durability, health and statistics, and makes backups.
    pub admin: Arc<dyn Admin>,
    pub configurations: Arc<dyn Configurations>,
    /// Returns dead letters to the queue.
    pub queue: Arc<dyn Queue>,
    pub clock: Arc<dyn Clock>,
    /// Reads content from other servers.
    pub egress: trilogue_egress::Client,
    pub agent_processes: Arc<dyn AgentProcesses>,
}

/// The processes of the agents that this server hosts, and of those of other servers on this machine, as far as it knows them. They run as its user, and would answer their own questions in the user's name.
///
/// All methods but the counts block: they read system files.
pub trait AgentProcesses: fmt::Debug + Send + Sync {
    /// Whether a process belongs to a hosted agent, or may have.
    fn has_process(&self, pid: u32) -> bool;
    /// Whether the peer of a connection is such a process, or an exited process of this user.
    fn find_peer(&self, peer: SocketAddr, server: SocketAddr) -> PeerFinding;
    /// Returns a name of this machine within a cluster, or an empty one if unknown: processes of other machines are not visible.
    fn machine(&self) -> String {
        String::new()
    }
    /// Returns how many processes there are, and how many of them no run uses.
    fn counts(&self) -> (usize, usize);
    /// Returns the resource use of each process.
    fn list(&self) -> Vec<AgentProcess>;
    /// Returns the end of a process's standard error, or `None` if it belongs to no hosted agent.
    fn stderr(&self, pid: u32) -> Option<ProcessStderr>;
}

/// A server without hosted agents.
impl AgentProcesses for () {
    fn has_process(&self, _: u32) -> bool {
        false
    }

    fn find_peer(&self, _: SocketAddr, _: SocketAddr) -> PeerFinding {
        PeerFinding::lasting(false)
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
