//! Queues the work of each session in order.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use metrics::Counter;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trilogue_domain::ThreadId;
use trilogue_domain::lock;

use super::cancels::{CancelMark, SessionCancels};
use super::session::ClientSession;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The queues of all sessions that a client uses.
#[derive(Debug)]
pub(crate) struct SessionQueues {
    by_session: Mutex<HashMap<ThreadId, Arc<SessionQueue>>>,
    /// Orders the notifications that name no session.
    pub(crate) nameless: Arc<SessionQueue>,
    tasks: TaskTracker,
    closed: CancellationToken,
    panics: Counter,
}

/// The requests of one session, processed one after the other.
pub(crate) struct SessionQueue {
    pub(crate) id: ThreadId,
    pub(crate) cancels: Arc<SessionCancels>,
    queue: Mutex<Queue>,
    session: Mutex<Option<Arc<ClientSession>>>,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    /// Whether a task processes the queue.
    is_running: bool,
}

// === impl SessionQueues ===

impl SessionQueues {
    pub(crate) fn new(tasks: TaskTracker, closed: CancellationToken, panics: Counter) -> Arc<Self> {
        let nameless = Arc::new(SessionQueue::new(&ThreadId::generate()));
        Arc::new(Self { by_session: Mutex::default(), nameless, tasks, closed, panics })
    }

    /// Processes work for a session after everything that arrived for it before.
    pub(crate) fn enqueue<W>(
        self: &Arc<Self>,
        session: &ThreadId,
        work: impl FnOnce(&Arc<SessionQueue>) -> W,
    ) where
        W: Future<Output = ()> + Send + 'static,
    {
        // The lock is held until the work is in the queue, so that an idle queue is not removed in between.
        let mut queues = lock(&self.by_session);
        let queue = queues.entry(session.clone());
        let queue = Arc::clone(queue.or_insert_with(|| Arc::new(SessionQueue::new(session))));
        let work = work(&queue);
        self.push(&queue, work);
    }

    /// Processes work after everything that arrived in this queue before.
    pub(crate) fn push<W>(self: &Arc<Self>, to: &Arc<SessionQueue>, work: W)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let mut queue = lock(&to.queue);
        if self.closed.is_cancelled() {
            // Nothing would take it out of the queue again.
            drop(queue);
            return;
        }
        queue.work.push_back(Box::pin(work));
        if std::mem::replace(&mut queue.is_running, true) {
            return;
        }
        drop(queue);
        let (queues, to) = (Arc::clone(self), Arc::clone(to));
        self.tasks.spawn(async move {
            tokio::select! {
                () = queues.closed.cancelled() => {}
                () = queues.run(&to) => return,
            }
            // The work holds its queue and its connection: left here, it would keep both forever.
            let left = std::mem::take(&mut lock(&to.queue).work);
            drop(left);
        });
    }

    async fn run(&self, queue: &Arc<SessionQueue>) {
        while let Some(work) = self.next(queue) {
            if AssertUnwindSafe(work).catch_unwind().await.is_err() {
                self.panics.increment(1);
                tracing::error!(session = %queue.id, "work for a session panicked; the session continues");
            }
        }
    }

    /// Takes the next work. Removes an empty queue whose session is not open.
    fn next(&self, queue: &Arc<SessionQueue>) -> Option<Work> {
        let mut queues = lock(&self.by_session);
        // The same lock order as `enqueue`, which therefore adds no work between the check and the removal.
        let mut pending = lock(&queue.queue);
        if let Some(work) = pending.work.pop_front() {
            return Some(work);
        }
        pending.is_running = false;
        if queue.session().is_none()
            && queues.get(&queue.id).is_some_and(|known| Arc::ptr_eq(known, queue))
        {
            queues.remove(&queue.id);
        }
        None
    }

    /// Returns the queue of a session if it has work or is open.
    pub(crate) fn get(&self, session: &ThreadId) -> Option<Arc<SessionQueue>> {
        lock(&self.by_session).get(session).cloned()
    }

    pub(crate) fn open_sessions(&self) -> Vec<Arc<ClientSession>> {
        lock(&self.by_session).values().filter_map(|queue| queue.session()).collect()
    }

    pub(crate) fn clear(&self) {
        lock(&self.by_session).clear();
    }
}

// === impl SessionQueue ===

impl SessionQueue {
    fn new(id: &ThreadId) -> Self {
        Self {
            id: id.clone(),
            cancels: Arc::new(SessionCancels::new()),
            queue: Mutex::default(),
            session: Mutex::default(),
        }
    }

    /// Returns the session if the client has it open.
    pub(crate) fn session(&self) -> Option<Arc<ClientSession>> {
        lock(&self.session).clone()
    }

    /// Replaces the open session. Returns the previous one.
    pub(crate) fn set_session(
        &self,
        session: Option<Arc<ClientSession>>,
    ) -> Option<Arc<ClientSession>> {
        std::mem::replace(&mut *lock(&self.session), session)
    }

    /// Returns a mark of the arrival of a prompt that `token` cancels.
    pub(crate) fn mark(&self, token: CancellationToken) -> CancelMark {
        CancelMark { cancels: Arc::clone(&self.cancels), count: self.cancels.count(), token }
    }
}

impl fmt::Debug for SessionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionQueue").field("id", &self.id).finish_non_exhaustive()
    }
}
