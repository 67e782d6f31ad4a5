//! Sends callbacks, signed as Standard Webhooks requires, through the one outbound client. The queue worker decides about retries.

use std::pin::Pin;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use metrics::counter;
use sha2::Sha256;
use trilogue_domain::port::Delivered;
use trilogue_domain::{Code, DeliveryId, Timestamp, limits};
use trilogue_egress::Client;

use crate::core::callback_secrets::{CallbackOwner, CallbackSecrets};
use crate::core::metric_names::DELIVERIES;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

#[derive(Clone, Debug)]
pub struct Callback {
    /// The same for every attempt, so that the receiver can recognise a retry.
    pub id: DeliveryId,
    pub url: String,
    /// The owner of the callback: its key signs the message.
    pub owner: CallbackOwner,
    /// The JSON body.
    pub body: Bytes,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Undelivered {
    pub reason: String,
    pub retry: bool,
    /// The least time until the next attempt, if the receiver named one.
    pub after: Option<Duration>,
}

#[derive(Clone)]
pub struct Sender {
    client: Client,
    secrets: CallbackSecrets,
}

/// Returns the signature of one message under one key: `v1,` and base64 of HMAC-SHA-256 over `id.timestamp.body`.
#[must_use]
pub fn sign(key: &[u8], id: &str, timestamp_seconds: i64, body: &[u8]) -> String {
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return String::new() };
    mac.update(id.as_bytes());
    mac.update(format!(".{timestamp_seconds}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// Checks a callback URL: it must be http or https, and every address of its host must be allowed. Each send repeats the check.
///
/// # Errors
/// `invalid_webhook`, with the address and the setting that would allow it.
pub async fn check_callback_url(client: &Client, url: &str) -> Result<(), trilogue_domain::Error> {
    let refused = |why: String| trilogue_domain::Error::new(Code::InvalidWebhook, why);
    if url.len() > limits::MAX_CALLBACK_URL_BYTES {
        let most = limits::MAX_CALLBACK_URL_BYTES;
        return Err(refused(format!("the callback's address has more than {most} bytes")));
    }
    // Refuse a URL that no request can be built for now, not when the callback is due.
    if url.parse::<http::Uri>().is_err() {
        return Err(refused("the callback's address is malformed".to_owned())
            .hint("write a host name in other letters in its ASCII form, and anything else percent-encoded"));
    }
    client.check(url).await.map_err(|error| {
        let refused = refused(format!("the callback cannot be sent: {error}"));
        match error.hint() {
            Some(hint) => refused.hint(hint),
            None => refused
                .hint("give an absolute http or https address without a user's name or password"),
        }
    })
}

/// Makes one attempt and returns its outcome for the queue.
pub(crate) fn outcome<'a>(
    attempt: impl Future<Output = Result<(), Undelivered>> + Send + 'a,
) -> Pin<Box<dyn Future<Output = Delivered> + Send + 'a>> {
    Box::pin(async move { attempt.await.map_or_else(Delivered::from, |()| Delivered::Accepted) })
}

// === impl Undelivered ===

impl Undelivered {
    /// Creates the failure of a delivery that must not be retried.
    pub(crate) fn permanent(reason: String) -> Self {
        Self { reason, retry: false, after: None }
    }
}

impl From<trilogue_domain::Error> for Undelivered {
    fn from(error: trilogue_domain::Error) -> Self {
        let (reason, retry) = (error.message().to_owned(), error.code().is_transient());
        Self { reason, retry, after: None }
    }
}

impl From<Undelivered> for Delivered {
    fn from(undelivered: Undelivered) -> Self {
        match undelivered {
            Undelivered { reason, retry: true, after } => Self::Later { error: reason, after },
            Undelivered { reason, retry: false, .. } => Self::Refused { error: reason },
        }
    }
}

// === impl Sender ===

impl Sender {
    #[must_use]
    pub fn new(client: Client, secrets: CallbackSecrets) -> Self {
        Self { client, secrets }
    }

    /// Makes one attempt.
    ///
    /// # Errors
    /// Any status other than success: [`Undelivered`] says whether to retry.
    pub async fn send(&self, callback: &Callback, now: Timestamp) -> Result<(), Undelivered> {
        let result = self.attempt(callback, now).await;
        let outcome = match &result {
            Ok(()) => "delivered",
            Err(undelivered) if undelivered.retry => "failed",
            Err(_) => "refused",
        };
        counter!(DELIVERIES, "outcome" => outcome).increment(1);
        result
    }

    async fn attempt(&self, callback: &Callback, now: Timestamp) -> Result<(), Undelivered> {
        let (status, headers, _) =
            self.client.send(self.request(callback, now)?).await.map_err(|error| Undelivered {
                retry: !error.is_refusal(),
                // The client sees the reason in the list of dead letters.
                reason: error.conceal().to_string(),
                after: None,
            })?;
        if status.is_success() {
            return Ok(());
        }
        // Only 410 Gone is final; other failures can be temporary.
        Err(Undelivered {
            reason: format!("the receiver answered {}", status.as_u16()),
            retry: status != StatusCode::GONE,
            after: retry_after(&headers),
        })
    }

    fn request(
        &self,
        callback: &Callback,
        now: Timestamp,
    ) -> Result<http::Request<Bytes>, Undelivered> {
        let id = callback.id.as_str();
        let seconds = now.as_micros().div_euclid(1_000_000);
        let keys = self.secrets.keys(&callback.owner, &callback.url);
        let signatures: Vec<_> =
            keys.iter().map(|key| sign(key, id, seconds, &callback.body)).collect();
        http::Request::post(&callback.url)
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(ID, id)
            .header(TIMESTAMP, seconds)
            .header(SIGNATURE, signatures.join(" "))
            .body(callback.body.clone())
            .map_err(|error| {
                Undelivered::permanent(format!("the callback cannot be sent: {error}"))
            })
    }
}

/// Returns how long the receiver asks to wait, if the header is a number of seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u32 = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(u64::from(seconds)))
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("secrets", &self.secrets).finish_non_exhaustive()
    }
}
