//! Tracks what a connection is doing, and whether it can end.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use trilogue_domain::{Principal, lock};

use trilogue_runtime::shares::HeldShare;

/// The most concurrent responses to callers without a token on a connection, before its first caller with one.
pub(crate) const MAX_ANONYMOUS_RESPONSES: usize = 16;

/// What a connection is doing, and whether it can end.
#[derive(Debug)]
pub(crate) struct Activity {
    opened: Instant,
    /// Unfinished requests and responses.
    at_work: AtomicUsize,
    /// Those among them whose callers showed no token.
    anonymous: AtomicUsize,
    is_authenticated: AtomicBool,
    /// The place of the last caller with a right among the connections of its principal.
    user: Mutex<Option<HeldShare>>,
    /// Whether the socket accepts no bytes at the moment.
    is_write_waiting: AtomicBool,
    /// Milliseconds after `opened` at which the last response ended.
    quiet_since_ms: AtomicU64,
    /// Cancelled when another connection needs this one's place.
    give_way: CancellationToken,
}

/// Counts a request as in progress until its response has been sent.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    activity: Arc<Activity>,
    is_anonymous: bool,
}

/// How suitable a connection is for closing in favour of another one. The greatest is closed first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ClosePriority {
    /// It carries responses, but no caller with a token. Contains the time since it was opened.
    Anonymous(Duration),
    /// It carries nothing. Contains the time since its last response.
    Idle(Duration),
}

// === impl Activity ===

impl Activity {
    pub(crate) fn begin() -> Arc<Self> {
        Arc::new(Self {
            opened: Instant::now(),
            at_work: AtomicUsize::new(0),
            anonymous: AtomicUsize::new(0),
            is_authenticated: AtomicBool::new(false),
            user: Mutex::default(),
            is_write_waiting: AtomicBool::new(false),
            quiet_since_ms: AtomicU64::new(0),
            give_way: CancellationToken::new(),
        })
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.at_work.load(Ordering::Relaxed) == 0 && !self.is_write_waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn is_idle_for(&self, limit: Duration) -> bool {
        self.is_idle() && self.quiet_for() >= limit
    }

    fn quiet_for(&self) -> Duration {
        let quiet = Duration::from_millis(self.quiet_since_ms.load(Ordering::Relaxed));
        self.opened.elapsed().saturating_sub(quiet)
    }

    pub(crate) fn was_never_used(&self) -> bool {
        self.quiet_since_ms.load(Ordering::Relaxed) == 0
    }

    /// Whether no request of a caller with a token is in progress.
    pub(crate) fn can_end(&self) -> bool {
        self.is_idle() || self.is_anonymous()
    }

    fn is_anonymous(&self) -> bool {
        !self.is_authenticated.load(Ordering::Relaxed)
            && self.at_work.load(Ordering::Relaxed) <= self.anonymous.load(Ordering::Relaxed)
    }

    /// Whether the connection can be closed in favour of another one; `None` if it serves a caller with a token, or has not been idle for this long.
    pub(crate) fn close_priority(&self, min_idle: Duration) -> Option<ClosePriority> {
        if self.is_idle() {
            let quiet = self.quiet_for();
            return (quiet >= min_idle).then_some(ClosePriority::Idle(quiet));
        }
        self.is_anonymous().then(|| ClosePriority::Anonymous(self.opened.elapsed()))
    }

    pub(crate) fn is_used_by(&self, principal: &Principal) -> bool {
        lock(&self.user).as_ref().is_some_and(|share| share.is_of(principal))
    }

    pub(crate) fn set_user(&self, share: HeldShare) {
        *lock(&self.user) = Some(share);
    }

    /// Gives the place among its principal's connections back, if the connection carries nothing.
    pub(crate) fn release_user(&self) {
        if self.is_idle() {
            drop(lock(&self.user).take());
        }
    }

    pub(crate) fn give_way(&self) {
        self.give_way.cancel();
    }

    pub(crate) fn has_given_way(&self) -> bool {
        self.give_way.is_cancelled()
    }

    pub(crate) async fn must_give_way(&self) {
        self.give_way.cancelled().await;
    }

    pub(crate) fn set_write_waiting(&self, is_waiting: bool) {
        self.is_write_waiting.store(is_waiting, Ordering::Relaxed);
    }
}

// === impl ActiveRequest ===

impl ActiveRequest {
    pub(crate) fn begin(activity: &Arc<Activity>) -> Self {
        activity.at_work.fetch_add(1, Ordering::Relaxed);
        Self { activity: Arc::clone(activity), is_anonymous: false }
    }

    /// Marks that the caller showed a valid token.
    pub(crate) fn mark_authenticated(&self) {
        // Check first: most connections have one caller, and need to write this only once.
        if !self.activity.is_authenticated.load(Ordering::Relaxed) {
            self.activity.is_authenticated.store(true, Ordering::Relaxed);
        }
    }

    /// Marks that the caller showed no token. Returns whether the connection can carry another response to such a caller.
    pub(crate) fn mark_anonymous(&mut self) -> bool {
        self.is_anonymous = true;
        let before = self.activity.anonymous.fetch_add(1, Ordering::Relaxed);
        before < MAX_ANONYMOUS_RESPONSES || self.activity.is_authenticated.load(Ordering::Relaxed)
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let activity = &self.activity;
        let now = u64::try_from(activity.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        activity.quiet_since_ms.store(now.max(1), Ordering::Relaxed);
        if self.is_anonymous {
            activity.anonymous.fetch_sub(1, Ordering::Relaxed);
        }
        activity.at_work.fetch_sub(1, Ordering::Relaxed);
    }
}
