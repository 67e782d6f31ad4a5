//! Lists, shows, awaits, cancels and removes runs.

use std::sync::Arc;
use std::time::Duration;

use trilogue_domain::error::Result;
use trilogue_domain::event::RunEvent;
use trilogue_domain::{
    Body, Code, Error, Event, IdKind, Json, Message, Right, RunId, RunStatus, Scope, Transcript,
};
use trilogue_mapping::native::{self as mapping, escape_for_message};
use trilogue_store::Frame;
use trilogue_store::rows::{InterruptFilter, Page, RunFilter, RunRow};
use trilogue_wire::native::{List, Run};

use super::agents::agent_name;
use super::short_ids::{self, SHORT_ID};
use super::{AFTER, LIMIT, METADATA, NativeCall, NativeRoute, State, rows, run};
use crate::access::authenticator::Caller;
use crate::faces::common::look_up;
use crate::http::reply::Reply;
use crate::route::{Access, Parameter, Verb, json_response, no_content, of};
use crate::stream::log_reader::LogReader;

/// The longest wait that a client can request, in seconds.
const MAX_WAIT_SECONDS: u64 = 3_600;

const BASE: NativeRoute = NativeRoute::base(|call| Box::pin(get(call)))
    .path("/api/v1/runs/{run_id}")
    .errors(&[Code::RunNotFound]);

pub(crate) const ROUTES: &[NativeRoute] = &[
    BASE.at("/api/v1/runs", |call| Box::pin(list(call)))
        .search()
        .describe("list_runs", "Runs, newest first")
        .query(&[
            LIMIT,
            AFTER,
            METADATA,
            Parameter { name: "thread_id", about: "Only runs of this thread." },
            Parameter { name: "agent", about: "Only runs of this agent." },
            Parameter { name: "status", about: "Only runs in this status." },
            SHORT_ID,
        ])
        .answers(&[json_response(200, "A page.", of::<List<Run>>)])
        .errors(&[
            Code::InvalidCursor,
            Code::FilterTooBroad,
            Code::ThreadNotFound,
            Code::AgentNotFound,
        ]),
    BASE.describe("get_run", "One run, with its output and what it waits for")
        .answers(&[json_response(200, "The run.", of::<Run>)]),
    BASE.at("/api/v1/runs/{run_id}/wait", |call| Box::pin(wait(call)))
        .describe(
            "wait_for_run",
            "The same when the run has ended or waits for an answer, or when the time is over",
        )
        .query(&[Parameter {
            name: "timeout_seconds",
            about: "Answer after this time with the run as it is: 0 to 3600.",
        }])
        .answers(&[json_response(200, "The run.", of::<Run>)]),
    BASE.post("/api/v1/runs/{run_id}/cancel", |call| Box::pin(cancel(call)))
        .access(Access::Right(Right::Run))
        .describe(
            "cancel_run",
            "Ask a run to stop: its interrupts are resolved as cancelled, its agent is \
             stopped, then it ends",
        )
        .answers(&[json_response(200, "The run as it is now.", of::<Run>)])
        .errors(&[Code::RunNotFound, Code::RunEnded]),
    BASE.verb(Verb::Delete)
        .handler(|call| Box::pin(remove(call)))
        .for_people()
        .access(Access::Right(Right::Run))
        .describe("delete_run", "Remove a run that has ended, with its events")
        .answers(&[no_content("It is gone.")])
        .errors(&[Code::RunNotFound, Code::RunNotEnded]),
];

