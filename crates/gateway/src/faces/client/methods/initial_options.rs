//! Initial values of options, which clients can send when they open a session. A value that the session does not have is ignored.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_domain::Json;
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::Sessions;
use trilogue_store::rows::ThreadRow;
use trilogue_wire::agent_client::{InitialConfigOption, SetSessionConfigOptionRequest};
use trilogue_wire::jsonrpc::ErrorObject;

use super::super::asking::agent_calls::AgentCalls;
use super::super::connection::session::ClientSession;
use super::super::connection::{ClientConnection, Handshake};
use super::super::session::agent_session;
use super::super::thread_metadata::{CONFIG, config_of};
use super::open::open_agent_session_if_needed;
use super::request::{backend_of, invalid_params};

const METHOD: &str = "session/set_config_option";

/// Fails if an option is named twice.
pub(super) fn check(options: &[InitialConfigOption]) -> Result<(), ErrorObject> {
    let mut known = HashSet::new();
    match options.iter().position(|option| !known.insert(option.config_id.as_str())) {
        None => Ok(()),
        Some(index) => {
            let path = format!("/configOptions/{index}/configId");
            Err(invalid_params(&path, "is named twice"))
        }
    }
}

/// Sets options of an existing session.
pub(super) async fn set_in_session(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    session: &ClientSession,
    options: &[InitialConfigOption],
) -> Result<(), ErrorObject> {
    let Some(sessions) = backend_of(connection)?.sessions() else {
        set_native(connection, &session.thread, options).await;
        return Ok(());
    };
    open_agent_session_if_needed(connection, handshake, session).await?;
    set(connection, handshake, sessions, &session.thread, options).await;
    Ok(())
}

/// Sets options of a hosted agent's open session. Returns all options if any was set.
pub(super) async fn set(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    sessions: &dyn Sessions,
    thread: &ThreadRow,
    options: &[InitialConfigOption],
) -> Option<Value> {
    let context = connection.runtime().thread_context(thread, &connection.agent);
    let mut all = None;
    for option in options {
        let mut choice = json!({ "value": option.value });
        if let Some(kind) = &option.kind {
            choice["type"] = kind.as_str().into();
        }
        let mut params = choice.clone();
        params["configId"] = option.config_id.as_str().into();
        let caller = AgentCalls::of_request(connection, handshake);
        let called = sessions.call(Some(&context), &caller, METHOD, Json::from_value(&params));
        let result = match called.await {
            Ok(result) => result.to_value(),
            Err(error) => {
                let (thread, option) = (&thread.id, &option.config_id);
                tracing::debug!(%thread, option, ?error, "initial value of an option not set");
                continue;
            }
        };
        let Some(options) = result.get("configOptions").filter(|it| it.is_array()) else {
            continue;
        };
        let update = json!({ "sessionUpdate": "config_option_update", "configOptions": options });
        let chosen = Some(json!({ &option.config_id: choice }));
        if let Err(error) = agent_session::store_setting(&context, &update, chosen).await {
            tracing::warn!(thread = %thread.id, %error, "a client's setting is not stored");
        }
        all = Some(options.clone());
    }
    all
}

/// Sets options of a native agent, in the configuration of the thread's runs. Returns the configuration.
pub(super) async fn set_native(
    connection: &ClientConnection,
    thread: &ThreadRow,
    options: &[InitialConfigOption],
) -> Option<Json> {
    let before = config_of(thread);
    let Ok(backend) = connection.backend() else { return before };
    let card = backend.card();
    let mut config = before.clone();
    for option in options {
        let (id, value) = (option.config_id.clone(), option.value.clone());
        let request = SetSessionConfigOptionRequest {
            kind: option.kind.clone(),
            ..SetSessionConfigOptionRequest::new(thread.id.as_str(), id, value)
        };
        let set = mapping::set_config_option(card, config.as_ref(), &request);
        let is_valid =
            |config: &Json| connection.runtime().check_config(&card.name, config).is_ok();
        if let Some(set) = set.ok().filter(is_valid) {
            config = Some(set);
        }
    }
    if config == before {
        return before;
    }
    let setting = config.as_ref().map(Json::to_value);
    let metadata = Json::from_value(&json!({ CONFIG: setting }));
    match connection.patch_metadata(&thread.id, metadata).await {
        Ok(()) => config,
        Err(error) => {
            tracing::warn!(thread = %thread.id, %error, "a client's setting is not stored");
            before
        }
    }
}
