//! Responses under construction.

use std::io;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use http::header::{HeaderName, HeaderValue};
use http::{Response, StatusCode, header};
use serde::Serialize;
use trilogue_domain::error::Result;

use super::body::ReplyBody;

/// Names the pending interrupt that an answer missed.
pub(crate) const INTERRUPT_ID: HeaderName = HeaderName::from_static("interrupt-id");
/// Says that an acknowledged event is less durable than an fsync makes it.
pub(crate) const DURABILITY: HeaderName = HeaderName::from_static("trilogue-durability");
/// Names the request in the server's log.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Where the page after this one begins, for a list that is a bare array.
pub(crate) const NEXT: HeaderName = HeaderName::from_static("trilogue-next");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

const SANDBOX: HeaderName = HeaderName::from_static("content-security-policy");

#[derive(Debug)]
pub struct Reply(Response<ReplyBody>);

/// A response of at most this many bytes is sent whole, with its length.
const WHOLE_BYTES: usize = 1024 * 1024;
/// What most answers take, in bytes: less than that is not worth growing for.
const USUAL_BYTES: usize = 1024;

// === impl Reply ===

impl Reply {
    pub(crate) fn new(status: StatusCode, body: ReplyBody) -> Self {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, NO_STORE);
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
        Self(response)
    }

    pub fn json(status: StatusCode, value: &impl Serialize) -> Self {
        // Only a map with keys that are no strings can fail, and there is none in the wire types.
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        if serde_json::to_writer(&mut bytes, value).is_err() {
            bytes = b"null".to_vec();
        }
        Self::json_bytes(status, bytes)
    }

    pub fn ok(value: &impl Serialize) -> Self {
        Self::json(StatusCode::OK, value)
    }

    pub fn json_bytes(status: StatusCode, bytes: impl Into<Bytes>) -> Self {
        Self::new(status, ReplyBody::whole(bytes)).header(header::CONTENT_TYPE, JSON)
    }

    /// JSON in pieces: whole if it is small. What fails before the first mebibyte is answered with its error; later, the body breaks off, so that the client sees that it is not whole.
    pub(crate) async fn json_pieces(
        status: StatusCode,
        pieces: impl Stream<Item = Result<Bytes>> + Send + 'static,
    ) -> Result<Self> {
        let mut pieces = Box::pin(pieces);
        let mut begin = BytesMut::new();
        while begin.len() <= WHOLE_BYTES {
            match pieces.next().await.transpose()? {
                Some(piece) => begin.extend_from_slice(&piece),
                None => return Ok(Self::json_bytes(status, begin.freeze())),
            }
        }
        let rest = pieces.map(|piece| {
            piece.map_err(|error| {
                tracing::warn!(error = %error, "a response broke off");
                io::Error::other(error)
            })
        });
        let body = stream::iter([Ok(begin.freeze())]).chain(rest);
        Ok(Self::new(status, ReplyBody::pieces(body)).header(header::CONTENT_TYPE, JSON))
    }

    /// Stored content as it is. What an agent made must not run as a page of this server.
    pub(crate) fn stored(is_text: bool, bytes: Bytes) -> Self {
        let kind = if is_text { "text/plain; charset=utf-8" } else { "application/octet-stream" };
        Self::new(StatusCode::OK, ReplyBody::whole(bytes))
            .header(header::CONTENT_TYPE, HeaderValue::from_static(kind))
            .header(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"))
            .header(SANDBOX, HeaderValue::from_static("default-src 'none'; sandbox"))
    }

    pub fn no_content() -> Self {
        Self::new(StatusCode::NO_CONTENT, ReplyBody::Whole(None))
    }

    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers_mut().insert(name, value);
        self
    }

    pub(crate) fn also(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers_mut().append(name, value);
        self
    }

    pub(crate) fn without(mut self, name: &HeaderName) -> Self {
        self.0.headers_mut().remove(name);
        self
    }

    /// Sets a header from text; text that no header can hold is left out.
    pub fn header_text(self, name: HeaderName, value: &str) -> Self {
        match HeaderValue::from_str(value) {
            Ok(value) => self.header(name, value),
            Err(_) => self,
        }
    }

    pub fn status(&self) -> StatusCode {
        self.0.status()
    }

    pub(crate) fn into_response(self) -> Response<ReplyBody> {
        self.0
    }
}
