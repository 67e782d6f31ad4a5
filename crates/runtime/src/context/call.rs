//! Calls other agents: follows a child run by its log, and ends it with its caller.

mod log;
mod question;
mod supervisor;

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, RunEvent, StateEvent};
use trilogue_domain::{
    AgentName, Answer, Code, Error, Event, Input, InterruptId, Json, Message, Outcome, ParentRun,
    Principal, PrincipalId, RequestSource, Right, RunId, Scope, ThreadId, Transcript,
};
use trilogue_store::rows::RunRow;

use super::{RunContext, SharedRun};
use crate::call_chains::CallingRun;
use crate::history;
use crate::request::{ChildOf, NewThread, RunRequest, ThreadChoice};
use crate::subagent_member::{PARENT_AGENT_MEMBER, PARENT_RUN_MEMBER, PARENT_THREAD_MEMBER};

use log::ChildLog;
pub(super) use supervisor::follow_subagent;
use supervisor::{ChildSupervisor, cancel};

/// A call of another agent of this server.
#[derive(Clone, Debug)]
pub struct CallRequest {
    pub agent: AgentName,
    pub input: Input,
    /// An existing thread that the caller's principal created. `None` creates one, with the caller in its metadata.
    pub thread: Option<ThreadId>,
    pub config: Option<Json>,
    /// Whether the agent can already be in the chain of callers.
    pub allows_recursion: bool,
    /// Whether the caller's run asks the child's questions. Otherwise the caller answers them, or another client answers the child directly.
    pub passes_questions_up: bool,
}

/// A child run from its caller's view. Dropping it cancels the child.
#[derive(Debug)]
pub struct ChildRun {
    shared: Arc<SharedRun>,
    row: RunRow,
    log: ChildLog,
    failure: watch::Receiver<Option<Error>>,
    _dropped: DropGuard,
}

/// The end of a child run, and its output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildOutcome {
    pub outcome: Outcome,
    /// The agent's messages, oldest first.
    pub messages: Vec<Message>,
    /// The agent's answer as a value, if it returned one.
    pub result: Option<Json>,
    /// The thread's state as the run last set it.
    pub values: Option<Json>,
}

// === impl RunContext ===

impl RunContext {
    /// Calls another agent. Returns when the child run is accepted and durable.
    ///
    /// The child has the tenant and the principal of this run, and ends with it: when this run is cancelled, ends, suspends or is lost, an open child is cancelled as `parent_ended`.
    /// Errors: `call_refused` if the chain of callers is too long or already contains the agent; `overloaded` if too many calls of this run are open; `thread_busy` for the thread of a caller; and as [`crate::Runtime::submit`].
    pub async fn call(&self, request: CallRequest) -> Result<ChildRun> {
        let chain = self.chain_to(&request).await?;
        // A separate task: if this future is dropped meanwhile, the child is either refused, or accepted and then cancelled.
        let accepted = tokio::spawn(accept(Arc::clone(&self.0), chain, request));
        accepted.await.unwrap_or_else(|_| Err(Error::new(Code::Internal, "a call broke off")))
    }

    /// Returns the callers of the child, the first one first and this run last.
    async fn chain_to(&self, request: &CallRequest) -> Result<Arc<[CallingRun]>> {
        let shared = &self.0;
        let (agent, most) = (&request.agent, shared.services.options.max_call_depth);
        let mut chain = shared.services.call_chains.callers(shared.key).to_vec();
        chain.push(CallingRun {
            run: shared.key,
            agent: shared.agent.clone(),
            thread: shared.thread_key,
        });
        if chain.len() >= most {
            let message =
                format!("the agent '{agent}' would be run {} of a chain", chain.len() + 1);
            return Err(Error::new(Code::CallRefused, message)
                .hint(format!("agents call each other in chains of at most {most} runs")));
        }
        if !request.allows_recursion && chain.iter().any(|caller| caller.agent == *agent) {
            let names: Vec<_> = chain.iter().map(|caller| caller.agent.as_str()).collect();
            let message = format!("the agent '{agent}' is among the callers: {}", names.join(", "));
            return Err(Error::new(Code::CallRefused, message)
                .hint("allow recursion in the call if it has an end"));
        }
        if let Some(id) = &request.thread {
            let owner = Some(shared.principal.clone());
            let scope = Scope { owner, ..shared.scope.clone() };
            let thread = shared.store.named_thread(&scope, id).await?;
            if thread.is_some_and(|row| chain.iter().any(|caller| caller.thread == row.key)) {
                let message = format!("a caller of the agent '{agent}' runs on the thread '{id}'");
                return Err(Error::new(Code::ThreadBusy, message).hint("use another thread"));
            }
        }
        Ok(chain.into())
    }
}

