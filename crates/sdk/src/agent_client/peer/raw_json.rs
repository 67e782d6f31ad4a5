use std::fmt;
use std::str;

use bytes::Bytes;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use trilogue_wire::jsonrpc::Payload;

/// JSON text as the other side wrote it. Cheap to clone: it shares the bytes of its line.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RawJson(Bytes);

// === impl RawJson ===

impl RawJson {
    /// `{}`.
    pub const EMPTY: Self = Self(Bytes::from_static(b"{}"));
    /// `null`.
    pub const NULL: Self = Self(Bytes::from_static(b"null"));

    /// Returns the part of a line that is this JSON.
    pub(super) fn within(line: &Bytes, json: &RawValue) -> Self {
        let json = json.get().as_bytes();
        // A value that the reader creates itself is not part of the line.
        let is_inside = line.as_ptr_range().contains(&json.as_ptr());
        Self(if is_inside { line.slice_ref(json) } else { Bytes::copy_from_slice(json) })
    }

    /// Parses JSON that this program rendered.
    ///
    /// # Errors
    /// If the text is not one JSON value.
    pub fn parse(json: impl Into<Bytes>) -> Result<Self, serde_json::Error> {
        let json = json.into();
        serde_json::from_slice::<&RawValue>(&json)?;
        Ok(Self(json))
    }

    /// Renders a value as JSON.
    #[must_use]
    pub fn of<P: Payload + ?Sized>(value: &P) -> Self {
        if value.is_absent() {
            return Self::EMPTY;
        }
        let mut json = Vec::new();
        value.write(&mut json);
        Self(Bytes::from(json))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or("null")
    }

    /// Returns the bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Returns the bytes without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Parses the text; `null` if that fails.
    #[must_use]
    pub fn to_value(&self) -> serde_json::Value {
        serde_json::from_slice(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_slice(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(to)
    }
}

impl Payload for RawJson {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}
