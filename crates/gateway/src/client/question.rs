//! Interrupts as questions to a client.

use std::sync::Arc;

use serde_json::value::RawValue;
use trilogue_domain::{Answer, Code, Interrupt, InterruptId};
use trilogue_mapping::agent_client::{self as mapping, Asking};
use trilogue_runtime::AnswerTo;
use trilogue_wire::agent_client::{
    CreateElicitationResponse, RequestPermissionResponse, Rules, read_result,
};
use trilogue_wire::native::local::Control;

use super::calls::write_withdrawal;
use super::link::{Lines, Link};
use super::pending::{self, Form, Question};

/// What became of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// The client is asked by a request.
    ByRequest,
    /// It is asked in words: its next prompt is the answer.
    AsText,
}

/// Asks the client about an interrupt, unless it is being asked already.
pub(super) fn ask(link: &Link, interrupt: &Interrupt, asking: Asking, lines: &mut Lines) -> Asked {
    let (form, method, params) = match asking {
        Asking::Permission(params) => (Form::Permission, "session/request_permission", params),
        Asking::Elicitation(params) => (Form::Elicitation, "elicitation/create", params),
        Asking::Text(_) => return Asked::AsText,
    };
    let Ok(params) = serde_json::from_slice::<&RawValue>(&params) else { return Asked::ByRequest };
    if link.pending.asks(&interrupt.id) {
        return Asked::ByRequest;
    }
    let number = link.pending.next();
    let question = Question { interrupt: interrupt.clone(), form };
    if link.pending.wait(number, pending::Asked::Question(Arc::new(question))) {
        if link.numbered {
            lines.control(&Control::Question {
                request: number.to_string().into(),
                interrupt: interrupt.id.as_str().into(),
            });
        }
        lines.request(number, method, params);
    }
    Asked::ByRequest
}

/// Takes a question back that was answered elsewhere, or that nobody can answer any more.
pub(super) fn withdraw(link: &Link, interrupt: &InterruptId, lines: &mut Lines) {
    if let Some(number) = link.pending.withdraw(interrupt) {
        write_withdrawal(lines, number);
    }
}

/// Takes the client's answer to a question; `None` where it refused to be asked.
pub(super) async fn answer(link: &Link, question: &Question, result: Option<String>) {
    let interrupt = &question.interrupt;
    let result = result.and_then(|json| RawValue::from_string(json).ok());
    let answer = match question.form {
        Form::Permission => {
            let cancelled = RequestPermissionResponse::cancelled;
            let response = result.and_then(|raw| read_result(&raw, Rules::Lenient).ok());
            mapping::answer_of_permission(interrupt, &response.unwrap_or_else(cancelled))
        }
        Form::Elicitation => {
            let response: Option<CreateElicitationResponse> =
                result.and_then(|raw| read_result(&raw, Rules::Lenient).ok());
            response.and_then(|response| mapping::answer_of_elicitation(interrupt, &response))
        }
    };
    let answered = match answer {
        Some(answer) => give(link, interrupt, answer).await,
        None => dismiss(link, interrupt).await,
    };
    if let Err(error) = answered {
        // Another client was faster, or the run has gone.
        tracing::debug!(interrupt = %interrupt.id, %error, "an answer came too late or does not fit");
        if error.code() == Code::AnswerInvalid
            && let Err(error) = dismiss(link, interrupt).await
        {
            tracing::debug!(interrupt = %interrupt.id, %error, "a run without an answer goes on");
        }
    }
}

async fn give(
    link: &Link,
    interrupt: &Interrupt,
    answer: Answer,
) -> trilogue_domain::error::Result<()> {
    let to = AnswerTo::Interrupt(interrupt.id.clone());
    link.runtime().answer(&link.principal, to, answer).await.map(drop)
}

/// The user does not answer: where that cannot be said in an answer, the turn ends.
async fn dismiss(link: &Link, interrupt: &Interrupt) -> trilogue_domain::error::Result<()> {
    let scope = link.principal.scope();
    let row = link.shared.read().interrupt(&scope, &interrupt.id).await?;
    match row.filter(|row| row.resolution.is_none()) {
        Some(row) => link.runtime().cancel(&link.principal, &row.run_id).await.map(drop),
        None => Ok(()),
    }
}
