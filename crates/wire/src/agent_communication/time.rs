//! Times as the protocol writes them: six digits of a second, or none if all are zero.

use std::fmt;

use serde::{Serialize, Serializer};

use super::Time;
use crate::json::{MAX_QUOTED_BYTES, Path, Read, Violation, quoted, refusal, text_of};

const FORMS: &str = "a time like 2026-01-31T12:00:00Z, or a unix time";

/// A moment as a sender states it. The receiver may fill in an absent one, but not `null`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OptionalTime {
    /// The field was absent, and is not written.
    #[default]
    Absent,
    Null,
    At(Time),
}

// === impl Time ===

impl Read for Time {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        let range = |sent: &dyn fmt::Display| {
            at.violation(format!("must be {FORMS}, in the years 1 to 9999, not {sent}"))
        };
        match json.as_bytes().first() {
            Some(b'"') => {
                let text = text_of(json, at)?;
                Self::parse_or_unix(&text).ok_or_else(|| range(&quoted(&text)))
            }
            Some(b'0'..=b'9' | b'-') => {
                let whole = json.parse().ok().and_then(Self::from_unix_whole);
                let time = whole.or_else(|| json.parse().ok().and_then(Self::from_unix));
                let end = json.floor_char_boundary(MAX_QUOTED_BYTES);
                time.ok_or_else(|| range(&json.get(..end).unwrap_or_default()))
            }
            _ => Err(refusal(FORMS, json, at)),
        }
    }
}

pub(super) fn short<S: Serializer>(time: &Time, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&fmt::from_fn(|f| {
        let mut text = Vec::with_capacity(27);
        time.write_short(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }))
}

#[expect(clippy::ref_option, reason = "the form of `serialize_with`")]
pub(super) fn short_or_null<S: Serializer>(time: &Option<Time>, to: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => short(time, to),
        None => to.serialize_none(),
    }
}

// === impl OptionalTime ===

impl OptionalTime {
    pub const fn time(self) -> Option<Time> {
        match self {
            Self::At(time) => Some(time),
            Self::Absent | Self::Null => None,
        }
    }

    /// Returns the moment, or `absent` if the field was absent.
    pub const fn or(self, absent: Time) -> Option<Time> {
        match self {
            Self::Absent => Some(absent),
            Self::Null => None,
            Self::At(time) => Some(time),
        }
    }

    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

/// Reads a member of this type.
pub(super) fn when(json: Option<&str>, at: &Path<'_>) -> Result<OptionalTime, Violation> {
    match json {
        None => Ok(OptionalTime::Absent),
        Some("null") => Ok(OptionalTime::Null),
        Some(json) => Time::read(json, at).map(OptionalTime::At),
    }
}

impl From<Option<Time>> for OptionalTime {
    fn from(time: Option<Time>) -> Self {
        time.map_or(Self::Null, Self::At)
    }
}

impl From<Time> for OptionalTime {
    fn from(time: Time) -> Self {
        Self::At(time)
    }
}

impl Serialize for OptionalTime {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        short_or_null(&self.time(), to)
    }
}
