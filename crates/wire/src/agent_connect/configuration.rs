use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ConfigSchema, IfExists, Json, Limit, Object, Offset, Time, TtlSeconds};
use crate::json::record::record;

record! {
    /// A configured instance of an agent.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct Configuration {
        /// Its id; stands where an agent's id may stand, too.
        configuration_id: String,
        /// The agent.
        agent_id: String,
        /// The settings.
        #[schemars(with = "ConfigSchema")]
        config: Json,
        /// Anything that its creator wants to find it by.
        metadata: Object,
        /// What people call it.
        name?: String,
        /// When it was created.
        created_at: Time,
        /// When it changed last.
        updated_at: Time,
        /// When it stops to be there.
        expires_at?: Time,
    }

    /// Asks for a configured instance. A member that is not one of these is refused: it would be a setting that is lost.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ConfigurationCreate {
        /// The agent, where the path does not name it; the first one where neither does.
        agent_id?: String,
        /// The settings, alone or as `configurable`; the schema's defaults where there are none.
        #[schemars(with = "Option<ConfigSchema>")]
        config?: Json,
        /// Anything to find it by.
        metadata?: Object,
        /// What people call it.
        name?: String,
        /// After how many seconds it stops to be there; never where it is absent.
        ttl_seconds?: TtlSeconds,
        /// Its id; made by the server where it is absent.
        configuration_id?: String,
        /// What happens when the id is taken.
        if_exists?: IfExists,
    }

    /// Changes a configured instance. Runs that were created before keep what they were given. A member that is not one of these is refused.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ConfigurationPatch {
        /// The new settings, whole; alone or as `configurable`.
        #[schemars(with = "Option<ConfigSchema>")]
        config?: Json,
        /// Members to set; `null` removes one.
        metadata?: Object,
        /// What people call it.
        name?: String,
    }

    /// Looks configured instances up.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct ConfigurationSearchRequest {
        /// Members that its metadata has.
        metadata?: Object,
        /// The most instances of the answer; 10 where it is absent.
        limit?: Limit,
        /// How many matches are passed over.
        offset?: Offset,
    }
}
