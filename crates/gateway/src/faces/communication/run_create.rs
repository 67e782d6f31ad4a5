//! Creating runs.

use std::sync::Arc;

use http::{HeaderValue, StatusCode};
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, Right};
use trilogue_mapping::communication::{self as mapping, strict};
use trilogue_mapping::native::read_json;
use trilogue_runtime::{NewThread, RunRequest, Submitted, ThreadChoice};
use trilogue_wire::agent_communication::{RunCreateRequest, RunMode, Session, Uuid};

use super::agents::agent;
use super::log::{self, Until};
use super::request::RUN_ID;
use super::{BASE, CommunicationCall, CommunicationRoute, events, fault, history_replacement};
use crate::faces::common::idempotency::{REPLAYED, idempotency};
use crate::faces::common::provenance::provenance;
use crate::http::reply::Reply;
use crate::route::{Access, Parameter};
use crate::stream::cursor::Cursor;

pub(crate) const ROUTES: &[CommunicationRoute] = &[BASE
    .post("/runs", |call| Box::pin(create(call)))
    .access(Access::Right(Right::Run))
    .describe("communication_create_run", "Run an agent")
    .headers(&[Parameter {
        name: "Idempotency-Key",
        about: "The same request under the same key creates one run, for 24 hours.",
    }])
    .errors(&[Code::AgentNotFound, Code::ThreadWaiting, Code::InvalidInput])];

async fn create(call: CommunicationCall) -> Result<Reply> {
    let mut body: RunCreateRequest = call.message_body()?;
    call.reach(&agent(&call, &body.agent_name)?.name)?;
    let (mode, session_id, session) = (body.mode, body.session_id, body.session.take());
    let mut new = call.identified(new_run(&call, body)?).await?;
    if let (Some(session), ThreadChoice::Ensure(thread)) = (session_id, &mut new.thread) {
        thread.id = Some(Box::pin(call.session_id(session.get())).await?);
    }
    if differ(session_id, session.as_ref()) {
        let error = Error::new(
            Code::InvalidRequest,
            "'session_id' and 'session.id' name different sessions",
        );
        return Ok(fault::respond_with(StatusCode::BAD_REQUEST, &error, None));
    }
    let runtime = &call.state.runtime;
    let mut turn = None;
    if let Some(session) = session {
        let tenant = &call.principal().tenant;
        let id = Box::pin(call.session_id(session.id.get())).await?;
        turn = Some(call.state.common.session_turns.turn(tenant, id.as_str()).await);
        // Check everything that can be refused before touching the history. A repeated request does not touch it again.
        runtime.admit(call.principal(), &new).await?;
        if let Some(known) =
            Box::pin(runtime.find_by_idempotency_key(call.principal(), &new)).await?
        {
            // End the turn here: the run can take long, and other requests must not wait for it.
            drop(turn);
            return reply(&call, mode, known).await;
        }
        // Boxed, because it is rare: otherwise the future of every request would reserve room for it.
        let thread = Box::pin(history_replacement::replace(&call, &id, session)).await?;
        new.thread = ThreadChoice::Existing(thread);
    }
    let submitted = runtime.submit(call.principal(), new).await?;
    // The run can take long, and other requests must not wait for it.
    drop(turn);
    reply(&call, mode, submitted).await
}

fn differ(session_id: Option<Uuid>, session: Option<&Session>) -> bool {
    matches!((session_id, session), (Some(id), Some(session)) if session.id != id)
}

fn new_run(call: &CommunicationCall, body: RunCreateRequest) -> Result<RunRequest> {
    let now = call.state.clock.now();
    let input = mapping::input(body.input, now, call.state.max_part_metadata_bytes)?;
    let config = body.config.map(read_json).transpose()?;
    let idempotency = idempotency(call)?;
    let agent: AgentName = agent(call, &body.agent_name)?.name.clone();
    Ok(RunRequest {
        config,
        idempotency,
        rules: call.is_strict().then(|| Arc::from(strict::RULES)),
        synchronous: body.mode == RunMode::Sync,
        provenance: provenance(call),
        mount: None,
        ..RunRequest::new(agent, ThreadChoice::Ensure(NewThread::default()), input)
    })
}

async fn reply(call: &CommunicationCall, mode: RunMode, submitted: Submitted) -> Result<Reply> {
    let (created, id) = (submitted.created, submitted.run.id.clone());
    let reply = match mode {
        RunMode::Sync => wait(call, submitted).await?,
        RunMode::Async => {
            let projection = Box::pin(log::fold(call, &submitted.run, Until::Number(1))).await?;
            log::answer(call, StatusCode::ACCEPTED, &id, &projection)?
        }
        RunMode::Stream => events::stream(call, &submitted.run, Cursor::START).await?,
    };
    let reply = reply.header_text(RUN_ID, id.as_str());
    Ok(if created { reply } else { reply.header(REPLAYED, HeaderValue::from_static("true")) })
}

async fn wait(call: &CommunicationCall, submitted: Submitted) -> Result<Reply> {
    if let Some(log) = submitted.log {
        let row = submitted.settled.wait().await?;
        let projection = log::of_frames(call, &row, &log).await?;
        return log::answer(call, StatusCode::OK, &row.id, &projection);
    }
    // The tail keeps the end of the log in memory until it is read below.
    let _tail = call.state.read.tail(submitted.run.thread);
    let row = call.while_admitted(submitted.settled.wait()).await?;
    let until = Until::Number(row.last_run_number);
    let projection = Box::pin(log::fold(call, &row, until)).await?;
    log::answer(call, StatusCode::OK, &row.id, &projection)
}
