//! JSON as validated, immutable bytes.

use std::fmt;

use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::{Code, Error};
use crate::limits;

/// One JSON value: valid UTF-8, well formed, nested at most [`limits::MAX_JSON_DEPTH`] levels.
///
/// The bytes are kept as they came: member order, number spelling and white space included.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Bytes);

// === impl Json ===

impl Json {
    /// Checks and takes bytes as they came.
    ///
    /// # Errors
    /// [`Code::InvalidJson`] with line and column, or [`Code::JsonTooDeep`].
    pub fn parse(bytes: impl Into<Bytes>) -> Result<Self, Error> {
        let bytes = bytes.into();
        check_depth(&bytes)?;
        match serde_json::from_slice::<serde::de::IgnoredAny>(&bytes) {
            Ok(_) if std::str::from_utf8(&bytes).is_ok() => Ok(Self(bytes)),
            Ok(_) => Err(Error::new(Code::InvalidJson, "the JSON is not valid UTF-8")),
            Err(error) => {
                Err(Error::new(Code::InvalidJson, format!("the JSON is malformed: {error}")))
            }
        }
    }

    /// The JSON of a value built in this process.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        Self(Bytes::from(value.to_string()))
    }

    /// Takes bytes that were taken from a value of this type before and whose checksum was verified since: only UTF-8 is checked again.
    #[must_use]
    pub fn from_stored(bytes: Bytes) -> Option<Self> {
        std::str::from_utf8(&bytes).is_ok().then_some(Self(bytes))
    }

    /// The literal `null`.
    #[must_use]
    pub fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// The literal `{}`.
    #[must_use]
    pub fn empty_object() -> Self {
        Self(Bytes::from_static(b"{}"))
    }

    /// The bytes as they came.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// The JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    /// The value, for looking inside.
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::from_slice(&self.0).unwrap_or(Value::Null)
    }

    /// Whether it is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.0.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
    }

    /// SHA-256 of the bytes in lower-case hexadecimal: what a permission's resolution stores of the arguments shown.
    #[must_use]
    pub fn digest(&self) -> String {
        Sha256::digest(&self.0).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The object with the members of `patch` set over it, one level deep; a `null` removes.
    #[must_use]
    pub fn merged(&self, patch: &Self) -> Self {
        let (Value::Object(mut object), Value::Object(patch)) = (self.to_value(), patch.to_value())
        else {
            return patch.clone();
        };
        for (key, value) in patch {
            if value.is_null() {
                object.remove(&key);
            } else {
                object.insert(key, value);
            }
        }
        Self::from_value(&Value::Object(object))
    }

    /// The top-level scalar members as `(key, canonical text of the value)`, at most [`limits::MAX_SEARCH_KEYS`].
    #[must_use]
    pub fn scalars(&self) -> Vec<(String, String)> {
        if &self.0[..] == b"{}" {
            return Vec::new();
        }
        let Value::Object(object) = self.to_value() else {
            return Vec::new();
        };
        object
            .into_iter()
            .filter(|(_, value)| !value.is_object() && !value.is_array())
            .take(limits::MAX_SEARCH_KEYS)
            .map(|(key, value)| (key, value.to_string()))
            .collect()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Refuses nesting beyond the limit before any recursive reader sees it.
fn check_depth(bytes: &[u8]) -> Result<(), Error> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in bytes {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > limits::MAX_JSON_DEPTH {
            return Err(Error::new(
                Code::JsonTooDeep,
                format!("the JSON is nested deeper than {} levels", limits::MAX_JSON_DEPTH),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_bytes_and_refuses_what_is_not_json() {
        let text = "{ \"b\": 1.0,\n \"a\": [\"\\\"[\"] }";
        assert_eq!(Json::parse(text).map(|json| json.as_str().to_owned()), Ok(text.to_owned()));
        for bad in [&b"{"[..], b"{} x", b"", b"\"\xff\"", b"nul"] {
            assert_eq!(Json::parse(bad).map_err(|error| error.code()), Err(Code::InvalidJson));
        }
    }

    #[test]
    fn depth_is_bounded_before_parsing() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(Json::parse(nested(limits::MAX_JSON_DEPTH)).is_ok());
        for levels in [limits::MAX_JSON_DEPTH + 1, 1_000_000] {
            assert_eq!(
                Json::parse(nested(levels)).map_err(|error| error.code()),
                Err(Code::JsonTooDeep)
            );
        }
    }

    #[test]
    fn merging_sets_and_removes() {
        let json = |text: &'static str| {
            Json::parse(text).unwrap_or_else(|error| unreachable!("{error:?}"))
        };
        let merged = json(r#"{"a":1,"b":{"c":2}}"#).merged(&json(r#"{"a":null,"b":3,"d":4}"#));
        assert_eq!(merged.to_value(), serde_json::json!({"b": 3, "d": 4}));
    }
}
