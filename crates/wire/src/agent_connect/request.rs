use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AfterSeconds, CallbackTo, ConfigSchema, IfNotExists, InputSchema, Json, Limit,
    MultitaskStrategy, Object, Offset, OnCompletion, OnDisconnect, RunStatus, StreamModes,
};
use crate::json::record::record;

record! {
    /// Asks for a run, on a thread or without one.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct RunCreate {
        /// The agent, or a configured instance of one; the server's first agent where it is absent.
        agent_id?: String,
        /// What the run is given.
        #[schemars(with = "Option<InputSchema>")]
        input?: Json,
        /// In place of `input`: the same as `{"message": …}` there.
        message?: Json,
        /// Anything to find the run by.
        metadata?: Object,
        /// The configuration of this run: an object of `tags`, `recursion_limit` and `configurable`, or the configuration itself.
        #[schemars(with = "Option<ConfigSchema>")]
        config?: Json,
        /// The configured instance to run.
        configuration_id?: String,
        /// Where to call when the run has ended or waits.
        webhook?: String,
        /// Where to call, and of what.
        callback?: CallbackTo,
        /// How output is streamed.
        stream_mode?: StreamModes,
        /// Whether nested agents are streamed too; has no effect.
        stream_subgraphs?: bool,
        /// What happens when this request's connection ends before its answer.
        on_disconnect?: OnDisconnect,
        /// What happens when the thread is busy.
        multitask_strategy?: MultitaskStrategy,
        /// How many seconds later it starts.
        after_seconds?: AfterSeconds,
        /// What happens to the thread of a stateless run.
        on_completion?: OnCompletion,
        /// What happens when the thread of a thread run is not there.
        if_not_exists?: IfNotExists,
    }

    /// Looks runs up: all members that are there have to match.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
    pub struct RunSearchRequest {
        /// The agent.
        agent_id?: String,
        /// Where the run stands.
        status?: RunStatus,
        /// Members that its metadata has.
        metadata?: Object,
        /// The most runs of the answer; 10 where it is absent.
        limit?: Limit,
        /// How many matches are passed over.
        offset?: Offset,
    }
}
