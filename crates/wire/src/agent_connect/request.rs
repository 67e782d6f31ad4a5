use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AfterSeconds, CallbackTo, ConfigSchema, IfNotExists, InputSchema, Json, Limit,
    MultitaskStrategy, Object, Offset, OnCompletion, OnDisconnect, RunStatus, StreamModes,
};

/// Asks for a run, on a thread or without one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RunCreate {
    /// The agent, or a configured instance of one; the server's first agent where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// What the run is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<InputSchema>")]
    pub input: Option<Json>,
    /// In place of `input`: the same as `{"message": …}` there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Json>,
    /// Anything to find the run by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// The configuration of this run: an object of `tags`, `recursion_limit` and `configurable`, or the configuration itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ConfigSchema>")]
    pub config: Option<Json>,
    /// The configured instance to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration_id: Option<String>,
    /// Where to call when the run has ended or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// Where to call, and of what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<CallbackTo>,
    /// How output is streamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_mode: Option<StreamModes>,
    /// Whether nested agents are streamed too; has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_subgraphs: Option<bool>,
    /// What happens when this request's connection ends before its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_disconnect: Option<OnDisconnect>,
    /// What happens when the thread is busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multitask_strategy: Option<MultitaskStrategy>,
    /// How many seconds later it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_seconds: Option<AfterSeconds>,
    /// What happens to the thread of a stateless run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_completion: Option<OnCompletion>,
    /// What happens when the thread of a thread run is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_not_exists: Option<IfNotExists>,
}

/// Looks runs up: all members that are there have to match.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RunSearchRequest {
    /// The agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Where the run stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<RunStatus>,
    /// Members that its metadata has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// The most runs of the answer; 10 where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// How many matches are passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
}
