//! One turn of a run at the agent's server, and the events that the server sends.

use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::{Failure, Interrupt, Json, RunId};
use trilogue_mapping::connect::{RemoteOutput, remote_failure, remote_interrupt};
use trilogue_mapping::native::read_json;
use trilogue_sdk::client::ClientError;
use trilogue_sdk::client::connect::{
    CancelAction, Client, RunAt, RunError, RunStatus, RunStream, StreamPayload,
};

use super::description::DescribedAgent;
use super::refusal::failure_of_refusal;
use super::start::{ConnectRunState, find_run};
use crate::remote::{Remote, RemoteEnding, RemoteTurn, RemoteUpdate, state};

/// How often a stream is reopened that its server ended before the run's end.
const MAX_BROKEN_STREAMS: u32 = 10;
/// The error numbers of a cancelled run, and of a run that was removed while it was cancelled.
const CANCELLED: [i64; 2] = [5, 6];

pub(crate) struct ConnectTurn {
    pub(super) remote: Arc<Remote>,
    pub(super) client: Client,
    /// The run here.
    pub(super) local_run: RunId,
    pub(super) described: Arc<DescribedAgent>,
    pub(super) stream: RunStream,
    pub(super) thread: Option<String>,
    pub(super) read: RemoteOutput,
    /// Whether the server only returns the result at the end, and names the run then.
    pub(super) is_awaited: bool,
    /// Whether the stream starts with earlier events, so that a question in it may already be answered.
    pub(super) is_rejoined: bool,
    /// An event that is held back until the server has answered a request about it.
    pub(super) held_event: Option<StreamPayload>,
    /// The last event that has an id.
    pub(super) cursor: Option<String>,
    /// How often the server ended the stream before the run's end.
    pub(super) broken_streams: u32,
}

/// An event of a server.
pub(crate) struct ConnectEvent {
    payload: StreamPayload,
    /// The state of the thread, with the last event.
    state: Option<Json>,
}

#[async_trait]
impl RemoteTurn for ConnectTurn {
    type Event = ConnectEvent;

    fn remote(&self) -> &Remote {
        &self.remote
    }

    fn run(&self) -> Option<String> {
        self.stream.run().map(|at| at.run)
    }

    fn state_to_save(&self) -> Result<Option<Json>, Failure> {
        let run = self.run();
        if run.is_none() && !self.is_awaited {
            return Ok(None);
        }
        let thread = self.thread.clone();
        state(&ConnectRunState { run, thread, ..ConnectRunState::default() }).map(Some)
    }

    async fn next(&mut self) -> Result<Option<ConnectEvent>, ClientError> {
        loop {
            if matches!(self.held_event, Some(StreamPayload::Interrupt(_)))
                && !self.still_asks().await?
            {
                self.held_event = None;
                self.stream.wait_on();
            }
            if self.held_event.is_some() {
                let ends_well = matches!(self.held_event, Some(StreamPayload::Values(_)));
                let state = if ends_well { self.state().await } else { None };
                return Ok(self.held_event.take().map(|payload| ConnectEvent { payload, state }));
            }
            let told = match self.stream.next().await {
                Err(error) if self.is_awaited && self.find().await? => {
                    tracing::debug!(%error, "a run at another server is found again");
                    continue;
                }
                told => told?,
            };
            let Some(told) = told else { return Ok(None) };
            self.cursor = told.id.or(self.cursor.take());
            match &told.event {
                StreamPayload::Interrupt(_) if self.is_rejoined => {
                    self.held_event = Some(told.event)
                }
                StreamPayload::Values(update)
                    if update.status == RunStatus::Success
                        && self.thread.is_some()
                        && self.described.has_state() =>
                {
                    self.held_event = Some(told.event);
                }
                // The stream is over, but the run is not.
                StreamPayload::Error(update)
                    if update.status == RunStatus::Pending
                        && self.broken_streams < MAX_BROKEN_STREAMS =>
                {
                    self.broken_streams += 1;
                    if let Some(at) = self.stream.run() {
                        self.stream = self.client.join(at, self.cursor.as_deref());
                    }
                }
                _ => return Ok(Some(ConnectEvent { payload: told.event, state: None })),
            }
        }
    }

