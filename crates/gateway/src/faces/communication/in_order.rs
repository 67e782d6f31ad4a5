//! Requests that bring a session, one after the other.

use std::array;
use std::hash::{DefaultHasher, Hash, Hasher};

use tokio::sync::{Mutex, MutexGuard};
use trilogue_domain::TenantId;

/// How many requests can be between replacing a history and their run's acceptance at once.
const LANES: usize = 64;

/// Lets requests that replace one session's history in one after the other, so that none replaces what the run of another has added in between.
/// Sessions that share a lane wait for each other, which costs them an append.
#[derive(Debug)]
pub(crate) struct InOrder([Mutex<()>; LANES]);

// === impl InOrder ===

impl InOrder {
    /// Waits for the turn of this session, or of another thing with this id; it ends when the guard is dropped.
    pub(crate) async fn turn(&self, tenant: &TenantId, id: &str) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        (tenant, id).hash(&mut hasher);
        let lane = usize::try_from(hasher.finish() % LANES as u64).unwrap_or_default();
        // The index is below the length; the first lane stands for what cannot be.
        self.0.get(lane).unwrap_or(&self.0[0]).lock().await
    }
}

impl Default for InOrder {
    fn default() -> Self {
        Self(array::from_fn(|_| Mutex::new(())))
    }
}
