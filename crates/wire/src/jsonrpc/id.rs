use std::borrow::Cow;
use std::fmt;

use schemars::json_schema;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::schema::schema;
use crate::json::{Path, Read, Violation, refusal};

/// The maximum length of an id, in bytes of its JSON.
pub const MAX_ID_BYTES: usize = 1024;

/// A request's id, byte for byte as it was written: a number, a string or `null`.
///
/// Two ids are equal if they are written the same, so `1` is neither `"1"` nor `1.0`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id<'a>(Cow<'a, str>);

// === impl Id ===

impl Read for Id<'static> {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        Id::of(json)
            .map(Id::into_owned)
            .ok_or_else(|| refusal("a number, a string or null", json, at))
    }
}

impl<'a> Id<'a> {
    /// The id of a reply to a message whose id is unknown.
    pub const NULL: Id<'static> = Id(Cow::Borrowed("null"));

    /// Parses an id. Returns `None` if the JSON is not a number, a string or `null`, or is longer than [`MAX_ID_BYTES`].
    pub fn of(json: &'a str) -> Option<Self> {
        let is_kind = match json.as_bytes() {
            [b'"', .., b'"'] | [b'0'..=b'9' | b'-', ..] => true,
            text => text == b"null",
        };
        let fits = is_kind && json.len() <= MAX_ID_BYTES;
        // Only valid JSON may be echoed, so it is checked here for every caller.
        (fits && serde_json::from_str::<&RawValue>(json).is_ok_and(|raw| raw.get() == json))
            .then_some(Self(Cow::Borrowed(json)))
    }

    pub fn number(number: u64) -> Id<'static> {
        Id(Cow::Owned(number.to_string()))
    }

    pub fn text(text: &str) -> Id<'static> {
        Id(Cow::Owned(serde_json::Value::from(text).to_string()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the number, if the id has the form that [`Id::number`] makes.
    pub fn as_number(&self) -> Option<u64> {
        self.0.parse().ok().filter(|_| !self.0.starts_with('+'))
    }

    pub fn is_null(&self) -> bool {
        self.0 == "null"
    }

    pub fn into_owned(self) -> Id<'static> {
        Id(Cow::Owned(self.0.into_owned()))
    }
}

impl fmt::Display for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Id<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Id<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(&self.0).map_err(serde::ser::Error::custom)?.serialize(to)
    }
}

schema!(inline Id<'_> = "RequestId", |_| json_schema!({ "type": ["null", "number", "string"] }));
