//! Interrupts as questions to a client.

use std::sync::Arc;

use serde_json::value::RawValue;
use trilogue_domain::error::Result;
use trilogue_domain::{Answer, Code, Interrupt, InterruptId, Json, Right, RunKey, StartedBy};
use trilogue_mapping::agent_client::{self as mapping, ClientQuestion};
use trilogue_runtime::Backend;
use trilogue_store::rows::InterruptRow;
use trilogue_wire::agent_client::{
    CreateElicitationResponse, ElicitationCancel, RequestPermissionResponse, Rules, read_result,
};
use trilogue_wire::native::local::Control;

use super::super::connection::ClientConnection;
use super::super::connection::pending::{AskRefusal, PendingQuestion, PendingReply, QuestionForm};
use super::super::connection::session::ClientSession;
use super::super::wire::lines::OutgoingLines;
use crate::core::audit::{AuditActor, AuditEvent, answer_detail, audit};

/// How a client is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AskOutcome {
    /// By a request of the protocol.
    Request,
    /// As text: its next prompt is the answer.
    Text,
}

/// Asks the client about an interrupt of this run, unless it is being asked already or lacks the right to answer.
pub(crate) fn ask(
    connection: &ClientConnection,
    session: &ClientSession,
    run: RunKey,
    interrupt: &Interrupt,
    asking: ClientQuestion,
    lines: &mut OutgoingLines,
) -> AskOutcome {
    if !connection.may(Right::Answer) {
        return AskOutcome::Request;
    }
    let ticket = || connection.state.asks.join(session.thread.key, &interrupt.id);
    let (form, method, params) = match asking {
        ClientQuestion::Permission(params) => {
            (QuestionForm::Permission, "session/request_permission", params)
        }
        ClientQuestion::Elicitation(params) => {
            (QuestionForm::Elicitation, "elicitation/create", params)
        }
        ClientQuestion::Text(_) => {
            session.state().ticket = Some(ticket());
            return AskOutcome::Text;
        }
    };
    let Ok(params) = serde_json::from_slice::<&RawValue>(&params) else {
        return AskOutcome::Request;
    };
    if connection.pending.asks(&interrupt.id) {
        return AskOutcome::Request;
    }
    let number = connection.pending.next();
    let question = PendingQuestion::new(interrupt, form, &session.asks_in, run, ticket());
    match connection.pending.add(number, PendingReply::Question(Arc::new(question))) {
        Ok(()) => {}
        Err(AskRefusal::Closed) => return AskOutcome::Request,
        Err(AskRefusal::Full) => {
            tracing::warn!(interrupt = %interrupt.id, "client not asked: it has left too many requests unanswered");
            return AskOutcome::Request;
        }
    }
    if connection.numbered {
        lines.control(&Control::Question {
            request: number.to_string().into(),
            interrupt: interrupt.id.as_str().into(),
        });
    }
    lines.request(number, method, params);
    AskOutcome::Request
}

/// Withdraws a question that was resolved.
pub(crate) fn withdraw(
    connection: &ClientConnection,
    session: &ClientSession,
    interrupt: &InterruptId,
    lines: &mut OutgoingLines,
) {
    session.state().ticket.take_if(|ticket| ticket.interrupt() == interrupt);
    if let Some(number) = connection.pending.withdraw(interrupt) {
        lines.withdrawal(number);
    }
}

/// The client's reply to a question.
enum EditorReply {
    Answer(Answer, Option<Json>),
    /// The client chooses nothing. Contains the agent's answer for the case that no other client can answer.
    Dismissal(Option<Answer>, Option<Json>),
}

