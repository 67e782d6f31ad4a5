//! The transport over HTTP, with the workspace's one outbound HTTP client.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use trilogue_egress::{Client as Egress, Options as EgressOptions, Policy};
use url::Url;

use super::resumable::EVENT_STREAM;
use super::transport::{Request, Response, Transport, TransportError};

/// How long a server may be silent before it responds to a call. Longer than the longest wait for a run that a client can request.
const CALL_SILENCE: Duration = Duration::from_secs(3_900);

/// Sends requests to one server over HTTP. Cheap to clone; clones share connections.
///
/// It connects to any address, including private ones, because the user of the program chose the server. It does not follow redirects.
#[derive(Clone, Debug)]
pub struct HttpTransport {
    /// For streams, whose servers send heartbeats.
    streams: Egress,
    /// For all other calls.
    calls: Egress,
    url: Url,
    credential: Option<Credential>,
}

/// The credential for a server.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// Sent as `Authorization: Bearer`.
    Bearer(String),
    /// Sent as `x-api-key`.
    ApiKey(String),
    /// Sent as the value of this header field.
    Header(http::HeaderName, String),
}

// === impl HttpTransport ===

impl HttpTransport {
    /// Returns a transport to the server at this address, which may have a path: `http://127.0.0.1:7878` or `https://example.org/agents`.
    ///
    /// # Errors
    /// If the address does not begin with `http://` or `https://` or has a user name, a password, a query or a fragment, or if the system's certificates cannot be read.
    pub fn to(url: &str) -> Result<Self, TransportError> {
        let bad = |why: &str| TransportError::new(format!("the address `{url}` is invalid: {why}"));
        let parsed = Url::parse(url).map_err(|error| bad(&error.to_string()))?;
        let has_user = !parsed.username().is_empty() || parsed.password().is_some();
        if has_user || parsed.query().is_some() || parsed.fragment().is_some() {
            // The address is in messages, so it must hold no secret. It is not in this one.
            return Err(TransportError::new(
                "the address is invalid: it has a user name, a password, a query or a fragment, which are not used",
            ));
        }
        if !matches!(parsed.scheme(), "http" | "https") || parsed.host().is_none() {
            return Err(bad("it must begin with http:// or https:// and name a host"));
        }
        let client = |idle_timeout: Option<Duration>| {
            let options = EgressOptions::default();
            let options = EgressOptions {
                // Streams have no time limit; the options of the client limit its calls.
                total_timeout: None,
                // Clients limit the bytes that they read into memory; backups and exports have no limit.
                max_response_bytes: u64::MAX,
                idle_timeout: idle_timeout.unwrap_or(options.idle_timeout),
                ..options
            };
            Egress::new(Policy::anywhere(), options).map_err(|error| {
                TransportError::new(format!("the HTTP client cannot be set up: {error}"))
            })
        };
        let (streams, calls) = (client(None)?, client(Some(CALL_SILENCE))?);
        Ok(Self { streams, calls, url: parsed, credential: None })
    }

    /// Sends this token as `Authorization: Bearer`.
    #[must_use]
    pub fn token(self, token: impl Into<String>) -> Self {
        self.credential(Credential::Bearer(token.into()))
    }

    /// Sends this key as `x-api-key`.
    #[must_use]
    pub fn api_key(self, key: impl Into<String>) -> Self {
        self.credential(Credential::ApiKey(key.into()))
    }

    /// Sends this credential.
    #[must_use]
    pub fn credential(self, credential: Credential) -> Self {
        Self { credential: Some(credential), ..self }
    }

    /// Returns the server's address, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    /// Returns the port of the server's address.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.url.port_or_known_default()
    }

    /// Returns the path of the server's address, without a slash at the end.
    #[must_use]
    pub fn path(&self) -> &str {
        self.url.path().trim_end_matches('/')
    }

    fn http_request(&self, request: Request) -> Result<http::Request<Bytes>, TransportError> {
        let mut origin = self.url.clone();
        origin.set_path("");
        origin.set_query(None);
        origin.set_fragment(None);
        let uri = format!("{}{}", origin.as_str().trim_end_matches('/'), request.path);
        let mut made = http::Request::builder().method(request.method.as_str()).uri(uri);
        for (name, value) in &request.headers {
            made = made.header(*name, value);
        }
        if let Some(credential) = &self.credential {
            let (name, value) =
                credential.header().map_err(|error| self.unreached(&error.to_string()))?;
            made = made.header(name, value);
        }
        made.body(request.body).map_err(|error| self.unreached(&error.to_string()))
    }

    fn unreached(&self, why: &str) -> TransportError {
        TransportError::new(format!("no server answers at {}: {why}", self.url()))
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let is_stream = request.headers.iter().any(|(_, value)| value == EVENT_STREAM);
        let client = if is_stream { &self.streams } else { &self.calls };
        let (status, headers, body) =
            client.send(self.http_request(request)?).await.map_err(|error| {
                let is_unreached = error.is_unreached();
                let told = match error {
                    trilogue_egress::Error::Failed { reason, .. }
                    | trilogue_egress::Error::UnknownName { reason, .. } => self.unreached(&reason),
                    error => self.unreached(&error.to_string()),
                };
                TransportError { is_unreached, ..told }
            })?;
        let header =
            |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(Response {
            status: status.as_u16(),
            content_type: header("content-type"),
            run_id: header("run-id").or_else(|| header("x-run-id")),
            warning: header("warning"),
            body: Box::pin(stream::try_unfold(body, |mut body| async move {
                let piece: Option<Bytes> = body.next().await.map_err(|error| {
                    TransportError::new(format!("the answer broke off: {error}"))
                })?;
                Ok(piece.map(|piece| (piece, body)))
            })),
        })
    }
}

// === impl Credential ===

impl Credential {
    /// Returns the header field that carries it.
    pub(crate) fn header(
        &self,
    ) -> Result<(http::HeaderName, http::HeaderValue), http::header::InvalidHeaderValue> {
        let (name, value) = match self {
            Self::Bearer(token) => (http::header::AUTHORIZATION, format!("Bearer {token}")),
            Self::ApiKey(key) => (http::HeaderName::from_static("x-api-key"), key.clone()),
            Self::Header(name, value) => (name.clone(), value.clone()),
        };
        let mut value = http::HeaderValue::try_from(value)?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

/// Does not show the secret.
impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bearer(_) => "Bearer",
            Self::ApiKey(_) => "ApiKey",
            Self::Header(..) => "Header",
        })
    }
}
