use serde::{Serialize, Serializer};

use super::object::object;
use super::tagged::tagged;
use crate::json::scan;
use crate::json::words::words;
use crate::json::{Path, Read, Violation, refusal};

tagged! {
    /// Something that can be set in a session.
    pub enum SessionConfigOption by "type" {
        /// One of several values.
        Select(Box<SessionConfigSelect>) = "select";
        /// On or off. Only for clients with `session.configOptions.boolean`.
        Boolean(SessionConfigBoolean) = "boolean";
    }
}

object! {
    /// One of several values.
    pub struct SessionConfigSelect {
        /// The option's id.
        id: String = "id" as required;
        /// What it is called towards people.
        name: String = "name" as required;
        /// The value that it has.
        current_value: String = "currentValue" as required;
        /// The values that it can have.
        options: SessionConfigSelectOptions = "options" as required;
    } may {
        /// What it means.
        description: Option<String> = "description" as lenient;
        /// What it is about.
        category: Option<SessionConfigOptionCategory> = "category" as lenient;
    }
}

object! {
    /// On or off.
    pub struct SessionConfigBoolean {
        /// The option's id.
        id: String = "id" as required;
        /// What it is called towards people.
        name: String = "name" as required;
        /// Whether it is on.
        current_value: bool = "currentValue" as required;
    } may {
        /// What it means.
        description: Option<String> = "description" as lenient;
        /// What it is about.
        category: Option<SessionConfigOptionCategory> = "category" as lenient;
    }
}

words! {
    /// What an option is about. Words that begin with `_` are free for everybody.
    pub open enum SessionConfigOptionCategory {
        /// The session's mode.
        Mode = "mode";
        /// The model.
        Model = "model";
        /// How the model is used.
        ModelConfig = "model_config";
        /// How much the model thinks.
        ThoughtLevel = "thought_level";
    }
}

/// The values that an option can have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionConfigSelectOptions {
    /// One list.
    Ungrouped(Vec<SessionConfigSelectOption>),
    /// Lists with headings.
    Grouped(Vec<SessionConfigSelectGroup>),
}

object! {
    /// A value that an option can have.
    pub struct SessionConfigSelectOption {
        /// The value.
        value: String = "value" as required;
        /// What it is called towards people.
        name: String = "name" as required;
    } may {
        /// What it means.
        description: Option<String> = "description" as lenient;
    }
}

object! {
    /// Values with a heading.
    pub struct SessionConfigSelectGroup {
        /// The group's id.
        group: String = "group" as required;
        /// The heading.
        name: String = "name" as required;
        /// The values.
        options: Vec<SessionConfigSelectOption> = "options" as fitting_there;
    } may {
    }
}

object! {
    /// The session's options, all of them.
    pub struct ConfigOptionUpdate {
        /// The options.
        config_options: Vec<SessionConfigOption> = "configOptions" as fitting_there;
    } may {
    }
}

object! {
    /// Gives an option a value.
    pub struct SetSessionConfigOptionRequest {
        /// The session.
        session_id: String = "sessionId" as required;
        /// The option.
        config_id: String = "configId" as required;
        /// The value.
        value: SessionConfigValue = "value" as required;
    } may {
        /// What kind of value it is: `boolean` where it is one.
        kind: Option<String> = "type" as lenient;
    }
    check kind_fits;
}

/// A value of an option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionConfigValue {
    /// One of several, by its id.
    Id(String),
    /// On or off.
    Boolean(bool),
}

object! {
    /// The option has the value.
    pub struct SetSessionConfigOptionResponse {
        /// The session's options, all of them: one may change others.
        config_options: Vec<SessionConfigOption> = "configOptions" as fitting_there;
    } may {
    }
}

// === impl SessionConfigOption ===

impl SessionConfigOption {
    /// The option's id.
    #[must_use]
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
    /// The values, whatever their headings.
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

impl Serialize for SessionConfigSelectOptions {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Ungrouped(options) => options.serialize(to),
            Self::Grouped(groups) => groups.serialize(to),
        }
    }
}

impl schemars::JsonSchema for SessionConfigSelectOptions {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SessionConfigSelectOptions".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let plain = generator.subschema_for::<Vec<SessionConfigSelectOption>>();
        let groups = generator.subschema_for::<Vec<SessionConfigSelectGroup>>();
        schemars::json_schema!({ "anyOf": [plain, groups] })
    }
}

// === impl SetSessionConfigOptionRequest ===

impl SetSessionConfigOptionRequest {
    /// Turns an option on or off.
    #[must_use]
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
    let is_boolean = matches!(request.value, SessionConfigValue::Boolean(_));
    if is_boolean && request.kind.as_deref() != Some("boolean") {
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

impl Serialize for SessionConfigValue {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Id(id) => to.serialize_str(id),
            Self::Boolean(value) => to.serialize_bool(*value),
        }
    }
}

impl schemars::JsonSchema for SessionConfigValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SessionConfigValue".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "boolean"] })
    }
}
