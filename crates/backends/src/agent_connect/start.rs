//! Begins, answers or finds a run at the agent's server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trilogue_domain::{Answer, Code, Error, Failure, Input, Json, Role};
use trilogue_mapping::connect::{OutputProgress, RemoteOutput, remote_answer, remote_input};
use trilogue_mapping::fidelity::FidelityLoss;
use trilogue_mapping::provenance::provenance_headers;
use trilogue_runtime::RunContext;
use trilogue_sdk::client::ClientError;
use trilogue_sdk::client::connect::{
    CancelAction, Client, IfExists, MultitaskStrategy, NewRun, Object, Resume, Run, RunAt,
    RunStream, ThreadCreate, ThreadPatch,
};

use super::AgentConnect;
use super::description::DescribedAgent;
use super::refusal::failure_of_refusal;
use super::turn::ConnectTurn;
use crate::loss::LossLog;
use crate::remote::{RemoteBackend, RemoteMemory, attempt, bind, log_position, memory, read_state};

/// The member of this server's data in a run's metadata. It names the run here.
const RUN: &str = "run_id";
/// The most runs of a thread that are searched for one.
const MAX_SEARCHED_RUNS: u32 = 100;

/// The stored state of a run at the server, by which the run is found again.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ConnectRunState {
    /// Its id there. Absent until the server has reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<String>,
    /// Its thread there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thread: Option<String>,
    /// The type and the id of its question there, if the server gave an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) interrupt: Option<(String, String)>,
    /// The last event before the question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cursor: Option<String>,
    /// The position of the run's first message in the list of messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first: Option<usize>,
    /// The messages that were logged: their ids there, if they have one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) messages: Vec<Option<String>>,
}

/// A thread at the server.
struct RemoteThread {
    /// `None` for a run without a thread.
    id: Option<String>,
    /// Whether it certainly exists. Otherwise the run creates it.
    is_made: bool,
}

// === impl AgentConnect ===

impl AgentConnect {
    fn turn(
        &self,
        described: Arc<DescribedAgent>,
        stream: RunStream,
        thread: Option<String>,
        context: &RunContext,
    ) -> ConnectTurn {
        let role = Role::NamedAgent(context.agent().as_str().into());
        let form = described.form(&self.remote.server.url());
        ConnectTurn {
            read: RemoteOutput::new(context.run().as_str(), role, form),
            remote: Arc::clone(&self.remote),
            client: self.client.clone(),
            local_run: context.run().clone(),
            described,
            stream,
            thread,
            is_awaited: false,
            is_rejoined: false,
            held_event: None,
            cursor: None,
            broken_streams: 0,
        }
    }

