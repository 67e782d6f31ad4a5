//! A run's task: polls the agent, signals the owner when the draft has events, and catches a panic.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Sleep;
use trilogue_domain::{CheckpointKey, Code, Error, Failure, Scope, ThreadId};
use trilogue_store::Store;

use crate::agent_registry::AgentRegistry;
use crate::backend::Backend;
use crate::context::{RunContext, SharedRun};
use crate::creator::check_creator;
use crate::history;
use crate::history::states::{self, KeptState};
use crate::monitor::StartingRun;
use crate::owner::Envelope;
use crate::services::Services;
use crate::step::{StartTurn, resume_turn};
use crate::turn::{Ending, Turn};

/// How much longer than the agent itself a run's task may take to stop: it may have to kill the agent first.
const KILL_TIME: Duration = Duration::from_secs(2);

/// How a turn begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartMode {
    /// Whether the run's acceptance is not durable yet.
    pub(crate) is_deferred: bool,
    /// Whether it begins later than it was asked for.
    pub(crate) is_delayed: bool,
}

pub(crate) async fn execute(
    services: Arc<Services>,
    agents: Arc<AgentRegistry>,
    backend: Arc<dyn Backend>,
    start: StartTurn,
    shared: Arc<SharedRun>,
    mode: StartMode,
) {
    if shared.rules.is_some() {
        shared.external.checker_is_here().await;
    }
    let permit = shared.acquire_permit().await;
    let prepared = match start {
        StartTurn::Ready(turn)
            if !mode.is_delayed
                && backend.card().state_schema.is_none()
                && !(shared.keeps_request && shared.base().is_some()) =>
        {
            Ok(*turn)
        }
        // Boxed, because the lookups are rare and make a large future.
        start => {
            Box::pin(prepare(&services, &agents, backend.as_ref(), start, &shared, mode)).await
        }
    };
    let mut unlogged = None;
    if let Ok(Turn::Start { .. }) = &prepared {
        let starting = shared.starting_run();
        shared.record_start(&starting);
        // A run that did not wait, and whose agent answers at once, gets one line: that of its end.
        if mode.is_deferred && starting.queue_ms() == 0 {
            unlogged = Some(starting);
        } else {
            starting.log();
        }
    }
    let ending = match prepared {
        Ok(turn) => drive(&services, backend.as_ref(), turn, &shared, mode.is_deferred, unlogged)
            .await
            .and_then(|ending| check(&shared, ending)),
        Err(failure) => Err(failure),
    };
    // Before the report: the owner may then start another run, which needs a permit.
    drop(permit);
    let finish = Envelope::Finish { run: shared.key, ending: Box::new(ending) };
    // The owner outlives its tasks; if it is gone, so is the thread.
    drop(shared.owner.send(finish).await);
}

/// Polls the agent. Signals the owner only while the agent waits, never while it works: an agent that answers at once costs one commit.
async fn drive(
    services: &Services,
    backend: &dyn Backend,
    turn: Turn,
    shared: &Arc<SharedRun>,
    deferred: bool,
    mut unlogged: Option<StartingRun<'_>>,
) -> Result<Ending, Failure> {
    let context = RunContext(Arc::clone(shared));
    let agent = AssertUnwindSafe(async move { backend.run(turn, context).await }).catch_unwind();
    let mut agent = pin!(agent);
    let mut grace = None;
    let mut unannounced = deferred;
    loop {
        tokio::select! {
            biased;
            ended = &mut agent => {
                return ended.unwrap_or_else(|panic| Err(panicked(shared, panic.as_ref())));
            }
            () = shared.wait_for_event(), if !unannounced => {
                if shared.wants_signal() {
                    // As at the end: without an owner, the thread is gone.
                    drop(shared.owner.send(Envelope::Progress { run: shared.key }).await);
                }
            }
            () = std::future::ready(()), if unannounced => {
                // The agent did not answer at once, so the run's acceptance must become durable now.
                unannounced = false;
                if let Some(starting) = unlogged.take() {
                    starting.log();
                }
                drop(shared.owner.send(Envelope::Progress { run: shared.key }).await);
            }
            () = shared.wait_until_cancelled(), if grace.is_none() => {
                let limit = services.options.cancel_grace;
                let limit = if backend.is_native() { limit } else { limit + KILL_TIME };
                grace = Some(Box::pin(tokio::time::sleep(limit)));
            }
            () = grace_elapsed(&mut grace) => {
                tracing::warn!(run = %shared.id, "the agent did not stop when asked and was dropped");
                return Err(Failure::of(Code::AgentFailed, "the agent did not stop when asked"));
            }
        }
    }
}

