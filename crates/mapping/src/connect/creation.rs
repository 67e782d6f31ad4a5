//! A run's request, in its kept and shown form.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Callback, Code, Error, Json, limits};
use trilogue_wire::agent_connect as wire;
use trilogue_wire::agent_connect::{CallbackEvent, RunCreate};

use super::agent::agent_id;
use super::config::{secret_settings, shown_config};

/// The members that a too large request loses, in this order: other resources show them.
const DISPENSABLE: [&str; 6] = ["input", "message", "callback", "webhook", "config", "metadata"];

/// Returns the request that is shown with its run: as received, with defaults filled in, and without secrets.
/// It has at most [`limits::MAX_KEPT_REQUEST_BYTES`] bytes; a larger one loses its input first.
/// Errors: `invalid_json` if the body is not an object.
pub fn creation(card: &AgentCard, body: &Json, is_stateless: bool) -> Result<Json> {
    let mut members: BTreeMap<String, wire::Json> =
        serde_json::from_str(body.as_str()).map_err(|error| {
            Error::new(Code::InvalidJson, format!("the request is not an object: {error}"))
        })?;
    members.retain(|key, value| value.as_str() != "null" || key == "stream_mode");
    let mut or = |key: &str, value: Value| {
        members.entry(key.to_owned()).or_insert_with(|| wire::Json::from_value(&value));
    };
    or("agent_id", json!(agent_id(card)));
    or("stream_mode", Value::Null);
    or("on_disconnect", json!("cancel"));
    or("multitask_strategy", json!("reject"));
    if is_stateless {
        or("on_completion", json!("delete"));
    } else {
        or("stream_subgraphs", json!(false));
        or("if_not_exists", json!("reject"));
    }
    if let Some(config) = members.get_mut("config") {
        *config = run_config_for_display(card, config);
    }
    for key in ["webhook", "callback"] {
        if let Some(address) = members.get_mut(key) {
            *address = without_credentials(address);
        }
    }
    let mut kept = write(&members);
    for key in DISPENSABLE {
        if kept.len() <= limits::MAX_KEPT_REQUEST_BYTES {
            break;
        }
        members.remove(key);
        kept = write(&members);
    }
    if kept.len() > limits::MAX_KEPT_REQUEST_BYTES {
        kept = json!({ "agent_id": agent_id(card) }).to_string();
    }
    Json::parse(kept)
}

fn write(members: &BTreeMap<String, wire::Json>) -> String {
    serde_json::to_string(members).unwrap_or_default()
}

/// Returns the shown configuration. One that is not an object moves into the form of the published document.
fn run_config_for_display(card: &AgentCard, config: &wire::Json) -> wire::Json {
    // Each step below copies a configuration, which can be large.
    let is_shown_whole = |members: BTreeMap<String, &RawValue>| {
        members.values().all(|value| value.get() != "null") && secret_settings(card).is_empty()
    };
    if config.read().is_ok_and(is_shown_whole) {
        return config.clone();
    }
    let Ok(mut members) = config.read::<BTreeMap<String, wire::Json>>() else {
        let text = format!("{{\"configurable\":{}}}", config.as_str());
        return wire::Json::parse(text).unwrap_or_else(|_| wire::Json::null());
    };
    let open = |config: &wire::Json| match Json::parse(config.as_str().to_owned()) {
        Ok(config) => crate::native::json(&shown_config(card, &config)),
        Err(_) => wire::Json::null(),
    };
    members.retain(|_, value| value.as_str() != "null");
    match members.get_mut("configurable") {
        Some(configurable) => *configurable = open(configurable),
        None => return open(config),
    }
    wire::Json::parse(write(&members)).unwrap_or_else(|_| wire::Json::null())
}

fn without_credentials(address: &wire::Json) -> wire::Json {
    let cut = |url: &str| {
        let (scheme, rest) = url.split_once("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        let (_, host) = authority.rsplit_once('@')?;
        Some(format!("{scheme}://{host}{path}"))
    };
    let mut value = address.to_value();
    let url = match &mut value {
        Value::Object(members) => members.get_mut("url"),
        other => Some(other),
    };
    let Some(url) = url else { return address.clone() };
    match url.as_str().and_then(cut) {
        Some(bare) => {
            *url = Value::from(bare);
            wire::Json::from_value(&value)
        }
        None => address.clone(),
    }
}

/// Returns the callback of a run's client. Whether the server may call the address is not decided here.
/// Errors: `invalid_webhook` if `webhook` and `callback` name two addresses, or the address is empty or too long.
pub fn callback(request: &RunCreate) -> Result<Option<Callback>> {
    let refused = |why: String| Error::new(Code::InvalidWebhook, why);
    let (url, events) = match (&request.webhook, &request.callback) {
        (None, None) => return Ok(None),
        (Some(webhook), Some(callback)) if *webhook != callback.url => {
            let both = "`webhook` and `callback` name two addresses".to_owned();
            return Err(refused(both).hint("`callback` alone can say of what to be called back"));
        }
        (Some(webhook), None) => (webhook, None),
        (_, Some(callback)) => (&callback.url, callback.events.as_deref()),
    };
    if url.is_empty() || url.len() > limits::MAX_CALLBACK_URL_BYTES {
        let most = limits::MAX_CALLBACK_URL_BYTES;
        let size = url.len();
        return Err(refused(format!("the callback's address has {size} bytes, not 1 to {most}")));
    }
    let events = events.unwrap_or(&[CallbackEvent::Status]);
    Ok(Some(Callback {
        url: Arc::from(url.as_str()),
        status: events.contains(&CallbackEvent::Status),
        values: events.contains(&CallbackEvent::Values),
        updates: events.contains(&CallbackEvent::Custom),
    }))
}
