use serde::Deserialize as _;
use serde_json::{Map, Value};
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
    let Ok(members) = config.read::<Map<String, Value>>() else {
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
    let tags = match members.get("tags") {
        None | Some(Value::Null) => Vec::new(),
        Some(tags) => Vec::deserialize(tags)
            .map_err(|_| wrong("/config/tags", "must be an array of strings"))?,
    };
    let recursion_limit = match members.get("recursion_limit") {
        None | Some(Value::Null) => None,
        Some(limit) => Some(
            limit.as_i64().ok_or_else(|| wrong("/config/recursion_limit", "must be an integer"))?,
        ),
    };
    let written: Written = config.read().unwrap_or_default();
    let configurable = written.configurable.map(read_json).transpose()?;
    Ok(RunConfig { tags, recursion_limit, configurable })
}

#[derive(Default, serde::Deserialize)]
struct Written {
    #[serde(default)]
    configurable: Option<wire::Json>,
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
    let (Value::Object(mut members), Value::Object(over)) = (instance.to_value(), run.to_value())
    else {
        return Some(run.clone());
    };
    members.extend(over);
    Some(Json::from_value(&Value::Object(members)))
}

/// Returns a configuration for display: without the members that the agent's schema marks as `writeOnly` or with the format `password`.
pub fn shown_config(card: &AgentCard, config: &Json) -> Json {
    let schema = card.config_schema.as_ref().map_or(Value::Null, Json::to_value);
    let secret = |key: &str| {
        schema.get("properties").and_then(|all| all.get(key)).is_some_and(|property| {
            property.get("writeOnly") == Some(&Value::Bool(true))
                || property.get("format").and_then(Value::as_str) == Some("password")
        })
    };
    match config.to_value() {
        Value::Object(mut members) if members.keys().any(|key| secret(key)) => {
            members.retain(|key, _| !secret(key));
            Json::from_value(&Value::Object(members))
        }
        _ => config.clone(),
    }
}
