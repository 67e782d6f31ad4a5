//! The leases of folders under which a child works in a cluster. Its stage suspends it when one of them is over.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use trilogue_domain::lock;
use trilogue_sandbox::LeaseFile;
use uuid::Uuid;

/// Until when a child may work, by each of its leases.
#[derive(Debug)]
pub(super) struct ChildLeases {
    file: LeaseFile,
    /// In times since boot. Locked while the file is written, so that the file has the last change.
    until: Mutex<HashMap<Uuid, Duration>>,
}

// === impl ChildLeases ===

impl ChildLeases {
    pub(super) fn new(file: LeaseFile) -> Self {
        Self { file, until: Mutex::default() }
    }

    /// Extends a lease, or begins it. The child may work until the first of all its leases is over. Blocks on the file system.
    pub(super) fn extend(&self, lease: Uuid, until: Duration) -> io::Result<()> {
        let mut leases = lock(&self.until);
        leases.insert(lease, until);
        let first = leases.values().min().copied().unwrap_or(until);
        self.file.extend(first)
    }

    /// Ends a lease that was released. Without any, the child may work: it has no folder that another server can take. Blocks on the file system.
    pub(super) fn end(&self, lease: Uuid) {
        let mut leases = lock(&self.until);
        let was_over = leases.remove(&lease).is_some_and(|until| until <= LeaseFile::now());
        // After a pause of this server, the child stays suspended until a lease is extended.
        if leases.is_empty() && !was_over {
            self.remove();
        }
    }

    /// Removes the file.
    pub(super) fn remove(&self) {
        if let Err(error) = self.file.end() {
            tracing::warn!(%error, "the lease of an agent could not be removed");
        }
    }
}
