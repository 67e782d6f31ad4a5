//! JSON as validated, immutable bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::error::{Code, Error};
use crate::limits;

/// One JSON value: valid UTF-8, well formed, without unpaired surrogates, nested at most [`limits::MAX_JSON_DEPTH`] levels.
///
/// The bytes are kept unchanged, including member order, number spelling and white space.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Bytes);

/// Reads the members of an object in their order and as they are written.
struct Members;

// === impl Json ===

impl Json {
    /// Checks bytes and keeps them unchanged.
    ///
    /// # Errors
    /// [`Code::InvalidJson`] with line and column, or [`Code::JsonTooDeep`].
    pub fn parse(bytes: impl Into<Bytes>) -> Result<Self, Error> {
        let bytes = bytes.into();
        let has_code_points = check_depth(&bytes)?;
        if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes) {
            return Err(Error::new(Code::InvalidJson, format!("the JSON is malformed: {error}")));
        }
        if std::str::from_utf8(&bytes).is_err() {
            return Err(Error::new(Code::InvalidJson, "the JSON is not valid UTF-8"));
        }
        match has_code_points.then(|| half_character(&bytes, 0)).flatten() {
            None => Ok(Self(bytes)),
            Some(at) => Err(Error::new(
                Code::InvalidJson,
                format!(
                    "the JSON is not valid text: half of a surrogate pair stands alone at byte {at}"
                ),
            )),
        }
    }

    /// Like [`Self::parse`], for JSON of a peer: each unpaired surrogate becomes U+FFFD, and nothing else is lost or changed.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_mended(bytes: impl Into<Bytes>) -> Result<Self, Error> {
        let bytes = bytes.into();
        let parsed = Self::parse(bytes.clone());
        if parsed.is_ok() {
            return parsed;
        }
        // Only a failure is worth another look at the text.
        match mended(std::str::from_utf8(&bytes).unwrap_or_default()) {
            Cow::Owned(mended) => Self::parse(mended),
            Cow::Borrowed(_) => parsed,
        }
    }

    /// Returns the JSON of a value that this process made.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        Self(Bytes::from(value.to_string()))
    }

    /// Takes bytes that were once a value of this type and whose checksum was verified since. Only UTF-8 is checked again; `None` if it is invalid.
    #[must_use]
    pub fn from_stored(bytes: Bytes) -> Option<Self> {
        std::str::from_utf8(&bytes).is_ok().then_some(Self(bytes))
    }

    /// Returns the literal `null`.
    #[must_use]
    pub fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// Returns the literal `{}`.
    #[must_use]
    pub fn empty_object() -> Self {
        Self(Bytes::from_static(b"{}"))
    }

    /// Returns the unchanged bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Returns the JSON text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    /// Parses the value.
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::from_slice(&self.0).unwrap_or(Value::Null)
    }

    /// Returns `true` if the value is an object.
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.0.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
    }

    /// Returns the SHA-256 of the bytes in lower-case hexadecimal. The resolution of a permission stores it for the arguments that were shown.
    #[must_use]
    pub fn digest(&self) -> String {
        Sha256::digest(&self.0).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the members of an object by name, each value as it is written: a value of many small parts needs far more memory when it is parsed. Of equal names, the last counts. `None` if the value is not an object.
    #[must_use]
    pub fn members(&self) -> Option<BTreeMap<String, &RawValue>> {
        serde_json::from_slice(&self.0).ok()
    }

    /// Returns the object with the members of `patch` merged into it, one level deep. A `null` removes a member.
    #[must_use]
    pub fn merged(&self, patch: &Self) -> Self {
        let (Some(mut members), Some(patch_members)) = (self.members(), patch.members()) else {
            return patch.clone();
        };
        for (key, value) in patch_members {
            if value.get() == "null" {
                members.remove(&key);
            } else {
                members.insert(key, value);
            }
        }
        Self::from_members(&members)
    }

    /// Returns the object with the members of `over` in addition to its own, or in their place. `None` if one of the two is not an object.
    #[must_use]
    pub fn overridden(&self, over: &Self) -> Option<Self> {
        let mut members = self.members()?;
        members.extend(over.members()?);
        Some(Self::from_members(&members))
    }

    /// Returns the object with one member set, or removed if `value` is `None`. All other members keep their text and order. Returns `None` if the value is not an object.
    #[must_use]
    pub fn with_member(&self, name: &str, value: Option<&Self>) -> Option<Self> {
        let mut reader = serde_json::Deserializer::from_slice(&self.0);
        let members = reader.deserialize_map(Members).ok()?;
        let is_named =
            |key: &RawValue| serde_json::from_str::<String>(key.get()).is_ok_and(|key| key == name);
        let mut rest = value;
        let mut is_changed = false;
        let mut text = String::with_capacity(self.0.len());
        for (key, member) in members {
            let member = match (is_named(key), rest) {
                (false, _) => member.get(),
                (true, Some(value)) => {
                    rest = None;
                    is_changed |= value.as_str() != member.get();
                    value.as_str()
                }
                (true, None) => {
                    is_changed = true;
                    continue;
                }
            };
            push_member(&mut text, key.get(), member);
        }
        if let Some(value) = rest {
            is_changed = true;
            push_member(&mut text, &Value::from(name).to_string(), value.as_str());
        }
        Some(if is_changed { Self(Bytes::from(format!("{{{text}}}"))) } else { self.clone() })
    }

    fn from_members(members: &BTreeMap<String, &RawValue>) -> Self {
        let mut text = String::new();
        for (name, value) in members {
            push_member(&mut text, &Value::from(name.as_str()).to_string(), value.get());
        }
        Self(Bytes::from(format!("{{{text}}}")))
    }

    /// Returns the top-level scalar members as `(key, canonical text of the value)`, at most [`limits::MAX_SEARCH_KEYS`].
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

/// Writes the JSON text unchanged, so that it can be a member of a value that an agent serialises.
impl Serialize for Json {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_slice(&self.0).map_err(S::Error::custom)?;
        raw.serialize(to)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn push_member(text: &mut String, key: &str, value: &str) {
    if !text.is_empty() {
        text.push(',');
    }
    text.push_str(key);
    text.push(':');
    text.push_str(value);
}

// === impl Members ===

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(&'de RawValue, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}

/// Refuses nesting above the limit before a recursive reader parses the text. Returns `true` if the text contains code points as numbers.
fn check_depth(bytes: &[u8]) -> Result<bool, Error> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut has_code_points = false;
    for byte in bytes {
        if in_string {
            match byte {
                _ if escaped => {
                    escaped = false;
                    has_code_points |= *byte == b'u';
                }
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
    Ok(has_code_points)
}

/// Returns well-formed JSON with U+FFFD in the place of each unpaired surrogate.
#[must_use]
pub fn mended(json: &str) -> Cow<'_, str> {
    let (mut mended, mut from) = (String::new(), 0);
    while let Some(at) = half_character(json.as_bytes(), from) {
        mended.push_str(json.get(from..at).unwrap_or_default());
        mended.push_str("\\ufffd");
        from = at + 6;
    }
    if from == 0 {
        return Cow::Borrowed(json);
    }
    mended.push_str(json.get(from..).unwrap_or_default());
    Cow::Owned(mended)
}

/// Returns the position of the next unpaired surrogate in well-formed JSON. Such a string is not valid text, and other readers could not parse it.
fn half_character(bytes: &[u8], from: usize) -> Option<usize> {
    let code_unit = |at: usize| {
        let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut at = from;
    while let Some(more) = bytes.get(at..)?.iter().position(|byte| *byte == b'\\') {
        at += more;
        at += match code_unit(at) {
            Some(0xd800..=0xdbff) => match code_unit(at + 6) {
                Some(0xdc00..=0xdfff) => 12,
                _ => return Some(at),
            },
            Some(0xdc00..=0xdfff) => return Some(at),
            _ => 2,
        };
    }
    None
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
    fn halves_of_characters_are_refused() {
        let whole =
            [r#""\ud83d\ude00""#, r#"{"\uD83D\uDE00":"\\ud800"}"#, r#""\u00e4\\\ud83d\ude00""#];
        for text in whole {
            assert_eq!(Json::parse(text).map(|json| json.as_str().to_owned()), Ok(text.to_owned()));
        }
        let halves = [
            (r#""\ud800""#, 1),
            (r#"["a","\uDFFF"]"#, 6),
            (r#"{"\ud83d":1}"#, 2),
            (r#""\ud83d\ud83d\ude00""#, 1),
            (r#""\ude00\ud83d""#, 1),
            (r#""\ud83d\n""#, 1),
            (r#""\\\ud800x""#, 3),
        ];
        for (text, at) in halves {
            let error = Json::parse(text).unwrap_err();
            assert_eq!(error.code(), Code::InvalidJson, "{text}");
            assert!(error.message().ends_with(&format!("alone at byte {at}")), "{error}");
        }
    }

    #[test]
    fn a_half_of_a_character_changes_nothing_else() {
        let text = r#"{"a":"x\ud800\\ud800\ud83d\ude00","b":1.0,"\uDFFF":["\ud83d\ud83d\ude00"]}"#;
        let mended =
            r#"{"a":"x\ufffd\\ud800\ud83d\ude00","b":1.0,"\ufffd":["\ufffd\ud83d\ude00"]}"#;
        assert_eq!(Json::parse_mended(text).unwrap().as_str(), mended);
        for whole in [r#"{"a":"\ud83d\ude00"}"#, "1"] {
            assert_eq!(Json::parse_mended(whole).unwrap().as_str(), whole);
        }
        for bad in [r#"{"a":"\ud800""#, "", r#"\ud800"#] {
            assert!(Json::parse_mended(bad).is_err(), "{bad}");
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
        let (object, patch) =
            (json(r#"{"a":1,"b":{"c":2},"n":1.50}"#), json(r#"{"a": null ,"b":3,"\"":[ 4 ]}"#));
        assert_eq!(object.merged(&patch).as_str(), r#"{"\"":[ 4 ],"b":3,"n":1.50}"#);
        let over = object.overridden(&patch).unwrap();
        assert_eq!(over.as_str(), r#"{"\"":[ 4 ],"a":null,"b":3,"n":1.50}"#);
        assert_eq!(object.merged(&json("[]")), json("[]"));
        assert_eq!(object.overridden(&json("[]")), None);
    }

    #[test]
    fn setting_one_member_leaves_the_others_as_they_are_written() {
        let set = |text: &str, value: Option<&'static str>| {
            let value = value.map(|value| Json::parse(value).unwrap());
            let json = Json::parse(text.to_owned()).unwrap();
            json.with_member("t", value.as_ref()).map(|json| json.as_str().to_owned())
        };
        let odd = r#""n":123456789012345678901234567890,"\u0062":1.50,"a":{ "x" : [ 1e2 ] }"#;
        for (before, value, after) in [
            (format!("{{{odd}}}"), Some(r#""new""#), format!(r#"{{{odd},"t":"new"}}"#)),
            (format!(r#"{{"t":"old",{odd}}}"#), Some("2"), format!(r#"{{"t":2,{odd}}}"#)),
            (format!(r#"{{{odd},"t":"old"}}"#), None, format!("{{{odd}}}")),
            (
                r#"{"\u0074":1, "a":2, "t":3}"#.to_owned(),
                Some("4"),
                r#"{"\u0074":4,"a":2}"#.to_owned(),
            ),
            (" { } ".to_owned(), Some("1"), r#"{"t":1}"#.to_owned()),
            (r#"{"t":[1]}"#.to_owned(), None, "{}".to_owned()),
        ] {
            assert_eq!(set(&before, value), Some(after), "{before}");
        }
        // If nothing changes, white space stays too.
        for (same, value) in [(r#" { "a" : 1 , "t" : 2 } "#, Some("2")), (r#"{ "a": 1 }"#, None)] {
            assert_eq!(set(same, value).as_deref(), Some(same));
        }
        for other in ["[]", "null", "1", r#""{}""#] {
            assert_eq!(set(other, Some("1")), None, "{other}");
        }
    }
}