/// Processes the client's reply to a question. A reply that chooses nothing, or is invalid, is an answer only if no other client is being
/// asked and a client prompted the turn here: others may have begun the run, and answer it elsewhere.
pub(crate) async fn take_reply(
    connection: &ClientConnection,
    question: &PendingQuestion,
    result: Option<String>,
) {
    if question.is_over() {
        return;
    }
    let interrupt = &question.interrupt;
    let result = result.and_then(|json| RawValue::from_string(json).ok());
    let reply = result.and_then(|raw| read_reply(question, &raw));
    let reply = reply.filter(|reply| match reply {
        EditorReply::Answer(answer, _) => is_valid(connection, interrupt, answer),
        EditorReply::Dismissal(..) => true,
    });
    // No client waits for a run that the agent started, so any client that is asked decides there.
    let is_decisive = waits_for_turn(connection, question)
        || matches!(&reply, Some(EditorReply::Dismissal(..)) | None)
            && is_started_by_agent(connection, interrupt).await;
    let is_last = || question.ticket.decline(is_decisive);
    match reply {
        Some(EditorReply::Answer(answer, extra)) => {
            resolve(connection, interrupt, Some(answer), extra).await;
        }
        Some(EditorReply::Dismissal(answer @ Some(_), extra)) if is_last() => {
            resolve(connection, interrupt, answer, extra).await;
        }
        Some(EditorReply::Dismissal(None, _)) | None if is_last() => {
            resolve_declined(connection, interrupt, question.form).await;
        }
        Some(EditorReply::Dismissal(..)) | None => {
            tracing::debug!(interrupt = %interrupt.id, "client declined; others may answer");
        }
    }
}

/// Whether the client has prompted the run that asks and waits for its end.
fn waits_for_turn(connection: &ClientConnection, question: &PendingQuestion) -> bool {
    let queue = connection.queues.get(&question.session);
    let session = queue.and_then(|queue| queue.session());
    session.is_some_and(|session| {
        let state = session.state();
        state.accepting > 0 || state.prompts.iter().any(|prompt| prompt.run == question.run)
    })
}

/// Whether an agent started the run that asks: its own, or as a call of another agent.
async fn is_started_by_agent(connection: &ClientConnection, interrupt: &Interrupt) -> bool {
    let (scope, read) = (connection.principal.scope(), connection.read());
    let Ok(Some(row)) = read.interrupt(&scope, &interrupt.id).await else { return false };
    let run = read.run(&scope, &row.run_id).await;
    matches!(run, Ok(Some(run)) if run.started_by == Some(StartedBy::Agent) || run.parent.is_some())
}

/// Whether the agent accepts an answer. An invalid answer counts as declined, like an error.
fn is_valid(connection: &ClientConnection, interrupt: &Interrupt, answer: &Answer) -> bool {
    let agent = |backend: &Arc<dyn Backend>| backend.check_answer(interrupt, answer);
    let checked = interrupt.check(answer).and_then(|()| connection.backend().and_then(agent));
    if let Err(error) = &checked {
        tracing::warn!(interrupt = %interrupt.id, %error, "invalid answer of a client");
    }
    checked.is_ok()
}

/// Reads the answer from a client's result, with its further members for a hosted agent. Returns `None` if the result is invalid.
fn read_reply(question: &PendingQuestion, raw: &RawValue) -> Option<EditorReply> {
    let interrupt = &question.interrupt;
    let (answer, extra, is_chosen) = match question.form {
        QuestionForm::Permission => {
            let response: RequestPermissionResponse = read_result(raw, Rules::Lenient).ok()?;
            let extra = mapping::extra_of_permission(interrupt, raw.get());
            let is_chosen = mapping::is_offered_choice(interrupt, &response);
            (mapping::answer_of_permission(interrupt, &response), extra, is_chosen)
        }
        QuestionForm::Elicitation => {
            let response: CreateElicitationResponse = read_result(raw, Rules::Lenient).ok()?;
            let extra = mapping::extra_of_elicitation(interrupt, raw.get());
            let is_chosen = matches!(
                response,
                CreateElicitationResponse::Accept(_) | CreateElicitationResponse::Decline(_)
            );
            (mapping::answer_of_elicitation(interrupt, &response), extra, is_chosen)
        }
    };
    Some(match answer {
        Some(answer) if is_chosen => EditorReply::Answer(answer, extra),
        answer => EditorReply::Dismissal(answer, extra),
    })
}

