//! Applies the agent's settings to a newly opened session, before its first use.

use serde_json::Value;
use trilogue_domain::error::{Code, Error};

use crate::agent_client::failure::AgentFailure;
use crate::agent_client::launch::SessionDefaults;
use crate::agent_client::session::{Session, setting, settings_of};

/// The member of settings that names the mode.
const MODE: &str = "mode";

/// Sets the mode and the options. If a setting fails, the session is not used: its agent could do more than its settings allow.
pub(super) async fn set_defaults(
    defaults: &SessionDefaults,
    session: &Session,
) -> Result<(), AgentFailure> {
    if !defaults.mode.is_empty() {
        let now = session.modes().current().to_value();
        let offered = defaults
            .mode
            .iter()
            .find_map(|mode| setting(&now, MODE, &Value::from(mode.as_str()), &[]).ok());
        let missing = || format!("it offers no mode '{}'", defaults.mode.join("' or '"));
        let Some(mode) = offered else { return Err(defaults_refusal(session, &missing())) };
        if let Some(mode) = mode {
            mode.apply(session).await?;
        }
    }
    for (name, value) in &defaults.options {
        let now = session.modes().current().to_value();
        let option =
            setting(&now, name, value, &[]).map_err(|why| defaults_refusal(session, &why))?;
        if let Some(option) = option {
            option.apply(session).await?;
        }
    }
    Ok(())
}

fn defaults_refusal(session: &Session, why: &str) -> AgentFailure {
    let agent = session.process().agent();
    let message = format!("the agent '{agent}' cannot be set as its settings want: {why}");
    let has = settings_of(&session.modes().current().to_value());
    let hint = match has.is_empty() {
        true => "the agent has no modes and no options; leave them out of its settings".to_owned(),
        false => format!("the agent has: {}", has.join("; ")),
    };
    Error::new(Code::ConfigInvalid, message).hint(hint).into()
}