async fn accept(
    shared: Arc<SharedRun>,
    chain: Arc<[CallingRun]>,
    request: CallRequest,
) -> Result<ChildRun> {
    let services = Arc::clone(&shared.services);
    let key = services.store.next_run_key();
    let chain = services.call_chains.note(key, chain, services.options.max_calls_per_run)?;
    let parent = ParentRun { run: shared.id.clone(), thread: shared.thread.clone() };
    let metadata = Json::from_value(&serde_json::json!({
        PARENT_RUN_MEMBER: shared.id.as_str(),
        PARENT_THREAD_MEMBER: shared.thread.as_str(),
        PARENT_AGENT_MEMBER: shared.agent.as_str(),
    }));
    let thread = match request.thread {
        Some(id) => ThreadChoice::Existing(id),
        None => ThreadChoice::Ensure(NewThread {
            id: None,
            metadata: Some(metadata),
            ..NewThread::default()
        }),
    };
    let by = Principal {
        tenant: shared.scope.tenant.clone(),
        id: shared.principal.clone(),
        rights: std::iter::once(Right::Run).collect(),
        own: true,
    };
    let new = RunRequest {
        config: request.config,
        provenance: shared.provenance_of_calls(),
        source: RequestSource::Agent,
        ..RunRequest::new(request.agent, thread, request.input)
    };
    let submitted = services.call_chains.port()?.submit(&by, new, ChildOf { key, parent }).await?;
    let (dropped, failed) = (CancellationToken::new(), watch::Sender::new(None));
    let failure = failed.subscribe();
    let supervisor = ChildSupervisor {
        shared: Arc::clone(&shared),
        row: submitted.run.clone(),
        chain,
        passes_questions_up: request.passes_questions_up,
        dropped: dropped.clone(),
        failed,
    };
    tokio::spawn(supervisor.supervise(submitted.settled));
    let log = ChildLog::of(&services.store, &submitted.run);
    Ok(ChildRun { shared, row: submitted.run, log, failure, _dropped: dropped.drop_guard() })
}

// === impl ChildRun ===

impl ChildRun {
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.row.id
    }

    #[must_use]
    pub fn thread(&self) -> &ThreadId {
        &self.row.thread_id
    }

    /// Returns the next event of the child's log, or `None` after the last. The caller's run releases its permit while it waits.
    /// Fails if the store cannot be read, or with the error that kept the child from being stored.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        let next = match self.log.take() {
            Some(event) => Ok(Some(event)),
            None => {
                let wait = self.shared.wait_for_answer();
                let next = tokio::select! {
                    biased;
                    next = self.log.next() => next,
                    error = failure(self.failure.clone()) => Err(error),
                };
                wait.resume().await;
                next
            }
        };
        if matches!(&next, Ok(Some(event)) if event.body.is_run_end()) {
            self.until_questions_end().await;
        }
        next
    }

    /// Waits for the child's end. Fails as [`Self::next`].
    pub async fn outcome(&self) -> Result<ChildOutcome> {
        let wait = self.shared.wait_for_answer();
        let outcome = tokio::select! {
            biased;
            outcome = self.fold() => outcome,
            error = failure(self.failure.clone()) => Err(error),
        };
        wait.resume().await;
        self.until_questions_end().await;
        outcome
    }

    /// Waits until the child's answered questions are also answered in the caller's run: otherwise the end of that run could withdraw them first.
    async fn until_questions_end(&self) {
        let mut supervisor = self.failure.clone();
        while supervisor.changed().await.is_ok() {}
    }

    /// Answers a question of the child in the name of the calling agent. Fails as [`crate::Runtime::answer`].
    pub async fn answer(&self, interrupt: InterruptId, answer: Answer) -> Result<()> {
        let by = Principal {
            tenant: self.shared.scope.tenant.clone(),
            id: PrincipalId::parse(&format!("agent:{}", self.shared.agent))?,
            rights: std::iter::once(Right::Answer).collect(),
            own: false,
        };
        self.shared.services.call_chains.port()?.answer(&by, interrupt, answer, None).await
    }

    /// Asks the child to stop; an ended child stays unchanged. Fails if the store fails.
    pub async fn cancel(&self) -> Result<()> {
        cancel(&self.shared.services, &self.row, None).await
    }

    async fn fold(&self) -> Result<ChildOutcome> {
        let store = &self.shared.store;
        let mut log = ChildLog::of(store, &self.row);
        let (mut transcript, mut is_started) = (Transcript::default(), false);
        let (mut result, mut values, mut ended) = (None, None, None);
        while let Some(event) = log.next().await? {
            match &event.body {
                Body::Run(RunEvent::Started) => is_started = true,
                Body::Run(RunEvent::Result(value)) => result = Some(value.clone()),
                Body::Run(RunEvent::Ended(outcome)) => ended = Some(outcome.clone()),
                Body::State(StateEvent::Values(state)) => values = Some(state.clone()),
                _ => {}
            }
            if is_started {
                transcript.push(&event);
            }
        }
        let mut messages = transcript.into_messages();
        // Answers can be messages of users.
        messages.retain(|message| !message.role.is_user());
        history::inline(store.as_ref(), self.row.thread, &mut messages).await?;
        let outcome = ended.ok_or_else(|| Error::new(Code::Internal, "the call has no end"))?;
        Ok(ChildOutcome { outcome, messages, result, values })
    }
}

/// Returns the error that kept the child from being stored; without one it never resolves.
async fn failure(mut failure: watch::Receiver<Option<Error>>) -> Error {
    let found = failure.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
    match found {
        Some(error) => error,
        None => std::future::pending().await,
    }
}
