//! One request and its response: paths, bounded bodies, error responses.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use trilogue_wire::json::{DEFAULT_MAX_TREE_BYTES, is_too_complex};
use trilogue_wire::native::Json;

use super::Options;
use super::error::ClientError;
use super::transport::{Method, Request, Response, Transport, TransportError, collect_body};

/// The maximum number of bytes that are read of an error response.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;

/// The characters that are escaped in a path segment or a query value: all except the unreserved ones of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A server with its transport and options.
#[derive(Debug)]
pub(crate) struct Endpoint {
    transport: Arc<dyn Transport>,
    pub(crate) options: Options,
}

#[derive(Debug)]
pub(crate) struct RequestBuilder {
    request: Request,
    /// The separator before the next query member: `?` or `&`.
    separator: char,
    /// Whether the response has no time limit.
    waits: bool,
}

// === impl Endpoint ===

impl Endpoint {
    pub(crate) fn new(transport: Arc<dyn Transport>, options: Options) -> Self {
        Self { transport, options }
    }

    /// Returns a request for the path with these segments under the protocol's base path.
    pub(crate) fn call(&self, method: Method, segments: &[&str]) -> RequestBuilder {
        RequestBuilder::new(method, &self.options.base, segments)
    }

    /// Sends a request and returns the response of any status as soon as its head has arrived.
    pub(crate) async fn exchange(&self, call: RequestBuilder) -> Result<Response, ClientError> {
        let RequestBuilder { request, waits, .. } = call;
        let response = self.transport.send(request);
        Ok(if waits { response.await? } else { self.within_limit(response).await?? })
    }

    /// Reads the whole body of a response.
    pub(crate) async fn whole(&self, response: Response) -> Result<Bytes, ClientError> {
        let limit = self.options.max_response_bytes;
        let body = self.within_limit(collect_body(response.body, limit)).await??;
        if is_too_complex(&body, DEFAULT_MAX_TREE_BYTES) {
            return Err(too_complex());
        }
        Ok(body)
    }

    /// Sends a request and returns a successful response. `refused` makes the error from any other response.
    pub(crate) async fn send(
        &self,
        call: RequestBuilder,
        refused: impl FnOnce(u16, &[u8]) -> ClientError,
    ) -> Result<Response, ClientError> {
        let response = self.exchange(call).await?;
        let status = response.status;
        if (200..300).contains(&status) {
            return Ok(response);
        }
        let limit = MAX_REFUSAL_BYTES;
        Err(refused(status, &self.within_limit(collect_body(response.body, limit)).await??))
    }

    async fn within_limit<F: Future>(&self, answer: F) -> Result<F::Output, ClientError> {
        let limit = self.options.call_timeout;
        tokio::time::timeout(limit, answer).await.map_err(|_| {
            let message = format!("the server did not answer within {} s", limit.as_secs());
            ClientError::Transport(TransportError::new(message))
        })
    }
}

/// Returns the error for JSON whose parsed form would need far more memory than its text.
pub(crate) fn too_complex() -> ClientError {
    ClientError::Unexpected("its JSON has too many values for its length".to_owned())
}

// === impl RequestBuilder ===

impl RequestBuilder {
    /// Returns a request for the path with these segments under the base path.
    pub(crate) fn new(method: Method, base: &str, segments: &[&str]) -> Self {
        let mut path = base.to_owned();
        for segment in segments {
            path.push('/');
            path.extend(encoded(segment));
        }
        Self::at(method, path)
    }

    /// Returns a request for a path that the server sent.
    pub(crate) fn at(method: Method, path: String) -> Self {
        let separator = if path.contains('?') { '&' } else { '?' };
        let request = Request { method, path, headers: Vec::new(), body: Bytes::new() };
        Self { request, separator, waits: false }
    }

    /// Returns a request for the content at an address from the server. The address must be a path on the same server.
    pub(crate) fn content(path: &str) -> Result<Self, ClientError> {
        if !path.starts_with('/') || path.starts_with("//") {
            return Err(ClientError::Unexpected("an address leaves the server".to_owned()));
        }
        Ok(Self::at(Method::Get, path.to_owned()))
    }

    /// Removes the time limit, because the server responds only when a task is done.
    pub(crate) fn without_time_limit(mut self) -> Self {
        self.waits = true;
        self
    }

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

    /// Adds the idempotency key, if any.
    pub(crate) fn idempotency_key(self, key: Option<&String>) -> Self {
        match key {
            Some(key) => self.header("idempotency-key", key),
            None => self,
        }
    }

    pub(crate) fn json(mut self, body: &impl Serialize) -> Result<Self, ClientError> {
        let bytes = serde_json::to_vec(body)
            .map_err(|error| ClientError::Unexpected(format!("no JSON: {error}")))?;
        self.request.body = Bytes::from(bytes);
        Ok(self.header("content-type", "application/json"))
    }
}

/// Makes the constructors of a client that has an `endpoint`. `$base` is the base path after the path of the server's address.
macro_rules! impl_client {
    ($base:expr, $example:literal) => {
        impl Client {
            #[doc = concat!("A client of the server at this address, such as `", $example, "`.")]
            pub fn at(url: &str) -> Result<Self, ClientError> {
                Ok(Self::from_http(HttpTransport::to(url)?))
            }

            /// Returns a client over HTTP, with the credential of the transport.
            #[must_use]
            pub fn from_http(transport: HttpTransport) -> Self {
                let options = Options::at(&format!("{}{}", transport.path(), $base));
                Self::new(Arc::new(transport), options)
            }

            /// Returns a client over this transport. Set the protocol's base path with [`Options::at`].
            #[must_use]
            pub fn new(transport: Arc<dyn Transport>, options: Options) -> Self {
                Self { endpoint: Arc::new(Endpoint::new(transport, options)) }
            }

            fn options(&self) -> &Options {
                &self.endpoint.options
            }

            fn call(&self, method: Method, segments: &[&str]) -> RequestBuilder {
                self.endpoint.call(method, segments)
            }
        }
    };
}
pub(crate) use impl_client;

/// Serializes a value; `None` if that fails.
pub(crate) fn json(value: &impl Serialize) -> Option<Json> {
    Json::parse(serde_json::to_string(value).ok()?).ok()
}

/// Encodes a path segment. Also encodes `.` and `..`, so that no id can leave its path.
fn encoded(text: &str) -> Vec<&str> {
    match text {
        "." => vec!["%2E"],
        ".." => vec!["%2E%2E"],
        _ => utf8_percent_encode(text, RESERVED).collect(),
    }
}

/// Returns a hint for a status that does not come from the protocol; empty if the status has many causes.
pub(crate) fn perhaps_elsewhere(status: u16) -> &'static str {
    if status == 404 { "; perhaps this protocol is served at another address" } else { "" }
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
