//! Requests that create a run once, however often they come.

use http::HeaderName;
use sha2::{Digest, Sha256};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, limits};

use crate::http::request::Request;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says that the run was created by an earlier request under the same key.
pub(in crate::faces) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replay");

/// The idempotency key of a request, with the hash of its body.
/// Errors: `invalid_request` where the key is none.
pub(in crate::faces) fn idempotency(request: &Request) -> Result<Option<(String, [u8; 32])>> {
    let Some(key) = request.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    if request.caller.is_anonymous() {
        // They share one name: whoever guesses the key of another would be given that one's run.
        return Err(Error::new(
            Code::InvalidRequest,
            "an Idempotency-Key is only taken from callers with a token",
        ));
    }
    match key.to_str() {
        Ok(key) if !key.is_empty() && key.len() <= limits::MAX_ID_BYTES => {
            Ok(Some((key.to_owned(), Sha256::digest(&request.body).into())))
        }
        _ => Err(Error::new(
            Code::InvalidRequest,
            format!("the Idempotency-Key is not 1 to {} characters of ASCII", limits::MAX_ID_BYTES),
        )),
    }
}
