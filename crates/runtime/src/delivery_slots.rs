//! Limits concurrent deliveries: in total, to one target and for one principal, so that slow targets do not delay others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use trilogue_domain::{PrincipalId, TenantId, lock};
use trilogue_store::rows::QueueItem;

/// The most deliveries at once.
pub(crate) const MAX_UNDER_WAY: usize = 64;
/// The most of them to one target.
const MAX_PER_TARGET: usize = 8;
/// The most of them for one principal.
const MAX_PER_PRINCIPAL: usize = 32;
/// The assumed duration of a delivery before the first one to its target has ended.
const ASSUMED: Duration = Duration::from_millis(100);
/// The longest that a delivery is postponed, so that a target that became fast is noticed.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// The slots of one worker.
#[derive(Debug, Default)]
pub(crate) struct DeliverySlots {
    shares: Mutex<HashMap<ShareKey, Share>>,
}

/// A target or principal with a share of the slots.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum ShareKey {
    Target(String),
    Principal(TenantId, PrincipalId),
}

#[derive(Debug)]
struct Share {
    /// Above zero: an unused share is removed.
    under_way: usize,
    /// How long the last delivery took.
    last: Duration,
    /// When the next postponed delivery falls due.
    next_free: Instant,
}

/// A delivery in progress. Dropping it releases its slot.
#[derive(Debug)]
pub(crate) struct DeliverySlot {
    slots: Arc<DeliverySlots>,
    keys: Vec<ShareKey>,
    begun: Instant,
}

// === impl DeliverySlots ===

impl DeliverySlots {
    /// Takes a slot for this item.
    ///
    /// # Errors
    /// The delay until the next try, if its target or principal has used its share of slots.
    pub(crate) fn enter(self: &Arc<Self>, item: &QueueItem) -> Result<DeliverySlot, Duration> {
        let keys = keys_of(item);
        let now = Instant::now();
        let mut shares = lock(&self.shares);
        for key in &keys {
            if let Some(share) = shares.get_mut(key)
                && share.under_way >= key.most()
            {
                return Err(share.delay(key.most(), now));
            }
        }
        for key in &keys {
            let new = || Share { under_way: 0, last: ASSUMED, next_free: now };
            shares.entry(key.clone()).or_insert_with(new).under_way += 1;
        }
        drop(shares);
        Ok(DeliverySlot { slots: Arc::clone(self), keys, begun: now })
    }
}

/// Returns the shares that the item counts against. An item without a target goes to the only receiver, which can use all slots.
fn keys_of(item: &QueueItem) -> Vec<ShareKey> {
    let reference = item.reference.to_value();
    let Some(target) = reference.get("target").and_then(serde_json::Value::as_str) else {
        return Vec::new();
    };
    let principal = ShareKey::Principal(item.tenant.clone(), item.principal.clone());
    vec![ShareKey::Target(target.to_owned()), principal]
}

// === impl ShareKey ===

impl ShareKey {
    fn most(&self) -> usize {
        match self {
            Self::Target(_) => MAX_PER_TARGET,
            Self::Principal(..) => MAX_PER_PRINCIPAL,
        }
    }
}

// === impl Share ===

impl Share {
    /// Returns how long to postpone a delivery: postponed ones return one after another, as slots are expected to become free.
    fn delay(&mut self, most: usize, now: Instant) -> Duration {
        let apart = self.last / u32::try_from(most).unwrap_or(u32::MAX);
        self.next_free = self.next_free.max(now) + apart;
        let delay = self.next_free - now;
        if delay > MAX_DELAY {
            self.next_free = now + MAX_DELAY;
        }
        delay.min(MAX_DELAY)
    }
}

impl Drop for DeliverySlot {
    fn drop(&mut self) {
        let mut shares = lock(&self.slots.shares);
        for key in &self.keys {
            let Some(share) = shares.get_mut(key) else { continue };
            share.under_way -= 1;
            share.last = self.begun.elapsed();
            if share.under_way == 0 {
                shares.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use trilogue_domain::{Json, Timestamp};
    use trilogue_store::rows::QueueKind;

    use super::*;

    fn item(principal: &str, target: &str) -> QueueItem {
        QueueItem {
            kind: QueueKind::Callback,
            key: "k".to_owned(),
            due: Timestamp::from_micros(0),
            tenant: TenantId::parse("t").unwrap(),
            principal: PrincipalId::parse(principal).unwrap(),
            thread: None,
            reference: Json::from_value(&serde_json::json!({ "target": target })),
        }
    }

    #[test]
    fn a_target_and_a_principal_have_shares_and_give_them_back() {
        let slots = Arc::new(DeliverySlots::default());
        let slow: Vec<_> =
            (0..MAX_PER_TARGET).map(|_| slots.enter(&item("a", "slow")).unwrap()).collect();
        let delays: Vec<_> =
            (0..100_000).map(|_| slots.enter(&item("a", "slow")).unwrap_err()).collect();
        assert!(delays.iter().all(|delay| (Duration::ZERO..=MAX_DELAY).contains(delay)));
        assert!(delays[0] > Duration::ZERO);
        assert_eq!(delays.last(), Some(&MAX_DELAY));
        let other = slots.enter(&item("a", "other"));
        assert!(other.is_ok() && slots.enter(&item("b", "slow")).is_err());
        drop((slow, other));
        assert!(lock(&slots.shares).is_empty(), "what is not used is forgotten");
        let many: Vec<_> = (0..MAX_PER_PRINCIPAL)
            .map(|number| slots.enter(&item("a", &number.to_string())).unwrap())
            .collect();
        assert!(slots.enter(&item("a", "new")).is_err() && slots.enter(&item("b", "new")).is_ok());
        drop(many);
    }
}
