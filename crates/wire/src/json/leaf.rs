use std::borrow::Cow;

use serde_json::Number;

use super::decode::lone_surrogate;
use super::scan::items;
use super::{Json, MAX_DEPTH, Path, Read, Violation, is_deeper, text};

// === impl Read ===

impl Read for String {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        text_of(json, at).map(Cow::into_owned)
    }
}

impl Read for bool {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        match json {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(refusal("a boolean", json, at)),
        }
    }
}

impl Read for Number {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        serde_json::from_str(json).map_err(|_| refusal("a number", json, at))
    }
}

impl Read for Json {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        if at.is_exact() && is_deeper(json, MAX_DEPTH) {
            return Err(at.violation(format!(
                "must not have more than {MAX_DEPTH} arrays and objects in each other"
            )));
        }
        let has_space = || json.bytes().any(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        let text =
            if at.is_exact() && has_space() { without_spaces(json) } else { json.to_owned() };
        Self::parse(text).map_err(|_| at.violation("is not JSON"))
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        if !json.starts_with('[') {
            return Err(refusal("an array", json, at));
        }
        items(json).enumerate().map(|(index, item)| T::read(item, &at.index(index))).collect()
    }
}

impl<T: Read> Read for Option<T> {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        if json == "null" { Ok(None) } else { T::read(json, at).map(Some) }
    }
}

impl<T: Read> Read for Box<T> {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        T::read(json, at).map(Self::new)
    }
}

/// Returns the text of a string. Borrows it if possible.
pub(crate) fn text_of<'j>(json: &'j str, at: &Path<'_>) -> Result<Cow<'j, str>, Violation> {
    match text::decode(json) {
        None => Err(refusal("a string", json, at)),
        Some(Cow::Owned(_)) if at.is_exact() && lone_surrogate(json.as_bytes()).is_some() => {
            Err(at.violation("has half of a surrogate pair"))
        }
        Some(text) => Ok(text),
    }
}

/// Returns the whole number, even if it has a fraction of zero or an exponent.
fn whole(json: &str) -> Option<i128> {
    if let Ok(whole) = json.parse() {
        return Some(whole);
    }
    let number: f64 = serde_json::from_str(json).ok()?;
    // Larger numbers are not exact.
    let is_exact = number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0;
    is_exact.then(|| format!("{number:.0}").parse().ok())?
}

macro_rules! whole_numbers {
    ($($type:ty)*) => {$(
        impl Read for $type {
            fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
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

pub(crate) fn refusal(want: &str, json: &str, at: &Path<'_>) -> Violation {
    let actual = match json.as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(_) => "a number",
        None => "nothing",
    };
    at.violation(format!("must be {want}, not {actual}"))
}

fn without_spaces(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    let keep = |c: &char| {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ => {}
        }
        in_string || !matches!(c, ' ' | '\t' | '\n' | '\r')
    };
    json.chars().filter(keep).collect()
}
