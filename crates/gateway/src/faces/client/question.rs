//! Interrupts as questions to a client.

use std::sync::Arc;

use serde_json::value::RawValue;
use trilogue_domain::error::Result;
use trilogue_domain::{Answer, Code, Interrupt, InterruptId, Json, RunKey};
use trilogue_mapping::agent_client::{self as mapping, Asking};
use trilogue_runtime::{AnswerTo, Backend};
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
    let voice = || link.state.voices.join(session.thread.key, &interrupt.id);
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
    let answer = result.and_then(|raw| read(question, &raw));
    let answer = answer
        .filter(|(answer, _)| answer.as_ref().is_none_or(|answer| fits(link, interrupt, answer)));
    match answer {
        Some((answer, extra)) => say(link, interrupt, answer, extra).await,
        None if question.voice.refuse() => unanswered(link, interrupt, question.form).await,
        None => {
            tracing::debug!(interrupt = %interrupt.id, "a client will not be asked, and others are");
        }
    }
}

/// Whether whoever asked can be told of an answer. Another is none, as an error is.
fn fits(link: &Link, interrupt: &Interrupt, answer: &Answer) -> bool {
    let agent = |backend: &Arc<dyn Backend>| backend.check_answer(interrupt, answer);
    let checked = interrupt.check(answer).and_then(|()| link.backend().and_then(agent));
    if let Err(error) = &checked {
        tracing::warn!(interrupt = %interrupt.id, %error, "a client's answer does not fit what it was asked");
    }
    checked.is_ok()
}

/// What a client's result answers, and what it carries beyond that for a hosted agent. `None` where it is no answer.
fn read(question: &Question, raw: &RawValue) -> Option<(Option<Answer>, Option<Json>)> {
    let interrupt = &question.interrupt;
    Some(match question.form {
        Form::Permission => {
            let response = read_result(raw, Rules::Lenient).ok()?;
            let extra = mapping::extra_of_permission(interrupt, raw.get());
            (mapping::answer_of_permission(interrupt, &response), extra)
        }
        Form::Elicitation => {
            let response = read_result(raw, Rules::Lenient).ok()?;
            let extra = mapping::extra_of_elicitation(interrupt, raw.get());
            (mapping::answer_of_elicitation(interrupt, &response), extra)
        }
    })
}

/// The client is not asked any more. Where others who were asked would not be, and nobody else is, that is the answer.
pub(super) async fn leave(link: &Link, question: &Question) {
    let others = link.state.open_sessions.count(question.voice.thread()) > 1;
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
    let others = link.state.open_sessions.count(session.thread.key) > 1;
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
    say(link, interrupt, answer, None).await;
}

/// Gives an answer; without one, the turn ends.
async fn say(link: &Link, interrupt: &Interrupt, answer: Option<Answer>, extra: Option<Json>) {
    let answered = match answer {
        Some(answer) => give(link, interrupt, answer, extra).await,
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
    extra: Option<Json>,
) -> Result<()> {
    let to = || AnswerTo::Interrupt(interrupt.id.clone());
    if extra.is_some() {
        let given = link.runtime().answer_with(&link.principal, to(), answer.clone(), extra).await;
        match given {
            Err(error) if error.code() == Code::EventTooLarge => {
                tracing::warn!(interrupt = %interrupt.id, %error, "an answer is given without what it carries beyond itself");
            }
            given => return given.map(drop),
        }
    }
    link.runtime().answer(&link.principal, to(), answer).await.map(drop)
}

/// The user does not answer: where that cannot be said in an answer, the turn ends.
async fn dismiss(link: &Link, interrupt: &Interrupt) -> Result<()> {
    let scope = link.principal.scope();
    let row = link.read().interrupt(&scope, &interrupt.id).await?;
    match row.filter(|row| row.resolution.is_none()) {
        Some(row) => link.runtime().cancel(&link.principal, &row.run_id).await.map(drop),
        None => Ok(()),
    }
}
