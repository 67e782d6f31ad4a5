//! Creating runs.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Right};
use trilogue_mapping::connect::Modes;
use trilogue_runtime::{RunRequest, Submitted};
use trilogue_wire::agent_connect::{self as wire, sse};

use super::disconnect::CancelOnDrop;
use super::join::{self, LAST_EVENT, STREAM};
use super::parsed_request::{self, ParsedRequest, ReplyMode};
use super::run_show::{self, Form};
use super::stream::{OpenedBy, Since};
use super::wait::{self, PendingReply, TIMEOUT};
use super::{ANYTHING, BASE, ConnectCall, ConnectRoute, State, request};
use crate::faces::common::idempotency::REPLAYED;
use crate::http::reply::Reply;
use crate::route::{Access, Parameter, json_response, of};

const IDEMPOTENCY: Parameter = Parameter {
    name: "Idempotency-Key",
    about: "The same request under the same key creates one run, for 24 hours.",
};

const ERRORS: &[Code] = &[
    Code::AgentNotFound,
    Code::ConfigurationNotFound,
    Code::InvalidInput,
    Code::ConfigInvalid,
    Code::InvalidWebhook,
    Code::StreamModeNotSupported,
    Code::IdempotencyMismatch,
];

const THREAD_ERRORS: &[Code] = &[
    Code::AgentNotFound,
    Code::ThreadNotFound,
    Code::ConfigurationNotFound,
    Code::ThreadBusy,
    Code::ThreadsNotSupported,
    Code::StateIncompatible,
    Code::InvalidInput,
    Code::ConfigInvalid,
    Code::InvalidWebhook,
    Code::StreamModeNotSupported,
    Code::IdempotencyMismatch,
    Code::AgentMemoryNotRewindable,
];

const CREATE: ConnectRoute = BASE
    .post("/runs", |call| Box::pin(create(call, ReplyMode::Later)))
    .access(Access::Agent(Right::Run))
    .describe("connect_create_run", "Run an agent; its output is asked for later")
    .headers(&[IDEMPOTENCY])
    .request(of::<wire::RunCreate>)
    .answers(&[json_response(200, "The run, which is pending.", of::<wire::Run>)])
    .errors(ERRORS);

const WAIT: ConnectRoute = CREATE
    .at("/runs/wait", |call| Box::pin(create(call, ReplyMode::Wait)))
    .describe("connect_create_run_and_wait", "Run an agent and wait for its output")
    .query(&[TIMEOUT, ANYTHING])
    .answers(wait::ANSWERS);

const STREAMED: ConnectRoute = CREATE
    .at("/runs/stream", |call| Box::pin(create(call, ReplyMode::Streaming)))
    .describe("connect_create_run_and_stream", "Run an agent and stream its output")
    .headers(&[IDEMPOTENCY, LAST_EVENT])
    .answers(&[STREAM]);

pub(crate) const ROUTES: &[ConnectRoute] = &[
    CREATE,
    WAIT,
    STREAMED,
    CREATE
        .path("/threads/{thread_id}/runs")
        .describe(
            "connect_create_thread_run",
            "Run an agent on a thread; its output is asked for later",
        )
        .errors(THREAD_ERRORS),
    WAIT.path("/threads/{thread_id}/runs/wait")
        .describe(
            "connect_create_thread_run_and_wait",
            "Run an agent on a thread and wait for its output",
        )
        .errors(THREAD_ERRORS),
    STREAMED
        .path("/threads/{thread_id}/runs/stream")
        .describe(
            "connect_create_thread_run_and_stream",
            "Run an agent on a thread and stream its output",
        )
        .errors(THREAD_ERRORS),
];

