use crate::id::InterruptId;
use crate::interrupt::{Interrupt, Resolution, RuleOrigin};

/// Something about an interrupt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InterruptEvent {
    /// The run waits.
    Raised(Box<Interrupt>),
    /// The wait is over.
    Resolved {
        /// The interrupt.
        interrupt: InterruptId,
        /// How it ended.
        resolution: Resolution,
    },
    /// A permission rule decided before anybody was asked.
    RuleApplied {
        /// The rule's name.
        rule: String,
        /// Whether it allowed.
        allowed: bool,
        /// Whose rule it is. `None` where that is not known, such as for a rule of another server.
        origin: Option<RuleOrigin>,
    },
}

impl InterruptEvent {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Raised(_) => "interrupt.raised",
            Self::Resolved { .. } => "interrupt.resolved",
            Self::RuleApplied { .. } => "interrupt.rule_applied",
        }
    }
}
