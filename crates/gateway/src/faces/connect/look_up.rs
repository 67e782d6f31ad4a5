//! Looks up what a request's path names, within the caller's scope.

use std::borrow::Cow;

use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Code, ConfigurationId, Error, RunId};
use trilogue_mapping::native::escape_for_message;
use trilogue_store::rows::{ConfigurationRow, RunRow, ThreadRow};

use super::ConnectCall;
use super::agent_index::IndexedAgent;
use crate::access::authenticator::no_token;
use crate::core::not_found::{no_run, no_thread};
use crate::faces::common::look_up;

#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) card: &'a AgentCard,
    /// The configured instance, if one was named instead of the agent.
    pub(super) instance: Option<ConfigurationRow>,
}

/// Returns the thread that the path names. A thread that was created for a single run is hidden.
/// Errors: `thread_not_found`.
pub(super) async fn thread(call: &ConnectCall) -> Result<ThreadRow> {
    thread_of(call, call.param("thread_id")).await
}

async fn thread_of(call: &ConnectCall, text: &str) -> Result<ThreadRow> {
    let row = look_up::thread(call.state.read.as_ref(), call, text).await?;
    if row.ephemeral { Err(no_thread(text)) } else { Ok(row) }
}

/// Returns the run that the path names; if the path also names a thread, the run must belong to it.
/// A caller without access to the run's agent gets `unauthenticated`.
/// Errors: `run_not_found`, `thread_not_found`, `unauthenticated`.
pub(super) async fn run(call: &ConnectCall) -> Result<RunRow> {
    let text = call.param("run_id");
    let id = RunId::parse(text).map_err(|_| no_run(text))?;
    let thread = call.param("thread_id");
    let thread = if thread.is_empty() { None } else { Some(thread_of(call, thread).await?) };
    let found = call.state.read.run(&call.scope(), &id).await?;
    let fits = |row: &RunRow| thread.as_ref().is_none_or(|thread| thread.key == row.thread);
    let row = found.filter(fits).ok_or_else(|| no_run(text))?;
    call.reach(&row.agent)?;
    Ok(row)
}

/// Returns the agent with this id: the id of this face, its name here, the name in its descriptor, or the id of one of its configured instances.
/// Errors: `agent_not_found`; for a caller without a valid token `unauthenticated`, as for a hidden agent.
pub(super) async fn agent<'a>(call: &'a ConnectCall, text: &str) -> Result<&'a AgentCard> {
    match known_agent(call, text) {
        Some(card) => Ok(card),
        None => {
            let row = instance(call, text).await?.ok_or_else(|| missing_agent(call, text))?;
            call.state.runtime.agent(&row.agent)
        }
    }
}

/// Like [`agent`], for a public document, unless the agent is hidden from the caller.
/// Errors: `agent_not_found`, `unauthenticated`.
pub(super) async fn public_agent<'a>(call: &'a ConnectCall, text: &str) -> Result<&'a AgentCard> {
    let card = agent(call, text).await?;
    if call.authenticator.hides(&call.caller, Some(&card.name)) {
        return Err(no_token());
    }
    Ok(card)
}

/// Like [`agent`], for the path's `agent_id`, if the caller has access to the agent.
/// Errors: `agent_not_found`, `unauthenticated`.
pub(super) async fn reached_agent(call: &ConnectCall) -> Result<&AgentCard> {
    Ok(target(call, Some(call.param("agent_id")), None).await?.card)
}

/// Like [`reached_agent`], in the form that clients are shown.
/// Errors: `agent_not_found`, `unauthenticated`.
pub(super) async fn shown_agent(call: &ConnectCall) -> Result<Cow<'_, AgentCard>> {
    Ok(call.state.runtime.visible_card(reached_agent(call).await?))
}

/// Returns the agent or the configured instance that a run names; the first agent if it names neither.
/// Errors: `agent_not_found`, `configuration_not_found`, `unauthenticated`.
pub(super) async fn target<'a>(
    call: &'a ConnectCall,
    text: Option<&str>,
    configuration: Option<&str>,
) -> Result<Target<'a>> {
    let runtime = &call.state.runtime;
    let target = match (text, configuration) {
        (None, Some(id)) => {
            let row = instance(call, id).await?.ok_or_else(|| no_configuration(id))?;
            Target { card: runtime.agent(&row.agent)?, instance: Some(row) }
        }
        (None, None) => {
            let first = runtime.listed_agents().into_iter().next();
            let card = first.ok_or_else(|| {
                Error::new(Code::AgentNotFound, "the server has no agent")
                    .hint("an operator configures one, or starts the server with built-in ones")
            })?;
            Target { card, instance: None }
        }
        (Some(text), _) => match known_agent(call, text) {
            Some(card) => Target { card, instance: None },
            None => {
                let row = instance(call, text).await?.ok_or_else(|| missing_agent(call, text))?;
                Target { card: runtime.agent(&row.agent)?, instance: Some(row) }
            }
        },
    };
    call.reach(&target.card.name)?;
    Ok(target)
}

/// Returns a configured instance by its id.
pub(super) async fn instance(call: &ConnectCall, text: &str) -> Result<Option<ConfigurationRow>> {
    let Ok(id) = ConfigurationId::parse(text) else { return Ok(None) };
    let now = call.state.clock.now();
    call.state.configurations.configuration(&call.scope(), &id, now).await
}

pub(super) fn no_configuration(id: &str) -> Error {
    let message = format!("configured instance '{}' not found", escape_for_message(id));
    Error::new(Code::ConfigurationNotFound, message)
}

/// Returns the agent with this id, or `None` if the id is unknown.
pub(super) fn known_agent<'a>(call: &'a ConnectCall, text: &str) -> Option<&'a AgentCard> {
    let runtime = &call.state.runtime;
    let known = call.state.common.agents.find(runtime, text)?;
    runtime.agent(&known.card.name).ok()
}

/// Returns the agent of a run. For an agent that is not served any more, only its name is known.
pub(super) fn agent_of(call: &ConnectCall, row: &RunRow) -> IndexedAgent {
    call.state.common.agents.of_run(&call.state.runtime, &row.agent)
}

/// Returns the error for an unknown id: for a caller without a valid token the same as for a hidden agent.
fn missing_agent(call: &ConnectCall, text: &str) -> Error {
    let hides = call.authenticator.hides(&call.caller, None);
    if hides { no_token() } else { no_agent(text) }.without_agent(text)
}

fn no_agent(text: &str) -> Error {
    Error::new(Code::AgentNotFound, format!("agent '{}' not found", escape_for_message(text)))
        .hint("the agents are listed at POST /agents/search")
}
