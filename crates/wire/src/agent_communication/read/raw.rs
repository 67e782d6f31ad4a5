use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, Error};
use serde_json::value::RawValue;

use super::super::Json;

/// How deeply arrays and objects may lie in each other in JSON that is carried as it came.
pub const MAX_DEPTH: usize = 100;

/// Any JSON, carried as it came but without the white space around its tokens.
#[derive(Debug)]
pub struct Raw(pub(super) Json);

// === impl Raw ===

impl Raw {
    /// Whether it is an object.
    pub(super) fn is_object(&self) -> bool {
        self.0.as_str().starts_with('{')
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_str().as_bytes()
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Box::<RawValue>::deserialize(from)?;
        let compact = compact(value.get()).ok_or_else(|| {
            D::Error::custom(format!(
                "must not have more than {MAX_DEPTH} arrays and objects in each other"
            ))
        })?;
        let text = match compact {
            Cow::Owned(text) => text,
            Cow::Borrowed(_) => Box::<str>::from(value).into_string(),
        };
        Json::parse(text).map(Self).map_err(D::Error::custom)
    }
}

/// JSON without white space between its tokens; `None` where it is too deep.
fn compact(json: &str) -> Option<Cow<'_, str>> {
    let (mut depth, mut in_string, mut escaped, mut spaces) = (0_usize, false, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b' ' | b'\t' | b'\n' | b'\r' => spaces = true,
            _ => {}
        }
        if depth > MAX_DEPTH {
            return None;
        }
    }
    Some(if spaces { Cow::Owned(without_spaces(json)) } else { Cow::Borrowed(json) })
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
