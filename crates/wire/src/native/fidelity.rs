use crate::json::record::record;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

record! {
    /// What becomes of one concept in one protocol.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
    pub struct FidelityRow {
        /// The protocol; `native` is this face. Of a direction the protocol where it begins.
        protocol: String,
        /// The protocol where a direction ends; absent in the table of each protocol by itself.
        to?: String,
        /// The concept.
        concept: String,
        /// What becomes of it.
        verdict: FidelityVerdict,
        /// Where it travels in `protocol`; absent when that loses it.
        carrier?: String,
        /// Where it travels in `to`; absent when that loses it, and without `to`.
        to_carrier?: String,
        /// Why it is lost, of a direction with the protocols that lose it; absent when it is not.
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

// === impl FidelityVerdict ===

impl FidelityVerdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Carried => "carried",
            Self::Extension => "extension",
            Self::Lost => "lost",
        }
    }
}
