//! Waits until a run has ended, or itself waits for an answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, InterruptId, Right, RunStatus};
use trilogue_runtime::SettledReceiver;
use trilogue_store::Frame;
use trilogue_store::rows::RunRow;
use trilogue_wire::agent_connect as wire;

use super::disconnect::CancelOnDrop;
use super::run_show::{self, Form};
use super::{ANYTHING, BASE, ConnectCall, ConnectRoute, look_up, parsed_request, request};
use crate::http::keep_alive::with_signs_of_life;
use crate::http::reply::{INTERRUPT_ID, Reply};
use crate::route::{Access, Parameter, RouteResponse, json_response, of};

pub(super) const TIMEOUT: Parameter = Parameter {
    name: "timeout",
    about: "Answer without content if the run continues for longer than this many seconds; fractions are fine. `block_timeout` is the same. The server's limit for waits applies to longer times, and to waits without one.",
};

pub(super) const ANSWERS: &[RouteResponse] = &[
    json_response(
        200,
        "The run, and its result, its question or its error.",
        of::<wire::RunWaitResponse>,
    ),
    crate::route::no_content("The time is over and the run continues."),
];

const WAIT: ConnectRoute = BASE
    .at("/runs/{run_id}/wait", |call| Box::pin(wait(call)))
    .access(Access::Agent(Right::Read))
    .describe(
        "connect_wait_for_run",
        "A run's output, as soon as it has ended or waits for an answer",
    )
    .query(&[TIMEOUT, ANYTHING])
    .answers(ANSWERS)
    .errors(&[Code::RunNotFound, Code::InvalidRequest]);

pub(crate) const ROUTES: &[ConnectRoute] = &[
    WAIT,
    WAIT.path("/threads/{thread_id}/runs/{run_id}/wait")
        .operation("connect_wait_for_thread_run")
        .errors(&[Code::ThreadNotFound, Code::RunNotFound, Code::InvalidRequest]),
    WAIT.at("/runs/{run_id}/output", |call| Box::pin(output(call)))
        .describe(
            "connect_get_run_output",
            "A run's output alone, as earlier versions of the protocol had it: nothing while \
             it continues, unless `block_timeout` says how long to wait",
        )
        .answers(&[
            json_response(200, "The output.", of::<wire::RunOutput>),
            crate::route::no_content("No output yet."),
        ]),
];

#[derive(Debug)]
pub(super) struct PendingReply {
    pub(super) call: Arc<ConnectCall>,
    pub(super) run: RunRow,
    pub(super) form: Form,
    /// Reports that the run has settled; requested from the runtime if missing.
    pub(super) settled: Option<SettledReceiver>,
    /// The run's whole log, if it is already known.
    pub(super) log: Option<Vec<Arc<Frame>>>,
}

async fn wait(call: ConnectCall) -> Result<Reply> {
    let patience = request::patience(&call)?;
    let run = look_up::run(&call).await?;
    let call = Arc::new(call);
    PendingReply { call, run, form: Form::Whole, settled: None, log: None }
        .reply(patience, None)
        .await
}

async fn output(call: ConnectCall) -> Result<Reply> {
    let patience = request::patience(&call)?.unwrap_or(Duration::ZERO);
    let run = look_up::run(&call).await?;
    let call = Arc::new(call);
    let waiting = PendingReply { call, run, form: Form::Output, settled: None, log: None };
    waiting.reply(Some(patience), None).await
}

// === impl PendingReply ===

impl PendingReply {
    /// Responds with the run's output; without content if the client's wait time or the server's limit ends first.
    /// The guard is disarmed when the client has its response.
    /// Errors: those of reading; `shutting_down`.
    pub(super) async fn reply(
        self,
        patience: Option<Duration>,
        mut guard: Option<CancelOnDrop>,
    ) -> Result<Reply> {
        let (call, run, form) = (Arc::clone(&self.call), self.run.clone(), self.form);
        // A settled run is returned even with the shortest wait time.
        let settled = has_settled(&run);
        let limit = call.state.max_wait;
        let reply = match patience {
            Some(patience) if !settled => self.wait_for_reply_within(patience.min(limit)).await,
            _ if settled || self.log.is_some() => self.wait_for_reply().await,
            _ => {
                let mut guard = guard.take();
                let making = async move {
                    let made = self.wait_for_reply_within(limit).await;
                    guard.iter_mut().for_each(CancelOnDrop::disarm);
                    made
                };
                let (late, gone) = (Arc::clone(&call), run.clone());
                let late =
                    move |error: Option<&Error>| run_show::late_body(&late, &gone, form, error);
                with_signs_of_life(Box::pin(making), late).await
            }
        };
        // An error is a response too.
        guard.iter_mut().for_each(CancelOnDrop::disarm);
        let reply = run_show::with_run_headers(&call, reply?, &run);
        let is_cut = patience.is_some_and(|patience| patience > limit);
        Ok(if is_cut && reply.status() == StatusCode::NO_CONTENT {
            let seconds = limit.as_secs_f64();
            let warning =
                format!("the server waits at most {seconds} seconds: server.limits.max_wait");
            parsed_request::with_warnings(reply, &[&warning])
        } else {
            reply
        })
    }

    async fn wait_for_reply_within(self, time: Duration) -> Result<Reply> {
        tokio::time::timeout(time, self.wait_for_reply())
            .await
            .unwrap_or_else(|_| Ok(Reply::no_content()))
    }

    async fn wait_for_reply(self) -> Result<Reply> {
        let (bytes, asked) = self.wait_and_render().await?;
        let reply = Reply::json_bytes(StatusCode::OK, bytes);
        Ok(match asked {
            Some(interrupt) => reply.header_text(INTERRUPT_ID, interrupt.as_str()),
            None => reply,
        })
    }

    async fn wait_and_render(self) -> Result<(Bytes, Option<InterruptId>)> {
        let Self { call, run, form, settled, log } = self;
        if let Some(log) = log {
            let row = match settled {
                Some(settled) => settled.wait().await?,
                None => run,
            };
            return run_show::render_settled(&call, &row, Some(&log), form).await;
        }
        // The tail keeps the end of the log in memory until it is read below.
        let _tail = call.state.read.tail(run.thread);
        let stop = call.state.lifecycle.streams_ended();
        let row = tokio::select! {
            row = call.while_admitted(ending(&call, &run, settled)) => row?,
            () = stop => return Err(stopping()),
        };
        run_show::render_settled(&call, &row, None, form).await
    }
}

async fn ending(
    call: &ConnectCall,
    run: &RunRow,
    settled: Option<SettledReceiver>,
) -> Result<RunRow> {
    match settled {
        Some(settled) => settled.wait().await,
        None if has_settled(run) => Ok(run.clone()),
        None => call.state.runtime.wait_until_settled(call.principal(), &run.id).await,
    }
}

/// Whether the run has an output to show.
fn has_settled(run: &RunRow) -> bool {
    run.status.is_terminal() || run.status == RunStatus::Interrupted
}

/// Returns the error for a server that stops before the response is ready.
pub(super) fn stopping() -> Error {
    Error::new(Code::ShuttingDown, "the server is shutting down")
        .hint("ask for the run again when it is back")
}
