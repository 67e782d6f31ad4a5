//! Resumes a run with the answer that it waits for.

use http::StatusCode;
use serde::de::IgnoredAny;
use trilogue_domain::error::Result;
use trilogue_domain::{Answer, Code, Error, Interrupt, Json, Outcome, Right, RunStatus};
use trilogue_mapping::connect as mapping;
use trilogue_runtime::AnswerTo;
use trilogue_store::rows::RunRow;
use trilogue_wire::agent_connect as wire;

use super::{BASE, ConnectCall, ConnectRoute, look_up, run_show};
use crate::faces::common::answer_target::{self, Hints};
use crate::http::reply::{INTERRUPT_ID, Reply};
use crate::route::{Access, Parameter, json_response, of};

const HINTS: Hints = Hints {
    question: "pending interrupt",
    naming: "in the header 'Interrupt-Id', or as 'interrupt_id' beside 'interrupt_type' and 'resume_payload'",
};

const RESUME: ConnectRoute = BASE
    .post("/runs/{run_id}", |call| Box::pin(resume(call)))
    .access(Access::Agent(Right::Answer))
    .describe(
        "connect_resume_run",
        "Give a run what it waits for: the payload itself, under the interrupt's type, or \
             as `interrupt_type` and `resume_payload`",
    )
    .headers(&[Parameter { name: "Interrupt-Id", about: "The interrupt that the answer is for." }])
    .request(of::<wire::ResumePayloadSchema>)
    .answers(&[json_response(200, "The run, which continues.", of::<wire::Run>)])
    .errors(&[
        Code::RunNotFound,
        Code::RunEnded,
        Code::RunSuperseded,
        Code::InterruptResolved,
        Code::InterruptMismatch,
        Code::AnswerInvalid,
    ]);

pub(crate) const ROUTES: &[ConnectRoute] = &[
    RESUME,
    RESUME
        .path("/threads/{thread_id}/runs/{run_id}")
        .operation("connect_resume_thread_run")
        .errors(&[
            Code::ThreadNotFound,
            Code::RunNotFound,
            Code::RunEnded,
            Code::RunSuperseded,
            Code::InterruptResolved,
            Code::InterruptMismatch,
            Code::AnswerInvalid,
        ]),
];

async fn resume(call: ConnectCall) -> Result<Reply> {
    let row = look_up::run(&call).await?;
    let body = Json::parse(call.body.clone())?;
    check_not_superseded(&row)?;
    let (runtime, read) = (&call.state.runtime, call.state.read.as_ref());
    let pending = answer_target::pending(runtime, read, &call, &row).await?;
    let goes_on = pending.len() <= 1;
    let (interrupt, answer) = resolve_target(&call, &row, pending, &body)?;
    let to = AnswerTo::Interrupt(interrupt.id);
    let answered = call.state.runtime.answer(call.principal(), to, answer).await?;
    call.audit_answer(&answered);
    // The response reports only that the answer was accepted and the run resumed, not what the run has done since.
    let status = if goes_on { RunStatus::Running } else { RunStatus::Interrupted };
    let shown = match row.status.is_terminal() {
        // The answer was for a sub-agent, and the run stays as it is.
        true => row,
        false => RunRow { status, outcome: None, ended_at: None, ..row },
    };
    let changed = answered.resolved_at.unwrap_or_else(|| call.state.clock.now());
    let bytes = run_show::run_at(&call, &shown, changed).await?;
    Ok(run_show::with_run_headers(&call, Reply::json_bytes(StatusCode::OK, bytes), &shown))
}

/// Returns an error if a newer run has replaced this run.
fn check_not_superseded(row: &RunRow) -> Result<()> {
    match row.outcome {
        Some(Outcome::Cancelled { reason: Some(Code::RunSuperseded) }) => {
            let message = format!("a newer run has taken the place of the run '{}'", row.id);
            Err(Error::new(Code::RunSuperseded, message).hint("answer the newer run"))
        }
        _ => Ok(()),
    }
}

/// Returns the interrupt that the answer is for, and the answer in its form.
/// Errors: as [`answer_target::target`]; `invalid_request` if body and header name two; `answer_invalid`.
fn resolve_target(
    call: &ConnectCall,
    row: &RunRow,
    pending: Vec<Interrupt>,
    body: &Json,
) -> Result<(Interrupt, Answer)> {
    let in_header = call.header(&INTERRUPT_ID).filter(|id| !id.is_empty());
    let in_body = named_interrupt(body);
    let named = match (in_header, in_body.as_deref()) {
        (Some(header), Some(body)) if header != body => {
            return Err(Error::new(
                Code::InvalidRequest,
                "the body and the header 'Interrupt-Id' name different interrupts",
            ));
        }
        (header, body) => header.or(body),
    };
    let must_name = call.state.options.require_interrupt_id;
    let interrupt =
        answer_target::target(&call.state.runtime, call, row, pending, named, must_name, HINTS)?;
    let card = look_up::agent_of(call, row).card;
    let (_, answer) = mapping::resume(&card, &interrupt, body)?;
    Ok((interrupt, answer))
}

/// An answer that can name its interrupt.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedAnswer {
    #[serde(rename = "interrupt_type")]
    _kind: String,
    #[serde(rename = "resume_payload")]
    _payload: IgnoredAny,
    #[serde(default)]
    interrupt_id: Option<String>,
}

fn named_interrupt(body: &Json) -> Option<String> {
    serde_json::from_slice::<NamedAnswer>(body.as_bytes()).ok()?.interrupt_id
}
