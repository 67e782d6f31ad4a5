//! Renders runs for this protocol.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, header};
use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use serde_json::value::RawValue;
use trilogue_domain::error::Result;
use trilogue_domain::{
    Code, Error, Failure, Input, InterruptId, Json, Outcome, RunStatus, Timestamp,
};
use trilogue_mapping::connect::{self as mapping, RunFields};
use trilogue_mapping::native::message::PATH_SEGMENT;
use trilogue_store::Frame;
use trilogue_store::rows::{InterruptFilter, Page, RunRow};

use super::{ConnectCall, fault, fold, look_up};
use crate::faces::common::run_input;
use crate::http::reply::Reply;

/// Names the run that a request created or joined.
const RUN_ID: HeaderName = HeaderName::from_static("x-run-id");

/// A run's `creation` leaves out a larger input, in bytes: it is in the thread's history.
const MAX_SHOWN_INPUT_BYTES: usize = 4 * 1024 * 1024;

/// The part of a settled run that is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Whole,
    Output,
}

#[derive(Deserialize, Default)]
struct KeptRequest<'a> {
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    configuration_id: Option<Cow<'a, str>>,
}

/// Names the run in the response head, so that the client has its id first.
pub(super) fn with_run_headers(call: &ConnectCall, reply: Reply, row: &RunRow) -> Reply {
    let encoded = |text| utf8_percent_encode(text, PATH_SEGMENT);
    let prefix = &call.state.place.prefix;
    let run = encoded(row.id.as_str());
    let place = match call.param("thread_id") {
        "" => format!("{prefix}/runs/{run}"),
        thread => format!("{prefix}/threads/{}/runs/{run}", encoded(thread)),
    };
    reply.header_text(header::CONTENT_LOCATION, &place).header_text(RUN_ID, row.id.as_str())
}

/// Renders the present state of a run.
pub(super) async fn run(call: &ConnectCall, row: &RunRow) -> Result<Bytes> {
    let changed = updated_at(call, row).await?;
    run_at(call, row, changed).await
}

/// Like [`run`], with the time of its last change.
pub(super) async fn run_at(call: &ConnectCall, row: &RunRow, changed: Timestamp) -> Result<Bytes> {
    let creation = creation(call, row).await?;
    Ok(Bytes::from(rendered(call, row, changed, &creation)))
}

/// Renders runs in order. Input that is not stored in the run's row is not read.
pub(super) async fn runs(call: &ConnectCall, rows: &[RunRow]) -> Result<Bytes> {
    let mut out = vec![b'['];
    for row in rows {
        if out.len() > 1 {
            out.push(b',');
        }
        let creation = match &row.request {
            Some(request) => request.as_bytes().clone(),
            None => derived_creation(call, row, None),
        };
        out.extend(rendered(call, row, updated_at(call, row).await?, &creation));
    }
    out.push(b']');
    Ok(Bytes::from(out))
}

/// Renders a settled run with its output; a question in it counts as shown to the caller.
/// Errors: if the log cannot be read, or holds more than fits one response.
pub(super) async fn render_settled(
    call: &ConnectCall,
    row: &RunRow,
    log: Option<&[Arc<Frame>]>,
    form: Form,
) -> Result<(Bytes, Option<InterruptId>)> {
    let removed =
        matches!(row.outcome, Some(Outcome::Cancelled { reason: Some(Code::RunRolledBack) }));
    let (output, asked) = if removed {
        (None, None)
    } else {
        let values = match log {
            Some(frames) => fold::of_frames(call, row, frames).await?,
            None => fold::of_log(call, row).await?,
        };
        let asked = values.interrupt().map(|interrupt| interrupt.id.clone());
        let output = call.turn.work(|| values.output());
        (output, asked.filter(|_| !values.has_ended()))
    };
    if let Some(interrupt) = &asked {
        call.state.runtime.record_shown_question(&call.principal().id, &row.id, interrupt);
    }
    // If the log is gone, the row still has the outcome.
    let output = output.unwrap_or_else(|| error_output(call, row, row.outcome.as_ref()));
    let most = call.state.max_output_bytes;
    let bytes = match form {
        // Before the response repeats it.
        _ if output.len() > most => return Err(fold::too_large(most)),
        Form::Output => output,
        Form::Whole => {
            let run = run(call, row).await?;
            call.turn.work(|| Bytes::from(mapping::wait_response(&run, Some(&output))))
        }
    };
    if bytes.len() > most {
        return Err(fold::too_large(most));
    }
    Ok((bytes, asked))
}

/// Returns the body for a run after the head with status 200 was sent: an error becomes the run's output; without an error, the wait has timed out and the run alone follows.
/// A missing run was removed meanwhile.
pub(super) fn late_body(
    call: &ConnectCall,
    row: &RunRow,
    form: Form,
    error: Option<&Error>,
) -> Bytes {
    let (outcome, status) = match error.map(Error::code) {
        Some(Code::RunNotFound | Code::ThreadNotFound) => {
            let reason = Some(Code::RunRolledBack);
            (Some(Outcome::Cancelled { reason }), RunStatus::Cancelled)
        }
        _ => (error.map(|error| Outcome::Failed(failure(error))), row.status),
    };
    let row = &RunRow { status, ..row.clone() };
    let output = outcome.map(|outcome| error_output(call, row, Some(&outcome)));
    if form == Form::Output {
        return output.unwrap_or_else(|| Bytes::from_static(b"null"));
    }
    let creation = match &row.request {
        Some(request) => request.as_bytes().clone(),
        None => derived_creation(call, row, None),
    };
    let run = rendered(call, row, row.created_at, &creation);
    Bytes::from(mapping::wait_response(&run, output.as_deref()))
}

