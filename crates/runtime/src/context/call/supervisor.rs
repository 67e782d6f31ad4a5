//! Follows a child run next to its caller: ends it with the caller, and asks its questions there.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, InterruptEvent, RunEvent};
use trilogue_domain::{Code, Error, Event, InterruptId, Resolution};
use trilogue_store::rows::RunRow;

use super::log::ChildLog;
use super::question::pass_up;
use crate::call_chains::ChainGuard;
use crate::context::SharedRun;
use crate::owner::{Envelope, stopped_error};
use crate::request::SettledReceiver;
use crate::services::Services;
use crate::step::Command;

pub(super) struct ChildSupervisor {
    pub(super) shared: Arc<SharedRun>,
    pub(super) row: RunRow,
    pub(super) chain: ChainGuard,
    pub(super) passes_questions_up: bool,
    /// Cancelled when the caller has dropped the call.
    pub(super) dropped: CancellationToken,
    /// The error because of which the child's log has no end.
    pub(super) failed: watch::Sender<Option<Error>>,
}

/// The questions of the child that its caller's run asks.
#[derive(Default)]
struct Questions {
    passing: FuturesUnordered<BoxFuture<'static, ()>>,
    /// Sends the end of a question to the task that asks it in the caller's run.
    ends: HashMap<InterruptId, oneshot::Sender<Resolution>>,
}

/// Asks a child run to stop; an ended one stays unchanged.
pub(super) async fn cancel(
    services: &Arc<Services>,
    row: &RunRow,
    reason: Option<Code>,
) -> Result<()> {
    let (reply, done) = oneshot::channel();
    let command = Box::new(Command::Cancel { run: row.key, reason, roll_back: false });
    services.send(row.thread, Envelope::Change { command, reply }).await?;
    match done.await.map_err(|_| stopped_error())? {
        Err(error) if error.code() != Code::RunEnded => Err(error),
        _ => Ok(()),
    }
}

// === impl ChildSupervisor ===

impl ChildSupervisor {
    pub(super) async fn supervise(self, settled: SettledReceiver) {
        let Self { shared, row, chain, passes_questions_up, dropped, failed } = self;
        let mut log = ChildLog::of(&shared.store, &row);
        let mut questions = Questions::default();
        let mut settled = settled.0;
        let mut is_settled = false;
        let failure = loop {
            tokio::select! {
                biased;
                event = log.next() => match event {
                    Ok(Some(event)) => {
                        if passes_questions_up {
                            questions.take(&shared, &row, &event);
                        }
                        if is_settled && matches!(event.body, Body::Run(RunEvent::Resumed)) {
                            let (reply, next) = oneshot::channel();
                            settled = settled_next(&shared.services, &row, reply, next);
                            is_settled = false;
                        }
                    }
                    Ok(None) => {
                        questions.end().await;
                        break None;
                    }
                    Err(error) => break Some(error),
                },
                () = caller_is_gone(&shared, &dropped) => {
                    if let Err(error) = cancel(&shared.services, &row, Some(Code::ParentEnded)).await {
                        // Its owner cancels it on the next load, because its caller is unknown then.
                        tracing::info!(run = %row.id, %error, "a child run could not be cancelled yet");
                    }
                    break None;
                }
                outcome = &mut settled, if !is_settled => match outcome {
                    Ok(Err(error)) => break Some(error),
                    Ok(Ok(_)) | Err(_) => is_settled = true,
                },
                Some(()) = questions.passing.next() => {}
            }
        };
        drop(chain);
        if failure.is_some() {
            failed.send_replace(failure);
        }
    }
}

/// Follows the run of a sub-agent next to the open run of its parent: asks its questions there, and cancels it with that run. The end of the parent's run does not end it.
pub(in crate::context) async fn follow_subagent(parent: Arc<SharedRun>, row: RunRow) {
    let mut log = ChildLog::of(&parent.store, &row);
    let mut questions = Questions::default();
    loop {
        tokio::select! {
            biased;
            event = log.next() => match event {
                Ok(Some(event)) => questions.take(&parent, &row, &event),
                Ok(None) => return questions.end().await,
                Err(error) => {
                    tracing::debug!(run = %row.id, %error, "the run of a sub-agent is not followed any more");
                    return;
                }
            },
            () = parent.wait_until_cancelled() => {
                let reason = Some(Code::ParentEnded);
                if let Err(error) = cancel(&parent.services, &row, reason).await {
                    tracing::info!(run = %row.id, %error, "the run of a sub-agent could not be cancelled with its parent's");
                }
                return;
            }
            () = parent.wait_until_stopped() => return,
            Some(()) = questions.passing.next() => {}
        }
    }
}

/// Resolves when the calling run was asked to stop or has ended, or its agent dropped the call.
async fn caller_is_gone(shared: &SharedRun, dropped: &CancellationToken) {
    tokio::select! {
        () = shared.wait_until_cancelled() => {}
        () = shared.wait_until_stopped() => {}
        () = dropped.cancelled() => {}
    }
}

type SettledRun = oneshot::Receiver<Result<RunRow>>;

/// Waits for the child's next question or its end.
fn settled_next(
    services: &Arc<Services>,
    row: &RunRow,
    reply: oneshot::Sender<Result<RunRow>>,
    next: SettledRun,
) -> SettledRun {
    let (services, row) = (Arc::clone(services), row.clone());
    tokio::spawn(async move {
        let (told, settled) = oneshot::channel();
        let request = Envelope::Settled { run: row.key, reply: told };
        let sent = services.send(row.thread, request).await;
        // The wait can be long and must not keep the services alive.
        drop(services);
        let outcome = match sent {
            Ok(()) => settled.await.unwrap_or_else(|_| Err(stopped_error())),
            Err(error) => Err(error),
        };
        // The supervisor may have ended.
        drop(reply.send(outcome.map(|settled| settled.unwrap_or(row))));
    });
    next
}

// === impl Questions ===

impl Questions {
    /// Waits until no question is being asked in the caller's run; the child has no open question then.
    async fn end(&mut self) {
        self.ends.clear();
        while self.passing.next().await.is_some() {}
    }

    fn take(&mut self, shared: &Arc<SharedRun>, row: &RunRow, event: &Event) {
        match &event.body {
            Body::Interrupt(InterruptEvent::Raised(question)) => {
                let (end, ended) = oneshot::channel();
                self.ends.insert(question.id.clone(), end);
                let question = (**question).clone();
                self.passing.push(Box::pin(pass_up(
                    Arc::clone(shared),
                    row.clone(),
                    question,
                    ended,
                )));
            }
            Body::Interrupt(InterruptEvent::Resolved { interrupt, resolution }) => {
                if let Some(end) = self.ends.remove(interrupt) {
                    // If the answer came from the caller's run, the receiver is gone.
                    drop(end.send(resolution.clone()));
                }
            }
            _ => {}
        }
    }
}
