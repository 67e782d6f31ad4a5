//! Responses under construction.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use http::header::{HeaderName, HeaderValue};
use http::{Response, StatusCode, header};
use serde::Serialize;
use trilogue_domain::Principal;
use trilogue_domain::error::Result;

use super::body::ReplyBody;
use super::receive::{BodyBudget, hold_response};
use super::upgrade::{self, UpgradeHandler};

/// The pending interrupt that an answer did not match.
pub(crate) const INTERRUPT_ID: HeaderName = HeaderName::from_static("interrupt-id");
/// Set if an acknowledged event is less durable than with fsync.
pub(crate) const DURABILITY: HeaderName = HeaderName::from_static("trilogue-durability");
/// The request's id in the server's log.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The position of the next page, for a list that is a bare array.
pub(crate) const NEXT: HeaderName = HeaderName::from_static("trilogue-next");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");

const SANDBOX: HeaderName = HeaderName::from_static("content-security-policy");

#[derive(Debug)]
pub struct Reply(Response<ReplyBody>);

/// The largest response that is sent whole, with its length, in bytes.
const WHOLE_BYTES: usize = 1024 * 1024;
/// The initial buffer of a response, in bytes: enough for most.
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
        // Serialising only fails for maps with non-string keys, which the wire types do not contain.
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

    /// Sends JSON in pieces, or whole if it is small. An error within the first mebibyte becomes the response; a later one aborts the body, so that the client sees that it is incomplete.
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

    /// Returns stored content unchanged. Content from an agent must not run as a page of this server.
    pub(crate) fn stored(is_text: bool, bytes: Bytes) -> Self {
        let kind = if is_text { "text/plain; charset=utf-8" } else { "application/octet-stream" };
        Self::new(StatusCode::OK, ReplyBody::whole(bytes))
            .header(header::CONTENT_TYPE, HeaderValue::from_static(kind))
            .header(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"))
            .header(SANDBOX, HeaderValue::from_static("default-src 'none'; sandbox"))
    }

    /// Counts the bytes of the response that the client has not taken yet. A piece that exceeds the budget aborts the body.
    /// Errors: `overloaded` if a body that is sent whole exceeds the budget.
    pub(crate) fn counted(self, budget: &Arc<BodyBudget>, principal: &Principal) -> Result<Self> {
        let (head, body) = self.0.into_parts();
        let body = match body {
            ReplyBody::Whole(Some(bytes)) => {
                let held = hold_response(budget, principal, bytes);
                ReplyBody::whole(held.map_err(|spent| spent.to_error())?)
            }
            ReplyBody::Whole(None) => ReplyBody::Whole(None),
            ReplyBody::Stream(pieces) => {
                let (budget, principal) = (Arc::clone(budget), principal.clone());
                ReplyBody::pieces(pieces.map(move |piece| {
                    hold_response(&budget, &principal, piece?).map_err(io::Error::other)
                }))
            }
        };
        Ok(Self(Response::from_parts(head, body)))
    }

    pub fn no_content() -> Self {
        Self::new(StatusCode::NO_CONTENT, ReplyBody::Whole(None))
    }

    /// Returns a response after which this handler serves the connection, with another protocol.
    pub(crate) fn switch_protocol(handler: UpgradeHandler) -> Self {
        let mut reply = Self::new(StatusCode::SWITCHING_PROTOCOLS, ReplyBody::Whole(None));
        upgrade::put(&mut reply.0, handler);
        reply
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

    /// Sets a header from text; omits text that is invalid in a header.
    pub fn header_text(self, name: HeaderName, value: &str) -> Self {
        match HeaderValue::from_str(value) {
            Ok(value) => self.header(name, value),
            Err(_) => self,
        }
    }

    /// The bytes of a body that is sent whole.
    pub(crate) fn body_bytes(&self) -> usize {
        match self.0.body() {
            ReplyBody::Whole(Some(bytes)) => bytes.len(),
            ReplyBody::Whole(None) | ReplyBody::Stream(_) => 0,
        }
    }

    pub fn status(&self) -> StatusCode {
        self.0.status()
    }

    pub(crate) fn into_response(self) -> Response<ReplyBody> {
        self.0
    }
}
