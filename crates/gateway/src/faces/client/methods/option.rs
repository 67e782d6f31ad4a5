//! Sets modes and options of a session.

use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_domain::{AgentCard, Json};
use trilogue_mapping::agent_client as mapping;
use trilogue_wire::agent_client::{SetSessionConfigOptionRequest, SetSessionModeRequest};

use super::super::connection::queue::SessionQueue;
use super::super::connection::session::ClientSession;
use super::super::connection::{ClientConnection, Handshake};
use super::super::session::agent_session;
use super::super::thread_metadata::{CONFIG, config_of};
use super::super::wire::lines::MethodResult;
use super::request::{backend_of, invalid_params, read, session_error};
use super::{extension, open};

/// Sets the session's mode. Only hosted agents have modes.
pub(super) async fn set_mode(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    queue: &Arc<SessionQueue>,
    params: &str,
) -> MethodResult {
    const METHOD: &str = "session/set_mode";
    let request: SetSessionModeRequest = read(connection, params)?;
    let session = open::open(connection, handshake, queue).await?;
    open::begin_live(connection, &session).await;
    if !connection.is_hosted() {
        return Err(invalid_params("/modeId", "is unknown: the session has no modes"));
    }
    let result = extension::forward(connection, handshake, Some(&session), METHOD, params).await?;
    let mode = request.mode_id;
    let update = json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode });
    store_setting(connection, &session, update, None).await;
    Ok(result)
}

/// Sets an option. The result lists all options.
pub(super) async fn set_config_option(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    queue: &Arc<SessionQueue>,
    params: &str,
) -> MethodResult {
    const METHOD: &str = "session/set_config_option";
    let request: SetSessionConfigOptionRequest = read(connection, params)?;
    let session = open::open(connection, handshake, queue).await?;
    open::begin_live(connection, &session).await;
    if !connection.is_hosted() {
        let backend = backend_of(connection)?;
        let set = set_native_option(connection, &session, backend.card(), &request).await;
        return set.map_err(|error| session_error(&error, &queue.id));
    }
    let result = extension::forward(connection, handshake, Some(&session), METHOD, params).await?;
    let options = serde_json::from_slice(&result).ok().and_then(|mut result: Value| {
        result.get_mut("configOptions").filter(|it| it.is_array()).map(Value::take)
    });
    if let Some(options) = options {
        let update = json!({ "sessionUpdate": "config_option_update", "configOptions": options });
        store_setting(connection, &session, update, Some((&request.config_id, params))).await;
    }
    Ok(agent_session::for_client(connection, std::str::from_utf8(&result).unwrap_or("{}")))
}

/// Sets an option of a native agent, in the configuration of the thread's runs.
async fn set_native_option(
    connection: &ClientConnection,
    session: &ClientSession,
    card: &AgentCard,
    request: &SetSessionConfigOptionRequest,
) -> trilogue_domain::Result<Vec<u8>> {
    let row = connection.thread(session.id()).await?;
    let config = mapping::set_config_option(card, config_of(&row).as_ref(), request)?;
    connection.runtime().check_config(&card.name, &config)?;
    let setting = config.to_value();
    let metadata = Json::from_value(&json!({ CONFIG: setting }));
    session.state().own_settings.push(setting.clone());
    let patched = connection.patch_metadata(&row.id, metadata).await;
    if let Err(error) = patched {
        session.state().take_own_setting(&setting);
        return Err(error);
    }
    let options = agent_session::options_of(connection, card, Some(&config));
    Ok(json!({ "configOptions": options }).to_string().into_bytes())
}

/// Logs a setting, so that other clients receive it. `chosen` contains the option that the client chose, with the request's parameters.
async fn store_setting(
    connection: &ClientConnection,
    session: &ClientSession,
    update: Value,
    chosen: Option<(&str, &str)>,
) {
    session.state().own_settings.push(update.clone());
    let context = connection.runtime().thread_context(&session.thread, &connection.agent);
    let chosen = chosen.map(|(option, params)| {
        let mut choice: Value = serde_json::from_str(params).unwrap_or_default();
        if let Some(members) = choice.as_object_mut() {
            members.retain(|name, _| matches!(name.as_str(), "value" | "type"));
        }
        json!({ option: choice })
    });
    if let Err(error) = agent_session::store_setting(&context, &update, chosen).await {
        tracing::warn!(thread = %session.thread.id, %error, "a client's setting is not stored");
        session.state().take_own_setting(&update);
    }
}
