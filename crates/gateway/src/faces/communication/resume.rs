//! Resumes a run with the answer that it waits for.

use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Right};
use trilogue_mapping::communication as mapping;
use trilogue_runtime::AnswerTo;
use trilogue_store::rows::RunRow;
use trilogue_wire::agent_communication::{RunMode, RunResumeRequest};

use super::log::{self, Until};
use super::request::RUN_ID;
use super::{BASE, CommunicationCall, CommunicationRoute, answer_target, events};
use crate::http::reply::Reply;
use crate::route::{Access, Parameter};
use crate::stream::cursor::Cursor;

pub(crate) const ROUTES: &[CommunicationRoute] = &[BASE
    .post("/runs/{run_id}", |call| Box::pin(resume(call)))
    .access(Access::Right(Right::Answer))
    .describe("communication_resume_run", "Give a run what it waits for")
    .headers(&[Parameter { name: "Interrupt-Id", about: "The interrupt that the answer is for." }])
    .errors(&[
        Code::InvalidId,
        Code::RunNotFound,
        Code::RunEnded,
        Code::InterruptResolved,
        Code::InterruptMismatch,
        Code::AnswerInvalid,
    ])];

async fn resume(call: CommunicationCall) -> Result<Reply> {
    if let Err(error) = call.uuid("run_id")
        && call.named_run().await.is_err()
    {
        return Err(error);
    }
    let RunResumeRequest { await_resume, mode, .. } = call.message_body()?;
    let message = await_resume.message;
    let named = answer_target::named_interrupt(&call, &message)?;
    let row = call.named_run().await?;
    call.reach(&row.agent)?;
    let interrupt = answer_target::target(&call, &row, named.as_deref()).await?;
    let (_, answer) = mapping::answer(&interrupt, message)?;
    // The tail keeps the next events in memory until they are read below.
    let _tail = call.state.read.tail(row.thread);
    let to = AnswerTo::Interrupt(interrupt.id);
    let answered = call.state.runtime.answer(call.principal(), to, answer).await?;
    call.audit_answer(&answered);
    let reply = match mode {
        RunMode::Sync => wait(&call, &row).await?,
        RunMode::Async => {
            // Show the run as resumed, even if it has done more since; or as waiting for its next answer.
            let until = Until::Resumed(row.last_run_number);
            let projection = log::fold(&call, &row, until).await?;
            log::answer(&call, StatusCode::ACCEPTED, &row.id, &projection)?
        }
        RunMode::Stream => {
            // The caller has seen everything up to the question. If a sub-agent asks it and this run has ended, its end is all that is left to tell.
            let untold = u64::from(row.status.is_terminal());
            let told = row.last_run_number.saturating_sub(untold);
            events::stream(&call, &row, Cursor::after(told)).await?
        }
    };
    Ok(reply.header_text(RUN_ID, row.id.as_str()))
}

async fn wait(call: &CommunicationCall, row: &RunRow) -> Result<Reply> {
    let settled = call.state.runtime.wait_until_settled(call.principal(), &row.id);
    let row = call.while_admitted(settled).await?;
    let projection = log::fold(call, &row, Until::Number(row.last_run_number)).await?;
    log::answer(call, StatusCode::OK, &row.id, &projection)
}
