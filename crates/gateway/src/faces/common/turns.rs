//! Requests about one thing, one after the other.

use std::array;
use std::hash::{DefaultHasher, Hash, Hasher};

use tokio::sync::{Mutex, MutexGuard};
use trilogue_domain::TenantId;

/// How many things can have a request at work at once.
const LOCKS: usize = 64;

/// Lets requests that read a thing and then change it in one after the other, so that none overwrites what another has changed in between.
/// Things that share a lock wait for each other, which costs them an append.
#[derive(Debug)]
pub(in crate::faces) struct Turns([Mutex<()>; LOCKS]);

// === impl Turns ===

impl Turns {
    /// Waits for a turn at the thing with this id; it ends when the guard is dropped.
    pub(in crate::faces) async fn turn(&self, tenant: &TenantId, id: &str) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        (tenant, id).hash(&mut hasher);
        let place = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or_default();
        // The index is below the length; the first lock stands for what cannot be.
        self.0.get(place).unwrap_or(&self.0[0]).lock().await
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self(array::from_fn(|_| Mutex::new(())))
    }
}
