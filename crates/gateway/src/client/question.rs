//! Interrupts as questions to a client.

use std::sync::Arc;

use serde_json::value::RawValue;
use trilogue_domain::error::Result;
use trilogue_domain::{Answer, Code, Interrupt, InterruptId, RunKey};
use trilogue_mapping::agent_client::{self as mapping, Asking};
use trilogue_runtime::AnswerTo;
use trilogue_wire::agent_client::{
    CreateElicitationResponse, ElicitationCancel, RequestPermissionResponse, Rules, read_result,
};
use trilogue_wire::native::local::Control;

use super::calls::write_withdrawal;
use super::link::{Lines, Link};
use super::pending::{self, Form, NotAsked, Question};
use super::session::Session;

/// What became of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// The client is asked by a request.
    ByRequest,
    /// It is asked in words: its next prompt is the answer.
    AsText,
}

/// Asks the client about an interrupt of this run, unless it is being asked already.
pub(super) fn ask(
    link: &Link,
    session: &Session,
    run: RunKey,
    interrupt: &Interrupt,
    asking: Asking,
    lines: &mut Lines,
) -> Asked {
    let voice = || link.shared.voices.join(session.thread.key, &interrupt.id);
    let (form, method, params) = match asking {
        Asking::Permission(params) => (Form::Permission, "session/request_permission", params),
        Asking::Elicitation(params) => (Form::Elicitation, "elicitation/create", params),
        Asking::Text(_) => {
            session.state().voice = Some(voice());
            return Asked::AsText;
        }
    };
    let Ok(params) = serde_json::from_slice::<&RawValue>(&params) else { return Asked::ByRequest };
    if link.pending.asks(&interrupt.id) {
        return Asked::ByRequest;
    }
    let number = link.pending.next();
    let question = Question::new(interrupt, form, &session.thread.id, run, voice());
    match link.pending.wait(number, pending::Asked::Question(Arc::new(question))) {
        Ok(()) => {}
        Err(NotAsked::Closed) => return Asked::ByRequest,
        Err(NotAsked::Full) => {
            tracing::warn!(interrupt = %interrupt.id, "a client leaves too much unanswered to be asked");
            return Asked::ByRequest;
        }
    }
    if link.numbered {
        lines.control(&Control::Question {
            request: number.to_string().into(),
            interrupt: interrupt.id.as_str().into(),
        });
    }
    lines.request(number, method, params);
    Asked::ByRequest
}

/// Takes a question back that was answered elsewhere, or that nobody can answer any more.
pub(super) fn withdraw(link: &Link, session: &Session, interrupt: &InterruptId, lines: &mut Lines) {
    session.state().voice.take_if(|voice| voice.interrupt() == interrupt);
    if let Some(number) = link.pending.withdraw(interrupt) {
        write_withdrawal(lines, number);
    }
}

/// Takes the client's answer to a question; `None` where it will not be asked, which is no answer while another client is.
pub(super) async fn answer(link: &Link, question: &Question, result: Option<String>) {
    if question.is_over() {
        // It has ended the turn: that the question goes with it is no choice.
        return;
    }
    let interrupt = &question.interrupt;
    let result = result.and_then(|json| RawValue::from_string(json).ok());
    let answer = match (question.form, result) {
        (Form::Permission, Some(raw)) => read_result(&raw, Rules::Lenient)
            .ok()
            .map(|response| mapping::answer_of_permission(interrupt, &response)),
        (Form::Elicitation, Some(raw)) => read_result(&raw, Rules::Lenient)
            .ok()
            .map(|response| mapping::answer_of_elicitation(interrupt, &response)),
        (_, None) => None,
    };
    match answer {
        Some(answer) => say(link, interrupt, answer).await,
        None if question.voice.refuse() => unanswered(link, interrupt, question.form).await,
        None => {
            tracing::debug!(interrupt = %interrupt.id, "a client will not be asked, and others are");
        }
    }
}

/// The client is not asked any more. Where others who were asked would not be, and nobody else is, that is the answer.
pub(super) async fn leave(link: &Link, question: &Question) {
    let others = link.shared.sessions.count(question.voice.thread()) > 1;
    if question.voice.leave() && others {
        unanswered(link, &question.interrupt, question.form).await;
    }
}

/// Likewise for what it is asked in words in a session.
pub(super) async fn leave_words(link: &Link, session: &Session) {
    let asked = {
        let mut state = session.state();
        state.voice.take().zip(state.asked.take())
    };
    let others = link.shared.sessions.count(session.thread.key) > 1;
    if let Some((voice, interrupt)) = asked
        && *voice.interrupt() == interrupt.id
        && voice.leave()
        && others
    {
        unanswered(link, &interrupt, Form::Elicitation).await;
    }
}

/// Nobody who is asked will answer.
async fn unanswered(link: &Link, interrupt: &Interrupt, form: Form) {
    let answer = match form {
        Form::Permission => {
            mapping::answer_of_permission(interrupt, &RequestPermissionResponse::cancelled())
        }
        Form::Elicitation => mapping::answer_of_elicitation(
            interrupt,
            &CreateElicitationResponse::Cancel(ElicitationCancel::new()),
        ),
    };
    say(link, interrupt, answer).await;
}

/// Gives an answer; without one, the turn ends.
async fn say(link: &Link, interrupt: &Interrupt, answer: Option<Answer>) {
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

async fn give(link: &Link, interrupt: &Interrupt, answer: Answer) -> Result<()> {
    let to = AnswerTo::Interrupt(interrupt.id.clone());
    link.runtime().answer(&link.principal, to, answer).await.map(drop)
}

/// The user does not answer: where that cannot be said in an answer, the turn ends.
async fn dismiss(link: &Link, interrupt: &Interrupt) -> Result<()> {
    let scope = link.principal.scope();
    let row = link.shared.read().interrupt(&scope, &interrupt.id).await?;
    match row.filter(|row| row.resolution.is_none()) {
        Some(row) => link.runtime().cancel(&link.principal, &row.run_id).await.map(drop),
        None => Ok(()),
    }
}
