//! Measures how long an agent takes to its first event and to its first message.

use std::sync::Arc;
use std::time::Instant;

use trilogue_domain::event::{Body, MessageEvent};

use super::AgentMeters;

/// The measurements of a run's first turn that are still missing; other turns are not measured.
#[derive(Debug, Default)]
pub(crate) enum FirstOutput {
    #[default]
    Measured,
    Event(FirstTurn),
    Message(FirstTurn),
}

#[derive(Debug)]
pub(crate) struct FirstTurn {
    began: Instant,
    meters: Arc<AgentMeters>,
}

// === impl FirstOutput ===

impl FirstOutput {
    pub(crate) fn after(meters: Arc<AgentMeters>) -> Self {
        Self::Event(FirstTurn { began: Instant::now(), meters })
    }

    pub(crate) fn note(&mut self, body: &Body) {
        if let Self::Measured = self {
            return;
        }
        *self = match std::mem::take(self) {
            Self::Measured => Self::Measured,
            Self::Event(turn) => {
                turn.meters.first_event.record(turn.began.elapsed().as_secs_f64());
                Self::Message(turn).at(body)
            }
            waiting @ Self::Message(_) => waiting.at(body),
        };
    }

    fn at(self, body: &Body) -> Self {
        match self {
            Self::Message(turn) if matches!(body, Body::Message(MessageEvent::Started { .. })) => {
                turn.meters.first_message.record(turn.began.elapsed().as_secs_f64());
                Self::Measured
            }
            other => other,
        }
    }
}
