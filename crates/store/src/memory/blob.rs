//! Large content: stored once per tenant, for as long as a frame names it.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use trilogue_domain::TenantId;
use trilogue_domain::content::BlobRef;

/// How long an unnamed blob waits for a frame that names it.
const UNNAMED_KEPT: Duration = Duration::from_secs(600);

type BlobKey = (TenantId, [u8; 32], u64);

#[derive(Debug, Default)]
pub(super) struct Blobs {
    held: HashMap<BlobKey, Blob>,
    /// Stored blobs, oldest first, until the next check.
    waiting: VecDeque<(Instant, BlobKey)>,
    bytes: usize,
}

#[derive(Debug)]
struct Blob {
    bytes: Bytes,
    /// How often frames name it.
    names: usize,
    /// When it was last stored. `None` once a frame has named it since.
    stored: Option<Instant>,
}

// === impl Blobs ===

impl Blobs {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Stores a blob. If it exists, restarts the wait for its frame.
    pub(super) fn put(&mut self, tenant: &TenantId, blob: &BlobRef, bytes: Bytes, now: Instant) {
        self.sweep(now);
        let key = key_of(tenant, blob);
        let length = bytes.len();
        let held = self.held.entry(key.clone()).or_insert_with(|| {
            self.bytes += length;
            Blob { bytes, names: 0, stored: None }
        });
        held.stored = Some(now);
        self.waiting.push_back((now, key));
    }

    pub(super) fn has(&self, tenant: &TenantId, blob: &BlobRef) -> bool {
        self.held.contains_key(&key_of(tenant, blob))
    }

    pub(super) fn get(&self, tenant: &TenantId, blob: &BlobRef) -> Option<Bytes> {
        self.held.get(&key_of(tenant, blob)).map(|held| held.bytes.clone())
    }

    /// Counts a frame that names the blob.
    pub(super) fn name(&mut self, tenant: &TenantId, blob: &BlobRef) {
        if let Some(held) = self.held.get_mut(&key_of(tenant, blob)) {
            held.names += 1;
            held.stored = None;
        }
    }

    /// Removes one name of the blob. Removes the blob with its last name.
    pub(super) fn unname(&mut self, tenant: &TenantId, blob: &BlobRef) {
        let key = key_of(tenant, blob);
        if let Some(held) = self.held.get_mut(&key) {
            held.names = held.names.saturating_sub(1);
            self.drop_unused(&key);
        }
    }

    /// Drops blobs that no frame has named for [`UNNAMED_KEPT`].
    fn sweep(&mut self, now: Instant) {
        while let Some((at, _)) = self.waiting.front()
            && now.saturating_duration_since(*at) > UNNAMED_KEPT
        {
            let Some((at, key)) = self.waiting.pop_front() else { return };
            if let Some(held) = self.held.get_mut(&key)
                && held.stored == Some(at)
            {
                held.stored = None;
            }
            self.drop_unused(&key);
        }
    }

    fn drop_unused(&mut self, key: &BlobKey) {
        if let Some(held) = self.held.get(key)
            && held.names == 0
            && held.stored.is_none()
        {
            self.bytes = self.bytes.saturating_sub(held.bytes.len());
            self.held.remove(key);
        }
    }
}

fn key_of(tenant: &TenantId, blob: &BlobRef) -> BlobKey {
    (tenant.clone(), blob.hash, blob.length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_frame_names_goes_after_its_time() {
        let tenant = TenantId::parse("t").unwrap();
        let blob = |number| BlobRef { hash: [number; 32], length: 3, is_text: true };
        let mut blobs = Blobs::default();
        let start = Instant::now();
        blobs.put(&tenant, &blob(1), Bytes::from_static(b"abc"), start);
        blobs.put(&tenant, &blob(2), Bytes::from_static(b"abd"), start);
        blobs.name(&tenant, &blob(2));
        let later = start + UNNAMED_KEPT + Duration::from_secs(1);
        blobs.put(&tenant, &blob(3), Bytes::from_static(b"abe"), later);
        assert!(!blobs.has(&tenant, &blob(1)));
        assert!(blobs.has(&tenant, &blob(2)) && blobs.has(&tenant, &blob(3)));
        assert_eq!((blobs.bytes(), blobs.waiting.len()), (6, 1));
        blobs.unname(&tenant, &blob(2));
        assert_eq!(blobs.bytes(), 3);
    }
}
