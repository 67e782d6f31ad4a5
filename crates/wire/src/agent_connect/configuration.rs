use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigSchema, IfExists, Json, Limit, Object, Offset, Time, TtlSeconds};

/// A configured instance of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Configuration {
    /// Its id; stands where an agent's id may stand, too.
    pub configuration_id: String,
    /// The agent.
    pub agent_id: String,
    /// The settings.
    #[schemars(with = "ConfigSchema")]
    pub config: Json,
    /// Anything that its creator wants to find it by.
    pub metadata: Object,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it was created.
    pub created_at: Time,
    /// When it changed last.
    pub updated_at: Time,
    /// When it stops to be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

/// Asks for a configured instance.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ConfigurationCreate {
    /// The agent, where the path does not name it; the first one where neither does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The settings; the schema's defaults where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ConfigSchema>")]
    pub config: Option<Json>,
    /// Anything to find it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// After how many seconds it stops to be there; never where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<TtlSeconds>,
    /// Its id; made by the server where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration_id: Option<String>,
    /// What happens when the id is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_exists: Option<IfExists>,
}

/// Changes a configured instance. Runs that were created before keep what they were given.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ConfigurationPatch {
    /// The new settings, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ConfigSchema>")]
    pub config: Option<Json>,
    /// Members to set; `null` removes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Looks configured instances up.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ConfigurationSearchRequest {
    /// Members that its metadata has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// The most instances of the answer; 10 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// How many matches are passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
}
