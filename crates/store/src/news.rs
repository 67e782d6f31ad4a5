//! What processes that share a store tell each other beside the log: see [`Peers`].

use std::fmt;

use tokio::sync::broadcast;
use trilogue_domain::{
    AgentName, InterruptId, PrincipalId, RunId, RunStatus, TenantId, ThreadId, ThreadKey, Timestamp,
};

/// The most notes that wait for one listener; it is told that it missed some when there are more.
pub(crate) const MAX_HEARD: usize = 1_024;

/// What the processes that share a store tell each other. Each word of it may be lost, so nothing that must be right rests on it.
pub trait Peers: Send + Sync + fmt::Debug {
    /// Whether others may hear what is told.
    fn has_peers(&self) -> bool {
        false
    }

    /// Tells the others. Never waits. What does not fit into one message is lost.
    fn tell(&self, _note: Note) {}

    /// What others tell from now on; `None` where one process holds the store.
    fn heard(&self) -> Option<broadcast::Receiver<PeerNews>> {
        None
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerNews {
    Note(Note),
    /// Some of what others told was lost, or they cannot be heard now.
    Missed,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// What an append has changed.
    Rows(Vec<RowChange>),
    Shown(ShownQuestion),
    /// Threads on which a client that may answer is connected to the sender.
    Present(Vec<ThreadKey>),
    /// The hash of a token that was revoked.
    Revoked([u8; 32]),
}

/// A row that changed. Whoever sees things of this tenant and principal may know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowChange {
    pub tenant: TenantId,
    pub principal: PrincipalId,
    pub thread: ThreadId,
    pub row: ChangedRow,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangedRow {
    /// The thread is new, or something of it changed: also that one of its runs was removed.
    Thread,
    /// The thread was removed with everything in it.
    NoThread,
    Run {
        id: RunId,
        agent: AgentName,
        status: RunStatus,
    },
    Interrupt {
        id: InterruptId,
        run: RunId,
        is_pending: bool,
    },
}

/// The question of a run that a principal was shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownQuestion {
    pub principal: PrincipalId,
    pub run: RunId,
    pub interrupt: InterruptId,
    /// When, by the sender's clock, and behind everything that it had heard.
    pub at: Timestamp,
}
