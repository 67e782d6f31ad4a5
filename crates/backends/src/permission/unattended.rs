//! Configuration of a run that lets its agent act without a question. Only a caller that could answer the questions may use it.

use serde_json::Value;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::{AgentName, Json, RequestSource};
use trilogue_runtime::RunCaller;

use super::{RULES_MEMBER, Rules};

/// Modes of known agents that ask nothing, as whole words.
const MODES: [&str; 5] = ["auto", "autonomous", "autopilot", "never", "agentfullaccess"];
/// Names of modes, options or values with which agents do not ask: without spaces, `-` and `_`, in lower case.
const WORDS: [&str; 25] = [
    "acceptedits",
    "allowall",
    "allowalways",
    "alwaysallow",
    "alwaysapprove",
    "approveall",
    "autoaccept",
    "autoallow",
    "autoapprove",
    "autoedit",
    "bypass",
    "danger",
    "dontask",
    "fullaccess",
    "fullauto",
    "neverask",
    "noapproval",
    "noask",
    "noconfirm",
    "skipapproval",
    "skippermission",
    "smartapprove",
    "unattended",
    "withoutask",
    "yolo",
];
/// Values with which an agent asks each time.
const ASKING: [&str; 5] = ["ask", "alwaysask", "askalways", "manual", "prompt"];
/// Parts of the names of options that control questions. Their values without questions have too many names to list.
const OPTIONS: [&str; 4] = ["approv", "permission", "confirm", "trust"];

/// Fails as [`check_rules`] and [`check_settings`].
pub(crate) fn check(
    agent: &AgentName,
    caller: &RunCaller<'_>,
    config: &Json,
    further: &[String],
) -> Result<()> {
    check_rules(agent, caller, config)?;
    check_settings(agent, caller, config, further)
}

/// Fails with `forbidden` if the rules of a configuration allow a call whose question the caller could not answer.
pub(crate) fn check_rules(agent: &AgentName, caller: &RunCaller<'_>, config: &Json) -> Result<()> {
    if caller.can_answer {
        return Ok(());
    }
    // Invalid rules fail later, with the reason.
    let rules = Rules::of_config(config).unwrap_or_default();
    match rules.first_that_allows() {
        None => Ok(()),
        Some(rule) => {
            let what = format!("`config.{RULES_MEMBER}`: the rule '{rule}' allows calls");
            Err(forbidden(agent, caller.source, &what))
        }
    }
}

/// Fails with `forbidden` if a setting of a configuration keeps the agent from asking a caller that could not answer. `further` are additional values of the agent with this effect.
fn check_settings(
    agent: &AgentName,
    caller: &RunCaller<'_>,
    config: &Json,
    further: &[String],
) -> Result<()> {
    if caller.can_answer {
        return Ok(());
    }
    let Some(members) = config.members() else { return Ok(()) };
    // Lists and objects are no settings, and stay text.
    let is_setting =
        |name: &str, value: &str| name != RULES_MEMBER && !value.starts_with(['[', '{']);
    let settings = members.iter().filter(|(name, value)| is_setting(name, value.get()));
    for (name, value) in settings {
        let value = serde_json::from_str(value.get()).ok();
        let Some(value) = value.as_ref().and_then(text_of) else { continue };
        if is_unattended(&[name], &[&value], further) {
            return Err(refused_setting(agent, caller.source, name, &value));
        }
    }
    Ok(())
}

pub(crate) fn refused_setting(
    agent: &AgentName,
    source: RequestSource,
    name: &str,
    value: &str,
) -> Error {
    let (name, value) = (name.escape_debug(), value.escape_debug());
    forbidden(agent, source, &format!("`config.{name}` = '{value}' keeps the agent from asking"))
}

/// Whether an agent asks less with this value of a mode or an option. Each may have several names.
#[must_use]
pub fn is_unattended(names: &[&str], values: &[&str], further: &[String]) -> bool {
    let plain = |text: &str| -> String {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let has_word = |text: &str| WORDS.iter().any(|word| text.contains(word));
    let is_off = |value: &&str| matches!(plain(value).as_str(), "false" | "off" | "no");
    let decides = |name: &&str| OPTIONS.iter().any(|word| plain(name).contains(word));
    let is_skip = |name: &&str| has_word(&plain(name));
    // Models of some agents are called `auto` too.
    let is_mode = names.iter().any(|name| plain(name).replace("model", "").contains("mode"));
    let skips = |value: &&str| {
        let value = plain(value);
        (is_mode && MODES.contains(&value.as_str()))
            || has_word(&value)
            || further.iter().any(|it| plain(it) == value)
    };
    let asks = |value: &&str| ASKING.contains(&plain(value).as_str());
    values.iter().any(skips)
        || (names.iter().any(decides) && !values.iter().any(asks))
        || (names.iter().any(is_skip) && !values.iter().any(is_off))
}

/// The text of a value of an option.
pub(crate) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn forbidden(agent: &AgentName, source: RequestSource, what: &str) -> Error {
    if source == RequestSource::Agent {
        let message = format!("{what} without a question, which an agent cannot decide");
        return Error::new(Code::Forbidden, message)
            .hint(format!("leave it out, or let the operator set `agents.{agent}.permissions`"));
    }
    let message = format!("{what} without a question, and the caller lacks the right 'answer'");
    Error::new(Code::Forbidden, message).hint(
        "leave it out, or use a token that may answer: trilogue token create --label NAME --right run --right answer",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_options_without_questions_are_known_by_their_names() {
        for (name, value) in [
            ("mode", "bypassPermissions"),
            ("mode", "Bypass Permissions"),
            ("mode", "acceptEdits"),
            ("mode", "dontAsk"),
            ("mode", "yolo"),
            ("mode", "auto_edit"),
            ("mode", "auto"),
            ("mode", "full-access"),
            ("mode", "danger-full-access"),
            ("mode", "smart_approve"),
            ("yolo", "true"),
            ("approval_policy", "on-failure"),
            ("approval", "ask-never"),
            ("permissionMode", "x"),
            ("mode", "house style"),
        ] {
            assert!(
                is_unattended(&[name], &[value], &["House Style".to_owned()]),
                "{name} {value}"
            );
        }
        for (name, value) in [
            ("mode", "default"),
            ("mode", "plan"),
            ("mode", "ask"),
            ("mode", "code"),
            ("mode", "read-only"),
            ("approval", "ask"),
            ("permissionMode", "always-ask"),
            ("model", "auto"),
            ("yolo", "false"),
            ("verbose", "true"),
        ] {
            assert!(!is_unattended(&[name], &[value], &[]), "{name} {value}");
        }
    }
}