    async fn attempt<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        send: impl Fn() -> F,
        context: &RunContext,
    ) -> Option<Result<T, ClientError>> {
        attempt(send, &self.remote.server, context).await
    }

    fn failure_of(&self, error: &ClientError, thread: Option<&str>) -> Failure {
        failure_of_refusal(&self.remote, error, None, thread)
    }

    /// Creates a thread there for a thread here. `false` if its server does not support threads.
    async fn create_thread(&self, id: &str, context: &RunContext) -> Option<Result<bool, Failure>> {
        let metadata = extension_metadata(&json!({ "thread_id": context.thread().as_str() }));
        let new = ThreadCreate {
            thread_id: Some(id.to_owned()),
            metadata: Some(metadata),
            if_exists: Some(IfExists::DoNothing),
        };
        Some(match self.attempt(|| self.client.create_thread(&new), context).await? {
            Ok(_) => Ok(true),
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(self.failure_of(&error, None)),
        })
    }

    /// Begins a run. `thread` is the one there; the run creates it if it does not exist.
    async fn start_run(
        &self,
        mut new: NewRun,
        described: &DescribedAgent,
        mut thread: RemoteThread,
        context: &RunContext,
    ) -> Result<Option<(RunStream, RemoteThread)>, Failure> {
        let modes = described.modes();
        let client = &self.client;
        if let Some(id) = &thread.id {
            new = new.on_new_thread(id);
            new.request.multitask_strategy = Some(MultitaskStrategy::Enqueue);
        }
        if !modes.is_empty() {
            new = new.streaming(modes.clone());
        }
        loop {
            let begun = if !modes.is_empty() {
                self.attempt(|| client.run_stream(new.clone()), context).await
            } else if thread.id.is_some() {
                // Old servers can create runs on threads only in this way.
                return Ok(Some((client.run_awaited(new), thread)));
            } else {
                let created = self.attempt(|| client.create_run(new.clone()), context).await;
                created.map(|run| run.map(|run| client.join(run.run_id, None)))
            };
            match (begun, &thread.id) {
                (None, _) => return Ok(None),
                (Some(Ok(stream)), _) => return Ok(Some((stream, thread))),
                (Some(Err(error)), Some(id)) if !thread.is_made && is_missing(&error) => {
                    let Some(made) = self.create_thread(id, context).await else { return Ok(None) };
                    let has_threads = made?;
                    self.makes_threads_first.store(true, Ordering::Release);
                    thread.is_made = has_threads;
                    if !has_threads {
                        (thread.id, new.thread) = (None, None);
                        new.request.if_not_exists = None;
                        new.request.multitask_strategy = None;
                    }
                }
                (Some(Err(error)), thread) => {
                    return Err(self.failure_of(&error, thread.as_deref()));
                }
            }
        }
    }

    /// Sets the state of the thread there to that of the thread here, if they differ.
    async fn hand_over_state(&self, thread: &str, state: &Json) -> Result<(), Failure> {
        let failure = |error: ClientError| self.failure_of(&error, Some(thread));
        let theirs = self.client.thread(thread).await.map_err(failure)?;
        if theirs.values.is_some_and(|values| values.to_value() == state.to_value()) {
            return Ok(());
        }
        let values = trilogue_mapping::native::json(state);
        let patch = ThreadPatch { values: Some(values), ..ThreadPatch::default() };
        let patched = self.client.patch_thread(thread, &patch).await;
        patched.map(drop).map_err(failure)
    }

    async fn describe(&self, context: &RunContext) -> Option<Result<Arc<DescribedAgent>, Failure>> {
        let known = self.attempt(|| self.described_agent(), context).await?;
        Some(known.map_err(|error| self.failure_of(&error, None)))
    }
}

#[async_trait]
impl RemoteBackend for AgentConnect {
    type Turn = ConnectTurn;

    async fn begin(
        &self,
        input: Input,
        context: &RunContext,
    ) -> Result<Option<ConnectTurn>, Failure> {
        let Some(described) = self.describe(context).await else { return Ok(None) };
        let described = described?;
        let input = described.admit(input, context.config()).map_err(|error| to_failure(&error))?;
        let has_threads = described.about.capabilities.threads;
        let RemoteMemory { session, missed } = match has_threads {
            true => memory(context).await?,
            false => RemoteMemory::nothing(context).await?,
        };
        let is_new = session.is_none();
        let id = session.or_else(|| has_threads.then(|| uuid::Uuid::new_v4().to_string()));
        let mut thread = RemoteThread { id, is_made: false };
        let state = match described.has_state() {
            true => context.load_state().await.map_err(|error| to_failure(&error))?,
            false => None,
        };
        let is_first = state.is_some() || self.makes_threads_first.load(Ordering::Acquire);
        // Usually the run creates its thread, which saves a request.
        if let Some(id) = &thread.id
            && is_new
            && (is_first || described.modes().is_empty())
        {
            let Some(made) = self.create_thread(id, context).await else { return Ok(None) };
            thread.is_made = made?;
            thread.id = thread.id.filter(|_| thread.is_made);
        }
        if let Some(id) = &thread.id {
            if !bind(context, id).await {
                return Ok(None);
            }
            if let Some(state) = state {
                self.hand_over_state(id, &state).await?;
            }
        }
        let lost = missed.is_cut.then_some(FidelityLoss::CONNECT_HISTORY);
        LossLog::default().log(lost, context).await;
        let input = remote_input(&missed.messages, &input, described.about.is_ours);
        // The input has what it needs of it, and the run can take long.
        drop(missed);
        let metadata = extension_metadata(&json!({ RUN: context.run().as_str() }));
        let provenance = provenance_headers(context.forwarded_provenance());
        let mut new =
            NewRun::new(&described.about.id, input).metadata(metadata).headers(provenance);
        if let Some(config) = context.config() {
            new = new.config(config);
        }
        if described.about.is_ours {
            new = new.idempotency_key(context.run().as_str());
        }
        let begun = self.start_run(new, &described, thread, context).await?;
        Ok(begun.map(|(stream, thread)| {
            let is_awaited = described.modes().is_empty() && thread.id.is_some();
            let turn = self.turn(described, stream, thread.id, context);
            ConnectTurn { is_awaited, ..turn }
        }))
    }

