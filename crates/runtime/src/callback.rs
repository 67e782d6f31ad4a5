//! Callbacks and notices: claims them from the durable queue, delivers them, and retries with growing delays.
//!
//! None of them blocks or fails a run: the run's own append puts the item into the queue, which keeps it from then on.

use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};
use trilogue_domain::error::Result;
use trilogue_domain::port::{Deliver, Delivered, Delivery};
use trilogue_store::rows::{Claim, QueueKind, RetryDecision};

use crate::delivery_slots::{DeliverySlots, MAX_UNDER_WAY};
use crate::handle::Runtime;
use crate::request::Options;
use crate::services::Services;
use crate::workers::{LEASE, MAX_SLEEP, REST, until_closing};

/// Items that were postponed because their target or principal had used its share of deliveries, by kind.
const POSTPONED: &str = "trilogue_callback_postponed_total";
/// How often a lease is extended during a delivery.
const EXTEND_EVERY: Duration = Duration::from_secs(10);
/// The most attempts to deliver a notice: after that the news is old.
const NOTICE_ATTEMPTS: u32 = 3;

/// The kind of item that a worker delivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WorkerKind {
    /// Callbacks: an undeliverable one goes to the dead-letter list.
    Callbacks,
    /// Notices of new interrupts: an undeliverable one is dropped.
    Notices,
}

pub(crate) fn start(runtime: &Runtime, kind: WorkerKind, sender: Arc<dyn Deliver>) {
    let services = Arc::clone(runtime.services());
    tokio::spawn(until_closing(runtime.clone(), serve(services, kind, sender)));
}

