use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderMap, StatusCode};
use url::{Host, Url};

use crate::authorities::Authorities;
use crate::certificate_hint::unusable_certificates;
use crate::error::Error;
use crate::policy::Policy;
use crate::resolver::{CheckedResolver, LookUp, system_look_up};

#[derive(Clone, Debug)]
pub struct Options {
    /// How long connecting may take, including the name look-up and TLS.
    pub connect_timeout: Duration,
    /// How long a peer may be silent.
    pub idle_timeout: Duration,
    /// How long a whole exchange may take; `None` for streams without an end.
    pub total_timeout: Option<Duration>,
    /// The maximum size of a response body, in bytes.
    pub max_response_bytes: u64,
    /// The `User-Agent` of requests.
    pub user_agent: String,
    /// Authorities that it accepts in addition to those of the system.
    pub authorities: Authorities,
}

/// Sends requests to addresses that the policy allows. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    /// For upgrades, which HTTP/2 does not have. Built for the first one.
    upgrading: Arc<OnceLock<reqwest::Client>>,
    pub(crate) resolver: Arc<CheckedResolver>,
    pub(crate) options: Arc<Options>,
}

#[derive(Debug)]
pub struct ResponseBody {
    response: reqwest::Response,
    host: String,
    read: u64,
    deadline: Option<Instant>,
    options: Arc<Options>,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            total_timeout: Some(Duration::from_secs(120)),
            max_response_bytes: 32 * 1024 * 1024,
            user_agent: concat!("trilogue/", env!("CARGO_PKG_VERSION")).to_owned(),
            authorities: Authorities::default(),
        }
    }
}

// === impl Client ===

impl Client {
    /// Makes a client with this policy. Installs the process's TLS provider if none is installed.
    ///
    /// # Errors
    /// [`Error::Failed`] if the TLS roots cannot be loaded.
    pub fn new(policy: Policy, options: Options) -> Result<Self, Error> {
        Self::with_look_up(policy, options, system_look_up)
    }

    /// The same, with names resolved in another way.
    pub(crate) fn with_look_up(
        policy: Policy,
        options: Options,
        look_up: LookUp,
    ) -> Result<Self, Error> {
        // Fails if another provider is installed; then that provider is used.
        drop(rustls::crypto::ring::default_provider().install_default());
        let resolver = Arc::new(CheckedResolver { policy, look_up });
        let http = build(builder(&resolver, &options))?;
        let (upgrading, options) = (Arc::default(), Arc::new(options));
        Ok(Self { http, upgrading, resolver, options })
    }

    /// The client for requests that upgrade their connection.
    pub(crate) fn upgrading(&self) -> Result<reqwest::Client, Error> {
        if let Some(client) = self.upgrading.get() {
            return Ok(client.clone());
        }
        let built = build(builder(&self.resolver, &self.options).http1_only())?;
        Ok(self.upgrading.get_or_init(|| built).clone())
    }

