//! Describes in words what a run is doing, and for how long.

use std::time::{Duration, Instant};

use super::super::safe;
use super::RunPiece;

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// How long each sign of the spinner is shown.
pub(crate) const SPINNER_STEP: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Phase {
    kind: PhaseKind,
    agent: String,
    run_begun: Instant,
    begun: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PhaseKind {
    Starting,
    FirstWord,
    Thinking,
    Answering,
    Working,
    Cancelling,
}

// === impl Phase ===

impl Phase {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            kind: PhaseKind::Starting,
            agent: "the agent".to_owned(),
            run_begun: now,
            begun: now,
        }
    }

    pub(super) fn piece(&mut self, piece: &RunPiece<'_>, now: Instant) {
        let kind = match piece {
            RunPiece::Created { agent } => {
                self.agent = safe::visible(agent);
                return;
            }
            RunPiece::Started => PhaseKind::FirstWord,
            RunPiece::Thought { .. } => PhaseKind::Thinking,
            RunPiece::Text(_) => PhaseKind::Answering,
            RunPiece::MessageBegins { .. } => return,
            _ => PhaseKind::Working,
        };
        if self.kind != PhaseKind::Cancelling && self.kind != kind {
            (self.kind, self.begun) = (kind, now);
        }
    }

    pub(super) fn start_cancelling(&mut self, now: Instant) {
        (self.kind, self.begun) = (PhaseKind::Cancelling, now);
    }

    pub(super) fn spinner(&self, now: Instant) -> &'static str {
        let steps =
            now.saturating_duration_since(self.run_begun).as_millis() / SPINNER_STEP.as_millis();
        let step = usize::try_from(steps % SPINNER.len() as u128).unwrap_or_default();
        SPINNER.get(step).copied().unwrap_or_default()
    }

    /// Returns the line at the bottom. A running tool takes precedence over the agent's other
    /// activity.
    pub(super) fn line(&self, running: Option<&str>, now: Instant) -> String {
        let words = match (self.kind, running) {
            (PhaseKind::Cancelling, _) => "waiting for the agent to stop".to_owned(),
            (_, Some(tool)) => format!("running {tool}"),
            (PhaseKind::Starting, _) => format!("starting {}", self.agent),
            (PhaseKind::FirstWord, _) => "waiting for its first word".to_owned(),
            (PhaseKind::Thinking, _) => "thinking".to_owned(),
            (PhaseKind::Answering, _) => "answering".to_owned(),
            (PhaseKind::Working, _) => "working".to_owned(),
        };
        let seconds = now.saturating_duration_since(self.begun).as_secs();
        format!("{} {words} · {seconds} s", self.spinner(now))
    }
}
