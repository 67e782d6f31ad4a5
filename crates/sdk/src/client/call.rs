//! One request and its response: paths, bounded bodies, problems.

use std::future::Future;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use trilogue_wire::native::Json;

use super::Options;
use super::error::ClientError;
use super::transport::{Method, Request, Response, ResponseBody, Transport, TransportError};

/// The most bytes of a refusal that are read.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;

/// What stands for itself in a path segment or a query value (RFC 3986, unreserved).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A server, and how it is spoken to.
#[derive(Debug)]
pub(crate) struct Endpoint {
    transport: Arc<dyn Transport>,
    pub(crate) options: Options,
}

/// Builds a request.
#[derive(Debug)]
pub(crate) struct RequestBuilder {
    request: Request,
    /// What the next member of the query is written behind.
    separator: char,
    /// Whether the answer comes as late as the server likes.
    waits: bool,
}

// === impl Endpoint ===

impl Endpoint {
    pub(crate) fn new(transport: Arc<dyn Transport>, options: Options) -> Self {
        Self { transport, options }
    }

    /// A call of the path that these segments make where the protocol is mounted.
    pub(crate) fn call(&self, method: Method, segments: &[&str]) -> RequestBuilder {
        RequestBuilder::new(method, &self.options.base, segments)
    }

    /// Sends a call and gives the response of any status as soon as its head is there.
    pub(crate) async fn exchange(&self, call: RequestBuilder) -> Result<Response, ClientError> {
        let RequestBuilder { request, waits, .. } = call;
        let response = self.transport.send(request);
        Ok(if waits { response.await? } else { self.within_limit(response).await?? })
    }

    /// The whole body of a response.
    pub(crate) async fn whole(&self, response: Response) -> Result<Bytes, ClientError> {
        self.within_limit(collect(response.body, self.options.max_response_bytes)).await?
    }

    /// The body of a refusal.
    pub(crate) async fn refusal(&self, response: Response) -> Result<Bytes, ClientError> {
        self.within_limit(collect(response.body, MAX_REFUSAL_BYTES)).await?
    }

    async fn within_limit<F: Future>(&self, answer: F) -> Result<F::Output, ClientError> {
        let limit = self.options.call_timeout;
        tokio::time::timeout(limit, answer).await.map_err(|_| {
            let message = format!("the server did not answer within {} s", limit.as_secs());
            ClientError::Transport(TransportError::new(message))
        })
    }
}

// === impl RequestBuilder ===

impl RequestBuilder {
    /// A call of the path that these segments make under the base path.
    pub(crate) fn new(method: Method, base: &str, segments: &[&str]) -> Self {
        let mut path = base.to_owned();
        for segment in segments {
            path.push('/');
            path.extend(encoded(segment));
        }
        Self::at(method, path)
    }

    /// A call of a path that the server named.
    pub(crate) fn at(method: Method, path: String) -> Self {
        let separator = if path.contains('?') { '&' } else { '?' };
        let request = Request { method, path, headers: Vec::new(), body: Bytes::new() };
        Self { request, separator, waits: false }
    }

    /// The server answers when it is done with something, so the answer has no time limit.
    pub(crate) fn waiting(mut self) -> Self {
        self.waits = true;
        self
    }

    /// With a member of the query, where there is a value.
    pub(crate) fn query(mut self, name: &str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            self.request.path.push(std::mem::replace(&mut self.separator, '&'));
            self.request.path.extend(encoded(name));
            self.request.path.push('=');
            self.request.path.extend(encoded(value));
        }
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.request.headers.push((name, value.into()));
        self
    }

    /// With a JSON body.
    pub(crate) fn json(mut self, body: &impl Serialize) -> Result<Self, ClientError> {
        let bytes = serde_json::to_vec(body)
            .map_err(|error| ClientError::Unexpected(format!("no JSON: {error}")))?;
        self.request.body = Bytes::from(bytes);
        Ok(self.header("content-type", "application/json"))
    }
}

/// The JSON of a value; `None` where it has none.
pub(crate) fn json(value: &impl Serialize) -> Option<Json> {
    Json::parse(serde_json::to_string(value).ok()?).ok()
}

/// `.` and `..` are encoded too, so that no id walks up the path.
fn encoded(text: &str) -> Vec<&str> {
    match text {
        "." => vec!["%2E"],
        ".." => vec!["%2E%2E"],
        _ => utf8_percent_encode(text, RESERVED).collect(),
    }
}

/// What a refusal means that is not in the words of the protocol; empty for what has many meanings.
pub(crate) fn perhaps_elsewhere(status: u16) -> &'static str {
    if status == 404 { "; perhaps this protocol is served at another address" } else { "" }
}

/// Reads a whole body, at most this many bytes of it.
async fn collect(mut body: ResponseBody, limit: usize) -> Result<Bytes, ClientError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stay_inside_their_segment() {
        for (id, path) in [
            ("a-b_c.d~e", "/api/v1/runs/a-b_c.d~e"),
            ("a/b?c#d", "/api/v1/runs/a%2Fb%3Fc%23d"),
            ("..", "/api/v1/runs/%2E%2E"),
            ("ä ", "/api/v1/runs/%C3%A4%20"),
        ] {
            let call = RequestBuilder::new(Method::Get, "/api/v1", &["runs", id]);
            assert_eq!(call.request.path, path);
        }
    }

    #[test]
    fn queries_are_joined_and_encoded() {
        let call = RequestBuilder::new(Method::Get, "", &["runs"])
            .query("thread_id", Some("a&b"))
            .query("agent", None)
            .query("after", Some("1"));
        assert_eq!(call.request.path, "/runs?thread_id=a%26b&after=1");
    }
}
