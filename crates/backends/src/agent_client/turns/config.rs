//! The configuration of a run: the mode and the options of the agent's session, each by its id or its name; the folder in which the session works; and permission rules.

use serde_json::Value;
use trilogue_domain::error::{Code, Error};
use trilogue_domain::{AgentName, Json};
use trilogue_runtime::RunContext;

use crate::agent_client::failure::AgentFailure;
use crate::agent_client::opening::{FOLDER_MEMBER, note_choice};
use crate::agent_client::session::{Session, setting, settings_of};
use crate::permission::unattended::{refused_setting, text_of};
use crate::permission::{RULES_MEMBER, Rules};

/// Applies the configuration to the session. Refuses members other than the agent's settings.
pub(super) async fn configure(
    context: &RunContext,
    session: &Session,
    config: &Json,
    unattended: &[String],
) -> Result<(), AgentFailure> {
    let thread = &context.thread_context();
    let refusal = |why: &str| config_refusal(thread.agent(), why, session);
    let Some(members) = config.members() else {
        return match config.as_str().trim() {
            "null" => Ok(()),
            _ => Err(refusal("the configuration is not an object")),
        };
    };
    for (name, value) in members {
        match name.as_str() {
            // The session was already opened in this folder.
            FOLDER_MEMBER => continue,
            RULES_MEMBER => {
                Rules::of_config(config)
                    .map_err(|error| refusal(&format!("`{RULES_MEMBER}`: {error}")))?;
                continue;
            }
            _ => {}
        }
        // No setting is a list or an object. They can need far more memory than their text.
        let value = match value.get().starts_with(['[', '{']) {
            true => Value::Null,
            false => serde_json::from_str(value.get()).unwrap_or_default(),
        };
        // The option that was set before may have changed this one.
        let now = session.modes().current().to_value();
        let setting = setting(&now, &name, &value, unattended).map_err(|why| refusal(&why))?;
        let Some(setting) = setting else { continue };
        // Only the agent knows the other names of its modes.
        if setting.is_unattended() && !context.can_answer() {
            let value = text_of(&value).unwrap_or_default();
            return Err(refused_setting(thread.agent(), context.source(), &name, &value).into());
        }
        let params = setting.apply(session).await?;
        note_choice(thread, session, &params).await;
    }
    Ok(())
}

fn config_refusal(agent: &AgentName, why: &str, session: &Session) -> AgentFailure {
    let message = format!("`config` does not fit the agent '{agent}': {why}");
    let has = settings_of(&session.modes().current().to_value());
    let hint = if has.is_empty() {
        "this agent has no settings; leave `config` out".to_owned()
    } else {
        format!("the agent has: {}", has.join("; "))
    };
    Error::new(Code::ConfigInvalid, message).hint(hint).into()
}
