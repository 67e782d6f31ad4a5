//! An agent's configuration as options of a session.

use serde_json::{Map, Value};
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Code, Error, Json, Violation};
use trilogue_wire::agent_client::{
    ClientCapabilities, SessionConfigBoolean, SessionConfigOption, SessionConfigSelect,
    SessionConfigSelectOption, SessionConfigValue, SetSessionConfigOptionRequest,
};

use crate::choice::choices;

/// Returns the session options for an agent's configuration schema: its choices and its booleans. `config` has the current values.
/// Secret properties become no options.
pub fn config_options(card: &AgentCard, config: Option<&Json>) -> Vec<SessionConfigOption> {
    let schema = card.config_schema.as_ref().map_or(Value::Null, Json::to_value);
    let config = config.map_or(Value::Null, Json::to_value);
    let properties = schema.get("properties").and_then(Value::as_object);
    let options = properties.into_iter().flatten().filter_map(|(name, property)| {
        let current = config.get(name).or_else(|| property.get("default"));
        option(name, property, current)
    });
    options.collect()
}

pub fn takes_boolean_options(client: &ClientCapabilities) -> bool {
    let session = client.session.as_ref().and_then(|session| session.config_options.as_ref());
    session.is_some_and(|options| options.boolean.is_some())
}

pub fn for_client(
    mut options: Vec<SessionConfigOption>,
    client: &ClientCapabilities,
) -> Vec<SessionConfigOption> {
    if !takes_boolean_options(client) {
        options.retain(|option| !matches!(option, SessionConfigOption::Boolean(_)));
    }
    options
}

/// Returns the configuration with an option set; fails with `config_schema_violation` if the option is unknown or does not accept the value.
pub fn set_config_option(
    card: &AgentCard,
    config: Option<&Json>,
    request: &SetSessionConfigOptionRequest,
) -> Result<Json> {
    let name = &request.config_id;
    let wrong = |path: &str, why: String| {
        Error::new(Code::ConfigInvalid, format!("{path} {why}"))
            .violations(vec![Violation { path: path.to_owned(), message: why }])
    };
    let schema = card.config_schema.as_ref().map_or(Value::Null, Json::to_value);
    let property = schema.get("properties").and_then(|all| all.get(name));
    let Some(property) = property.filter(|property| option(name, property, None).is_some()) else {
        return Err(wrong("/configId", "is unknown: the agent has no such option".to_owned()));
    };
    let value = match &request.value {
        SessionConfigValue::Boolean(value) if is_boolean(property) => Value::from(*value),
        SessionConfigValue::Id(id) => {
            let choices = choices(property);
            let chosen = choices.iter().find(|choice| choice.id == *id);
            let Some(chosen) = chosen else {
                let ids: Vec<_> = choices.iter().map(|choice| choice.id.as_str()).collect();
                let what = if ids.is_empty() {
                    "is not a boolean".to_owned()
                } else {
                    format!("is not one of: {}", ids.join(", "))
                };
                return Err(wrong("/value", what));
            };
            chosen.value.clone()
        }
        SessionConfigValue::Boolean(_) => {
            return Err(wrong("/value", "is a boolean, which the option is not".to_owned()));
        }
    };
    let mut set = Map::new();
    set.insert(name.clone(), value);
    let set = Json::from_value(&Value::Object(set));
    Ok(config.cloned().unwrap_or_else(Json::empty_object).merged(&set))
}

fn option(name: &str, property: &Value, current: Option<&Value>) -> Option<SessionConfigOption> {
    if is_secret(property) {
        return None;
    }
    let text = |key: &str| property.get(key).and_then(Value::as_str).map(str::to_owned);
    let title = text("title").unwrap_or_else(|| name.to_owned());
    if is_boolean(property) {
        let is_on = current.and_then(Value::as_bool).unwrap_or_default();
        let mut boolean = SessionConfigBoolean::new(name, title, is_on);
        boolean.description = text("description");
        return Some(SessionConfigOption::Boolean(boolean));
    }
    let choices = choices(property);
    let chosen = choices.iter().find(|choice| Some(&choice.value) == current);
    let chosen = chosen.or(choices.first())?.id.clone();
    let options: Vec<_> = choices
        .into_iter()
        .map(|choice| SessionConfigSelectOption {
            description: choice.description,
            ..SessionConfigSelectOption::new(choice.id, choice.name)
        })
        .collect();
    let mut select = SessionConfigSelect::new(name, title, chosen, options);
    select.description = text("description");
    Some(SessionConfigOption::Select(Box::new(select)))
}

fn is_boolean(property: &Value) -> bool {
    property.get("type").and_then(Value::as_str) == Some("boolean")
}

fn is_secret(property: &Value) -> bool {
    property.get("writeOnly") == Some(&Value::Bool(true))
        || property.get("format").and_then(Value::as_str) == Some("password")
}
