//! A request for a run, parsed for the runtime.

use std::sync::Arc;

use http::HeaderValue;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Callback, Code, Error, Json, RequestSource, Strategy, ThreadId};
use trilogue_mapping::connect::{self as mapping, Modes, RunConfig};
use trilogue_mapping::native::escape_for_message;
use trilogue_runtime::{NewThread, RunRequest, ThreadChoice, WhenHolding, WhenWaiting};
use trilogue_store::rows::ConfigurationRow;
use trilogue_wire::agent_connect as wire;

use super::look_up::{self, Target};
use super::{ConnectCall, request};
use crate::callback::check_callback_url;
use crate::core::not_found::no_thread;
use crate::faces::common::idempotency::idempotency;
use crate::faces::common::provenance::provenance;
use crate::http::reply::Reply;

#[derive(Debug)]
pub(super) struct ParsedRequest {
    pub(super) new: RunRequest,
    pub(super) modes: Option<Modes>,
    /// Whether the run ends if the waiting connection ends.
    pub(super) ends_with_connection: bool,
    /// The parts of the request without effect.
    pub(super) warnings: Vec<&'static str>,
}

/// How the client receives the run's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReplyMode {
    /// By a later request.
    Later,
    /// By waiting for the response.
    Wait,
    /// By reading a stream.
    Streaming,
}

const NO_CALLBACK: &str = "the agent takes no callbacks: nothing will be called";
const NO_VALUES: &str = "'callback.events': the agent does not stream 'values'";
const NO_UPDATES: &str = "'callback.events': the agent does not stream 'custom'";
const NO_CONFIGURATION: &str =
    "the agent declares no configuration: 'config' is passed to it unchecked";
pub(super) const NO_RECURSION_LIMIT: &str = "'config.recursion_limit' has no effect here";
const NO_SUBGRAPHS: &str = "'stream_subgraphs' has no effect here";

/// Reads a request for a run, and checks everything that does not need the owner of its thread.
/// Errors: those of the request, before anything has happened.
pub(super) async fn read(call: &ConnectCall, mode: ReplyMode) -> Result<ParsedRequest> {
    let body: wire::RunCreate = request::body_or_empty(call)?;
    let (agent, configuration) = (body.agent_id.as_deref(), body.configuration_id.as_deref());
    let Target { card, instance } = look_up::target(call, agent, configuration).await?;
    let is_stateless = call.param("thread_id").is_empty();
    let thread = thread(call, &body, is_stateless).await?;
    let keeps = body.on_completion == Some(wire::OnCompletion::Keep);
    if (!is_stateless || keeps) && !card.abilities.threads {
        return Err(no_threads(card));
    }
    let mut warnings = Vec::new();
    let modes = modes(card, &body, mode, &mut warnings)?;
    let instance = named_instance(call, card, &body, instance).await?;
    let config = config(card, &body, instance.as_ref(), &mut warnings)?;
    if body.stream_subgraphs == Some(true) {
        warnings.push(NO_SUBGRAPHS);
    }
    let callback = callback(call, card, &body, &mut warnings).await?;
    let mount = callback.is_some().then(|| Arc::from(&*call.state.place.prefix));
    let now = call.state.clock.now();
    let delay = body.after_seconds.map_or(0, wire::AfterSeconds::get);
    let not_before =
        (delay > 0).then(|| now.after(std::time::Duration::from_secs(u64::from(delay))));
    let ends = body.on_disconnect.unwrap_or_default() == wire::OnDisconnect::Cancel;
    let strategy = strategy(&body, is_stateless);
    let new = RunRequest {
        agent: card.name.clone(),
        thread,
        id: None,
        input: mapping::input(card, mapping::stated_input(&body)?, now)?,
        config,
        metadata: request::metadata(body.metadata)?,
        strategy,
        when_waiting: WhenWaiting::Supersede,
        when_holding: WhenHolding::Strategy,
        idempotency: idempotency(call)?,
        not_before,
        rules: None,
        callback,
        request: Some(stored_request(call, card, instance.as_ref(), is_stateless)?),
        synchronous: mode == ReplyMode::Wait,
        provenance: provenance(call),
        mount,
        token: None,
        source: RequestSource::Network,
        folders: Vec::new(),
        may_remove_of_others: false,
    };
    let new = call.identified(new).await?;
    let ends_with_connection = ends && mode != ReplyMode::Later;
    Ok(ParsedRequest { new, modes, ends_with_connection, warnings })
}

/// Adds warnings about the parts of the request without effect.
pub(super) fn with_warnings(reply: Reply, warnings: &[&str]) -> Reply {
    warnings.iter().fold(reply, |reply, warning| {
        match HeaderValue::from_str(&format!("199 - \"{warning}\"")) {
            Ok(value) => reply.also(http::header::WARNING, value),
            Err(_) => reply,
        }
    })
}

async fn thread(
    call: &ConnectCall,
    body: &wire::RunCreate,
    is_stateless: bool,
) -> Result<ThreadChoice> {
    if is_stateless {
        return Ok(match body.on_completion.unwrap_or_default() {
            wire::OnCompletion::Delete => ThreadChoice::Stateless,
            wire::OnCompletion::Keep => ThreadChoice::Ensure(NewThread::default()),
        });
    }
    let text = call.param("thread_id");
    let creates = body.if_not_exists.unwrap_or_default() == wire::IfNotExists::Create;
    let id = match ThreadId::parse(text) {
        Ok(id) => id,
        Err(error) if creates => return Err(error),
        Err(_) => return Err(no_thread(text)),
    };
    match call.state.read.named_thread(&call.scope(), &id).await? {
        Some(row) if row.ephemeral => Err(no_thread(text)),
        Some(_) => Ok(ThreadChoice::Existing(id)),
        None if creates => Ok(ThreadChoice::Ensure(NewThread {
            id: Some(id),
            metadata: None,
            ..NewThread::default()
        })),
        None => Err(no_thread(text)),
    }
}

