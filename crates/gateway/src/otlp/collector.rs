//! Sends spans to a collector in one request, with retries as the protocol defines.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use tokio_util::sync::CancellationToken;
use trilogue_domain::safe;
use trilogue_egress::Client;
use trilogue_wire::otlp::{
    CONTENT_TYPE, ResourceTraces, ScopeTraces, TraceAttribute, TraceExport, TraceExportReply,
    TraceResource, TraceScope, TraceSpan,
};

const SCOPE: &str = "trilogue";
/// The most attempts for a request.
const ATTEMPTS: u32 = 4;
/// The wait before the second attempt; it doubles with each further one.
const BACKOFF: Duration = Duration::from_secs(1);
/// The longest wait that a collector can request.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The address of the collector, and the resource that the spans belong to.
pub struct TraceCollector {
    client: Client,
    url: String,
    headers: HeaderMap,
    resource: Vec<(String, String)>,
}

/// Why an attempt failed, and whether a retry can succeed.
struct FailedAttempt {
    reason: String,
    is_transient: bool,
    /// The least time until the next attempt, if the collector named one.
    wait: Option<Duration>,
}

// === impl TraceCollector ===

impl TraceCollector {
    /// Creates a collector at this address. The attributes describe the source of the spans, such as `service.name`.
    #[must_use]
    pub fn new(
        client: Client,
        url: String,
        headers: HeaderMap,
        resource: Vec<(String, String)>,
    ) -> Self {
        Self { client, url, headers, resource }
    }

    /// Sends spans. While the server is stopping, does not retry.
    /// Errors: why the collector did not accept them.
    pub(super) async fn send(
        &self,
        spans: Vec<TraceSpan>,
        closing: &CancellationToken,
    ) -> Result<(), String> {
        let body = Bytes::from(self.request(spans).to_bytes());
        let mut backoff = BACKOFF;
        let mut attempt = 1;
        loop {
            let Err(failed) = self.attempt(body.clone()).await else { return Ok(()) };
            if !failed.is_transient || attempt >= ATTEMPTS || closing.is_cancelled() {
                return Err(failed.reason);
            }
            let wait = failed.wait.unwrap_or(backoff).min(MAX_WAIT);
            // Ends early if the server stops, for one last attempt.
            drop(tokio::time::timeout(wait, closing.cancelled()).await);
            (attempt, backoff) = (attempt + 1, backoff * 2);
        }
    }

    fn request(&self, spans: Vec<TraceSpan>) -> TraceExport {
        let attributes = self.resource.iter();
        let attributes = attributes.map(|(key, value)| TraceAttribute::text(key, value.as_str()));
        let scope =
            TraceScope { name: SCOPE.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let scopes = vec![ScopeTraces { scope: Some(scope), spans }];
        let resource = Some(TraceResource { attributes: attributes.collect() });
        TraceExport { resources: vec![ResourceTraces { resource, scopes }] }
    }

    async fn attempt(&self, body: Bytes) -> Result<(), FailedAttempt> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.parse().map_err(|_| FailedAttempt::last("its address"))?;
        *request.headers_mut() = self.headers.clone();
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        let sent = self.client.send(request).await;
        let (status, headers, body) = sent.map_err(|error| FailedAttempt {
            reason: error.to_string(),
            is_transient: true,
            wait: None,
        })?;
        if !status.is_success() {
            return Err(FailedAttempt::of(status, &headers));
        }
        // The status has accepted the spans. A reply that cannot be read only lacks the number of rejected ones.
        let reply = body.collect().await.ok();
        let partial = reply.and_then(|body| TraceExportReply::from_bytes(&body)?.partial);
        match partial {
            Some(partial) if partial.rejected_spans > 0 => {
                let (rejected, why) = (partial.rejected_spans, safe::line(&partial.message));
                Err(FailedAttempt::last(&format!("it rejected {rejected} spans: {why}")))
            }
            _ => Ok(()),
        }
    }
}

/// Headers contain secrets.
impl fmt::Debug for TraceCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceCollector").field("url", &self.url).finish_non_exhaustive()
    }
}

// === impl FailedAttempt ===

impl FailedAttempt {
    fn last(reason: &str) -> Self {
        Self { reason: reason.to_owned(), is_transient: false, wait: None }
    }

    /// Creates the failure for this status. (OpenTelemetry Protocol, "Retryable Response Codes".)
    fn of(status: StatusCode, headers: &HeaderMap) -> Self {
        let is_transient = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        let wait = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let wait = wait.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        Self { reason: format!("it answered {status}"), is_transient, wait }
    }
}
