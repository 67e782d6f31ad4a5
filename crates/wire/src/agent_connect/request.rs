use super::{
    AfterSeconds, CallbackTo, ConfigSchema, IfNotExists, InputSchema, Json, Limit,
    MultitaskStrategy, Object, Offset, OnCompletion, OnDisconnect, RunStatus, StreamModes,
};
use crate::json::record::record;

record! {
    /// Creates a run, on a thread or without one.
    pub struct RunCreate: Default {
        /// The agent, or a configured instance of one. By default the server's first agent.
        agent_id?: String,
        /// The input of the run.
        #[schemars(with = "Option<InputSchema>")]
        input?: Json,
        /// An alternative to `input`: the same as `{"message": …}` there.
        message?: Json,
        /// Metadata of any kind, by which the run can be found.
        metadata?: Object,
        /// The configuration of this run: an object of `tags`, `recursion_limit` and `configurable`, or the configuration itself.
        #[schemars(with = "Option<ConfigSchema>")]
        config?: Json,
        /// The configured instance to run.
        configuration_id?: String,
        /// The address to call when the run has ended or waits.
        webhook?: String,
        /// The address to call, and the events to call for.
        callback?: CallbackTo,
        /// How the output is streamed.
        stream_mode?: StreamModes,
        /// Whether to stream nested agents too. Has no effect.
        stream_subgraphs?: bool,
        /// What to do if the connection of this request ends before its response.
        on_disconnect?: OnDisconnect,
        /// What to do if the thread is busy.
        multitask_strategy?: MultitaskStrategy,
        /// The delay before the run starts, in seconds.
        after_seconds?: AfterSeconds,
        /// What to do with the thread of a stateless run after its end.
        on_completion?: OnCompletion,
        /// What to do if the thread of a thread run does not exist.
        if_not_exists?: IfNotExists,
    }

    /// Searches runs. All given members must match.
    pub struct RunSearchRequest: Default {
        /// The agent.
        agent_id?: String,
        /// The status of the run.
        status?: RunStatus,
        /// Members that the metadata must have.
        metadata?: Object,
        /// The maximum number of runs in the response. The default is 10.
        limit?: Limit,
        /// The number of matches to skip.
        offset?: Offset,
    }
}
