//! Conditions of listings, and the limit on rows that they may cost.

use sha2::{Digest, Sha256};
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::{Json, RunStatus, ThreadActivity, limits};

use crate::rows::CheckpointRow;

/// A condition on a top-level member: its key and the canonical JSON text of its value.
pub(crate) type Condition = (String, String);

/// The number of rows that were read for conditions that no index answers.
#[derive(Debug, Default)]
pub(crate) struct Candidates(usize);

pub(crate) fn matches<'a>(
    object: &Json,
    conditions: impl IntoIterator<Item = &'a Condition>,
) -> bool {
    let mut conditions = conditions.into_iter().peekable();
    if conditions.peek().is_none() {
        return true;
    }
    let object = object.to_value();
    let text = |key: &String| object.get(key).map(ToString::to_string);
    conditions.all(|(key, value)| text(key).as_ref() == Some(value))
}

/// Whether a value is an array or object, which no index holds.
pub(crate) fn is_composite(value: &str) -> bool {
    value.starts_with(['{', '['])
}

/// The integer that an index holds for a value: the first 8 bytes of SHA-256 of its canonical JSON text.
pub(crate) fn value_hash(value: &str) -> i64 {
    let digest = Sha256::digest(value.as_bytes());
    digest.first_chunk::<8>().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

/// The activity of a thread with no run in flight, by the status of its newest run.
pub(crate) fn activity_of(newest: Option<RunStatus>) -> ThreadActivity {
    match newest {
        Some(RunStatus::Interrupted) => ThreadActivity::Interrupted,
        Some(RunStatus::Failed | RunStatus::TimedOut) => ThreadActivity::Failed,
        _ => ThreadActivity::Idle,
    }
}

// === impl Candidates ===

impl Candidates {
    /// Counts rows that were read. Fails with `filter_too_broad` above [`limits::MAX_SEARCH_CANDIDATES`].
    pub(crate) fn add(&mut self, count: usize) -> Result<()> {
        self.0 = self.0.saturating_add(count);
        if self.0 <= limits::MAX_SEARCH_CANDIDATES {
            return Ok(());
        }
        Err(Error::new(
            Code::FilterTooBroad,
            format!("the filter leaves more than {} candidates", limits::MAX_SEARCH_CANDIDATES),
        )
        .hint("add a condition on a string, number, boolean or null that fewer rows fulfil"))
    }
}

// === impl CheckpointRow ===

impl CheckpointRow {
    /// The bytes of the state that it sets.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.value.as_ref().map_or(0, |value| value.as_bytes().len())
    }

    /// Whether the state at this checkpoint is known without earlier ones: it has a value, or its history names the address of one.
    pub(crate) fn ends_state_search(&self) -> bool {
        self.value.is_some()
            || self.client_history.as_ref().is_some_and(|history| history.state.is_some())
    }
}
