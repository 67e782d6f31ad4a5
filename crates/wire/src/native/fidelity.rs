//! What survives a protocol.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What becomes of one concept in one protocol.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FidelityRow {
    /// The protocol; `native` is this face.
    pub protocol: String,
    /// The concept.
    pub concept: String,
    /// What becomes of it.
    pub verdict: FidelityVerdict,
    /// Where it travels; absent when it is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carrier: Option<String>,
    /// Why it is lost; absent when it is carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// What becomes of a concept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FidelityVerdict {
    /// The protocol has a place for it.
    Carried,
    /// It travels in a place that the protocol leaves free.
    Extension,
    /// It does not come through.
    Lost,
}