async fn create(call: ConnectCall, mode: ReplyMode) -> Result<Reply> {
    // Refuse an invalid request before there is a run.
    let (patience, misplaced) = match mode {
        ReplyMode::Wait => (request::patience(&call)?, request::misplaced_patience(&call)?),
        ReplyMode::Later | ReplyMode::Streaming => (None, None),
    };
    if mode == ReplyMode::Streaming {
        Since::of(&call, Since::Beginning)?;
    }
    let ParsedRequest { new, modes, ends_with_connection, mut warnings } =
        parsed_request::read(&call, mode).await?;
    warnings.extend(misplaced);
    let submitted = PendingSubmission::new(&call, new, ends_with_connection).finish().await?;
    let guard = ends_with_connection
        .then(|| CancelOnDrop::new(&call.state, &call.caller.principal, &submitted.run.id));
    let created = submitted.created;
    let reply = match mode {
        ReplyMode::Later => accepted(&call, &submitted).await?,
        ReplyMode::Streaming => Box::pin(streamed(&call, &submitted, modes, guard)).await?,
        ReplyMode::Wait => {
            let Submitted { run, settled, log, .. } = submitted;
            let (call, settled) = (Arc::new(call), Some(settled));
            let waiting = PendingReply { call, run, form: Form::Whole, settled, log };
            Box::pin(waiting.reply(patience, guard)).await?
        }
    };
    let reply = parsed_request::with_warnings(reply, &warnings);
    Ok(if created { reply } else { reply.header(REPLAYED, HeaderValue::from_static("true")) })
}

async fn accepted(call: &ConnectCall, submitted: &Submitted) -> Result<Reply> {
    let bytes = run_show::run(call, &submitted.run).await?;
    Ok(run_show::with_run_headers(call, Reply::json_bytes(StatusCode::OK, bytes), &submitted.run))
}

async fn streamed(
    call: &ConnectCall,
    submitted: &Submitted,
    modes: Option<Modes>,
    guard: Option<CancelOnDrop>,
) -> Result<Reply> {
    let modes = modes.unwrap_or(Modes { values: true, updates: false });
    let run = match request::is_as_documented(call) {
        true => Some(Bytes::from(sse::run(&run_show::run(call, &submitted.run).await?))),
        false => None,
    };
    let by = OpenedBy::Create { run, on_disconnect: guard };
    join::stream(call, &submitted.run, modes, Since::Beginning, by).await
}

/// A run that is being accepted. If its client disconnects before it gets the run's id, the run may still be cancelled.
struct PendingSubmission {
    /// `None` when the submission is complete.
    submission: Option<Submission>,
    state: Arc<State>,
    by: Arc<trilogue_domain::Principal>,
    ends_with_connection: bool,
}

type Submission = Pin<Box<dyn Future<Output = Result<Submitted>> + Send>>;

// === impl PendingSubmission ===

impl PendingSubmission {
    fn new(call: &ConnectCall, new: RunRequest, ends_with_connection: bool) -> Self {
        let (state, by) = (Arc::clone(&call.state), Arc::clone(&call.caller.principal));
        let (runtime, principal) = (state.runtime.clone(), Arc::clone(&by));
        let submission: Submission = Box::pin(async move { runtime.submit(&principal, new).await });
        Self { submission: Some(submission), state, by, ends_with_connection }
    }

    async fn finish(mut self) -> Result<Submitted> {
        let submitted = match &mut self.submission {
            Some(submission) => submission.await,
            None => return Err(wait::stopping()),
        };
        self.submission = None;
        submitted
    }
}

impl Drop for PendingSubmission {
    fn drop(&mut self) {
        let Some(submission) = self.submission.take().filter(|_| self.ends_with_connection) else {
            return;
        };
        let Ok(tasks) = tokio::runtime::Handle::try_current() else { return };
        let (state, by) = (Arc::clone(&self.state), Arc::clone(&self.by));
        tasks.spawn(async move {
            if let Ok(submitted) = submission.await {
                // Dropping it cancels the run, because the connection is gone.
                drop(CancelOnDrop::new(&state, &by, &submitted.run.id));
            }
        });
    }
}