    /// Checks that a URL is allowed now, without sending a request. Checks each address of its host. Later requests are checked again.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::RefusedName`] if the name has no address.
    pub async fn check(&self, url: &str) -> Result<(), Error> {
        let url = Url::parse(url)
            .map_err(|error| Error::BadUrl(format!("the address is malformed: {error}")))?;
        self.resolver.policy.check_url(&url)?;
        let Some(Host::Domain(host)) = url.host() else { return Ok(()) };
        // Unknown and internal names give the same error, so that a caller cannot find out which names exist.
        let unknown = || Error::RefusedName { host: host.to_owned() };
        let limit = self.options.connect_timeout;
        let looking_up = (self.resolver.look_up)(host.to_owned());
        let found = match tokio::time::timeout(limit, looking_up).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                tracing::info!(host, %error, "a name cannot be resolved");
                return Err(unknown());
            }
            Err(_) => {
                let host = host.to_owned();
                return Err(Error::TimedOut { host, limit, is_unreached: true });
            }
        };
        if found.is_empty() {
            return Err(unknown());
        }
        self.resolver.policy.check_name(host, &found)
    }

    /// Sends a request and returns the head of the response. Read the body from [`ResponseBody`].
    /// A redirect is returned like any other response.
    pub async fn send(
        &self,
        request: http::Request<Bytes>,
    ) -> Result<(StatusCode, HeaderMap, ResponseBody), Error> {
        self.send_body(request).await
    }

    /// Sends a request whose body is a stream. Returns as [`Self::send`] does.
    pub async fn send_stream<S>(
        &self,
        request: http::Request<S>,
    ) -> Result<(StatusCode, HeaderMap, ResponseBody), Error>
    where
        S: Stream<Item = io::Result<Bytes>> + Send + 'static,
    {
        self.send_body(request.map(reqwest::Body::wrap_stream)).await
    }

    async fn send_body(
        &self,
        request: http::Request<impl Into<reqwest::Body>>,
    ) -> Result<(StatusCode, HeaderMap, ResponseBody), Error> {
        let (head, body) = request.into_parts();
        let url = Url::parse(&head.uri.to_string())
            .map_err(|error| Error::BadUrl(format!("the address is malformed: {error}")))?;
        self.resolver.policy.check_url(&url)?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let deadline = self.options.total_timeout.map(|limit| Instant::now() + limit);
        let sending = self.http.request(head.method, url).headers(head.headers).body(body).send();
        let response = within(deadline, &self.options, &host, sending).await?;
        let too_large = |length| length > self.options.max_response_bytes;
        if response.content_length().is_some_and(too_large) {
            return Err(Error::TooLarge { host, limit: self.options.max_response_bytes });
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let options = Arc::clone(&self.options);
        Ok((status, headers, ResponseBody { response, host, read: 0, deadline, options }))
    }
}

// === impl ResponseBody ===

impl ResponseBody {
    /// Returns the next chunk; `None` at the end.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::TimedOut`] or [`Error::Failed`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let Self { response, host, deadline, options, .. } = self;
        let piece = within(*deadline, options, host, response.chunk()).await?;
        self.read += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        if self.read > self.options.max_response_bytes {
            let limit = self.options.max_response_bytes;
            return Err(Error::TooLarge { host: self.host.clone(), limit });
        }
        Ok(piece)
    }

    /// Reads the whole body.
    pub async fn collect(mut self) -> Result<Bytes, Error> {
        let mut whole = Vec::new();
        while let Some(piece) = self.next().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(Bytes::from(whole))
    }
}

fn builder(resolver: &Arc<CheckedResolver>, options: &Options) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .connect_timeout(options.connect_timeout)
        .read_timeout(options.idle_timeout)
        .user_agent(&options.user_agent)
        .tls_certs_merge(options.authorities.certificates())
        .dns_resolver(Arc::clone(resolver))
}

fn build(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, Error> {
    builder.build().map_err(|error| {
        let mut reason = chain(&error);
        if let Some(unusable) = unusable_certificates() {
            reason.push_str(&format!("; {unusable}"));
        }
        Error::Failed { host: "this machine".to_owned(), reason, is_unreached: true }
    })
}

/// Runs a step of an exchange, until the exchange's deadline.
async fn within<T>(
    deadline: Option<Instant>,
    options: &Options,
    host: &str,
    step: impl Future<Output = reqwest::Result<T>>,
) -> Result<T, Error> {
    let done = match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline.into(), step).await,
        None => Ok(step.await),
    };
    match done {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(to_error(&error, host, options)),
        Err(_) => Err(Error::TimedOut {
            host: host.to_owned(),
            limit: options.total_timeout.unwrap_or_default(),
            is_unreached: false,
        }),
    }
}

/// Converts the error. Finds our own refusal inside the HTTP client's error.
pub(crate) fn to_error(error: &reqwest::Error, host: &str, options: &Options) -> Error {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = source {
        if let Some(refused) = inner.downcast_ref::<Error>() {
            return refused.clone();
        }
        source = inner.source();
    }
    let host = host.to_owned();
    if error.is_timeout() {
        let is_unreached = error.is_connect();
        let limit = if is_unreached { options.connect_timeout } else { options.idle_timeout };
        return Error::TimedOut { host, limit, is_unreached };
    }
    Error::Failed { host, reason: chain(error), is_unreached: error.is_connect() }
}

/// Returns the innermost cause. The outer errors only repeat the address.
fn chain(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
