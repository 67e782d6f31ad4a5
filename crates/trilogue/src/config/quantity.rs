//! Durations and sizes with units.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration: a whole number with a unit, such as `"500ms"`, `"30s"`, `"10m"`, `"2h"` or `"7d"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span(pub Duration);

/// A size: a whole number with a unit, such as `"512B"`, `"64KiB"`, `"32MiB"` or `"1GiB"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size(pub u64);

/// A text that is not a quantity.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid {what} `{text}`, expected {expected}")]
pub struct NotAQuantity {
    text: String,
    what: &'static str,
    expected: &'static str,
}

/// Units of a duration, in milliseconds, longest first.
const SPAN_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
/// Units of a size, in bytes, largest first.
const SIZE_UNITS: [(&str, u64); 4] =
    [("GiB", 1024 * 1024 * 1024), ("MiB", 1024 * 1024), ("KiB", 1024), ("B", 1)];

// === impl Span ===

impl Span {
    /// This many seconds.
    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl FromStr for Span {
    type Err = NotAQuantity;

    fn from_str(text: &str) -> Result<Self, NotAQuantity> {
        let millis = parse(text, &SPAN_UNITS).ok_or_else(|| NotAQuantity {
            text: text.escape_debug().to_string(),
            what: "duration",
            expected: "a whole number with ms, s, m, h or d, such as \"30s\"",
        })?;
        Ok(Self(Duration::from_millis(millis)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        render(f, u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), &SPAN_UNITS, "0s")
    }
}

// === impl Size ===

impl FromStr for Size {
    type Err = NotAQuantity;

    fn from_str(text: &str) -> Result<Self, NotAQuantity> {
        let bytes = parse(text, &SIZE_UNITS).ok_or_else(|| NotAQuantity {
            text: text.escape_debug().to_string(),
            what: "size",
            expected: "a whole number with B, KiB, MiB or GiB, such as \"32MiB\"",
        })?;
        Ok(Self(bytes))
    }
}

impl Size {
    /// The size as a length in memory.
    #[must_use]
    pub fn to_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// A length in memory as a size.
    #[must_use]
    pub fn of(bytes: usize) -> Self {
        Self(bytes as u64)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        render(f, self.0, &SIZE_UNITS, "0B")
    }
}

macro_rules! as_text {
    ($name:ident, $schema:literal, $expecting:literal, $pattern:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_str(Visitor)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                Cow::Borrowed($schema)
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "format": $schema, "pattern": $pattern })
            }
        }
    };
}

as_text!(Span, "duration", "a duration such as \"30s\"", "^[0-9]+(ms|s|m|h|d)$");
as_text!(Size, "size", "a size such as \"32MiB\"", "^[0-9]+(B|KiB|MiB|GiB)$");

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at_checked(digits)?;
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

fn render(
    f: &mut fmt::Formatter<'_>,
    value: u64,
    units: &[(&str, u64)],
    zero: &str,
) -> fmt::Result {
    match units.iter().find(|(_, scale)| value > 0 && value.is_multiple_of(*scale)) {
        Some((name, scale)) => write!(f, "{}{name}", value / scale),
        None => f.write_str(zero),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_back_in_their_largest_whole_unit() {
        for (text, shown) in [("30s", "30s"), ("120s", "2m"), ("1500ms", "1500ms"), ("48h", "2d")] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), shown);
        }
        for (text, shown) in [("64MiB", "64MiB"), ("1024KiB", "1MiB"), ("7B", "7B"), ("0B", "0B")] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_has_no_unit_or_overflows_is_refused() {
        for text in ["30", "s", "", "-1s", "1.5s", "30 sec", "99999999999999999999d", "30S"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["64", "64MB", "MiB", "99999999999999GiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
