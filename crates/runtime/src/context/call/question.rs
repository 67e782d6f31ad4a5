//! Asks a child run's question in its caller's run, or in that of its parent.

use std::sync::Arc;

use tokio::sync::oneshot;
use trilogue_domain::{
    Answer, Interrupt, InterruptId, Json, Principal, PrincipalId, Resolution, Right,
};
use trilogue_store::rows::RunRow;

use crate::context::{RunContext, SharedRun};
use crate::owner::Envelope;
use crate::step::Command;
use crate::turn::EmitError;

/// Asks the child's question in the caller's run until either question has ended; then ends the other one in the same way.
pub(super) async fn pass_up(
    shared: Arc<SharedRun>,
    child: RunRow,
    question: Interrupt,
    mut ended: oneshot::Receiver<Resolution>,
) {
    let services = &shared.services;
    let is_of_subagent = child.started_by.is_some();
    if is_of_subagent && shared.is_answered() {
        // The clients of the answered run wait for its late output only. The question is asked in the child's run.
        shared.late_output_over.cancel();
        return;
    }
    // Presence keeps the child's question from timing out: only the deadline of the caller's question counts.
    let _presence = services.present(child.thread);
    let own = question.id.passed_up(&shared.id);
    let context = RunContext(Arc::clone(&shared));
    let passed_up = Interrupt { id: own.clone(), ..question.clone() };
    let asking = context.ask_as(passed_up, is_of_subagent);
    tokio::pin!(asking);
    tokio::select! {
        biased;
        resolution = &mut asking => match resolution {
            Ok(Resolution::Answered { by, answer, extra, .. }) => {
                answer_with(&shared, by, question.id, answer, extra).await;
            }
            Ok(Resolution::TimedOut { .. }) => {
                let (reply, _) = oneshot::channel();
                let command = Box::new(Command::Deadline { interrupt: question.id });
                // If the owner is gone, it has ended the child, or will do so.
                drop(services.send(child.thread, Envelope::Change { command, reply }).await);
            }
            // The caller's run ends, and the child with it.
            Ok(Resolution::Cancelled | Resolution::Withdrawn { .. }) | Err(EmitError::Stopped) => {}
            Err(EmitError::Refused(error)) => {
                let (run, interrupt) = (&shared.id, &question.id);
                tracing::warn!(%run, %interrupt, %error, "a question of a called agent could not be passed up; it can be answered at its own run");
            }
        },
        resolution = &mut ended => {
            // A question that ended otherwise was already withdrawn above.
            if let Ok(Resolution::Answered { by, answer, extra, .. }) = resolution
                && answer_with(&shared, by, own, answer, extra).await
            {
                // Waits until the answer has arrived: an ask that is dropped before that is withdrawn.
                drop(asking.await);
            }
        }
    }
}

/// Answers the child's question. Returns `false` if it is not pending.
async fn answer_with(
    shared: &SharedRun,
    by: PrincipalId,
    to: InterruptId,
    answer: Answer,
    extra: Option<Json>,
) -> bool {
    let by = Principal {
        tenant: shared.scope.tenant.clone(),
        id: by,
        rights: std::iter::once(Right::Answer).collect(),
        own: false,
    };
    let answered = match shared.services.call_chains.port() {
        Ok(port) => port.answer(&by, to.clone(), answer, extra).await,
        Err(error) => Err(error),
    };
    answered
        .inspect_err(|error| {
            tracing::info!(interrupt = %to, %error, "an answer to a called agent's question came late");
        })
        .is_ok()
}