async fn serve(services: Arc<Services>, kind: WorkerKind, sender: Arc<dyn Deliver>) {
    let offered = services.store.offer_signal();
    let free = Arc::new(Semaphore::new(MAX_UNDER_WAY));
    let slots = Arc::new(DeliverySlots::default());
    // A failed attempt can be due again before its lease would have ended.
    let attempted = Arc::new(Notify::new());
    loop {
        let offered = offered.notified();
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        let now = services.clock.now();
        match services.store.claim(kind.queue_kind(), now, now.after(LEASE), 1).await {
            Ok(claims) => match claims.into_iter().next() {
                Some(claim) => {
                    let slot = match slots.enter(&claim.item) {
                        Ok(slot) => slot,
                        Err(delay) => {
                            postpone(&services, kind, &claim, delay).await;
                            continue;
                        }
                    };
                    let (services, sender) = (Arc::clone(&services), Arc::clone(&sender));
                    let attempted = Arc::clone(&attempted);
                    tokio::spawn(async move {
                        deliver(&services, kind, sender.as_ref(), claim).await;
                        // Before the notification, so that the loop finds both free when it wakes.
                        drop((slot, permit));
                        attempted.notify_one();
                    });
                }
                None => {
                    drop(permit);
                    let due = services.store.next_due(kind.queue_kind()).await.ok().flatten();
                    let sleep = due.map_or(MAX_SLEEP, |due| {
                        services.clock.now().until(due).clamp(Duration::from_millis(10), MAX_SLEEP)
                    });
                    tokio::select! {
                        () = offered => {}
                        () = attempted.notified() => {}
                        () = tokio::time::sleep(sleep) => {}
                    }
                }
            },
            Err(error) => {
                tracing::warn!(kind = kind.queue_kind().as_str(), %error, "the queue cannot be read");
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// Returns a claimed item to the queue because its target is busy.
async fn postpone(services: &Services, kind: WorkerKind, claim: &Claim, delay: Duration) {
    counter!(POSTPONED, "kind" => kind.queue_kind().as_str()).increment(1);
    let again = RetryDecision::Postpone(services.clock.now().after(delay));
    if let Err(error) = services.store.abandon(claim, again, "its target is busy").await {
        // The lease expires by itself, so the item returns to the queue anyway.
        tracing::warn!(delivery = claim.item.key, %error, "a callback could not be put off");
    }
}

async fn deliver(services: &Services, kind: WorkerKind, sender: &dyn Deliver, claim: Claim) {
    let delivery = Delivery {
        id: id_of(&claim),
        attempt: claim.attempts,
        tenant: claim.item.tenant.clone(),
        principal: claim.item.principal.clone(),
        thread: claim.item.thread,
        reference: claim.item.reference.clone(),
    };
    let attempt = sender.deliver(&delivery);
    let Some(outcome) = while_extending(services, &claim, attempt).await else { return };
    let settled = match outcome {
        Delivered::Accepted => services.store.finish(&claim).await,
        Delivered::Refused { error } => give_up(services, kind, &claim, &error).await,
        Delivered::Later { error, .. } if claim.attempts >= kind.attempts(&services.options) => {
            give_up(services, kind, &claim, &error).await
        }
        Delivered::Later { error, after } => {
            let wait = backoff(&services.options, claim.attempts, jitter(&claim))
                .max(after.unwrap_or_default());
            let again = services.clock.now().after(wait.min(services.options.callback_backoff_max));
            services.store.abandon(&claim, RetryDecision::RetryAt(again), &error).await
        }
    };
    if let Err(error) = settled {
        // The lease expires by itself; the receiver recognises the repetition by its id.
        tracing::warn!(delivery = claim.item.key, %error, "a callback could not be settled");
    }
}

async fn give_up(
    services: &Services,
    kind: WorkerKind,
    claim: &Claim,
    error: &str,
) -> Result<bool> {
    match kind {
        WorkerKind::Callbacks => services.store.abandon(claim, RetryDecision::Dead, error).await,
        WorkerKind::Notices => {
            let interrupt = &claim.item.key;
            tracing::warn!(
                interrupt,
                error,
                "the notice of a pending interrupt could not be delivered"
            );
            services.store.finish(claim).await
        }
    }
}

/// Returns the delivery's id, the same for every attempt. The key of an output always means the newest output, so each sent output has its own id.
fn id_of(claim: &Claim) -> String {
    let reference = claim.item.reference.to_value();
    let number = reference.get("number").and_then(Value::as_u64);
    match (reference.get("of").and_then(Value::as_str), number) {
        (Some("values"), Some(number)) => format!("{}.{number}", claim.item.key),
        _ => claim.item.key.clone(),
    }
}

/// Waits for an attempt and extends its lease meanwhile. Returns `None` if another worker has taken over the item.
pub(crate) async fn while_extending<T>(
    services: &Services,
    claim: &Claim,
    attempt: impl Future<Output = T>,
) -> Option<T> {
    let mut attempt = std::pin::pin!(attempt);
    loop {
        if let Ok(outcome) = tokio::time::timeout(EXTEND_EVERY, &mut attempt).await {
            return Some(outcome);
        }
        let until = services.clock.now().after(LEASE);
        if !services.store.extend(claim, until).await.unwrap_or(false) {
            return None;
        }
    }
}

/// Returns the delay after this many attempts: doubled each time, varied by up to a quarter.
fn backoff(options: &Options, attempts: u32, jitter: f64) -> Duration {
    let doubled =
        options.callback_backoff.saturating_mul(1_u32 << attempts.saturating_sub(1).min(20));
    doubled.min(options.callback_backoff_max).mul_f64(0.75 + jitter / 2.0)
}

/// Returns a number between 0 and 1 that differs for each item and attempt, so that simultaneous failures are not retried simultaneously.
fn jitter(claim: &Claim) -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let hash = RandomState::new().hash_one((claim.id, claim.attempts));
    f64::from(u32::try_from(hash >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

// === impl WorkerKind ===

impl WorkerKind {
    fn queue_kind(self) -> QueueKind {
        match self {
            Self::Callbacks => QueueKind::Callback,
            Self::Notices => QueueKind::Notify,
        }
    }

    fn attempts(self, options: &Options) -> u32 {
        match self {
            Self::Callbacks => options.callback_attempts,
            Self::Notices => NOTICE_ATTEMPTS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_and_is_bounded() {
        let options = Options::default();
        let waits: Vec<_> = (1..40).map(|attempt| backoff(&options, attempt, 0.5)).collect();
        assert_eq!(waits.first(), Some(&options.callback_backoff));
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(waits.last(), Some(&options.callback_backoff_max));
    }
}
