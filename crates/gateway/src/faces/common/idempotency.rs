//! Idempotency keys: repeated requests create a run only once.

use http::HeaderName;
use sha2::{Digest, Sha256};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, limits};

use crate::http::request::Request;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Set if an earlier request with the same key created the run.
pub(in crate::faces) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replay");

/// Returns the idempotency key of a request, with the hash of its body.
/// Errors: `invalid_request` if the key is invalid, or the caller has no token.
pub(in crate::faces) fn idempotency(request: &Request) -> Result<Option<(String, [u8; 32])>> {
    let keyed = keyed_body(request)?;
    if keyed.is_some() && request.caller.is_anonymous() {
        // Callers without a token share one name: a caller who guesses another's key would get that caller's run.
        return Err(Error::new(
            Code::InvalidRequest,
            "an Idempotency-Key is only taken from callers with a token",
        ));
    }
    Ok(keyed)
}

/// The same for a key that only counts on one connection, for callers without a token too.
/// Errors: `invalid_request` if the key is invalid.
pub(in crate::faces) fn keyed_body(request: &Request) -> Result<Option<(String, [u8; 32])>> {
    let Some(key) = request.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
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