/// Returns an error as the run's own failure, with the text of the error response.
fn failure(error: &Error) -> Failure {
    Failure::of(error.code(), &fault::describe(error).description)
}

/// Renders why a run has no output, from its row.
fn error_output(call: &ConnectCall, row: &RunRow, outcome: Option<&Outcome>) -> Bytes {
    let gone = Outcome::Cancelled { reason: Some(Code::RunRolledBack) };
    let card = look_up::agent_of(call, row).card;
    let of = |outcome| mapping::run_error(outcome, &card, row.id.as_str());
    let error = outcome.and_then(of).or_else(|| of(&gone));
    let output = error.map(trilogue_wire::agent_connect::RunOutput::Error);
    serde_json::to_vec(&output).map_or_else(|_| Bytes::from_static(b"null"), Bytes::from)
}

fn rendered(call: &ConnectCall, row: &RunRow, changed: Timestamp, creation: &[u8]) -> Vec<u8> {
    let kept: KeptRequest<'_> = serde_json::from_slice(creation).unwrap_or_default();
    let agent = look_up::agent_of(call, row);
    mapping::run(&RunFields {
        id: row.id.as_str(),
        thread_id: row.thread_id.as_str(),
        agent_id: &agent.id,
        configuration_id: kept.configuration_id.as_deref(),
        status: row.status,
        is_scheduled: row.status == RunStatus::Queued
            && row.not_before.is_some_and(|time| time > call.state.clock.now()),
        created_at: row.created_at,
        updated_at: changed,
        creation,
    })
}

/// Renders the request that created the run, with its input.
async fn creation(call: &ConnectCall, row: &RunRow) -> Result<Bytes> {
    let Some(request) = &row.request else {
        let input = input(call, row).await?;
        return Ok(derived_creation(call, row, input.as_deref()));
    };
    let kept: KeptRequest<'_> = serde_json::from_slice(request.as_bytes()).unwrap_or_default();
    if kept.input.is_some() || kept.message.is_some() {
        return Ok(request.as_bytes().clone());
    }
    let Some(input) = input(call, row).await? else { return Ok(request.as_bytes().clone()) };
    let rest = request.as_str().trim_start().strip_prefix('{').unwrap_or("}");
    let mut out = Vec::with_capacity(input.len() + rest.len() + 16);
    out.extend_from_slice(b"{\"input\":");
    out.extend_from_slice(&input);
    if rest.trim_start() != "}" {
        out.push(b',');
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(Bytes::from(out))
}

async fn input(call: &ConnectCall, row: &RunRow) -> Result<Option<Vec<u8>>> {
    Ok(match run_input::read(&call.state.read, row).await? {
        None => None,
        Some(Input::Value(value)) => {
            Some(value.as_bytes().to_vec()).filter(|value| value.trim_ascii() != b"null")
        }
        Some(Input::Messages(messages)) => {
            let links = fold::links(call, &row.thread_id);
            Some(mapping::state(mapping::State::Messages(&messages), &links).into_json())
        }
    }
    .filter(|input| input.len() <= MAX_SHOWN_INPUT_BYTES))
}

fn derived_creation(call: &ConnectCall, row: &RunRow, input: Option<&[u8]>) -> Bytes {
    let agent = look_up::agent_of(call, row);
    let mut members = vec![format!("\"agent_id\":{}", serde_json::Value::from(&*agent.id))];
    if let Some(input) = input.and_then(|input| std::str::from_utf8(input).ok()) {
        members.push(format!("\"input\":{input}"));
    }
    if let Some(config) = &row.config {
        let shown: Json = mapping::shown_config(&agent.card, config);
        members.push(format!("\"config\":{{\"configurable\":{}}}", shown.as_str()));
    }
    if row.metadata != Json::empty_object() {
        members.push(format!("\"metadata\":{}", row.metadata.as_str()));
    }
    Bytes::from(format!("{{{}}}", members.join(",")))
}

async fn updated_at(call: &ConnectCall, row: &RunRow) -> Result<Timestamp> {
    if let Some(ended) = row.ended_at {
        return Ok(ended);
    }
    let started = row.started_at.unwrap_or(row.created_at);
    if row.status != RunStatus::Interrupted && !row.ever_resolved {
        return Ok(started);
    }
    let filter = InterruptFilter { run: Some(row.id.clone()), ..InterruptFilter::default() };
    let newest = Page { limit: 1, ..Page::default() };
    let found = call.state.read.interrupts(&call.scope(), &filter, &newest).await?;
    let asked = found.rows.first().map(|row| row.resolved_at.unwrap_or(row.raised_at));
    Ok(asked.unwrap_or(started).max(started))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_ours_is_not_described_to_clients() {
        let secret = failure(&Error::new(Code::Internal, "disk /srv/x is broken"));
        assert_eq!(secret.code, "internal");
        assert!(!secret.message.contains("/srv/x"), "{secret:?}");
        let told = failure(&Error::new(Code::ShuttingDown, "the server is shutting down"));
        assert_eq!(told.message, "the server is shutting down");
    }
}
