//! What is asked of one session, in order.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use tokio::sync::watch;
use trilogue_domain::ThreadId;

use super::link::{Link, lock};
use super::session::Session;

/// Something that is done for a session when its turn comes.
pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is asked of one session: one thing after the other, in the order in which it came.
pub(super) struct Lane {
    pub(super) id: ThreadId,
    queue: Mutex<Queue>,
    session: Mutex<Option<Arc<Session>>>,
    cancels: watch::Sender<Cancels>,
}

/// How often a session's work was cancelled: what was asked before the last time is not begun.
#[derive(Clone, Copy, Default)]
struct Cancels {
    asked: u64,
    /// Up to which time everything has ended.
    done: u64,
    is_at_work: bool,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    is_at_work: bool,
}

// === impl Lane ===

impl Lane {
    pub(super) fn new(id: &ThreadId) -> Self {
        Self {
            id: id.clone(),
            queue: Mutex::default(),
            session: Mutex::default(),
            cancels: watch::Sender::new(Cancels::default()),
        }
    }

    /// The session, where the client has it open.
    pub(super) fn session(&self) -> Option<Arc<Session>> {
        lock(&self.session).clone()
    }

    /// Opens the session for the client; gives back the one that it had open before.
    pub(super) fn set_session(&self, session: Option<Arc<Session>>) -> Option<Arc<Session>> {
        std::mem::replace(&mut *lock(&self.session), session)
    }

    /// How often the session's work was cancelled.
    pub(super) fn cancels(&self) -> u64 {
        self.cancels.borrow().asked
    }

    /// Cancels what was asked so far and is not begun. `true` where whoever calls has to end what is: nobody is at it.
    pub(super) fn cancel(&self) -> bool {
        let mut begins = false;
        self.cancels.send_modify(|cancels| {
            cancels.asked += 1;
            begins = !std::mem::replace(&mut cancels.is_at_work, true);
        });
        begins
    }

    /// What was begun before the session's work was cancelled for this time has ended. `false` where it was cancelled again meanwhile.
    pub(super) fn has_cancelled(&self, until: u64) -> bool {
        let mut is_all = false;
        self.cancels.send_modify(|cancels| {
            cancels.done = until;
            is_all = cancels.asked == until;
            cancels.is_at_work = !is_all;
        });
        is_all
    }

    /// Waits until what was begun before the session's work was cancelled for this time has ended, or is being ended.
    pub(super) async fn when_cancelled(&self, until: u64) {
        let mut changes = self.cancels.subscribe();
        drop(changes.wait_for(|now| now.done >= until).await);
    }

    /// Waits until the session's work is cancelled once more than this.
    pub(super) async fn cancelled_since(&self, cancels: u64) {
        let mut changes = self.cancels.subscribe();
        // The sender lives as long as the lane.
        drop(changes.wait_for(|now| now.asked != cancels).await);
    }

    /// Does this behind everything that was asked before. For [`Link::in_order`], which keeps the lane from being forgotten meanwhile.
    pub(super) fn push(self: &Arc<Self>, link: &Arc<Link>, work: Work) {
        let mut queue = lock(&self.queue);
        queue.work.push_back(work);
        if std::mem::replace(&mut queue.is_at_work, true) {
            return;
        }
        drop(queue);
        let (lane, link) = (Arc::clone(self), Arc::clone(link));
        let closed = link.closed.clone();
        link.tasks.clone().spawn(async move {
            tokio::select! {
                () = closed.cancelled() => {}
                () = lane.work(&link) => {}
            }
        });
    }

    async fn work(self: &Arc<Self>, link: &Link) {
        while let Some(work) = self.next(link) {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                link.state.panics.increment(1);
                tracing::error!(session = %self.id, "work for a session panicked; what is asked next goes on");
            }
        }
    }

    /// What comes next. A lane without work whose session is not open is forgotten.
    fn next(self: &Arc<Self>, link: &Link) -> Option<Work> {
        let mut lanes = lock(&link.lanes);
        let mut queue = lock(&self.queue);
        if let Some(work) = queue.work.pop_front() {
            return Some(work);
        }
        queue.is_at_work = false;
        if self.session().is_none()
            && lanes.get(&self.id).is_some_and(|known| Arc::ptr_eq(known, self))
        {
            lanes.remove(&self.id);
        }
        None
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("id", &self.id).finish_non_exhaustive()
    }
}