/// Removes the client from those being asked. If all others have declined, declines the interrupt.
pub(crate) async fn leave(connection: &ClientConnection, question: &PendingQuestion) {
    let has_others = connection.state.open_sessions.count(question.ticket.thread()) > 1;
    if question.ticket.leave() && has_others {
        resolve_declined(connection, &question.interrupt, question.form).await;
    }
}

/// Like [`leave`], for the question that the session asks as text.
pub(crate) async fn leave_text(connection: &ClientConnection, session: &ClientSession) {
    let asked = {
        let mut state = session.state();
        state.ticket.take().zip(state.question.take())
    };
    let has_others = connection.state.open_sessions.count(session.thread.key) > 1;
    if let Some((ticket, interrupt)) = asked
        && *ticket.interrupt() == interrupt.id
        && ticket.leave()
        && has_others
    {
        resolve_declined(connection, &interrupt, QuestionForm::Elicitation).await;
    }
}

/// Resolves an interrupt that every client has declined.
async fn resolve_declined(
    connection: &ClientConnection,
    interrupt: &Interrupt,
    form: QuestionForm,
) {
    let answer = match form {
        QuestionForm::Permission => {
            mapping::answer_of_permission(interrupt, &RequestPermissionResponse::cancelled())
        }
        QuestionForm::Elicitation => mapping::answer_of_elicitation(
            interrupt,
            &CreateElicitationResponse::Cancel(ElicitationCancel::new()),
        ),
    };
    resolve(connection, interrupt, answer, None).await;
}

/// Answers an interrupt. Without an answer, ends the turn.
async fn resolve(
    connection: &ClientConnection,
    interrupt: &Interrupt,
    answer: Option<Answer>,
    extra: Option<Json>,
) {
    let resolved = match answer {
        Some(answer) => send_answer(connection, interrupt, answer, extra).await,
        None => cancel_run(connection, interrupt).await,
    };
    if let Err(error) = resolved {
        // Another client was faster, or the run no longer exists.
        tracing::debug!(interrupt = %interrupt.id, %error, "answer not accepted");
        if error.code() == Code::AnswerInvalid
            && let Err(error) = cancel_run(connection, interrupt).await
        {
            tracing::debug!(interrupt = %interrupt.id, %error, "run without an answer not cancelled");
        }
    }
}

async fn send_answer(
    connection: &ClientConnection,
    interrupt: &Interrupt,
    answer: Answer,
    extra: Option<Json>,
) -> Result<()> {
    if extra.is_some() {
        match connection.answer(&interrupt.id, &answer, extra).await {
            Err(error) if error.code() == Code::EventTooLarge => {
                tracing::warn!(interrupt = %interrupt.id, %error, "answer sent without its further members");
            }
            answered => return answered.map(|row| audit_local(connection, row)),
        }
    }
    let answered = connection.answer(&interrupt.id, &answer, None).await;
    answered.map(|row| audit_local(connection, row))
}

/// Writes the audit line, unless another node owns the thread: that node writes it.
fn audit_local(connection: &ClientConnection, row: Option<InterruptRow>) {
    if let Some(row) = row {
        audit_answer(connection, &row);
    }
}

/// Writes an audit line of the client's answer.
pub(crate) fn audit_answer(connection: &ClientConnection, row: &InterruptRow) {
    let actor = AuditActor::new(&connection.principal, connection.origin.token());
    let subject = row.interrupt.id.as_str();
    audit(AuditEvent::QuestionAnswered, Some(actor), subject, &answer_detail(row));
}

/// Ends the turn of an unanswered question if no answer of the protocol can express that.
async fn cancel_run(connection: &ClientConnection, interrupt: &Interrupt) -> Result<()> {
    let scope = connection.principal.scope();
    let row = connection.read().interrupt(&scope, &interrupt.id).await?;
    match row.filter(|row| row.resolution.is_none()) {
        Some(row) => connection.cancel_run(&row.run_id).await,
        None => Ok(()),
    }
}
