use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A moment: microseconds since 1970-01-01 UTC.
/// Written as RFC 3339 with six digits and `Z`; read with any offset, or with none, which means UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Time(Timestamp);

// === impl Time ===

impl Time {
    /// The moment so many microseconds after 1970-01-01 UTC; the nearest one in range where it is out of range.
    #[must_use]
    pub fn from_micros(micros: i64) -> Self {
        let end = if micros < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Self(Timestamp::from_microsecond(micros).unwrap_or(end))
    }

    /// Microseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn as_micros(self) -> i64 {
        self.0.as_microsecond()
    }

    /// Reads RFC 3339, or the same without an offset.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(stamp) = text.parse::<Timestamp>() {
            return Some(Self(stamp));
        }
        // A civil time's reader would pass over a zone that the line above refused.
        if text.contains('[') {
            return None;
        }
        let civil: DateTime = text.parse().ok()?;
        TimeZone::UTC.to_timestamp(civil).ok().map(Self)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.0)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("must be a time by RFC 3339"))
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Time")
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}
