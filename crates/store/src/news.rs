//! The messages between processes that share a store, in addition to the log: see [`Peers`].

use std::fmt;

use tokio::sync::broadcast;
use trilogue_domain::{
    AgentName, InterruptId, PrincipalId, RunId, RunStatus, TenantId, ThreadId, ThreadKey, Timestamp,
};

/// The most notes that wait for one listener. Beyond that it loses some, and is notified that it did.
pub(crate) const MAX_HEARD: usize = 1_024;

/// The messages between processes that share a store. Best effort: correctness must not depend on delivery.
pub trait Peers: Send + Sync + fmt::Debug {
    /// Whether other processes may receive what this one publishes.
    fn has_peers(&self) -> bool {
        false
    }

    /// Publishes a note to the others. Never waits. Drops what does not fit into one message.
    fn publish(&self, _note: PeerMessage) {}

    /// Subscribes to what others publish after this call. `None` if one process holds the store.
    fn subscribe(&self) -> Option<broadcast::Receiver<PeerNews>> {
        None
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerNews {
    Message(PeerMessage),
    /// Some messages of others were lost, or their messages cannot be received now.
    Missed,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerMessage {
    /// The rows that an append has changed.
    Rows(Vec<RowChange>),
    Shown(ShownQuestion),
    /// Threads on which a client that may answer is connected to the sender.
    Present(Vec<ThreadKey>),
    /// The hash of a token that was revoked.
    Revoked([u8; 32]),
}

/// A row that changed, with the tenant and principal whose readers may learn of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowChange {
    pub tenant: TenantId,
    pub principal: PrincipalId,
    pub thread: ThreadId,
    pub row: ChangedRow,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangedRow {
    /// The thread is new, or some of it changed: this includes the removal of one of its runs.
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

/// The question of a run that was shown to a principal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownQuestion {
    pub principal: PrincipalId,
    pub run: RunId,
    pub interrupt: InterruptId,
    /// When it was shown, by the sender's clock, but after everything that the sender had received.
    pub at: Timestamp,
}
