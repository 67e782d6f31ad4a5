//! Threads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Json;

/// A conversation with one log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Thread {
    /// Its id.
    pub id: String,
    /// Its metadata: an object.
    pub metadata: Json,
    /// When it was created.
    pub created_at: String,
    /// When something but its log changed last.
    pub updated_at: String,
    /// Whether it exists for one run only and is not listed.
    #[serde(default)]
    pub ephemeral: bool,
    /// The checkpoint that its history leads to. Only where one thread is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// Its state at the head, where agents keep one. Only where one thread is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Json>,
}

/// A thread to create.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadCreate {
    /// Its id, unique in the tenant; made by the server when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its metadata: an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

/// A change of a thread.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadPatch {
    /// Members to set in the metadata; `null` removes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    /// The new state, as a new checkpoint.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::json::present"
    )]
    pub values: Option<Json>,
    /// The checkpoint that the new one follows; the head when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// The copy to make of a thread.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadCopy {
    /// The copy's id; made by the server when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The copy's metadata; that of the thread when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    /// The message that the copy ends with; the whole history when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_message: Option<String>,
}