/// Checks a suspension's question, because it is output too.
fn check(shared: &SharedRun, ending: Ending) -> Result<Ending, Failure> {
    if let Ending::Suspended { interrupt, .. } = &ending {
        shared.check_interrupt(interrupt).map_err(to_failure)?;
    }
    Ok(ending)
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn to_failure(error: trilogue_domain::Error) -> Failure {
    Failure::of(error.code(), error.message())
}

/// Resolves when the grace period has elapsed; without one, never.
async fn grace_elapsed(grace: &mut Option<Pin<Box<Sleep>>>) {
    match grace {
        Some(grace) => grace.await,
        None => std::future::pending().await,
    }
}

async fn prepare(
    services: &Services,
    agents: &AgentRegistry,
    backend: &dyn Backend,
    start: StartTurn,
    shared: &SharedRun,
    mode: StartMode,
) -> Result<Turn, Failure> {
    if mode.is_delayed {
        check_creator(services, backend, shared).await.map_err(to_failure)?;
    }
    let turn = turn_of(services, start, shared).await?;
    if let Turn::Start { .. } = turn {
        // An earlier run may have left a state that this agent does not accept.
        let (store, base) = (services.store.as_ref(), shared.base());
        let (scope, thread) = (&shared.scope, &shared.thread);
        check_state(store, scope, thread, base, backend).await.map_err(to_failure)?;
        if shared.keeps_request {
            check_kept(store, scope, agents, thread, base, backend).await.map_err(to_failure)?;
        }
    }
    Ok(turn)
}

async fn turn_of(
    services: &Services,
    start: StartTurn,
    shared: &SharedRun,
) -> Result<Turn, Failure> {
    let store = services.store.as_ref();
    let missing = || Failure::of(Code::Internal, "the run's input is not in the store");
    let row = match &start {
        StartTurn::Ready(_) => None,
        StartTurn::InputFromLog | StartTurn::AnswerFromStore { .. } => {
            Some(store.run_by_key(shared.key).await.map_err(to_failure)?.ok_or_else(missing)?)
        }
    };
    match (start, row) {
        (StartTurn::Ready(turn), _) => Ok(*turn),
        (StartTurn::InputFromLog, Some(row)) => {
            let input = history::input(store, &row).await.map_err(to_failure)?;
            Ok(Turn::Start { input })
        }
        (StartTurn::AnswerFromStore { interrupt, saved }, Some(row)) => {
            let answered = store.interrupt(&shared.scope, &interrupt).await.map_err(to_failure)?;
            if let Some(values) = history::values_of(store, &row).await.map_err(to_failure)? {
                shared.restore_values(values);
            }
            answered.and_then(|row| resume_turn(row, saved)).ok_or_else(missing)
        }
        (_, None) => Err(missing()),
    }
}

/// Returns the failure of a panic. Its text goes only to the log.
fn panicked(shared: &SharedRun, panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text");
    tracing::error!(run = %shared.id, agent = %shared.agent, panic = ?text, "an agent panicked");
    Failure::of(Code::AgentPanicked, "the agent stopped unexpectedly")
}

/// Checks that the thread's state at this head fits the agent that continues it. Fails with `thread_state_incompatible`, or if the store cannot be read.
pub(crate) async fn check_state(
    store: &dyn Store,
    scope: &Scope,
    thread: &ThreadId,
    head: Option<CheckpointKey>,
    backend: &dyn Backend,
) -> trilogue_domain::error::Result<()> {
    if backend.card().state_schema.is_none() {
        return Ok(());
    }
    let Some(state) = history::set_value(store, scope, thread, head).await? else {
        return Ok(());
    };
    backend.check_state(&state).map_err(|error| match error.code() {
        Code::StateInvalid => Error::new(
            Code::StateIncompatible,
            format!(
                "the state of the thread '{thread}' does not fit the agent '{}': {}",
                backend.card().name,
                error.message()
            ),
        )
        .hint("use an agent with the same state, or another thread")
        .violations(error.violated().to_vec()),
        _ => error,
    })
}

/// Checks that the agent keeps the same kind of state as the thread at this head: a state that was set, or the messages. Otherwise clients would see
/// the two alternate. Fails with `thread_state_incompatible`, or if the store cannot be read.
pub(crate) async fn check_kept(
    store: &dyn Store,
    scope: &Scope,
    agents: &AgentRegistry,
    thread: &ThreadId,
    head: Option<CheckpointKey>,
    backend: &dyn Backend,
) -> trilogue_domain::error::Result<()> {
    let Some(head) = head else { return Ok(()) };
    let (name, says) = (&backend.card().name, states::is_of_messages(backend.card()));
    let why = match states::state_kind_at(store, scope, agents, thread, head).await? {
        Some(KeptState::Set { by }) if says && by.as_ref() != Some(name) => format!(
            "the thread '{thread}' has a state that was set; the state of the agent '{name}' is what is said"
        ),
        Some(KeptState::Said) if !says => format!(
            "the state of the thread '{thread}' is what is said; the state of the agent '{name}' is not"
        ),
        _ => return Ok(()),
    };
    Err(Error::new(Code::StateIncompatible, why)
        .hint("use an agent with the same kind of state, or another thread"))
}
