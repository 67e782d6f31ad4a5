//! Conversions between the vocabulary and our own face, written by hand, both ways.

pub(crate) mod agent;
pub(crate) mod answer;
pub(crate) mod event;
pub(crate) mod input;
pub(crate) mod interrupt;
pub(crate) mod message;
pub(crate) mod run;
pub(crate) mod thread;
pub(crate) mod token;

use trilogue_domain as domain;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Timestamp, limits};
use trilogue_wire::native;

/// JSON of ours as JSON on the wire, as it was written.
pub(crate) fn json(json: &domain::Json) -> native::Json {
    native::Json::parse(json.as_str()).unwrap_or_else(|_| native::Json::null())
}

/// JSON from the wire, checked for depth.
pub(crate) fn read_json(json: native::Json) -> Result<domain::Json> {
    domain::Json::parse(json.into_string())
}

/// A member that must be an object of bounded size.
pub(crate) fn read_object(json: Option<native::Json>, name: &str) -> Result<Option<domain::Json>> {
    let Some(json) = json else { return Ok(None) };
    let json = read_json(json)?;
    if !json.is_object() {
        return Err(Error::new(Code::InvalidRequest, format!("'{name}' is not an object")));
    }
    if json.as_bytes().len() > limits::MAX_METADATA_BYTES {
        let most = limits::MAX_METADATA_BYTES;
        return Err(Error::new(
            Code::BodyTooLarge,
            format!("'{name}' is larger than {most} bytes"),
        ));
    }
    Ok(Some(json))
}

/// A time in RFC 3339.
pub(crate) fn read_time(text: &str, name: &str) -> Result<Timestamp> {
    Timestamp::parse(text).ok_or_else(|| {
        Error::new(
            Code::InvalidRequest,
            format!("'{name}' is '{}', which is no time", crate::http::call::shown(text)),
        )
        .hint("a time is RFC 3339, such as 2026-01-31T12:00:00Z")
    })
}

/// Bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// A SHA-256 from its 64 hexadecimal digits.
pub(crate) fn read_sha256(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0_u8; 32];
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| !pair.starts_with('+'))?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(hash)
}
