//! Tracks which threads have clients that can answer: on this node, and on other nodes by their messages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use trilogue_domain::{ThreadKey, lock};

use crate::peers::BEAT;
use crate::services::Services;

/// How many departures of last clients are remembered; beyond that the oldest are forgotten.
const REMEMBERED: usize = 10_000;
/// The most threads of other nodes that are tracked; further ones are ignored.
const MAX_HEARD: usize = 100_000;
/// How long a message of another node counts unless it is repeated.
pub(crate) const HEARD_FOR: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct PresenceTable {
    threads: Mutex<HashMap<ThreadKey, ClientCount>>,
    /// How long a departure can matter: the default patience of an interrupt.
    remembered_for: Duration,
}

/// The clients on one thread that can answer.
#[derive(Clone, Copy, Debug, Default)]
struct ClientCount {
    /// The clients of this node.
    count: usize,
    /// When the last one left, or when one that counts only while active last sent something.
    left: Option<Instant>,
    /// When another node last published that it has one.
    heard: Option<Instant>,
}

/// Keeps a thread's interrupts from timing out while a client that can answer is connected.
#[derive(Debug)]
pub struct Presence {
    presence_table: Arc<PresenceTable>,
    thread: ThreadKey,
}

/// Keeps a thread's interrupts from timing out while a client that can answer sends something: an idle window does not count.
#[derive(Debug)]
pub struct ActivePresence {
    services: Arc<Services>,
    thread: ThreadKey,
    /// When it was last published to the other nodes.
    noted: Mutex<Instant>,
}

// === impl PresenceTable ===

impl PresenceTable {
    pub(crate) fn new(remembered_for: Duration) -> Self {
        Self { threads: Mutex::default(), remembered_for }
    }

    /// Counts a client until the guard is dropped. Also returns whether it is the only one of this node.
    pub(crate) fn enter(self: &Arc<Self>, thread: ThreadKey) -> (Presence, bool) {
        let mut threads = lock(&self.threads);
        let connected = threads.entry(thread).or_default();
        connected.count += 1;
        (Presence { presence_table: Arc::clone(self), thread }, connected.count == 1)
    }

    /// Records that a client that counts only while active has sent something.
    fn record_activity(&self, thread: ThreadKey) {
        lock(&self.threads).entry(thread).or_default().left = Some(Instant::now());
        self.tidy();
    }

    /// Records another node's message about its clients.
    pub(crate) fn record_remote(&self, present: &[ThreadKey]) {
        let mut threads = lock(&self.threads);
        let now = Instant::now();
        if threads.len() + present.len() > MAX_HEARD {
            self.forget(&mut threads);
        }
        for thread in present {
            if threads.len() < MAX_HEARD || threads.contains_key(thread) {
                threads.entry(*thread).or_default().heard = Some(now);
            }
        }
    }

    /// Returns the threads that have clients on this node, at most `limit`.
    pub(crate) fn local_threads(&self, limit: usize) -> Vec<ThreadKey> {
        let threads = lock(&self.threads);
        let present = threads.iter().filter(|(_, connected)| connected.count > 0);
        present.map(|(thread, _)| *thread).take(limit).collect()
    }

    /// Returns when the patience of an interrupt that began at `began` ends, counted from when the last client left. It is extended by clients that are connected or active, but at most to `longest`.
    pub(crate) fn patience_ends(
        &self,
        thread: ThreadKey,
        began: Instant,
        patience: Duration,
        longest: Duration,
    ) -> Instant {
        let connected = lock(&self.threads).get(&thread).copied().unwrap_or_default();
        if connected.is_present() {
            return (Instant::now() + patience).min(began + longest);
        }
        let left = connected.left.max(connected.heard).map_or(began, |left| left.max(began));
        // An editor that stays active would extend it without end.
        (left + patience).min(began + longest.max(patience))
    }

    fn leave(&self, thread: ThreadKey) {
        let mut threads = lock(&self.threads);
        if let Some(connected) = threads.get_mut(&thread) {
            connected.count = connected.count.saturating_sub(1);
            connected.left = Some(Instant::now());
        }
        // `tidy` takes this lock.
        drop(threads);
        self.tidy();
    }

