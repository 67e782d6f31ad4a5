use crate::id::InterruptId;
use crate::interrupt::{Interrupt, Resolution, RuleOrigin};

/// An event of an interrupt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InterruptEvent {
    /// The run waits.
    Raised(Box<Interrupt>),
    /// The interrupt was resolved.
    Resolved {
        /// The id of the interrupt.
        interrupt: InterruptId,
        /// How the interrupt ended.
        resolution: Resolution,
    },
    /// A permission rule decided, so no question was asked.
    RuleApplied {
        /// The rule's name.
        rule: String,
        /// Whether the rule allowed the action.
        allowed: bool,
        /// The owner of the rule. `None` if it is unknown, such as for a rule of another server.
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
