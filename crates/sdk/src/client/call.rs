//! One request and its response: paths, bounded bodies, problems.

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
        let limit = self.options.max_response_bytes;
        let body = self.within_limit(collect_body(response.body, limit)).await??;
        if is_too_complex(&body, DEFAULT_MAX_TREE_BYTES) {
            return Err(too_complex());
        }
        Ok(body)
    }

    /// Sends a call and passes the response when it succeeded; of another it makes the error.
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

/// What is said of JSON that would take far more memory than its text.
pub(crate) fn too_complex() -> ClientError {
    ClientError::Unexpected("its JSON has too many values for its length".to_owned())
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

    /// A call for the bytes at an address that the server gave, which must be a path of its own.
    pub(crate) fn content(path: &str) -> Result<Self, ClientError> {
        if !path.starts_with('/') || path.starts_with("//") {
            return Err(ClientError::Unexpected("an address leaves the server".to_owned()));
        }
        Ok(Self::at(Method::Get, path.to_owned()))
    }

    /// The server answers when it is done with something, so the answer has no time limit.
    pub(crate) fn waiting(mut self) -> Self {
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

    /// With the key under which a run is created once, where there is one.
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

/// Makes the constructors of a client, which has an `endpoint` and a base path behind that of the server's address.
macro_rules! impl_client {
    ($base:expr, $example:literal) => {
        impl Client {
            #[doc = concat!("A client of the server at this address, such as `", $example, "`.")]
            pub fn at(url: &str) -> Result<Self, ClientError> {
                Ok(Self::over(HttpTransport::to(url)?))
            }

            /// A client over HTTP, with the token of the transport.
            #[must_use]
            pub fn over(transport: HttpTransport) -> Self {
                let options = Options::at(&format!("{}{}", transport.path(), $base));
                Self::new(Arc::new(transport), options)
            }

            /// A client over this transport; [`Options::at`] says where the protocol is mounted.
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