    /// The run's status as the server has it, in the form of its last event.
    async fn current_state(&mut self) -> Result<Option<ConnectEvent>, ClientError> {
        Ok(None)
    }

    fn read(&mut self, event: ConnectEvent) -> Result<RemoteUpdate> {
        let mut bodies = self.read.push(&event.payload)?;
        bodies.extend(event.state.and_then(|state| self.read.state(state)));
        Ok(RemoteUpdate { bodies, ending: self.ending(event.payload)? })
    }

    async fn cancel(&mut self) -> Result<(), ClientError> {
        if self.run().is_none() {
            self.find().await?;
        }
        match self.stream.run() {
            Some(at) => self.client.cancel(at, false, CancelAction::Interrupt).await,
            None => Ok(()),
        }
    }

    fn can_cancel(&self) -> bool {
        self.is_awaited || self.run().is_some()
    }

    fn lost_failure(&self, error: &ClientError) -> Failure {
        match self.run() {
            Some(run) => self.remote.lost_failure(error, Some(&run)),
            None => failure_of_refusal(&self.remote, error, None, self.thread.as_deref()),
        }
    }
}

impl ConnectTurn {
    /// Whether the run is waiting for an answer.
    async fn still_asks(&mut self) -> Result<bool, ClientError> {
        let Some(at) = self.stream.run() else { return Ok(true) };
        Ok(self.client.run(at).await?.status != RunStatus::Pending)
    }

    /// The state of the thread there. `None` if its server does not report it.
    async fn state(&mut self) -> Option<Json> {
        let found = self.client.thread(self.thread.as_deref()?).await;
        let found = found.inspect_err(|error| {
            tracing::warn!(thread = ?self.thread, %error, "the state of a thread at another server is not known");
        });
        read_json(found.ok()?.values?).ok()
    }

    /// Finds a run that the server has not named yet, and follows it. Returns `false` if it does not exist.
    async fn find(&mut self) -> Result<bool, ClientError> {
        let Some(thread) = self.thread.clone().filter(|_| self.is_awaited) else {
            return Ok(false);
        };
        let Some(run) = find_run(&self.client, &thread, self.local_run.as_str()).await? else {
            return Ok(false);
        };
        self.is_awaited = false;
        self.stream = self.client.join(RunAt { thread: Some(thread), run: run.run_id }, None);
        Ok(true)
    }

    fn ending(&self, payload: StreamPayload) -> Result<Option<RemoteEnding>> {
        let update = match payload {
            StreamPayload::Values(update) if update.status == RunStatus::Success => {
                return Ok(Some(RemoteEnding::Completed));
            }
            StreamPayload::Error(update) => return Ok(Some(ending_of_error(&update.error))),
            StreamPayload::Values(_) | StreamPayload::Custom(_) => return Ok(None),
            StreamPayload::Interrupt(update) => update,
        };
        let is_of = |kind: &str, payload: &Json| self.described.is_payload_of(kind, payload);
        let interrupt = remote_interrupt(&update.asked, &self.described.card, is_of)?;
        Ok(Some(self.suspended_ending(interrupt, update.asked.interrupt_id)))
    }

    fn suspended_ending(&self, interrupt: Interrupt, theirs: Option<String>) -> RemoteEnding {
        let progress = self.read.progress();
        let saved = ConnectRunState {
            run: self.run(),
            thread: self.thread.clone(),
            interrupt: theirs.map(|id| (interrupt.kind.as_str().to_owned(), id)),
            cursor: self.cursor.clone(),
            first: progress.first,
            messages: progress.messages,
        };
        RemoteEnding::suspended_by(interrupt, &saved)
    }
}

fn ending_of_error(error: &RunError) -> RemoteEnding {
    let is_cancelled = match error.code.as_deref() {
        Some(code) => matches!(code, "run_cancelled" | "run_rolled_back"),
        None => CANCELLED.contains(&error.errcode),
    };
    if is_cancelled { RemoteEnding::Cancelled } else { RemoteEnding::Failed(remote_failure(error)) }
}
