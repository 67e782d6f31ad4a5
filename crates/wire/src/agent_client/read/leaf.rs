//! Single values.

use serde_json::Number;

use super::super::{Id, Json};
use super::{At, Read, Violation, refusal};
use crate::jsonrpc::text;

// === impl Read ===

impl Read for String {
    fn read(json: &str, at: &At<'_>) -> Result<Self, Violation> {
        text::decode(json).map(Self::from).ok_or_else(|| refusal("a string", json, at))
    }
}

impl Read for bool {
    fn read(json: &str, at: &At<'_>) -> Result<Self, Violation> {
        match json {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(refusal("a boolean", json, at)),
        }
    }
}

impl Read for Number {
    fn read(json: &str, at: &At<'_>) -> Result<Self, Violation> {
        serde_json::from_str(json).map_err(|_| refusal("a number", json, at))
    }
}

impl Read for Json {
    fn read(json: &str, at: &At<'_>) -> Result<Self, Violation> {
        Self::parse(json).map_err(|_| at.violation("is not JSON"))
    }
}

impl Read for Id<'static> {
    fn read(json: &str, at: &At<'_>) -> Result<Self, Violation> {
        Id::of(json)
            .map(Id::into_owned)
            .ok_or_else(|| refusal("a number, a string or null", json, at))
    }
}

/// The whole number that JSON says, also where it is written with a fraction of zero or an exponent.
fn whole(json: &str) -> Option<i128> {
    if let Ok(whole) = json.parse() {
        return Some(whole);
    }
    let number: f64 = serde_json::from_str(json).ok()?;
    // What is larger than this is no longer exact.
    let is_exact = number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0;
    is_exact.then(|| format!("{number:.0}").parse().ok())?
}

macro_rules! whole_numbers {
    ($($type:ty)*) => {$(
        impl Read for $type {
            fn read(json: &str, at: &At<'_>) -> Result<Self, Violation> {
                let is_number = matches!(json.as_bytes().first(), Some(b'0'..=b'9' | b'-'));
                let whole = whole(json).filter(|_| is_number);
                whole.and_then(|whole| <$type>::try_from(whole).ok()).ok_or_else(|| {
                    let (low, high) = (<$type>::MIN, <$type>::MAX);
                    let want = format!("a whole number from {low} to {high}");
                    if is_number { at.violation(format!("must be {want}")) } else { refusal(&want, json, at) }
                })
            }
        }
    )*};
}
whole_numbers!(u16 u32 u64 i64);
