use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Code, Error, Json, Violation};
use trilogue_wire::agent_connect as wire;

use crate::native::read_json;

/// The members in the form of the published document.
const MEMBERS: [&str; 3] = ["tags", "recursion_limit", "configurable"];

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunConfig {
    pub tags: Vec<String>,
    /// The recursion limit; not enforced here.
    pub recursion_limit: Option<i64>,
    pub configurable: Option<Json>,
}

/// Reads `config`: an object of only `tags`, `recursion_limit` and `configurable`, otherwise the configuration itself.
/// Errors: `config_schema_violation` if it is a mixture of both, or a member of the first form has a wrong type; `json_too_deep`.
pub fn config(config: Option<&wire::Json>) -> Result<RunConfig> {
    let Some(config) = config else { return Ok(RunConfig::default()) };
    // The values stay text: parsed, they can need far more memory.
    let Ok(members) = config.read::<BTreeMap<String, &RawValue>>() else {
        return itself(config);
    };
    let known = |key: &&String| MEMBERS.contains(&key.as_str());
    if members.keys().filter(known).count() == 0 && !members.is_empty() {
        return itself(config);
    }
    if let Some(odd) = members.keys().find(|key| !known(key)) {
        let path = format!("/config/{}", odd.replace('~', "~0").replace('/', "~1"));
        return Err(wrong(
            path,
            "stands beside `tags`, `recursion_limit` or `configurable`: write the configuration alone, or under `configurable`",
        ));
    }
    let tags = member(&members, "tags")
        .map_err(|_| wrong("/config/tags", "must be an array of strings"))?
        .unwrap_or_default();
    let recursion_limit = member(&members, "recursion_limit")
        .map_err(|_| wrong("/config/recursion_limit", "must be an integer"))?;
    let configurable = members.get("configurable").filter(|value| value.get() != "null");
    let configurable = configurable.map(|value| Json::parse(value.get().to_owned())).transpose()?;
    Ok(RunConfig { tags, recursion_limit, configurable })
}

/// Returns the value of a member; `None` if it is absent or `null`.
fn member<'a, T: Deserialize<'a>>(
    members: &BTreeMap<String, &'a RawValue>,
    name: &str,
) -> serde_json::Result<Option<T>> {
    members.get(name).map_or(Ok(None), |value| serde_json::from_str(value.get()))
}

fn itself(config: &wire::Json) -> Result<RunConfig> {
    let configurable = Some(read_json(config.clone())?);
    Ok(RunConfig { configurable, ..RunConfig::default() })
}

fn wrong(path: impl Into<String>, why: &str) -> Error {
    let path = path.into();
    Error::new(Code::ConfigInvalid, format!("{path} {why}"))
        .violations(vec![Violation { path, message: why.to_owned() }])
}

/// Returns the configuration of a run of a configured instance: the run's members override the instance's; a value that is not an object replaces it whole.
pub fn merged(instance: Option<&Json>, run: Option<&Json>) -> Option<Json> {
    let (Some(instance), Some(run)) = (instance, run) else {
        return run.or(instance).cloned();
    };
    Some(instance.overridden(run).unwrap_or_else(|| run.clone()))
}

/// Returns a configuration for display: without its secret settings.
pub fn shown_config(card: &AgentCard, config: &Json) -> Json {
    let secrets = secret_settings(card).into_iter();
    secrets.fold(config.clone(), |shown, name| shown.with_member(&name, None).unwrap_or(shown))
}

/// Returns the members of the configuration that the agent's schema marks as `writeOnly` or with the format `password`.
pub(super) fn secret_settings(card: &AgentCard) -> Vec<String> {
    let schema = card.config_schema.as_ref().map_or(Value::Null, Json::to_value);
    let properties = schema.get("properties").and_then(Value::as_object);
    let is_secret = |property: &Value| {
        property.get("writeOnly") == Some(&Value::Bool(true))
            || property.get("format").and_then(Value::as_str) == Some("password")
    };
    let secrets = properties.into_iter().flatten().filter(|(_, property)| is_secret(property));
    secrets.map(|(name, _)| name.clone()).collect()
}
