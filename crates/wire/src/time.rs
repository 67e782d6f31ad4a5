use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::temporal::{DateTimeParser, DateTimePrinter};
use jiff::tz::{Offset, TimeZone};
use schemars::json_schema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::json::schema::schema;

/// Unix numbers above this limit count milliseconds, not seconds. As seconds, the limit is in the year 2603.
const MILLISECONDS_BEYOND: f64 = 20_000_000_000.0;

const MICROS_PER_SECOND: i64 = 1_000_000;

/// 0001-01-01T00:00:00Z in microseconds.
const MIN_MICROS: i64 = -62_135_596_800 * MICROS_PER_SECOND;

/// 9999-12-30T22:00:00Z in microseconds: the last moment that every offset can express, and that the printer accepts.
const MAX_MICROS: i64 = 253_402_207_200 * MICROS_PER_SECOND;

/// Microseconds since 1970-01-01 UTC, from the year 1 to the year 9999.
/// Written as RFC 3339 in UTC with `Z` and six digits of a second. Read with any offset; no offset means UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Time(i64);

// === impl Time ===

impl Time {
    /// Returns the moment this many microseconds after 1970-01-01 UTC. Clamps to the range.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros.clamp(MIN_MICROS, MAX_MICROS))
    }

    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Parses RFC 3339, with or without an offset. Digits below a microsecond are cut off.
    pub fn parse(text: &str) -> Option<Self> {
        let pieces = DateTimeParser::new().parse_pieces(text).ok()?;
        if pieces.time_zone_annotation().is_some() {
            return None;
        }
        let civil = DateTime::from_parts(pieces.date(), pieces.time().unwrap_or_default());
        let offset = pieces.to_numeric_offset().unwrap_or(Offset::UTC);
        let at = TimeZone::fixed(offset).to_timestamp(civil).ok()?;
        Self::in_range(at.as_nanosecond().div_euclid(1_000))
    }

    /// Parses like [`Self::parse`], or a Unix time as a number.
    pub(crate) fn parse_or_unix(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(seconds) = text.parse::<i64>() {
            return Self::from_unix_whole(seconds);
        }
        if looks_like_a_number(text) {
            return text.parse::<f64>().ok().and_then(Self::from_unix);
        }
        Self::parse(text)
    }

    /// Returns a Unix time in seconds, or in milliseconds if the number is too large for seconds.
    pub(crate) fn from_unix(number: f64) -> Option<Self> {
        let factor = if number.abs() > MILLISECONDS_BEYOND { 1e3 } else { 1e6 };
        let micros = (number * factor).round();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a cast of a float saturates, and what is out of range is refused"
        )]
        micros.is_finite().then_some(micros as i128).and_then(Self::in_range)
    }

    pub(crate) fn from_unix_whole(number: i64) -> Option<Self> {
        #[expect(clippy::cast_precision_loss, reason = "only its magnitude is looked at")]
        let factor = if (number as f64).abs() > MILLISECONDS_BEYOND { 1_000 } else { 1_000_000 };
        Self::in_range(i128::from(number) * factor)
    }

    fn in_range(micros: i128) -> Option<Self> {
        let micros = i64::try_from(micros).ok()?;
        (MIN_MICROS..=MAX_MICROS).contains(&micros).then_some(Self(micros))
    }

    /// Appends RFC 3339 with six digits of a second, or without them if all are zero.
    pub(crate) fn write_short(self, out: &mut Vec<u8>) {
        self.write(out, if self.0 % MICROS_PER_SECOND == 0 { 0 } else { 6 });
    }

    // Writing to memory cannot fail.
    fn write(self, out: &mut Vec<u8>, digits: u8) {
        let at = Timestamp::from_microsecond(self.0).unwrap_or(Timestamp::UNIX_EPOCH);
        let _ = DateTimePrinter::new().precision(Some(digits)).print_timestamp(&at, out);
    }
}

fn looks_like_a_number(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().enumerate().all(|(place, byte)| {
            byte.is_ascii_digit() || byte == b'.' || (place == 0 && matches!(byte, b'-' | b'+'))
        })
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(27);
        self.write(&mut text, 6);
        f.write_str(&String::from_utf8_lossy(&text))
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

schema!(inline Time = "Time", |_| json_schema!({ "type": "string", "format": "date-time" }));
