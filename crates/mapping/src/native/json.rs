use trilogue_domain as domain;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, limits};
use trilogue_wire::native;

/// Converts our JSON to JSON on the wire, unchanged.
pub fn json(json: &domain::Json) -> native::Json {
    native::Json::parse(json.as_str()).unwrap_or_else(|_| native::Json::null())
}

/// Reads JSON from the wire and checks its depth; fails with `json_too_deep`.
pub fn read_json(json: native::Json) -> Result<domain::Json> {
    domain::Json::parse(json.into_string())
}

/// The object of a value of the wire. Fails if it cannot be written as JSON.
pub(super) fn object_of<T: serde::Serialize>(value: &T) -> Result<domain::Json> {
    let value = serde_json::to_value(value)
        .map_err(|error| Error::new(Code::Internal, format!("an event is not JSON: {error}")))?;
    Ok(domain::Json::from_value(&value))
}

/// Reads a member that must be an object of at most [`limits::MAX_METADATA_BYTES`] bytes.
/// Errors: `invalid_request` or `body_too_large`, naming the member; `json_too_deep`.
pub fn read_object(json: Option<native::Json>, name: &str) -> Result<Option<domain::Json>> {
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
