//! Ending what a session does.

use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::{Code, RunStatus, ThreadId, limits};
use trilogue_store::rows::{Page, RunFilter, RunRow, ThreadRow};

use super::lane::Lane;
use super::link::Link;
use super::session::{scope_of, thread_of};

/// Ends what a session does. Nobody is told where there is none, or nothing is done in it.
pub(super) fn session(link: &Arc<Link>, session: &ThreadId) {
    if let Some(lane) = link.known_lane(session) {
        return self::lane(link, &lane);
    }
    spawn(link, session.clone());
}

/// Ends what was asked of a session so far.
pub(super) fn lane(link: &Arc<Link>, lane: &Arc<Lane>) {
    lane.cancel();
    spawn(link, lane.id.clone());
}

fn spawn(link: &Arc<Link>, session: ThreadId) {
    let link = Arc::clone(link);
    link.tasks.clone().spawn(async move {
        let cancelled = async {
            let thread = thread_of(&link, session.as_str()).await?;
            runs(&link, &thread, |_| true).await
        };
        if let Err(error) = cancelled.await {
            tracing::debug!(thread = %session, %error, "nothing was cancelled");
        }
    });
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
    let filter = RunFilter {
        thread: Some(thread.id.clone()),
        statuses: vec![RunStatus::Queued, RunStatus::Running, RunStatus::Interrupted],
        ..RunFilter::default()
    };
    let scope = scope_of(thread);
    let page = Page { limit: limits::MAX_PAGE_ROWS, ..Page::default() };
    let open = link.shared.read().runs(&scope, &filter, &page).await?.rows;
    let now = link.shared.ports.clock.now();
    // What is to begin later is no part of what goes on.
    let under_way = |run: &&RunRow| run.not_before.is_none_or(|at| at <= now) && is_meant(run);
    for run in open.iter().filter(under_way) {
        self::run(link, run).await;
    }
    Ok(())
}

/// Cancels a run; one that has ended meanwhile is let be.
pub(super) async fn run(link: &Link, run: &RunRow) {
    match link.runtime().cancel(&link.principal, &run.id).await {
        Ok(_) => {}
        Err(error) if matches!(error.code(), Code::RunEnded | Code::RunNotFound) => {}
        Err(error) => tracing::warn!(run = %run.id, %error, "a run could not be cancelled"),
    }
}
