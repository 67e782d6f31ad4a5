//! The meters of one agent's runs, created once so that a run only adds to them.

use metrics::{Counter, Histogram, counter, histogram};
use trilogue_domain::AgentName;

use super::metric_names as names;

/// Counters by a label with few values.
type Labelled<const N: usize> = [(&'static str, Counter); N];

const OUTCOMES: [&str; 4] = ["completed", "failed", "cancelled", "timed_out"];
const KINDS: [&str; 5] = ["permission", "message", "form", "url", "custom"];
const ENDINGS: [&str; 4] = ["answered", "timed_out", "cancelled", "withdrawn"];

#[derive(Debug)]
pub(crate) struct AgentMeters {
    pub(crate) started: Counter,
    ended: Labelled<4>,
    asked: Labelled<5>,
    question_ends: Labelled<4>,
    pub(crate) run: Histogram,
    pub(crate) queue: Histogram,
    pub(crate) first_event: Histogram,
    pub(crate) first_message: Histogram,
    pub(crate) answer: Histogram,
}

// === impl AgentMeters ===

impl AgentMeters {
    pub(super) fn new(agent: &AgentName) -> Self {
        let agent = agent.as_str();
        let of = |name: &'static str| histogram!(name, "agent" => agent.to_owned());
        let by = |name: &'static str, key: &'static str, value: &'static str| {
            (value, counter!(name, "agent" => agent.to_owned(), key => value))
        };
        Self {
            started: counter!(names::RUNS_STARTED, "agent" => agent.to_owned()),
            ended: OUTCOMES.map(|outcome| by(names::RUNS_ENDED, "outcome", outcome)),
            asked: KINDS.map(|kind| by(names::QUESTIONS_ASKED, "kind", kind)),
            question_ends: ENDINGS.map(|how| by(names::QUESTIONS_ENDED, "how", how)),
            run: of(names::RUN_SECONDS),
            queue: of(names::QUEUE_SECONDS),
            first_event: of(names::FIRST_EVENT_SECONDS),
            first_message: of(names::FIRST_MESSAGE_SECONDS),
            answer: of(names::ANSWER_SECONDS),
        }
    }

    pub(super) fn count_ended(&self, outcome: &'static str) {
        add(&self.ended, outcome);
    }

    pub(super) fn count_question(&self, kind: &'static str) {
        add(&self.asked, kind);
    }

    pub(super) fn question_ended(&self, how: &'static str) {
        add(&self.question_ends, how);
    }
}

fn add(counters: &[(&'static str, Counter)], label: &'static str) {
    if let Some((_, counter)) = counters.iter().find(|(value, _)| *value == label) {
        counter.increment(1);
    }
}
