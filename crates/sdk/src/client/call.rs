//! One request and its response: paths, bounded bodies, problems.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use trilogue_wire::native::Problem;

use super::error::ClientError;
use super::transport::{Body, Method, Request, Response};

/// The most bytes of a problem's body that are read.
const MAX_PROBLEM_BYTES: usize = 64 * 1024;

/// What stands for itself in a path segment or a query value (RFC 3986, unreserved).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Builds a request.
#[derive(Debug)]
pub(crate) struct Call(Request, char);

// === impl Call ===

impl Call {
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
        let start = if path.contains('?') { '&' } else { '?' };
        Self(Request { method, path, headers: Vec::new(), body: Bytes::new() }, start)
    }

    /// With a member of the query, where there is a value.
    pub(crate) fn query(mut self, name: &str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            self.0.path.push(std::mem::replace(&mut self.1, '&'));
            self.0.path.extend(encoded(name));
            self.0.path.push('=');
            self.0.path.extend(encoded(value));
        }
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.headers.push((name, value.into()));
        self
    }

    /// With a JSON body.
    pub(crate) fn json(mut self, body: &impl Serialize) -> Result<Self, ClientError> {
        let bytes = serde_json::to_vec(body)
            .map_err(|error| ClientError::Unexpected(format!("no JSON: {error}")))?;
        self.0.body = Bytes::from(bytes);
        Ok(self.header("content-type", "application/json"))
    }

    pub(crate) fn into_request(self) -> Request {
        self.0
    }
}

/// `.` and `..` are encoded too, so that no id walks up the path.
fn encoded(text: &str) -> Vec<&str> {
    match text {
        "." => vec!["%2E"],
        ".." => vec!["%2E%2E"],
        _ => utf8_percent_encode(text, RESERVED).collect(),
    }
}

/// Passes a response that succeeded; of another it makes the problem.
pub(crate) async fn succeeded(response: Response) -> Result<Response, ClientError> {
    if (200..300).contains(&response.status) {
        return Ok(response);
    }
    let status = response.status;
    let body = collect(response.body, MAX_PROBLEM_BYTES).await?;
    match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) => Err(ClientError::Problem(Box::new(problem))),
        Err(_) => Err(ClientError::Unexpected(format!(
            "status {status} without a problem{}",
            perhaps_elsewhere(status)
        ))),
    }
}

/// What a refusal means that is not in the words of the protocol; empty for what has many meanings.
pub(crate) fn perhaps_elsewhere(status: u16) -> &'static str {
    if status == 404 { "; perhaps this protocol is served at another address" } else { "" }
}

/// Reads the JSON of a response, at most this many bytes of it.
pub(crate) async fn read<T: DeserializeOwned>(
    response: Response,
    limit: usize,
) -> Result<T, ClientError> {
    let body = collect(response.body, limit).await?;
    serde_json::from_slice(&body).map_err(|error| ClientError::Unexpected(error.to_string()))
}

/// Reads a whole body, at most this many bytes of it.
pub(crate) async fn collect(mut body: Body, limit: usize) -> Result<Bytes, ClientError> {
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
            let call = Call::new(Method::Get, "/api/v1", &["runs", id]);
            assert_eq!(call.into_request().path, path);
        }
    }

    #[test]
    fn queries_are_joined_and_encoded() {
        let call = Call::new(Method::Get, "", &["runs"])
            .query("thread_id", Some("a&b"))
            .query("agent", None)
            .query("after", Some("1"));
        assert_eq!(call.into_request().path, "/runs?thread_id=a%26b&after=1");
    }
}
