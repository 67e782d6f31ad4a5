use trilogue_domain as domain;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, limits};
use trilogue_wire::native;

/// JSON of ours as JSON on the wire, as it was written.
pub fn json(json: &domain::Json) -> native::Json {
    native::Json::parse(json.as_str()).unwrap_or_else(|_| native::Json::null())
}

/// JSON from the wire, checked for depth; fails with `json_too_deep`.
pub fn read_json(json: native::Json) -> Result<domain::Json> {
    domain::Json::parse(json.into_string())
}

/// A member that must be an object of at most [`limits::MAX_METADATA_BYTES`] bytes.
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
