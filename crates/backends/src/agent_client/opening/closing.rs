//! Binds a thread to its session, and closes all that an agent holds for a thread.

use std::sync::Arc;

use trilogue_domain::{Code, Json, ThreadKey};
use trilogue_runtime::{RunContext, ThreadContext};

use super::SessionOpener;
use crate::agent_client::failure::AgentFailure;
use crate::agent_client::session::{Session, SessionBinding, ThreadState};
use crate::workspace::Removal;

// === impl SessionOpener ===

impl SessionOpener {
    /// Binds the thread to a session, or closes the session if that fails. `remembered` is the authentication method of the previous binding.
    pub(in crate::agent_client) async fn bind(
        self: &Arc<Self>,
        thread: &ThreadContext,
        session: &Session,
        state: &mut ThreadState,
        remembered: Option<&str>,
    ) -> Result<(), AgentFailure> {
        let binding = self.binding(session, remembered).to_json();
        let is_bound = thread.bind(session.remote(), binding).await.is_ok();
        self.close_unless(is_bound, thread.clone(), state)
    }

    /// As [`Self::bind`], for a run. If the run was stopped, the thread binds instead, so that the next run has the session.
    pub(super) async fn bind_for_run(
        self: &Arc<Self>,
        context: &RunContext,
        session: &Session,
        binding: &SessionBinding,
        state: &mut ThreadState,
    ) -> Result<(), AgentFailure> {
        let (binding, thread): (Json, _) = (binding.to_json(), context.thread_context());
        let is_bound = context.bind(session.remote(), binding.clone()).await.is_ok()
            || (context.is_cancelled() && thread.bind(session.remote(), binding).await.is_ok());
        self.close_unless(is_bound, thread, state)
    }

    fn close_unless(
        self: &Arc<Self>,
        is_bound: bool,
        thread: ThreadContext,
        state: &mut ThreadState,
    ) -> Result<(), AgentFailure> {
        if is_bound {
            return Ok(());
        }
        if let Some(session) = state.session.take() {
            session.close();
        }
        // If the thread was erased meanwhile, the erasure may not have seen this session.
        let opener = Arc::clone(self);
        tokio::spawn(async move {
            if matches!(thread.exists().await, Ok(false)) {
                opener.forget(&thread).await;
            }
        });
        Err(AgentFailure::local(Code::Internal, "the agent's session could not be stored"))
    }

    /// Closes everything held for a thread. Continues even if the caller stops waiting.
    pub(in crate::agent_client) async fn close(
        self: &Arc<Self>,
        thread: ThreadKey,
        for_good: bool,
    ) {
        let opener = Arc::clone(self);
        let closing = tokio::spawn(async move { opener.close_now(thread, for_good).await });
        if closing.await.is_err() {
            tracing::error!("closing a thread's session failed");
        }
    }

    /// Closes a thread's session, its terminals and its own process. A session in use stays, unless `for_good` is set.
    async fn close_now(&self, key: ThreadKey, for_good: bool) {
        let Some(thread) = self.threads.get(key) else { return };
        let mut state = thread.state.lock().await;
        let is_in_use = |session: &Arc<Session>| session.has_leases_beyond(0);
        if !for_good && state.session.as_ref().is_some_and(is_in_use) {
            return;
        }
        let session = state.session.take();
        if for_good {
            *state = ThreadState::default();
        }
        if let Some(session) = &session {
            session.end_remote(for_good).await;
            session.close();
            session.process().remove_thread(key);
            session.close_workspace().await;
        }
        // The lock is held, so that an opening waits until they have stopped.
        for process in self.pool.all_of_thread(key) {
            process.host().clear_output();
            process.stop().await;
        }
    }

    pub(in crate::agent_client) async fn forget(self: &Arc<Self>, thread: &ThreadContext) {
        if let Some(thread) = self.threads.get(thread.key()) {
            thread.erased.cancel();
        }
        if let Some(session) = self.open_subagents.get(thread.key()) {
            session.close();
        }
        self.close(thread.key(), true).await;
        self.threads.remove(thread.key());
        let Some(folders) = &self.launch().folders else { return };
        let (tenant, thread, key) = (thread.tenant(), thread.thread(), thread.key());
        match folders.remove(tenant, thread, key).await {
            Ok(Removal::Gone) => {}
            Ok(Removal::Kept(why)) => {
                tracing::warn!(%tenant, %thread, why, "the folder of an erased thread was kept");
            }
            Err(error) => {
                tracing::warn!(%tenant, %thread, %error, "the folder of an erased thread could not be removed");
            }
        }
    }
}
