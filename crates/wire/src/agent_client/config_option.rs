use serde::Serialize;

use super::object::object;
use super::tagged::tagged;
use crate::json::scan;
use crate::json::schema::schema;
use crate::json::words::words;
use crate::json::{Path, Read, Violation, refusal};

tagged! {
    pub enum SessionConfigOption by "type" {
        Select(Box<SessionConfigSelect>) = "select";
        /// Only for clients with `session.configOptions.boolean`.
        Boolean(SessionConfigBoolean) = "boolean";
    }
}

object! {
    pub struct SessionConfigSelect {
        id: String = "id";
        /// For people.
        name: String = "name";
        current_value: String = "currentValue";
        options: SessionConfigSelectOptions = "options";
    } may {
        description: Option<String> = "description";
        category: Option<SessionConfigOptionCategory> = "category";
    }

    pub struct SessionConfigBoolean {
        id: String = "id";
        /// For people.
        name: String = "name";
        current_value: bool = "currentValue";
    } may {
        description: Option<String> = "description";
        category: Option<SessionConfigOptionCategory> = "category";
    }
}

words! {
    /// Implementations may define words that begin with `_`.
    pub open enum SessionConfigOptionCategory {
        Mode = "mode";
        Model = "model";
        ModelConfig = "model_config";
        ThoughtLevel = "thought_level";
        /// Unstable.
        Speed = "speed";
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum SessionConfigSelectOptions {
    Ungrouped(Vec<SessionConfigSelectOption>),
    Grouped(Vec<SessionConfigSelectGroup>),
}

object! {
    pub struct SessionConfigSelectOption {
        value: String = "value";
        /// For people.
        name: String = "name";
    } may {
        description: Option<String> = "description";
    }

    pub struct SessionConfigSelectGroup {
        group: String = "group";
        name: String = "name";
        options: Vec<SessionConfigSelectOption> = "options" as fitting_there;
    }

    pub struct ConfigOptionUpdate {
        config_options: Vec<SessionConfigOption> = "configOptions" as fitting_there;
    }

    pub struct SetSessionConfigOptionRequest {
        session_id: String = "sessionId";
        config_id: String = "configId";
        value: SessionConfigValue = "value";
    } may {
        /// `boolean` for a boolean value.
        kind: Option<String> = "type";
    }
    check kind_fits;

    /// Unstable. The initial value of an option, in a request that opens a session. A value that the option does not have is ignored.
    pub struct InitialConfigOption {
        config_id: String = "configId";
        value: SessionConfigValue = "value";
    } may {
        /// `boolean` for a boolean value.
        kind: Option<String> = "type";
    }
    check initial_kind_fits;
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum SessionConfigValue {
    Id(String),
    Boolean(bool),
}

object! {
    pub struct SetSessionConfigOptionResponse {
        /// All options of the session, because one may change others.
        config_options: Vec<SessionConfigOption> = "configOptions" as fitting_there;
    }
}

// === impl SessionConfigOption ===

impl SessionConfigOption {
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Select(select) => Some(&select.id),
            Self::Boolean(boolean) => Some(&boolean.id),
            Self::Other(_) => None,
        }
    }
}

// === impl SessionConfigSelectOptions ===

impl SessionConfigSelectOptions {
    pub fn iter(&self) -> impl Iterator<Item = &SessionConfigSelectOption> {
        let (plain, groups): (&[_], &[_]) = match self {
            Self::Ungrouped(options) => (options, &[]),
            Self::Grouped(groups) => (&[], groups),
        };
        plain.iter().chain(groups.iter().flat_map(|group| &group.options))
    }
}

impl From<Vec<SessionConfigSelectOption>> for SessionConfigSelectOptions {
    fn from(options: Vec<SessionConfigSelectOption>) -> Self {
        Self::Ungrouped(options)
    }
}

impl From<Vec<SessionConfigSelectGroup>> for SessionConfigSelectOptions {
    fn from(groups: Vec<SessionConfigSelectGroup>) -> Self {
        Self::Grouped(groups)
    }
}

impl Read for SessionConfigSelectOptions {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        let first = scan::items(json).next().unwrap_or_default();
        let is_group = scan::members(first).any(|member| member.key == "group");
        let is_value = scan::members(first).any(|member| member.key == "value");
        if is_group && !is_value {
            Vec::read(json, at).map(Self::Grouped)
        } else {
            Vec::read(json, at).map(Self::Ungrouped)
        }
    }
}

schema!(SessionConfigSelectOptions = "SessionConfigSelectOptions", |generator| {
    let plain = generator.subschema_for::<Vec<SessionConfigSelectOption>>();
    let groups = generator.subschema_for::<Vec<SessionConfigSelectGroup>>();
    schemars::json_schema!({ "anyOf": [plain, groups] })
});

// === impl SetSessionConfigOptionRequest ===

impl SetSessionConfigOptionRequest {
    pub fn boolean(
        session_id: impl Into<String>,
        config_id: impl Into<String>,
        value: bool,
    ) -> Self {
        let value = SessionConfigValue::Boolean(value);
        Self { kind: Some("boolean".to_owned()), ..Self::new(session_id, config_id, value) }
    }
}

fn kind_fits(request: &SetSessionConfigOptionRequest, at: &Path<'_>) -> Result<(), Violation> {
    check_kind(&request.value, request.kind.as_deref(), at)
}

fn initial_kind_fits(option: &InitialConfigOption, at: &Path<'_>) -> Result<(), Violation> {
    check_kind(&option.value, option.kind.as_deref(), at)
}

fn check_kind(
    value: &SessionConfigValue,
    kind: Option<&str>,
    at: &Path<'_>,
) -> Result<(), Violation> {
    let is_boolean = matches!(value, SessionConfigValue::Boolean(_));
    if is_boolean && kind != Some("boolean") {
        return Err(at.key("type").violation("must be \"boolean\" where the value is one"));
    }
    Ok(())
}

// === impl SessionConfigValue ===

impl From<String> for SessionConfigValue {
    fn from(id: String) -> Self {
        Self::Id(id)
    }
}

impl From<&str> for SessionConfigValue {
    fn from(id: &str) -> Self {
        Self::Id(id.to_owned())
    }
}

impl Read for SessionConfigValue {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        match json {
            "true" => Ok(Self::Boolean(true)),
            "false" => Ok(Self::Boolean(false)),
            _ if json.starts_with('"') => String::read(json, at).map(Self::Id),
            _ => Err(refusal("a string or a boolean", json, at)),
        }
    }
}

schema!(
    SessionConfigValue = "SessionConfigValue",
    |_| schemars::json_schema!({ "type": ["string", "boolean"] })
);
