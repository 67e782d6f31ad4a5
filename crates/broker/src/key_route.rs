//! Requests to providers of models. The process sends them with a placeholder, and the broker puts the key in its place.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderValue, SET_COOKIE, TRANSFER_ENCODING,
};
use http::{Method, Request, Response, Uri};
use http_body::{Body as _, Frame};
use http_body_util::{BodyDataStream, BodyExt as _, Limited, StreamBody};
use hyper::body::Incoming;

use tokio::sync::OwnedSemaphorePermit;
use trilogue_egress::{Error, ResponseBody};

use crate::access::{Dialect, ProviderKey};
use crate::decision::{Decision, Decisions, refuse_beyond_ceiling};
use crate::forward::remove_hop_fields;
use crate::host_rules::HostPort;
use crate::observer::{ConnectionKind, ConnectionOutcome, ConnectionRecord};
use crate::placeholder::{has_placeholder, provider_url, set_key};
use crate::prices::PriceTable;
use crate::refusal::{BrokerBody, BrokerRefusal};
use crate::state::BrokerState;
use crate::usage::{UsageReader, ask_for_usage};

/// The largest body of a request, in bytes.
const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;
/// The ends of paths that only count tokens.
const COUNT_TOKENS: &str = "/count_tokens";
const COUNT_TOKENS_GEMINI: &str = ":countTokens";

/// A request to a provider. Dropping it writes its record and its usage.
struct ProviderRequest {
    decisions: Arc<Decisions>,
    name: String,
    target: HostPort,
    decision: Decision,
    begin: Instant,
    sent: Arc<AtomicU64>,
    received: u64,
    /// The length of the response, if its head says it.
    length: Option<u64>,
    /// Reads what the provider reports, once it has answered.
    usage: Option<UsageReader>,
    prices: PriceTable,
}

/// Forwards a request, and returns the response of the provider.
pub(crate) async fn forward(
    request: Request<Incoming>,
    name: &str,
    broker: &BrokerState,
    decisions: &Arc<Decisions>,
) -> Response<BrokerBody> {
    let access = decisions.access();
    let Some(key) = access.keys.iter().find(|key| key.name == name) else {
        return BrokerRefusal::unknown_key().response();
    };
    match forward_with(request, key, broker, decisions).await {
        Ok(response) => response,
        Err(refusal) => refusal.response_in(key.dialect),
    }
}

