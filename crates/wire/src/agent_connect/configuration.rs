use super::{ConfigSchema, IfExists, Json, Limit, Object, Offset, Time, TtlSeconds};
use crate::json::record::record;

record! {
    /// A configured instance of an agent.
    pub struct Configuration {
        /// The id of the instance. It can be used in place of an agent's id.
        configuration_id: String,
        /// The id of the agent.
        agent_id: String,
        /// The configuration.
        #[schemars(with = "ConfigSchema")]
        config: Json,
        /// Metadata of any kind, by which the instance can be found.
        metadata: Object,
        /// The name of the instance, for people.
        name?: String,
        /// When the instance was created.
        created_at: Time,
        /// When the instance last changed.
        updated_at: Time,
        /// When the instance expires.
        expires_at?: Time,
    }

    /// Creates a configured instance. An unknown member is refused, because it could be a setting that would be lost.
    pub strict struct ConfigurationCreate: Default {
        /// The agent, if the path does not name it. By default the first agent of the server.
        agent_id?: String,
        /// The configuration, directly or as `configurable`. The default is the schema's defaults.
        #[schemars(with = "Option<ConfigSchema>")]
        config?: Json,
        /// Metadata of any kind, by which the instance can be found.
        metadata?: Object,
        /// The name of the instance, for people.
        name?: String,
        /// After how many seconds the instance expires. By default never.
        ttl_seconds?: TtlSeconds,
        /// The id of the instance. The server makes one by default.
        configuration_id?: String,
        /// What to do if the id exists.
        if_exists?: IfExists,
    }

    /// Changes a configured instance. Existing runs keep their configuration. An unknown member is refused.
    pub strict struct ConfigurationPatch: Default {
        /// The whole new configuration, directly or as `configurable`.
        #[schemars(with = "Option<ConfigSchema>")]
        config?: Json,
        /// Members to set. `null` removes a member.
        metadata?: Object,
        /// The name of the instance, for people.
        name?: String,
    }

    /// Searches configured instances.
    pub struct ConfigurationSearchRequest: Default {
        /// Members that the metadata must have.
        metadata?: Object,
        /// The maximum number of instances in the response. The default is 10.
        limit?: Limit,
        /// The number of matches to skip.
        offset?: Offset,
    }
}
