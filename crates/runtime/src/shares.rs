//! Limits what one principal takes of a shared resource.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use trilogue_domain::{Principal, PrincipalId, TenantId, lock};

/// Who holds a share.
pub type ShareHolder = (TenantId, PrincipalId);

/// What each principal holds. Principals that hold nothing use no memory.
#[derive(Debug)]
pub struct Shares {
    max_each: usize,
    held: Mutex<HashMap<ShareHolder, Arc<Semaphore>>>,
}

/// A share that a principal holds until it is dropped.
#[derive(Debug)]
pub struct HeldShare {
    shares: Arc<Shares>,
    holder: ShareHolder,
    permit: Option<OwnedSemaphorePermit>,
}

/// The share of one principal without a setting: three quarters, rounded up, so that others get some too.
#[must_use]
pub fn default_share(all: usize) -> usize {
    (all - all / 4).max(1)
}

// === impl Shares ===

impl Shares {
    /// At most this many for each principal.
    #[must_use]
    pub fn new(max_each: usize) -> Arc<Self> {
        let max_each = max_each.min(Semaphore::MAX_PERMITS);
        Arc::new(Self { max_each, held: Mutex::default() })
    }

    /// The most that one principal holds.
    #[must_use]
    pub fn max_each(&self) -> usize {
        self.max_each
    }

    /// Waits until the principal is below its limit, in the order of its requests.
    pub async fn wait(self: &Arc<Self>, principal: &Principal) -> HeldShare {
        self.wait_as(holder(principal)).await
    }

    /// As [`Self::wait`], by the names of the principal.
    pub async fn wait_as(self: &Arc<Self>, holder: ShareHolder) -> HeldShare {
        let permits = self.permits(&holder);
        // The semaphore is never closed.
        let permit = permits.acquire_owned().await.ok();
        HeldShare { shares: Arc::clone(self), holder, permit }
    }

    /// Takes a share, or returns `None` if the principal has reached its limit.
    pub fn take(self: &Arc<Self>, principal: &Principal) -> Option<HeldShare> {
        self.take_as(holder(principal))
    }

    /// As [`Self::take`], by the names of the principal.
    pub fn take_as(self: &Arc<Self>, holder: ShareHolder) -> Option<HeldShare> {
        let permits = self.permits(&holder);
        let permit = permits.try_acquire_owned().ok()?;
        Some(HeldShare { shares: Arc::clone(self), holder, permit: Some(permit) })
    }

    /// Creates an empty share that can grow.
    #[must_use]
    pub fn begin(self: &Arc<Self>, principal: &Principal) -> HeldShare {
        let holder = holder(principal);
        let permits = self.permits(&holder);
        let permit = permits.try_acquire_many_owned(0).ok();
        HeldShare { shares: Arc::clone(self), holder, permit }
    }

    fn permits(&self, holder: &ShareHolder) -> Arc<Semaphore> {
        let mut held = lock(&self.held);
        let permits =
            held.entry(holder.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.max_each)));
        Arc::clone(permits)
    }
}

fn holder(principal: &Principal) -> ShareHolder {
    (principal.tenant.clone(), principal.id.clone())
}

// === impl HeldShare ===

impl HeldShare {
    /// Whether this principal holds the share.
    #[must_use]
    pub fn is_of(&self, principal: &Principal) -> bool {
        self.holder.0 == principal.tenant && self.holder.1 == principal.id
    }

    /// Grows the share by `count`. Returns `false` and takes nothing if the principal would exceed its limit.
    pub fn grow(&mut self, count: usize) -> bool {
        let Some(permit) = &mut self.permit else { return false };
        let semaphore = Arc::clone(permit.semaphore());
        let more =
            u32::try_from(count).ok().and_then(|it| semaphore.try_acquire_many_owned(it).ok());
        more.map(|more| permit.merge(more)).is_some()
    }

    /// Gives `count` back, or nothing if the share has less.
    pub fn shrink(&mut self, count: usize) {
        drop(self.permit.as_mut().and_then(|permit| permit.split(count)));
    }
}

impl Drop for HeldShare {
    fn drop(&mut self) {
        let mut held = lock(&self.shares.held);
        // First, because the permit has a clone of the `Arc` that is counted below.
        drop(self.permit.take());
        // Each holder and each waiting request has a clone of the `Arc`.
        if held.get(&self.holder).is_some_and(|permits| Arc::strong_count(permits) == 1) {
            held.remove(&self.holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use trilogue_domain::{Right, Rights};

    use super::*;

    fn principal(name: &str) -> Principal {
        Principal {
            tenant: TenantId::parse("t").unwrap(),
            id: PrincipalId::parse(name).unwrap(),
            rights: [Right::Read].into_iter().collect::<Rights>(),
            own: false,
        }
    }

    #[test]
    fn a_share_grows_up_to_its_limit_and_gives_all_back() {
        let shares = Shares::new(10);
        let alice = principal("alice");
        let mut share = shares.begin(&alice);
        assert!(share.grow(7) && !share.grow(4) && share.grow(3));
        assert!(!shares.begin(&alice).grow(1));
        assert!(shares.begin(&principal("bob")).grow(10));
        drop(share);
        assert!(shares.begin(&alice).grow(10));
        assert!(lock(&shares.held).is_empty());
    }

    #[test]
    fn one_principal_cannot_take_what_another_may() {
        let shares = Shares::new(2);
        let (alice, bob) = (principal("alice"), principal("bob"));
        let held = [shares.take(&alice).unwrap(), shares.take(&alice).unwrap()];
        assert!(shares.take(&alice).is_none());
        assert!(shares.take(&bob).is_some());
        let waiting = shares.wait(&alice);
        let mut waiting = Box::pin(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(held);
        assert!(waiting.now_or_never().is_some());
        assert!(lock(&shares.held).is_empty(), "principals that hold nothing are forgotten");
    }
}