    /// Forgets departures that no longer matter if there are too many.
    pub(crate) fn tidy(&self) {
        let mut threads = lock(&self.threads);
        if threads.len() > REMEMBERED {
            self.forget(&mut threads);
        }
    }

    fn forget(&self, threads: &mut HashMap<ThreadKey, ClientCount>) {
        let recent = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() < self.remembered_for);
        threads.retain(|_, it| it.count > 0 || recent(it.left) || recent(it.heard));
    }
}

// === impl ClientCount ===

impl ClientCount {
    fn is_present(self) -> bool {
        self.count > 0 || self.heard.is_some_and(|heard| heard.elapsed() < HEARD_FOR)
    }
}

// === impl ActivePresence ===

impl ActivePresence {
    pub(crate) fn new(services: &Arc<Services>, thread: ThreadKey) -> Self {
        let presence =
            Self { services: Arc::clone(services), thread, noted: Mutex::new(Instant::now()) };
        presence.services.presence_table.record_activity(thread);
        presence.services.publish_presence(thread);
        presence
    }

    /// Records that the client has sent something.
    pub fn touch(&self) {
        self.services.presence_table.record_activity(self.thread);
        let is_due = {
            let mut noted = lock(&self.noted);
            let is_due = noted.elapsed() >= BEAT;
            if is_due {
                *noted = Instant::now();
            }
            is_due
        };
        if is_due {
            self.services.publish_presence(self.thread);
        }
    }
}

impl Drop for ActivePresence {
    fn drop(&mut self) {
        self.services.presence_table.record_activity(self.thread);
    }
}

// === impl Presence ===

impl Drop for Presence {
    fn drop(&mut self) {
        self.presence_table.leave(self.thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: ThreadKey = ThreadKey(1);
    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test(start_paused = true)]
    async fn the_word_of_another_node_counts_like_a_client_until_it_is_old() {
        let (attendance, began) = (PresenceTable::new(MINUTE), Instant::now());
        let ends = || attendance.patience_ends(THREAD, began, MINUTE, HOUR);
        assert_eq!(ends(), began + MINUTE);
        tokio::time::advance(MINUTE / 2).await;
        attendance.record_remote(&[THREAD]);
        assert_eq!(ends(), began + MINUTE / 2 + MINUTE);
        tokio::time::advance(HEARD_FOR / 2).await;
        assert_eq!(ends(), Instant::now() + MINUTE, "somebody is there");
        tokio::time::advance(HEARD_FOR).await;
        assert_eq!(ends(), began + MINUTE / 2 + MINUTE, "somebody was there then");
        attendance.record_remote(&[THREAD]);
        tokio::time::advance(HOUR).await;
        attendance.record_remote(&[THREAD]);
        assert_eq!(ends(), began + HOUR, "silence does not last for ever");
        tokio::time::advance(HEARD_FOR * 2).await;
        assert_eq!(ends(), began + HOUR, "nor does activity");
        assert_eq!(attendance.local_threads(9), [], "it is not passed on");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_heard_is_bounded() {
        let attendance = Arc::new(PresenceTable::new(MINUTE));
        let (_guard, is_first) = attendance.enter(THREAD);
        assert!(is_first && !attendance.enter(THREAD).1);
        let many: Vec<_> = (2..).map(ThreadKey).take(MAX_HEARD + 10).collect();
        attendance.record_remote(&many);
        assert_eq!(lock(&attendance.threads).len(), MAX_HEARD);
        tokio::time::advance(MINUTE).await;
        attendance.record_remote(&many[..1]);
        attendance.tidy();
        assert_eq!(lock(&attendance.threads).len(), 2);
        assert_eq!(attendance.local_threads(9), [THREAD]);
    }

    #[tokio::test(start_paused = true)]
    async fn departures_are_forgotten_without_another_node() {
        let attendance = Arc::new(PresenceTable::new(MINUTE));
        for thread in 0..=REMEMBERED as i64 {
            drop(attendance.enter(ThreadKey(thread)));
        }
        assert_eq!(lock(&attendance.threads).len(), REMEMBERED + 1, "all of them matter");
        tokio::time::advance(MINUTE).await;
        drop(attendance.enter(THREAD));
        assert_eq!(lock(&attendance.threads).len(), 1);
    }
}
