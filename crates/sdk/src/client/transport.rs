//! What carries a client's requests: [`HttpTransport`](super::HttpTransport), or a transport of your own.

use std::fmt;
use std::pin::Pin;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};

use super::error::ClientError;

/// Sends requests to one server. It knows the server's address and the credentials; a request names only the path.
#[async_trait]
pub trait Transport: Send + Sync + fmt::Debug {
    /// Sends a request and gives the response as soon as its head is there.
    ///
    /// # Errors
    /// When no response came. A response of any status is none.
    async fn send(&self, request: Request) -> Result<Response, TransportError>;
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query, percent-encoded, from `/` on.
    pub path: String,
    /// Header fields beyond those that the transport adds; names in lower case.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty where there is none.
    pub body: Bytes,
}

/// A request's method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Read.
    Get,
    /// Create or act.
    Post,
    /// Change.
    Patch,
    /// Remove.
    Delete,
}

/// A response, whose body comes as it is read. Dropping it ends the exchange.
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The `content-type`, where there is one.
    pub content_type: Option<String>,
    /// The `run-id` or, in the Agent Connect Protocol, the `x-run-id`, where there is one: which run a stream shows.
    pub run_id: Option<String>,
    /// The `warning`, where there is one: what the server says beside its answer.
    pub warning: Option<String>,
    /// The body.
    pub body: ResponseBody,
}

/// A body, in pieces of any length. The transport reads no further ahead than the reader asks for, apart from its socket's buffer.
pub type ResponseBody = Pin<Box<dyn Stream<Item = Result<Bytes, TransportError>> + Send>>;

/// Why a request got no response, or a body no end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    /// What happened.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// Whether the server has certainly got nothing of the request: it can be sent again without being taken twice.
    pub is_unreached: bool,
}

/// Reads a whole body, at most this many bytes of it.
///
/// # Errors
/// [`ClientError::Unexpected`] for a longer one; [`ClientError::Transport`] for one that breaks off.
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
    /// The method as HTTP spells it.
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
    /// An error with its message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, is_unreached: false }
    }

    /// The same error with what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
