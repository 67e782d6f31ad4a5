//! Reading request bodies within limits.

use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};

use crate::core::options::Options;

/// Reads a whole body.
/// Errors: `body_too_large`, and `invalid_request` when it does not come in time or breaks off.
pub(crate) async fn body(body: Incoming, options: &Options) -> Result<Bytes> {
    body_up_to(options.max_body_bytes, body, options).await
}

/// The same for a body of at most this many bytes.
pub(crate) async fn body_up_to(most: usize, body: Incoming, options: &Options) -> Result<Bytes> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    if body.size_hint().lower() > most as u64 {
        return Err(too_large(most));
    }
    match tokio::time::timeout(options.body_timeout, collect(body, most)).await {
        Ok(read) => read,
        Err(_) => Err(Error::new(
            Code::InvalidRequest,
            format!("the body did not arrive within {} s", options.body_timeout.as_secs()),
        )),
    }
}

async fn collect(body: Incoming, most: usize) -> Result<Bytes> {
    match Limited::new(body, most).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(most)),
        Err(error) => Err(Error::new(Code::InvalidRequest, format!("the body broke off: {error}"))),
    }
}

fn too_large(most: usize) -> Error {
    Error::new(Code::BodyTooLarge, format!("the body is larger than {most} bytes"))
        .hint("large content goes in by reference, or the operator raises `server.limits.max_body`")
}

/// Reads JSON as a type; an empty body counts as `{}`.
/// Errors: `invalid_json` where it is not JSON, `invalid_request` where it does not fit; both name line and column.
pub(crate) fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => {
            Error::new(Code::InvalidRequest, format!("the body does not fit: {error}"))
        }
        _ => Error::new(Code::InvalidJson, format!("the body is not JSON: {error}")),
    })
}
