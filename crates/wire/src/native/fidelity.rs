use crate::json::record::record;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

record! {
    /// What becomes of one concept in one protocol.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct FidelityRow {
        /// The protocol; `native` is this face.
        protocol: String,
        /// The concept.
        concept: String,
        /// What becomes of it.
        verdict: FidelityVerdict,
        /// Where it travels; absent when it is lost.
        carrier?: String,
        /// Why it is lost; absent when it is carried.
        because?: String,
    }
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