async fn forward_with(
    request: Request<Incoming>,
    key: &ProviderKey,
    broker: &BrokerState,
    decisions: &Arc<Decisions>,
) -> Result<Response<BrokerBody>, BrokerRefusal> {
    if !has_placeholder(&request, key) {
        return Err(BrokerRefusal::wrong_placeholder(&key.name));
    }
    // A response to it would have the key.
    if *request.method() == Method::TRACE {
        return Err(BrokerRefusal::invalid("a provider gets no TRACE"));
    }
    let (mut head, body) = request.into_parts();
    let url = provider_url(key, &head.uri)?;
    let port = url.port_or_known_default().unwrap_or(443);
    let host = url.host_str().and_then(|host| HostPort::new(host, port));
    let target =
        host.ok_or_else(|| BrokerRefusal::of_provider("its address has no host".to_owned()))?;
    let access = decisions.access();
    let decision =
        refuse_beyond_ceiling(&access, &target).unwrap_or(Decision::of(ConnectionOutcome::Listed));
    let sent = Arc::new(AtomicU64::new(0));
    let mut sending = ProviderRequest {
        decisions: Arc::clone(decisions),
        name: key.name.clone(),
        target,
        decision,
        begin: Instant::now(),
        sent: Arc::clone(&sent),
        received: 0,
        length: None,
        usage: None,
        prices: broker.prices.clone(),
    };
    if !sending.decision.outcome.is_allowed() {
        return Err(BrokerRefusal::of_outcome(sending.decision.outcome, &sending.target));
    }
    set_key(&mut head.headers, key)?;
    // What is not compressed can be read, and cannot grow.
    head.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let (body, has_asked) =
        request_body(body, &mut head.headers, (key.dialect, url.path()), decisions).await?;
    let uri = url.as_str().parse::<Uri>();
    let uri = uri.map_err(|_| BrokerRefusal::invalid("the address of the request is malformed"))?;
    let is_post = head.method == Method::POST;
    let mut outgoing = Request::new(());
    (*outgoing.method_mut(), *outgoing.headers_mut(), *outgoing.uri_mut()) =
        (head.method, head.headers, uri);
    let answered = match body {
        RequestBody::Whole(whole, _room) => {
            sent.store(whole.len() as u64, Ordering::Relaxed);
            broker.providers.send(outgoing.map(|()| whole)).await
        }
        RequestBody::Stream(pieces) => {
            let sent = Arc::clone(&sent);
            let counted = pieces.map(move |piece| {
                let piece = piece.map_err(io::Error::other)?;
                let length = piece.len() as u64;
                let total = sent.fetch_add(length, Ordering::Relaxed) + length;
                let is_too_large = total > MAX_REQUEST_BYTES as u64;
                if is_too_large { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(piece) }
            });
            broker.providers.send_stream(outgoing.map(|()| counted)).await
        }
    };
    let (status, mut headers, body) = match answered {
        Ok(answered) => answered,
        Err(error) => {
            sending.decision.outcome = ConnectionOutcome::Unreachable;
            if sent.load(Ordering::Relaxed) > MAX_REQUEST_BYTES as u64 {
                return Err(BrokerRefusal::too_large(MAX_REQUEST_BYTES));
            }
            return Err(BrokerRefusal::of_provider(reason(&error)));
        }
    };
    if is_post && !url.path().ends_with(COUNT_TOKENS) && !url.path().ends_with(COUNT_TOKENS_GEMINI)
    {
        sending.usage = Some(UsageReader::new(key.dialect, status, &headers, has_asked));
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|field| field.to_str().ok());
    sending.length = length.and_then(|length| length.parse().ok());
    remove_hop_fields(&mut headers);
    headers.remove(TRANSFER_ENCODING);
    headers.remove(SET_COOKIE);
    if has_asked {
        // What was asked for in addition is taken out again.
        headers.remove(CONTENT_LENGTH);
    }
    let mut response = Response::new(response_body(body, sending));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

/// Why a provider was not reached. The address is the operator's own.
fn reason(error: &Error) -> String {
    match error {
        Error::TimedOut { host, .. } => format!("'{host}' did not answer in time"),
        error => error.to_string(),
    }
}

/// The body of a request as it goes to the provider.
enum RequestBody {
    /// With its room, until it is sent.
    Whole(Bytes, Option<OwnedSemaphorePermit>),
    Stream(BodyDataStream<Incoming>),
}

/// Returns the body of a request, and whether it asks for usage that the client has not asked for.
async fn request_body(
    body: Incoming,
    headers: &mut HeaderMap,
    (dialect, path): (Dialect, &str),
    decisions: &Decisions,
) -> Result<(RequestBody, bool), BrokerRefusal> {
    if body.is_end_stream() {
        return Ok((RequestBody::Whole(Bytes::new(), None), false));
    }
    if body.size_hint().lower() > MAX_REQUEST_BYTES as u64 {
        return Err(BrokerRefusal::too_large(MAX_REQUEST_BYTES));
    }
    if dialect != Dialect::OpenAi || !path.ends_with("/chat/completions") {
        return Ok((RequestBody::Stream(BodyDataStream::new(body)), false));
    }
    // Whole, because the question is a member of it.
    let length = body.size_hint().upper().unwrap_or(MAX_REQUEST_BYTES as u64);
    let room = decisions.reserve_body(length).await;
    let limited = Limited::new(body, MAX_REQUEST_BYTES);
    let too_large = |_| BrokerRefusal::too_large(MAX_REQUEST_BYTES);
    let whole = limited.collect().await.map_err(too_large)?.to_bytes();
    let (whole, has_asked) = match ask_for_usage(&whole) {
        Some(asking) => (asking, true),
        None => (whole, false),
    };
    headers.insert(CONTENT_LENGTH, HeaderValue::from(whole.len()));
    Ok((RequestBody::Whole(whole, room), has_asked))
}

/// Streams the response of a provider, and reads its usage on the way.
fn response_body(body: ResponseBody, sending: ProviderRequest) -> BrokerBody {
    let pieces = futures_util::stream::try_unfold(
        (body, sending),
        async |(mut body, mut sending): (ResponseBody, ProviderRequest)| {
            loop {
                let Some(piece) = body.next().await.map_err(io::Error::other)? else {
                    let rest = sending.usage.as_mut().map(UsageReader::finish).unwrap_or_default();
                    return Ok(match rest.is_empty() {
                        true => None,
                        false => Some((Frame::data(rest), (body, sending))),
                    });
                };
                sending.received += piece.len() as u64;
                let shown = match &mut sending.usage {
                    Some(usage) => usage.read(piece),
                    None => piece,
                };
                if !shown.is_empty() {
                    return Ok(Some((Frame::data(shown), (body, sending))));
                }
            }
        },
    );
    StreamBody::new(pieces).boxed_unsync()
}

impl Drop for ProviderRequest {
    fn drop(&mut self) {
        let observer = self.decisions.observer();
        if let Some(mut usage) = self.usage.take() {
            // The HTTP server does not read on behind the announced length.
            if self.length == Some(self.received) {
                usage.finish();
            }
            observer.record_usage(usage.usage(&self.name, &self.prices));
        }
        self.decisions.record(ConnectionRecord {
            host: self.target.host.clone(),
            port: self.target.port,
            kind: ConnectionKind::Key(self.name.clone()),
            outcome: self.decision.outcome,
            by: self.decision.by.take(),
            sent_bytes: self.sent.load(Ordering::Relaxed),
            received_bytes: self.received,
            duration: self.begin.elapsed(),
            omitted: 0,
        });
    }
}
