//! Creates runs.

use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, RequestSource, Right, RunId, Strategy, ThreadId};
use trilogue_mapping::native::{self as mapping, read_json, read_object, read_time};
use trilogue_runtime::{NewThread, RunRequest, Submitted, ThreadChoice, WhenHolding, WhenWaiting};
use trilogue_store::rows::RunRow;
use trilogue_wire::native::{self, Run, RunCreate, RunMode};

use super::agents::agent_name;
use super::view::NativeView;
use super::{EVENT_STREAM, IDEMPOTENCY, NativeCall, NativeRoute, rows, runs};
use crate::core::log_ref::LogRef;
use crate::faces::common::idempotency::{REPLAYED, idempotency};
use crate::faces::common::provenance::provenance;
use crate::http::reply::Reply;
use crate::route::{Access, Verb, json_response, of};
use crate::stream::cursor::Cursor;
use crate::stream::reader;

pub(crate) const ROUTES: &[NativeRoute] = &[NativeRoute::base(|call| Box::pin(create(call)))
    .verb(Verb::Post)
    .path("/api/v1/runs")
    .access(Access::Right(Right::Run))
    .describe("create_run", "Run an agent")
    .headers(&[IDEMPOTENCY])
    .request(of::<RunCreate>)
    .answers(&[
        json_response(
            200,
            "With the mode `wait`: the run when it has ended or waits for an answer.",
            of::<Run>,
        ),
        EVENT_STREAM,
        json_response(202, "With the mode `async`: the run as it was accepted.", of::<Run>),
    ])
    .errors(&[
        Code::AgentNotFound,
        Code::ThreadNotFound,
        Code::AlreadyExists,
        Code::ThreadWaiting,
        Code::ThreadBusy,
        Code::InvalidInput,
        Code::IdempotencyMismatch,
        Code::TooManyParts,
        Code::JsonTooDeep,
        Code::AgentMemoryNotRewindable,
    ])];

async fn create(call: NativeCall) -> Result<Reply> {
    let body: RunCreate = call.json()?;
    let mode = body.mode;
    call.reach(&agent_name(&body.agent)?)?;
    let new = new_run(&call, body)?;
    let new = call.identified(new).await?;
    let has_settings = match &new.thread {
        ThreadChoice::Ensure(thread) => {
            call.check_thread_metadata(thread.metadata.as_ref()).await?
        }
        _ => false,
    };
    let submitted = call.state.runtime.submit(call.principal(), new).await?;
    call.audit_editor_settings(has_settings && submitted.created, &submitted.run.thread_id);
    let replayed = !submitted.created;
    let reply = match mode {
        RunMode::Wait => wait(&call, submitted).await?,
        RunMode::Async => accepted(&submitted.run),
        RunMode::Stream => stream(&call, &submitted.run).await?,
    };
    Ok(if replayed { reply.header(REPLAYED, HeaderValue::from_static("true")) } else { reply })
}

async fn wait(call: &NativeCall, submitted: Submitted) -> Result<Reply> {
    if let Some(log) = submitted.log {
        let row = submitted.settled.wait().await?;
        return runs::answer(call, &row, &runs::whole_of(call, &row, &log).await?);
    }
    // The tail keeps the end of the log in memory until it is read below.
    let _tail = call.state.read.tail(submitted.run.thread);
    let row = call.while_admitted(submitted.settled.wait()).await?;
    runs::answer(call, &row, &runs::whole(call, &row).await?)
}

fn accepted(row: &RunRow) -> Reply {
    Reply::json(StatusCode::ACCEPTED, &rows::run(row))
        .header_text(header::LOCATION, &format!("/api/v1/runs/{}", encoded(&row.id)))
}

async fn stream(call: &NativeCall, row: &RunRow) -> Result<Reply> {
    let (streams, log) = (&call.state.streams, LogRef::from(row));
    let view = Arc::new(NativeView);
    let reply = reader::open(streams, &call.caller, log, Some(row), view, Cursor::START).await?;
    Ok(reply.header_text(header::LOCATION, &format!("/api/v1/runs/{}", encoded(&row.id))))
}

fn encoded(id: &RunId) -> impl std::fmt::Display + '_ {
    percent_encoding::utf8_percent_encode(id.as_str(), mapping::message::PATH_SEGMENT)
}

fn new_run(call: &NativeCall, body: RunCreate) -> Result<RunRequest> {
    let now = call.state.clock.now();
    let thread_id = body.thread_id.as_deref();
    let thread_metadata = read_object(body.thread_metadata, "thread_metadata")?;
    if thread_metadata.is_some() && !body.create_thread {
        return Err(Error::new(
            Code::InvalidRequest,
            "'thread_metadata' is given without 'create_thread'",
        ));
    }
    let thread = match (thread_id, body.create_thread) {
        (None, false) => ThreadChoice::Ephemeral,
        (Some(id), false) => ThreadChoice::Existing(
            ThreadId::parse(id).map_err(|_| crate::core::not_found::no_thread(id))?,
        ),
        (id, true) => ThreadChoice::Ensure(NewThread {
            id: id.map(ThreadId::parse).transpose()?,
            metadata: thread_metadata,
            ..NewThread::default()
        }),
    };
    Ok(RunRequest {
        agent: agent_name(&body.agent)?,
        thread,
        id: body.id.as_deref().map(RunId::parse).transpose()?,
        input: mapping::input::input(body.input, now)?,
        config: body.config.map(read_json).transpose()?,
        metadata: read_object(body.metadata, "metadata")?,
        strategy: body.strategy.map_or(Strategy::Enqueue, mapping::run::strategy),
        when_waiting: match body.when_waiting {
            native::WhenWaiting::Start => WhenWaiting::Start,
            native::WhenWaiting::Supersede => WhenWaiting::Supersede,
            native::WhenWaiting::Refuse => WhenWaiting::Refuse,
        },
        when_holding: match body.strategy {
            Some(_) => WhenHolding::Strategy,
            None => WhenHolding::Refuse,
        },
        idempotency: idempotency(call)?,
        not_before: body.not_before.map(|text| read_time(&text, "not_before")).transpose()?,
        rules: None,
        callback: None,
        request: None,
        synchronous: body.mode == RunMode::Wait,
        provenance: provenance(call),
        mount: None,
        token: None,
        source: RequestSource::Network,
        folders: Vec::new(),
        may_remove_of_others: false,
    })
}
