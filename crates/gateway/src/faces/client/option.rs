//! Modes and options of a session.

use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_domain::{AgentCard, Json};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::ThreadPatch;
use trilogue_wire::agent_client::{SetSessionConfigOptionRequest, SetSessionModeRequest};

use super::catch_up::Start;
use super::lane::Lane;
use super::link::{Answer, Link, Met};
use super::pump::Order;
use super::request::{invalid_params, read, session_error};
use super::session::{CONFIG, Session, config_of};
use super::{extension, open, opened};

/// Puts the session into a mode. Only hosted agents have some.
pub(super) async fn set_mode(
    link: &Arc<Link>,
    met: &Met,
    lane: &Arc<Lane>,
    params: &str,
) -> Answer {
    let request: SetSessionModeRequest = read(link, params)?;
    let session = open::open(link, met, lane).await?;
    start(link, &session).await;
    if is_hosted(link) {
        const METHOD: &str = "session/set_mode";
        let result = extension::forward(link, met, Some(&session), METHOD, params).await?;
        let mode = request.mode_id;
        let update = json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode });
        was_set(link, &session, update, None).await;
        return Ok(result);
    }
    Err(invalid_params("/modeId", "is none of the session's modes, of which there are none"))
}

/// Gives an option a value, and answers with all of them.
pub(super) async fn set_config_option(
    link: &Arc<Link>,
    met: &Met,
    lane: &Arc<Lane>,
    params: &str,
) -> Answer {
    const METHOD: &str = "session/set_config_option";
    let request: SetSessionConfigOptionRequest = read(link, params)?;
    let session = open::open(link, met, lane).await?;
    start(link, &session).await;
    if is_hosted(link) {
        let result = extension::forward(link, met, Some(&session), METHOD, params).await?;
        let options = serde_json::from_slice(&result).ok().and_then(|mut result: Value| {
            result.get_mut("configOptions").filter(|it| it.is_array()).map(Value::take)
        });
        if let Some(options) = options {
            let kind = "config_option_update";
            let update = json!({ "sessionUpdate": kind, "configOptions": options });
            was_set(link, &session, update, Some((&request.config_id, params))).await;
        }
        return Ok(opened::shown(link, std::str::from_utf8(&result).unwrap_or("{}")));
    }
    let card = link.backend().map_err(|error| mapping::error_object(&error))?.card();
    set(link, &session, card, &request).await.map_err(|error| session_error(&error, &lane.id))
}

async fn set(
    link: &Link,
    session: &Session,
    card: &AgentCard,
    request: &SetSessionConfigOptionRequest,
) -> trilogue_domain::Result<Vec<u8>> {
    let row = session.row(link).await?;
    let config = mapping::set_config_option(card, config_of(&row).as_ref(), request)?;
    link.runtime().check_config(&card.name, &config)?;
    let metadata = json!({ CONFIG: config.to_value() });
    let patch =
        ThreadPatch { metadata: Some(Json::from_value(&metadata)), ..ThreadPatch::default() };
    let given = config.to_value();
    session.state().set.push(given.clone());
    let patched = link.runtime().patch_thread(&link.principal, &row.id, patch).await;
    if let Err(error) = patched {
        session.state().take_set(&given);
        return Err(error);
    }
    let options = opened::options_of(link, card, Some(&config));
    Ok(json!({ "configOptions": options }).to_string().into_bytes())
}

/// Has the session's other clients told what this one has set, and the log remember it. `chosen` is the option that it gave a value, and the request that said which.
async fn was_set(link: &Link, session: &Session, update: Value, chosen: Option<(&str, &str)>) {
    session.state().set.push(update.clone());
    let context = link.runtime().thread_context(&session.thread, &link.agent);
    let chosen = chosen.map(|(option, params)| {
        let mut choice: Value = serde_json::from_str(params).unwrap_or_default();
        if let Some(members) = choice.as_object_mut() {
            members.retain(|name, _| matches!(name.as_str(), "value" | "type"));
        }
        json!({ option: choice })
    });
    if let Err(error) = opened::keep_set(&context, &update, chosen).await {
        tracing::warn!(thread = %session.thread.id, %error, "what a client has set is not kept");
        session.state().take_set(&update);
    }
}

/// Shows a session from here on, where it was not open before.
pub(super) async fn start(link: &Link, session: &Arc<Session>) {
    if session.begin() {
        let last = *link.read().tail(session.thread.key).committed.borrow();
        let start = Start::live(last, last);
        session.order(Order::Start(start)).await;
    }
}

fn is_hosted(link: &Link) -> bool {
    link.backend().is_ok_and(|backend| backend.sessions().is_some())
}
