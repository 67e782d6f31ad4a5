use crate::json::record::record;

record! {
    /// How one protocol carries one concept.
    pub struct FidelityRow {
        /// The protocol; `native` is this API. For a direction, the protocol where it begins.
        protocol: String,
        /// The protocol where a direction ends. Absent in the table of single protocols.
        to?: String,
        /// The concept.
        concept: String,
        /// How the concept is carried.
        verdict: FidelityVerdict,
        /// The carrier in `protocol`. Absent if the protocol loses the concept.
        carrier?: String,
        /// The carrier in `to`. Absent if that protocol loses the concept, and without `to`.
        to_carrier?: String,
        /// Why the concept is lost; for a direction, with the protocols that lose it. Absent if it is not lost.
        because?: String,
    }

    /// How a concept is carried.
    pub enum FidelityVerdict {
        /// The protocol has a place for it.
        Carried,
        /// It is carried in a place that the protocol leaves free.
        Extension,
        /// It is not carried.
        Lost,
    }
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
