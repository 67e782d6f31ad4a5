//! Cancelling sessions and prompts.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, RunId, RunStatus, ThreadId, limits};
use trilogue_store::rows::{Page, RunFilter, RunRow, ThreadRow};
use trilogue_wire::jsonrpc::Id;

use super::super::connection::ClientConnection;
use super::super::connection::cancels::SessionCancels;
use super::super::connection::queue::SessionQueue;
use super::super::connection::session::scope_of;
use super::super::session::OPEN_STATUSES;
use super::extension;

/// Cancels all work of a session.
pub(super) fn cancel_session(connection: &Arc<ClientConnection>, session: &ThreadId) {
    // Do this at once: the client's next lines may be replies that no longer count.
    connection.pending.ignore(|question| question.session == *session);
    if let Some(queue) = connection.queues.get(session) {
        return cancel_queue(connection, &queue);
    }
    let Ok(permit) = Arc::clone(&connection.foreign_cancels).try_acquire_owned() else {
        return tracing::debug!(thread = %session, "cancellation dropped: too many at once");
    };
    let (connection, session) = (Arc::clone(connection), session.clone());
    connection.tasks.clone().spawn(async move {
        cancel_all_runs(&connection, &session).await;
        // Held until here: it bounds the cancellations in progress.
        drop(permit);
    });
}

/// Cancels the work that has arrived for a session. One task serves all cancellations of a session.
fn cancel_queue(connection: &Arc<ClientConnection>, queue: &Arc<SessionQueue>) {
    if !queue.cancels.request() {
        return;
    }
    let (connection, queue) = (Arc::clone(connection), Arc::clone(queue));
    connection.tasks.clone().spawn(async move {
        let mut guard = CancelGuard { cancels: &queue.cancels, is_done: false };
        while !guard.is_done {
            let count = queue.cancels.count();
            cancel_all_runs(&connection, &queue.id).await;
            guard.is_done = queue.cancels.finish(count);
        }
    });
}

/// Cancels one prompt: its run, or the prompt itself if it has no run yet. The session's other work continues.
pub(super) fn cancel_prompt(
    connection: &Arc<ClientConnection>,
    queue: &Arc<SessionQueue>,
    token: &CancellationToken,
    request: &Id<'_>,
) {
    if token.is_cancelled() {
        return;
    }
    // First, so that a prompt that is just creating its run sees the cancellation.
    token.cancel();
    let Some(session) = queue.session() else { return };
    let found = {
        let state = session.state();
        let prompt = state.prompts.iter().find(|it| it.request.as_str() == request.as_str());
        prompt.map(|prompt| (prompt.run, prompt.run_id.clone()))
    };
    let Some((key, run)) = found else { return };
    connection.pending.ignore(|question| question.run == key && question.session == queue.id);
    let connection = Arc::clone(connection);
    connection.tasks.clone().spawn(async move {
        let _was_open: bool = cancel_run(&connection, &run).await;
    });
}

async fn cancel_all_runs(connection: &Arc<ClientConnection>, session: &ThreadId) {
    let cancelled = async {
        let thread = connection.thread(session.as_str()).await?;
        if !cancel_runs(connection, &thread, |_| true).await? {
            extension::cancel_outside_runs(connection, &thread).await;
        }
        Result::<()>::Ok(())
    };
    if let Err(error) = cancelled.await {
        tracing::debug!(thread = %session, %error, "nothing was cancelled");
    }
}

/// Cancels open runs of a thread, newest first, so that ending one run does not start the next. Returns whether any was open.
pub(super) async fn cancel_runs(
    connection: &ClientConnection,
    thread: &ThreadRow,
    is_meant: impl Fn(&RunRow) -> bool,
) -> Result<bool> {
    let open = open_runs(connection, thread).await?;
    let mut was_open = open.iter().any(|run| run.status == RunStatus::Cancelling);
    let goes_on = |run: &&RunRow| run.status != RunStatus::Cancelling && is_meant(run);
    for run in open.iter().filter(goes_on) {
        was_open |= cancel_run(connection, &run.id).await;
    }
    Ok(was_open)
}

/// Returns the open runs of a thread, newest first, without those that are scheduled for later.
pub(super) async fn open_runs(
    connection: &ClientConnection,
    thread: &ThreadRow,
) -> Result<Vec<RunRow>> {
    let filter = RunFilter {
        thread: Some(thread.id.clone()),
        statuses: OPEN_STATUSES.to_vec(),
        ..RunFilter::default()
    };
    let page = Page { limit: limits::MAX_PAGE_ROWS, ..Page::default() };
    let mut open = connection.read().runs(&scope_of(thread), &filter, &page).await?.rows;
    let now = connection.state.clock.now();
    open.retain(|run| run.not_before.is_none_or(|at| at <= now));
    Ok(open)
}

/// Cancels a run, unless it has ended. Returns whether it had not.
pub(super) async fn cancel_run(connection: &ClientConnection, run: &RunId) -> bool {
    match connection.cancel_run(run).await {
        Ok(()) => true,
        Err(error) if matches!(error.code(), Code::RunEnded | Code::RunNotFound) => false,
        Err(error) => {
            tracing::warn!(%run, %error, "a run could not be cancelled");
            true
        }
    }
}

/// Releases the prompts that wait for a cancellation whose task was dropped.
struct CancelGuard<'a> {
    cancels: &'a SessionCancels,
    is_done: bool,
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        while !self.is_done {
            self.is_done = self.cancels.finish(self.cancels.count());
        }
    }
}
