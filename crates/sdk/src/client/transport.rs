//! The transport of a client's requests: [`HttpTransport`](super::HttpTransport), or your own.

use std::fmt;
use std::pin::Pin;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};

use super::error::ClientError;

/// Sends requests to one server. It knows the server's address and the credentials; a request contains only the path.
#[async_trait]
pub trait Transport: Send + Sync + fmt::Debug {
    /// Sends a request and returns the response as soon as its head has arrived.
    ///
    /// # Errors
    /// If no response arrives. A response of any status is not an error.
    async fn send(&self, request: Request) -> Result<Response, TransportError>;
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query, percent-encoded, starting with `/`.
    pub path: String,
    /// More header fields, in addition to those of the transport. Names are in lower case.
    pub headers: Vec<(&'static str, String)>,
    /// The body; may be empty.
    pub body: Bytes,
}

/// A request's method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Reads.
    Get,
    /// Creates or acts.
    Post,
    /// Changes.
    Patch,
    /// Removes.
    Delete,
}

/// A response. Its body is read as a stream. Dropping it ends the exchange.
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The `content-type`, if any.
    pub content_type: Option<String>,
    /// The `run-id`, or the `x-run-id` of the Agent Connect Protocol, if any: the run of a stream.
    pub run_id: Option<String>,
    /// The `warning`, if any: the server's remark on its response.
    pub warning: Option<String>,
    /// The body.
    pub body: ResponseBody,
}

/// A body in chunks of any length. The transport reads ahead only into its socket buffer.
pub type ResponseBody = Pin<Box<dyn Stream<Item = Result<Bytes, TransportError>> + Send>>;

/// Why a request got no response, or why a body is incomplete.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    /// What happened.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// Whether the request certainly did not reach the server. Then it can be sent again safely.
    pub is_unreached: bool,
}

/// Reads a whole body of at most `limit` bytes.
///
/// # Errors
/// [`ClientError::Unexpected`] if the body is longer; [`ClientError::Transport`] if it is incomplete.
pub async fn collect_body(mut body: ResponseBody, limit: usize) -> Result<Bytes, ClientError> {
    let mut whole = BytesMut::new();
    while let Some(piece) = body.next().await {
        let piece = piece?;
        if whole.len() + piece.len() > limit {
            return Err(ClientError::Unexpected(format!("it has more than {limit} bytes")));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

// === impl Method ===

impl Method {
    /// Returns the method as HTTP spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

// === impl Response ===

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("content_type", &self.content_type)
            .field("run_id", &self.run_id)
            .finish_non_exhaustive()
    }
}

// === impl TransportError ===

impl TransportError {
    /// Returns an error with this message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, is_unreached: false }
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