fn no_threads(card: &AgentCard) -> Error {
    let message = format!("the agent '{}' does not run on threads", card.name);
    Error::new(Code::ThreadsNotSupported, message).hint("run it without a thread: POST /runs")
}

/// Returns the stream modes; an invalid one is refused before the run exists. A client that asks later need not name any.
fn modes(
    card: &AgentCard,
    body: &wire::RunCreate,
    mode: ReplyMode,
    warnings: &mut Vec<&'static str>,
) -> Result<Option<Modes>> {
    if mode != ReplyMode::Streaming && body.stream_mode.is_none() {
        return Ok(None);
    }
    let (modes, missing) = mapping::modes(card, body.stream_mode.as_ref())?;
    warnings.extend(missing.map(|mode| match mode {
        wire::StreamMode::Values => "'stream_mode': the agent does not stream 'values'",
        wire::StreamMode::Custom => "'stream_mode': the agent does not stream 'custom'",
    }));
    Ok(Some(modes))
}

/// Returns the configured instance that the request names, in one way or in two.
/// Errors: `configuration_not_found`; `config_schema_violation` if it belongs to another agent, or two are named.
async fn named_instance(
    call: &ConnectCall,
    card: &AgentCard,
    body: &wire::RunCreate,
    instance: Option<ConfigurationRow>,
) -> Result<Option<ConfigurationRow>> {
    let Some(id) = body.configuration_id.as_deref() else { return Ok(instance) };
    if instance.as_ref().is_some_and(|row| row.id.as_str() == id) {
        return Ok(instance);
    }
    let found = look_up::instance(call, id).await?;
    let found = found.ok_or_else(|| look_up::no_configuration(id))?;
    if instance.is_some() {
        return Err(Error::new(
            Code::ConfigInvalid,
            "'agent_id' and 'configuration_id' name different configured instances",
        ));
    }
    if found.agent != card.name {
        let message =
            format!("'{}' is a configured instance of another agent", escape_for_message(id));
        return Err(Error::new(Code::ConfigInvalid, message)
            .hint("leave 'agent_id' out, or put the instance's id there"));
    }
    Ok(Some(found))
}

/// Returns the instance's configuration, overridden by the run's members.
fn config(
    card: &AgentCard,
    body: &wire::RunCreate,
    instance: Option<&ConfigurationRow>,
    warnings: &mut Vec<&'static str>,
) -> Result<Option<Json>> {
    let RunConfig { recursion_limit, configurable, .. } = mapping::config(body.config.as_ref())?;
    if recursion_limit.is_some() {
        warnings.push(NO_RECURSION_LIMIT);
    }
    let is_empty = |config: &Json| *config == Json::empty_object();
    if !mapping::is_configurable(card) && !configurable.as_ref().is_none_or(is_empty) {
        warnings.push(NO_CONFIGURATION);
    }
    Ok(mapping::merged(instance.map(|row| &row.config), configurable.as_ref()))
}

/// Returns the callback address, if the agent allows callbacks.
/// Errors: `forbidden` for a caller without credentials, because no key can be derived without a name; `invalid_webhook`.
async fn callback(
    call: &ConnectCall,
    card: &AgentCard,
    body: &wire::RunCreate,
    warnings: &mut Vec<&'static str>,
) -> Result<Option<Callback>> {
    let Some(callback) = mapping::callback(body)? else { return Ok(None) };
    if !card.abilities.callbacks {
        warnings.push(NO_CALLBACK);
        return Ok(None);
    }
    if call.caller.is_anonymous() {
        return Err(Error::new(Code::Forbidden, "callers without credentials get no callbacks")
            .hint("send a token, or leave out 'callback' and 'webhook' and wait for the run"));
    }
    check_callback_url(&call.state.egress, &callback.url).await?;
    let events = [
        (callback.values, wire::StreamMode::Values, NO_VALUES),
        (callback.updates, wire::StreamMode::Custom, NO_UPDATES),
    ];
    let is_missing = |(wanted, mode, _): &(bool, wire::StreamMode, &str)| {
        *wanted && mapping::missing(card, &[*mode]).is_some()
    };
    warnings.extend(events.iter().filter(|event| is_missing(event)).map(|(_, _, why)| *why));
    Ok(Some(callback))
}

/// Without a thread of the client, no other run is in the way.
fn strategy(body: &wire::RunCreate, is_stateless: bool) -> Strategy {
    if is_stateless {
        return Strategy::Enqueue;
    }
    match body.multitask_strategy.unwrap_or_default() {
        wire::MultitaskStrategy::Reject => Strategy::Reject,
        wire::MultitaskStrategy::Rollback => Strategy::Rollback,
        wire::MultitaskStrategy::Interrupt => Strategy::Interrupt,
        wire::MultitaskStrategy::Enqueue => Strategy::Enqueue,
    }
}

/// Returns the request in the form that is shown with its run.
fn stored_request(
    call: &ConnectCall,
    card: &AgentCard,
    instance: Option<&ConfigurationRow>,
    is_stateless: bool,
) -> Result<Json> {
    let body = call.body.trim_ascii();
    let body = if body.is_empty() { Json::empty_object() } else { Json::parse(call.body.clone())? };
    let body = match instance {
        None => body,
        Some(row) => {
            let id = Json::from_value(&row.id.as_str().into());
            body.with_member("configuration_id", Some(&id)).unwrap_or(body)
        }
    };
    mapping::creation(card, &body, is_stateless)
}
