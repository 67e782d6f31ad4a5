//! The state of an agent for each thread: its open session, and the params by which its client opened it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;
use trilogue_domain::{Code, Json, ThreadKey, lock};

use super::lease::SessionLease;
use super::session::Session;
use crate::agent_client::failure::AgentFailure;
use crate::agent_client::process::Process;

/// The most threads without an open session that are remembered.
const MAX_REMEMBERED: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Threads(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    threads: HashMap<ThreadKey, Arc<Thread>>,
    /// The number of threads after the last clean-up.
    kept: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Thread {
    /// Locked while its session is opened.
    pub(crate) state: tokio::sync::Mutex<ThreadState>,
    /// Cancelled when the thread is erased: after that, no session is opened for it.
    pub(crate) erased: CancellationToken,
}

#[derive(Debug, Default)]
pub(crate) struct ThreadState {
    pub(crate) session: Option<Arc<Session>>,
    /// The params with which its client wants the session to be open. They may hold secrets and are never stored.
    pub(crate) wanted: Option<Json>,
    pub(crate) opened_with: Option<Json>,
}

/// Restores the previous params when it is dropped, unless the session was opened with the new ones: others use the thread too.
#[derive(Debug)]
pub(crate) struct OpeningRollback<'a> {
    state: &'a mut ThreadState,
    /// The previous params. `None` once the session was opened.
    before: Option<Option<Json>>,
}

// === impl Threads ===

impl Threads {
    pub(crate) fn get_or_insert(&self, key: ThreadKey) -> Arc<Thread> {
        let mut table = lock(&self.0);
        // A clean-up costs as much as the insertions since the last one.
        if table.threads.len() >= (table.kept * 2).max(MAX_REMEMBERED)
            && !table.threads.contains_key(&key)
        {
            table.threads.retain(|_, thread| {
                // A thread with other references is in use.
                Arc::strong_count(thread) > 1
                    || thread.state.try_lock().map_or(true, |state| {
                        state.session.as_ref().is_some_and(|session| session.is_open())
                    })
            });
            table.kept = table.threads.len();
        }
        Arc::clone(table.threads.entry(key).or_default())
    }

    /// Drops the sessions of a process that has exited.
    pub(crate) fn drop_sessions(&self, process: &Arc<Process>) {
        for key in process.threads() {
            let Some(thread) = self.get(key) else { continue };
            // The task that holds the lock reopens the session.
            let Ok(mut state) = thread.state.try_lock() else { continue };
            drop(state.session.take_if(|session| Arc::ptr_eq(session.process(), process)));
        }
    }

    pub(crate) fn get(&self, key: ThreadKey) -> Option<Arc<Thread>> {
        lock(&self.0).threads.get(&key).cloned()
    }

    pub(crate) fn remove(&self, key: ThreadKey) {
        lock(&self.0).threads.remove(&key);
    }
}

// === impl Thread ===

impl Thread {
    /// Does work that ends if the thread is erased. The erasure waits for it.
    pub(crate) async fn unless_erased<T>(
        &self,
        work: impl Future<Output = Result<T, AgentFailure>>,
    ) -> Result<T, AgentFailure> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.erased.cancelled() => {
                Err(AgentFailure::local(Code::ThreadNotFound, "the thread is erased"))
            }
        }
    }
}

// === impl ThreadState ===

impl ThreadState {
    pub(crate) fn open_session(&mut self) -> Option<Arc<Session>> {
        if self.session.as_ref().is_some_and(|session| !session.is_open())
            && let Some(session) = self.session.take()
        {
            session.close();
        }
        self.session.clone()
    }

    /// A lease of the session, if a turn can begin in it and it has this id at the agent.
    pub(crate) fn lease(&mut self, remote: &str) -> Option<SessionLease> {
        let session = self.open_session().filter(|session| session.remote() == remote)?;
        SessionLease::of(&session)
    }
}

// === impl OpeningRollback ===

impl<'a> OpeningRollback<'a> {
    /// Stores these params as wanted.
    pub(crate) fn new(state: &'a mut ThreadState, params: Json) -> Self {
        let before = Some(state.wanted.replace(params));
        Self { state, before }
    }

    pub(crate) fn state(&mut self) -> &mut ThreadState {
        self.state
    }

    pub(crate) fn commit(mut self) {
        self.before = None;
    }
}

impl Drop for OpeningRollback<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            self.state.wanted = before;
        }
    }
}
