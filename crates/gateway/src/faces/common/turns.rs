//! Processes requests about one object one after the other.

use std::array;
use std::hash::{DefaultHasher, Hash, Hasher};

use tokio::sync::{Mutex, MutexGuard};
use trilogue_domain::TenantId;

/// How many objects can have a request in progress at once.
const LOCKS: usize = 64;

/// Serialises requests that first read an object and then change it, so that no request overwrites a change that happened in between.
/// Objects that share a lock wait for each other; the wait takes about one append.
#[derive(Debug)]
pub(in crate::faces) struct Turns([Mutex<()>; LOCKS]);

// === impl Turns ===

impl Turns {
    /// Waits for exclusive use of the object with this id; it ends when the guard is dropped.
    pub(in crate::faces) async fn turn(&self, tenant: &TenantId, id: &str) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        (tenant, id).hash(&mut hasher);
        let place = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or_default();
        // The index is always in range; the first lock is only a fallback for the compiler.
        self.0.get(place).unwrap_or(&self.0[0]).lock().await
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self(array::from_fn(|_| Mutex::new(())))
    }
}
