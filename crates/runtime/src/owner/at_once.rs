//! Runs a synchronous agent that answers at once without a task or channel, in one append.

use std::sync::Arc;
use std::task::Poll;

use tokio::sync::oneshot;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, RunKey};
use trilogue_store::Frame;
use trilogue_store::rows::RunRow;

use super::{Owner, QueuedRequest, Task, Waiter};
use crate::step::{Command, Effect, Reply, StartTurn, Submit};

// === impl Owner ===

impl Owner {
    /// Accepts the first run of a thread that is not stored yet, in the task of the waiting caller.
    ///
    /// The agent is polled once. If that completes its turn, the run is appended here and its log is returned.
    /// Otherwise the owner continues in a separate task, and the caller waits for `settled`.
    /// Fails if the run is refused. Errors of the store go to `settled`.
    pub(crate) async fn accept(
        mut self: Box<Self>,
        submit: Box<Submit>,
        settled: oneshot::Sender<Result<RunRow>>,
    ) -> Result<(RunRow, Option<Vec<Arc<Frame>>>)> {
        let run = submit.row.key;
        self.read_back(true);
        let Reply::Run(row) = self.step(Command::Submit(submit))? else {
            return Err(Error::new(Code::Internal, "the run was not accepted"));
        };
        self.waiters.entry(run).or_default().push(Waiter::Submitter(settled));
        if let Some(turn) = self.take_start(run)
            && let Some((shared, mut work)) =
                self.prepare(run, turn, true).map(|(shared, work)| (shared, Box::pin(work)))
        {
            let once =
                std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context).is_ready()));
            // The future has been polled, so it continues in the task: a new one would run the agent twice.
            if !once.await {
                let handle = Some(tokio::spawn(work).abort_handle());
                self.tasks.insert(run, Task { shared, handle });
                // The caller waits for `settled`, so the acceptance can share an append with the first output.
                self.pending.may_wait = true;
                self.read_back(false);
                self.resume();
                return Ok((*row, None));
            }
            // Before its requests are taken, because these look the task up.
            self.tasks.insert(run, Task { shared, handle: None });
        }
        // The owner is not registered yet, so only the agent's task has sent requests.
        while let Ok(QueuedRequest { request, room }) = self.requests.try_recv() {
            self.take(request).await;
            self.commit_if_full().await;
            // As in `run`, the request counts until its changes are in the next append.
            drop(room);
        }
        self.commit().await;
        self.read_back(false);
        let log = std::mem::take(&mut self.log);
        if !self.is_idle() {
            self.resume();
        }
        Ok((*row, Some(log)))
    }

    /// Sets whether the caller that submitted the run reads back what is logged next.
    fn read_back(&mut self, reads_back: bool) {
        if let Some(state) = &mut self.state {
            state.reads_back = reads_back;
        }
    }

    fn take_start(&mut self, run: RunKey) -> Option<StartTurn> {
        let is_start = |effect: &Effect| matches!(effect, Effect::Start { run: started, .. } if *started == run);
        let place = self.pending.effects.iter().position(is_start)?;
        match self.pending.effects.remove(place) {
            Effect::Start { turn, .. } => Some(turn),
            _ => None,
        }
    }

    fn resume(self: Box<Self>) {
        // Before the spawn: a request for an unregistered thread starts another owner.
        self.services.register(self.thread, self.inbox.clone());
        tokio::spawn(self.run());
    }
}