async fn list(call: NativeCall) -> Result<Reply> {
    if let Some(ids) = short_ids::matching_ids(&call, IdKind::Run).await? {
        let (mut items, scope) = (Vec::with_capacity(ids.len()), call.scope());
        for id in ids {
            let Ok(id) = RunId::parse(&id) else { continue };
            items.extend(call.state.read.run(&scope, &id).await?.as_ref().map(rows::run));
        }
        return Ok(Reply::ok(&List { items, next: None }));
    }
    let thread = match call.query("thread_id") {
        None => None,
        Some(text) => Some(look_up::thread(call.state.read.as_ref(), &call, text).await?.id),
    };
    let agent = call.query("agent").map(agent_name).transpose()?;
    if let Some(agent) = &agent {
        call.state.runtime.agent(agent)?;
    }
    let status = call.query("status").map(read_status).transpose()?;
    let statuses = status.into_iter().collect();
    let filter = RunFilter { thread, agent, statuses, metadata: call.metadata_filter() };
    let listing = call.state.read.runs(&call.scope(), &filter, &call.page()?).await?;
    Ok(Reply::ok(&List {
        items: listing.rows.iter().map(rows::run).collect(),
        next: listing.next.map(|next| next.to_string()),
    }))
}

fn read_status(text: &str) -> Result<RunStatus> {
    RunStatus::from_text(text).ok_or_else(|| {
        let names = RunStatus::ALL.map(RunStatus::as_str).join(", ");
        Error::new(
            Code::InvalidRequest,
            format!("unknown run status '{}'", escape_for_message(text)),
        )
        .hint(format!("a status is one of: {names}"))
    })
}

async fn get(call: NativeCall) -> Result<Reply> {
    let row = run(&call).await?;
    answer(&call, &row, &whole(&call, &row).await?)
}

async fn wait(call: NativeCall) -> Result<Reply> {
    let row = run(&call).await?;
    let seconds = call.query("timeout_seconds").map(read_seconds).transpose()?;
    let limit = Duration::from_secs(seconds.unwrap_or(MAX_WAIT_SECONDS));
    // The tail keeps the end of the log in memory until it is read below.
    let _tail = call.state.read.tail(row.thread);
    let settled =
        call.while_admitted(call.state.runtime.wait_until_settled(call.principal(), &row.id));
    let stop = call.state.lifecycle.streams_ended();
    let row = tokio::select! {
        settled = tokio::time::timeout(limit, settled) => match settled {
            Ok(settled) => settled?,
            Err(_) => run(&call).await?,
        },
        () = stop => return Err(Error::new(Code::ShuttingDown, "the server is shutting down")),
    };
    answer(&call, &row, &whole(&call, &row).await?)
}

fn read_seconds(text: &str) -> Result<u64> {
    text.parse().ok().filter(|seconds| *seconds <= MAX_WAIT_SECONDS).ok_or_else(|| {
        Error::new(
            Code::InvalidRequest,
            format!("invalid 'timeout_seconds': '{}'", escape_for_message(text)),
        )
        .hint(format!("'timeout_seconds' is 0 to {MAX_WAIT_SECONDS}"))
    })
}

async fn cancel(call: NativeCall) -> Result<Reply> {
    let row = run(&call).await?;
    call.reach(&row.agent)?;
    let row = call.state.runtime.cancel(call.principal(), &row.id).await?;
    let mut run = rows::run(&row);
    if !call.principal().rights.has(Right::Read) {
        run.metadata = mapping::json(&Json::empty_object());
    }
    Ok(Reply::ok(&run))
}

async fn remove(call: NativeCall) -> Result<Reply> {
    let row = run(&call).await?;
    call.require_removal_of(Some(&row.principal)).await?;
    call.state.runtime.remove_run(call.principal(), &row.id).await?;
    call.audit_removal(&row, "deleted");
    Ok(Reply::no_content())
}

/// Returns a run with its output, result and pending interrupts, which count as shown to the caller.
/// Errors: if the log cannot be read, or holds more than fits one response.
pub(crate) async fn whole(call: &NativeCall, row: &RunRow) -> Result<Run> {
    let (messages, result) = output(call, row).await?;
    with_output(&call.state, &call.caller, row, &messages, result.as_ref()).await
}

