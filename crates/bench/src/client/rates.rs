//! How often something can be done in a second.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::report::{median, percentile};

/// The rates of one path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    /// Updates a second.
    pub(super) updates: f64,
    /// Turns of one update each a second, one after the other.
    pub(super) turns: f64,
    /// Processor time of our server for an update, in microseconds; zero for a peer.
    pub(super) update_micros: f64,
    /// The same for a turn.
    pub(super) turn_micros: f64,
}

/// The ages of updates when they came, of one measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ages {
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

/// Does the work `count` times, one after the other; returns the rate per second.
pub(super) fn of(count: u64, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    for _ in 0..count {
        work()?;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

/// The median of one figure of several measurements.
pub(super) fn median_of<T>(all: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    median(all.iter().map(figure).collect())
}

// === impl Ages ===

impl Ages {
    pub(super) fn of(all: &[Duration]) -> Self {
        Self { p50: percentile(all, 0.5), p99: percentile(all, 0.99) }
    }
}
