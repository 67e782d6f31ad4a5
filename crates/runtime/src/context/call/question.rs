//! A question of a child run, which its caller's run asks.

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

/// Asks in the caller's run what the child asks, until either question has ended; the other one ends in the same way.
pub(super) async fn pass_up(
    shared: Arc<SharedRun>,
    child: RunRow,
    question: Interrupt,
    mut ended: oneshot::Receiver<Resolution>,
) {
    let services = &shared.services;
    // The deadline of the question above counts.
    let _presence = services.present(child.thread);
    let own = InterruptId::generate();
    let context = RunContext(Arc::clone(&shared));
    let asking = context.ask(Interrupt { id: own.clone(), ..question.clone() });
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
                // An owner that is gone has ended the child, or will.
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
            // A question that ended otherwise is withdrawn above, too.
            if let Ok(Resolution::Answered { by, answer, extra, .. }) = resolution
                && answer_with(&shared, by, own, answer, extra).await
            {
                drop(asking.await);
            }
        }
    }
}

/// `false` when the question was not there to be answered.
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
