//! Ending what a session does.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, RunId, RunStatus, ThreadId, limits};
use trilogue_store::rows::{Page, RunFilter, RunRow, ThreadRow};
use trilogue_wire::jsonrpc::Id;

use super::lane::Lane;
use super::link::Link;
use super::session::{scope_of, thread_of};

/// How many sessions that a client has not open it can be ending at once. What it says of others meanwhile is let go by.
pub(super) const MAX_STRANGERS: usize = 16;

/// Ends what a session does. Nobody is told where there is none, or nothing is done in it.
pub(super) fn session(link: &Arc<Link>, session: &ThreadId) {
    // At once: what the client answers behind this says nothing any more.
    link.pending.give_up(|question| question.session == *session);
    if let Some(lane) = link.known_lane(session) {
        return self::lane(link, &lane);
    }
    let Ok(stranger) = Arc::clone(&link.strangers).try_acquire_owned() else {
        return tracing::debug!(thread = %session, "too many sessions are being ended");
    };
    let (link, session) = (Arc::clone(link), session.clone());
    link.tasks.clone().spawn(async move {
        everything(&link, &session).await;
        drop(stranger);
    });
}

/// Ends what was asked of a session so far. However often that is said, one task does it.
fn lane(link: &Arc<Link>, lane: &Arc<Lane>) {
    if !lane.cancel() {
        return;
    }
    let (link, lane) = (Arc::clone(link), Arc::clone(lane));
    link.tasks.clone().spawn(async move {
        let mut cancelling = Cancelling { lane: &lane, is_done: false };
        while !cancelling.is_done {
            let until = lane.cancels();
            everything(&link, &lane.id).await;
            cancelling.is_done = lane.has_cancelled(until);
        }
    });
}

/// Ends one prompt: its run, or itself where it has none yet. What else is asked of the session goes on.
pub(super) fn prompt(
    link: &Arc<Link>,
    lane: &Arc<Lane>,
    cancelled: &CancellationToken,
    request: &Id<'_>,
) {
    if cancelled.is_cancelled() {
        return;
    }
    // First, so that one that is just getting its run sees it.
    cancelled.cancel();
    let Some(session) = lane.session() else { return };
    let found = {
        let state = session.state();
        let prompt = state.prompts.iter().find(|it| it.request.as_str() == request.as_str());
        prompt.map(|prompt| (prompt.run, prompt.run_id.clone()))
    };
    let Some((key, run)) = found else { return };
    link.pending.give_up(|question| question.run == key && question.session == lane.id);
    let link = Arc::clone(link);
    link.tasks.clone().spawn(async move { self::run(&link, &run).await });
}

async fn everything(link: &Link, session: &ThreadId) {
    let cancelled = async {
        let thread = thread_of(link, session.as_str()).await?;
        runs(link, &thread, |_| true).await
    };
    if let Err(error) = cancelled.await {
        tracing::debug!(thread = %session, %error, "nothing was cancelled");
    }
}

/// Cancels the runs of a thread that are under way, the newest first: none begins because another has ended.
///
/// # Errors
/// What reading can fail with.
pub(super) async fn runs(
    link: &Link,
    thread: &ThreadRow,
    is_meant: impl Fn(&RunRow) -> bool,
) -> Result<()> {
    let open = under_way(link, thread).await?;
    let goes_on = |run: &&RunRow| run.status != RunStatus::Cancelling && is_meant(run);
    for run in open.iter().filter(goes_on) {
        self::run(link, &run.id).await;
    }
    Ok(())
}

/// The runs of a thread that are under way, the newest first. What is to begin later is no part of what goes on.
///
/// # Errors
/// What reading can fail with.
pub(super) async fn under_way(link: &Link, thread: &ThreadRow) -> Result<Vec<RunRow>> {
    let filter = RunFilter {
        thread: Some(thread.id.clone()),
        statuses: vec![
            RunStatus::Queued,
            RunStatus::Running,
            RunStatus::Interrupted,
            RunStatus::Cancelling,
        ],
        ..RunFilter::default()
    };
    let scope = scope_of(thread);
    let page = Page { limit: limits::MAX_PAGE_ROWS, ..Page::default() };
    let mut open = link.read().runs(&scope, &filter, &page).await?.rows;
    let now = link.state.clock.now();
    open.retain(|run| run.not_before.is_none_or(|at| at <= now));
    Ok(open)
}

/// Cancels a run; one that has ended meanwhile is let be.
pub(super) async fn run(link: &Link, run: &RunId) {
    match link.runtime().cancel(&link.principal, run).await {
        Ok(_) => {}
        Err(error) if matches!(error.code(), Code::RunEnded | Code::RunNotFound) => {}
        Err(error) => tracing::warn!(%run, %error, "a run could not be cancelled"),
    }
}

/// Lets prompts go on that wait for a cancelling which broke.
struct Cancelling<'a> {
    lane: &'a Lane,
    is_done: bool,
}

impl Drop for Cancelling<'_> {
    fn drop(&mut self) {
        while !self.is_done {
            self.is_done = self.lane.has_cancelled(self.lane.cancels());
        }
    }
}