    async fn resume(
        &self,
        saved: &Json,
        answer: &Answer,
        context: &RunContext,
    ) -> Result<Option<ConnectTurn>, Failure> {
        let state: ConnectRunState = read_state(saved)?;
        let at = state.at()?;
        let Some(described) = self.describe(context).await else { return Ok(None) };
        let described = described?;
        let mut resume = Resume::from(remote_answer(answer));
        if let Some((kind, id)) = &state.interrupt {
            resume = resume.for_interrupt(kind, id);
        }
        let client = &self.client;
        let resumed = match &state.cursor {
            Some(cursor) => {
                let resumed =
                    self.attempt(|| client.resume(at.clone(), resume.clone()), context).await;
                resumed.map(|run| run.map(|_| client.join(at.clone(), Some(cursor))))
            }
            None => {
                self.attempt(|| client.resume_stream(at.clone(), resume.clone()), context).await
            }
        };
        match resumed {
            Some(Ok(stream)) => {
                let turn = self.turn(described, stream, state.thread, context);
                let progress = OutputProgress { first: state.first, messages: state.messages };
                Ok(Some(ConnectTurn {
                    read: turn.read.with_progress(progress),
                    cursor: state.cursor,
                    ..turn
                }))
            }
            Some(Err(error)) => {
                Err(failure_of_refusal(&self.remote, &error, Some(&at.run), at.thread.as_deref()))
            }
            None => Ok(None),
        }
    }

    async fn cancel_saved(&self, saved: &Json) -> Result<(), Failure> {
        let ConnectRunState { run, thread, .. } = read_state(saved)?;
        let Some(run) = run else { return Ok(()) };
        let at = RunAt { thread, run };
        let cancelled = self.client.cancel(at.clone(), false, CancelAction::Interrupt).await;
        cancelled.map_err(|error| {
            failure_of_refusal(&self.remote, &error, Some(&at.run), at.thread.as_deref())
        })
    }

    async fn rejoin(&self, saved: &Json, context: &RunContext) -> Result<ConnectTurn, Failure> {
        let mut state: ConnectRunState = read_state(saved)?;
        let lost = |error: &ClientError| self.remote.lost_failure(error, None);
        let described = match self.describe(context).await {
            Some(described) => described?,
            None => return Err(Failure::of(Code::AgentLost, "the run was stopped")),
        };
        if let (None, Some(thread)) = (&state.run, &state.thread) {
            let found = find_run(&self.client, thread, context.run().as_str()).await;
            state.run = found.map_err(|error| lost(&error))?.map(|run| run.run_id);
        }
        let Some(run) = &state.run else {
            let unknown = ClientError::Unexpected("it does not know the run".to_owned());
            return Err(lost(&unknown));
        };
        let at = RunAt { thread: state.thread.clone(), run: run.clone() };
        let position = log_position(context).await?;
        let stream = self.client.join(at, None);
        let turn = self.turn(described, stream, state.thread, context);
        Ok(ConnectTurn { read: turn.read.from_log(position), is_rejoined: true, ..turn })
    }
}

// === impl ConnectRunState ===

impl ConnectRunState {
    fn at(&self) -> Result<RunAt, Failure> {
        let unknown =
            || Failure::of(Code::Internal, "invalid saved state: the run's id is missing");
        let run = self.run.clone().ok_or_else(unknown)?;
        Ok(RunAt { thread: self.thread.clone(), run })
    }
}

/// The run on a thread there that was begun for this run here.
pub(super) async fn find_run(
    client: &Client,
    thread: &str,
    here: &str,
) -> Result<Option<Run>, ClientError> {
    let runs = client.thread_runs(thread, Some(MAX_SEARCHED_RUNS), None).await?;
    Ok(runs.into_iter().find(|run| {
        let creation = run.creation.as_json().to_value();
        let named = &creation["metadata"][trilogue_mapping::connect::EXTENSION][RUN];
        named.as_str() == Some(here)
    }))
}

/// Whether a server reports that the object does not exist, or that it cannot create it.
pub(super) fn is_missing(error: &ClientError) -> bool {
    matches!(error, ClientError::Fault(fault) if matches!(fault.status, 404 | 405 | 501))
}

/// This server's data in metadata.
fn extension_metadata(data: &Value) -> Object {
    let metadata = json!({ trilogue_mapping::connect::EXTENSION: data });
    Object::new(trilogue_wire::native::Json::from_value(&metadata)).unwrap_or_default()
}

fn to_failure(error: &Error) -> Failure {
    Failure::of(error.code(), error.message())
}
