//! Points in time.

use std::fmt;
use std::time::Duration;

/// A point in time: microseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp(i64);

// === impl Timestamp ===

impl Timestamp {
    /// Returns the point this many microseconds after the epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the point `delay` later. Saturates at the end of time.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Returns the point `delay` earlier. Saturates at the start of time.
    #[must_use]
    pub fn before(self, delay: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX)))
    }

    /// Returns the duration from `self` to `later`; zero if `later` is not after `self`.
    #[must_use]
    pub fn until(self, later: Self) -> Duration {
        Duration::from_micros(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }

    /// Parses RFC 3339.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let stamp: jiff::Timestamp = text.parse().ok()?;
        Some(Self(stamp.as_microsecond()))
    }
}

impl fmt::Display for Timestamp {
    /// Writes RFC 3339 with microseconds and `Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(stamp) => write!(f, "{stamp:.6}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_microseconds_and_zulu() {
        let stamp = Timestamp::from_micros(1_763_683_200_000_120);
        assert_eq!(stamp.to_string(), "2025-11-21T00:00:00.000120Z");
        assert_eq!(Timestamp::parse(&stamp.to_string()), Some(stamp));
    }

    #[test]
    fn arithmetic_saturates() {
        let late = Timestamp::from_micros(i64::MAX);
        assert_eq!(late.after(Duration::from_secs(1)), late);
        assert_eq!(late.until(Timestamp::from_micros(0)), Duration::ZERO);
    }
}
