use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use trilogue_domain::{CheckpointKey, RunKey, Scope, TenantId, ThreadId, ThreadKey};

use super::blob::Blobs;
use super::configuration::ConfigurationRows;
use super::eviction::EvictionOrder;
use super::key_map::KeyMap;
use super::queue::QueueEntries;
use super::tenant::TenantIndex;
use super::thread::{RunContents, ThreadEntry};
use super::token::TokenRows;
use crate::core::health::Quarantine;
use crate::core::tail::Tails;
use crate::record::Frame;
use crate::rows::{CheckpointRow, IdempotencyKey, IdempotencyRow, InterruptRow, RunRow};

/// The whole content. All data of a thread belongs to its [`ThreadEntry`]; the other maps are indexes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) threads: KeyMap<ThreadKey, Box<ThreadEntry>>,
    pub(super) runs: KeyMap<RunKey, RunEntry>,
    pub(super) checkpoints: KeyMap<CheckpointKey, Arc<CheckpointRow>>,
    /// By the order in which they were raised.
    pub(super) interrupts: BTreeMap<i64, Arc<InterruptRow>>,
    pub(super) idempotency: HashMap<IdempotencyKey, Arc<IdempotencyRow>>,
    pub(super) tenants: KeyMap<TenantId, TenantIndex>,
    pub(super) queue: QueueEntries,
    pub(super) blobs: Blobs,
    pub(super) tokens: TokenRows,
    pub(super) configurations: ConfigurationRows,
    /// Shared with readers outside the lock. Changes of frames reach it under the lock.
    pub(super) tails: Arc<Tails>,
    pub(super) quarantine: Quarantine,
    /// Ended runs, in the order of their ends.
    pub(super) ended: EvictionOrder<RunKey>,
    /// Threads without runs, in the order in which they lost their last run.
    pub(super) idle: EvictionOrder<ThreadKey>,
    /// The last position that was given in the order of arrival.
    pub(super) last_place: u64,
    /// The estimated bytes of threads and runs, without blobs and queue.
    pub(super) bytes: usize,
    /// Removed data, to be freed outside the lock: freeing takes as long as removing.
    pub(super) removed: Garbage,
    pub(super) commits: u64,
    pub(super) frames: u64,
    pub(super) is_closed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Garbage {
    #[expect(
        clippy::vec_box,
        reason = "the box is what the map held: opening it under the lock would copy the thread"
    )]
    pub(super) threads: Vec<Box<ThreadEntry>>,
    pub(super) runs: Vec<RunEntry>,
    pub(super) parts: Vec<RunContents>,
    pub(super) frames: Vec<Frame>,
}

#[derive(Debug)]
pub(super) struct RunEntry {
    pub(super) row: Arc<RunRow>,
    /// Its place in [`State::ended`].
    pub(super) ended: Option<u64>,
}

// === impl State ===

impl State {
    pub(super) fn new(tails: Arc<Tails>) -> Self {
        Self {
            threads: KeyMap::default(),
            runs: KeyMap::default(),
            checkpoints: KeyMap::default(),
            interrupts: BTreeMap::new(),
            idempotency: HashMap::new(),
            tenants: KeyMap::default(),
            queue: QueueEntries::default(),
            blobs: Blobs::default(),
            tokens: TokenRows::default(),
            configurations: ConfigurationRows::default(),
            tails,
            quarantine: Quarantine::default(),
            ended: EvictionOrder::default(),
            idle: EvictionOrder::default(),
            last_place: 0,
            bytes: 0,
            removed: Garbage::default(),
            commits: 0,
            frames: 0,
            is_closed: false,
        }
    }

    pub(super) fn visible_thread(&self, scope: &Scope, id: &ThreadId) -> Option<&ThreadEntry> {
        let key = self.tenants.get(&scope.tenant)?.threads.get(id)?;
        let thread = self.threads.get(key)?;
        scope.can_see(&thread.row.tenant, &thread.row.owner).then_some(thread)
    }

    pub(super) fn next_place(&mut self) -> u64 {
        self.last_place += 1;
        self.last_place
    }

    pub(super) fn total_bytes(&self) -> usize {
        self.bytes + self.blobs.bytes() + self.queue.bytes() + self.configurations.bytes()
    }
}