/// Like [`whole`], from the run's whole log.
pub(crate) async fn whole_of(call: &NativeCall, row: &RunRow, log: &[Arc<Frame>]) -> Result<Run> {
    let mut size = 0;
    let mut output = Output::default();
    for frame in log {
        for event in frame.events()?.iter().filter(|event| event.run.is_some()) {
            output.push(event);
        }
        size += frame.bytes().len();
        check_size(call, row, size).await?;
    }
    let (messages, result) = output.end();
    with_output(&call.state, &call.caller, row, &messages, result.as_ref()).await
}

async fn with_output(
    state: &State,
    caller: &Caller,
    row: &RunRow,
    messages: &[Message],
    result: Option<&Json>,
) -> Result<Run> {
    let mut run = rows::run(row);
    let messages =
        messages.iter().map(|item| mapping::message::message(item, Some(&run.id), &row.thread_id));
    run.output = Some(messages.collect());
    run.result = result.map(mapping::json);
    if row.status.is_terminal() {
        return Ok(run);
    }
    let scope = Scope::of_tenant(&row.tenant);
    let filter =
        InterruptFilter { run: Some(row.id.clone()), pending: true, ..InterruptFilter::default() };
    let listing = state.read.interrupts(&scope, &filter, &Page::default()).await?;
    for pending in listing.rows.iter().rev() {
        state.runtime.record_shown_question(&caller.principal.id, &row.id, &pending.interrupt.id);
    }
    let pending = listing.rows.iter().rev().map(rows::interrupt);
    run.interrupts = Some(pending.collect());
    Ok(run)
}

async fn output(call: &NativeCall, run: &RunRow) -> Result<(Vec<Message>, Option<Json>)> {
    let mut output = Output::default();
    // A run that has ended ends with its last number, so no further read is needed.
    let until = if run.status.is_terminal() { run.last_run_number } else { u64::MAX };
    let mut log = LogReader::new(call.state.read.as_ref(), run.thread, Some(run.key)).until(until);
    while let Some(page) = log.next().await? {
        page.events()?.into_iter().for_each(|event| output.push(event));
        check_size(call, run, log.bytes()).await?;
    }
    Ok(output.end())
}

/// Checks that output of this many bytes fits one response, and waits for a turn to render it if it is large.
/// Errors: `body_too_large`.
async fn check_size(call: &NativeCall, run: &RunRow, bytes: usize) -> Result<()> {
    let most = call.state.max_output_bytes;
    if bytes > most {
        return Err(too_large(most, run));
    }
    call.weigh_response(bytes).await;
    Ok(())
}

/// Responds with a whole run.
/// Errors: `body_too_large`.
pub(crate) fn answer(call: &NativeCall, row: &RunRow, run: &Run) -> Result<Reply> {
    let (reply, most) = (call.turn.work(|| Reply::ok(run)), call.state.max_output_bytes);
    if reply.body_bytes() > most { Err(too_large(most, row)) } else { Ok(reply) }
}

fn too_large(most: usize, run: &RunRow) -> Error {
    let message = format!("the run's output is larger than {most} bytes");
    Error::new(Code::BodyTooLarge, message)
        .hint(format!("read its events: GET /api/v1/runs/{}/events", run.id))
}

/// The output and result of an agent, folded from its run's log.
#[derive(Default)]
struct Output {
    begun: bool,
    transcript: Transcript,
    result: Option<Json>,
}

// === impl Output ===

impl Output {
    fn push(&mut self, event: &Event) {
        match &event.body {
            Body::Run(RunEvent::Started) => self.begun = true,
            Body::Run(RunEvent::Result(value)) => self.result = Some(value.clone()),
            Body::Message(_) if self.begun => self.transcript.push(event),
            _ => {}
        }
    }

    fn end(self) -> (Vec<Message>, Option<Json>) {
        let mut messages = self.transcript.into_messages();
        // Answers are also messages of the run; leave them out.
        messages.retain(|message| !message.role.is_user());
        (messages, self.result)
    }
}
