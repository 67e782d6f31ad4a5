//! Requests the descriptions of remote agents from their servers at intervals.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::sleep;
use trilogue_backends::remote::Refresh;
use trilogue_runtime::{Backend, Runtime};

use super::check_cards;
use crate::config::Mount;

/// How long to wait before a server that did not answer is asked again; doubles with each time.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// An agent or a directory of agents that is asked for now and then.
#[derive(Debug)]
pub(crate) struct RefreshSchedule {
    pub(crate) refresh: Box<dyn Refresh>,
    pub(crate) interval: Duration,
    /// Whether its server has answered before.
    pub(crate) is_known: bool,
}

/// The tasks that ask. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct RefreshTasks(Vec<AbortHandle>);

// === impl RefreshTasks ===

impl RefreshTasks {
    /// Starts the requests. New agents are served by this runtime, if their names are free in the mounted protocols.
    pub(crate) fn start(all: Vec<RefreshSchedule>, runtime: &Runtime, mounts: &[Mount]) -> Self {
        let keep = |schedule: RefreshSchedule| {
            tokio::spawn(schedule.keep(runtime.clone(), mounts.to_vec())).abort_handle()
        };
        Self(all.into_iter().map(keep).collect())
    }
}

impl Drop for RefreshTasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

// === impl RefreshSchedule ===

impl RefreshSchedule {
    async fn keep(mut self, runtime: Runtime, mounts: Vec<Mount>) {
        let mut delay = if self.is_known { self.interval } else { RETRY_DELAY.min(self.interval) };
        loop {
            sleep(delay).await;
            let server = Arc::clone(self.refresh.server());
            server.wait_until_running().await;
            match self.refresh.refresh().await {
                Ok(new) => {
                    new.into_iter().for_each(|agent| register(&agent, &runtime, &mounts));
                    delay = self.interval;
                }
                Err(error) => {
                    tracing::debug!(%server, %error, "a server does not say what its agents are");
                    delay = (delay * 2).clamp(RETRY_DELAY, self.interval.max(RETRY_DELAY));
                }
            }
        }
    }
}

fn register(agent: &Arc<dyn Backend>, runtime: &Runtime, mounts: &[Mount]) {
    let name = agent.card().name.clone();
    let mut cards = runtime.all_agents();
    cards.push(agent.card());
    let checked = check_cards(cards, mounts);
    match checked.and_then(|()| runtime.register(Arc::clone(agent))) {
        Ok(()) => tracing::info!(agent = %name, "an agent of another server is served from now on"),
        Err(error) => {
            tracing::warn!(agent = %name, %error, "a new agent of another server is not served");
        }
    }
}
