//! Requests to providers of models. The process sends them with a placeholder, and the broker puts the key in its place.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt};
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue,
    SET_COOKIE, TRANSFER_ENCODING,
};
use http::{Method, Request, Response, Uri};
use http_body::{Body as _, Frame};
use http_body_util::{BodyDataStream, BodyExt as _, Limited, StreamBody};
use hyper::body::Incoming;
use trilogue_egress::{Error, ResponseBody};
use url::{Url, form_urlencoded};

use crate::access::{Dialect, ProviderKey};
use crate::decision::{Decision, Decisions, refuse_beyond_ceiling};
use crate::forward::remove_hop_fields;
use crate::host_rules::HostPort;
use crate::observer::{ConnectionKind, ConnectionOutcome, ConnectionRecord};
use crate::prices::PriceTable;
use crate::refusal::{BrokerBody, BrokerRefusal};
use crate::state::BrokerState;
use crate::usage::{UsageReader, ask_for_usage};

/// The path of key routes, before the name.
const PREFIX: &str = "/keys/";
/// The largest body of a request, in bytes.
const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
/// The ends of paths that only count tokens.
const COUNT_TOKENS: &str = "/count_tokens";
const COUNT_TOKENS_GEMINI: &str = ":countTokens";
/// The member of a query with a key.
const QUERY_KEY: &str = "key";

/// A request to a provider. Dropping it writes its record and its usage.
struct ProviderRequest {
    decisions: Arc<Decisions>,
    name: String,
    target: HostPort,
    decision: Decision,
    begin: Instant,
    sent: Arc<AtomicU64>,
    received: u64,
    /// Reads what the provider reports, once it has answered.
    usage: Option<UsageReader>,
    prices: PriceTable,
}

/// Returns the name of the key of a request.
pub(crate) fn name_of(uri: &Uri) -> Option<&str> {
    if uri.scheme().is_some() {
        return None;
    }
    let rest = uri.path().strip_prefix(PREFIX)?;
    Some(rest.split_once('/').map_or(rest, |(name, _)| name))
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
        request_body(body, &mut head.headers, (key.dialect, url.path())).await?;
    let uri = url.as_str().parse::<Uri>();
    let uri = uri.map_err(|_| BrokerRefusal::invalid("the address of the request is malformed"))?;
    let is_post = head.method == Method::POST;
    let mut outgoing = Request::new(());
    (*outgoing.method_mut(), *outgoing.headers_mut(), *outgoing.uri_mut()) =
        (head.method, head.headers, uri);
    let answered = match body {
        RequestBody::Whole(whole) => {
            sent.store(whole.len() as u64, Ordering::Relaxed);
            broker.providers.send(outgoing.map(|()| whole)).await
        }
        RequestBody::Stream(pieces) => {
            let counted = pieces.inspect_ok(move |piece| {
                sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
            });
            broker.providers.send_stream(outgoing.map(|()| counted)).await
        }
    };
    let (status, mut headers, body) = match answered {
        Ok(answered) => answered,
        Err(error) => {
            sending.decision.outcome = ConnectionOutcome::Unreachable;
            return Err(BrokerRefusal::of_provider(reason(&error)));
        }
    };
    if is_post && !url.path().ends_with(COUNT_TOKENS) && !url.path().ends_with(COUNT_TOKENS_GEMINI)
    {
        sending.usage = Some(UsageReader::new(key.dialect, status, &headers, has_asked));
    }
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

/// Whether a request has the placeholder, wherever clients put a key.
fn has_placeholder(request: &Request<Incoming>, key: &ProviderKey) -> bool {
    let field = |name: HeaderName| request.headers().get(name).and_then(|it| it.to_str().ok());
    let bearer = field(AUTHORIZATION).and_then(|it| it.strip_prefix("Bearer "));
    let own = field(key.header.name());
    let query = request.uri().query().unwrap_or_default();
    let in_query = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == QUERY_KEY);
    let fields = [bearer, field(X_API_KEY), field(X_GOOG_API_KEY), own];
    fields.into_iter().flatten().any(|text| key.placeholder.is(text.trim()))
        || in_query.is_some_and(|(_, text)| key.placeholder.is(&text))
}

/// Returns the address at the provider.
fn provider_url(key: &ProviderKey, uri: &Uri) -> Result<Url, BrokerRefusal> {
    let path = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let rest = path.strip_prefix(&key.name).unwrap_or_default();
    let is_odd = |part: &str| matches!(part, "." | "..") || part.contains('\\');
    let decoded = rest.replace("%2e", ".").replace("%2E", ".");
    if decoded.split('/').any(is_odd) || rest.contains("//") {
        return Err(BrokerRefusal::invalid("the path of the request is not plain"));
    }
    let mut url = key.base.clone();
    let base = url.path().trim_end_matches('/').to_owned();
    url.set_path(&format!("{base}{rest}"));
    let kept: Vec<_> = uri
        .query()
        .into_iter()
        .flat_map(|query| query.split('&'))
        .filter(|member| member.split('=').next() != Some(QUERY_KEY))
        .collect();
    url.set_query((!kept.is_empty()).then(|| kept.join("&")).as_deref());
    Ok(url)
}

/// Puts the key in the place of everything that could be one.
fn set_key(headers: &mut HeaderMap, key: &ProviderKey) -> Result<(), BrokerRefusal> {
    remove_hop_fields(headers);
    for name in [AUTHORIZATION, X_API_KEY, X_GOOG_API_KEY, HOST, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    let mut value = HeaderValue::from_str(&key.header.value(key.key.reveal())).map_err(|_| {
        BrokerRefusal::of_provider(format!("the key {} is not a text for a field", key.name))
    })?;
    value.set_sensitive(true);
    headers.insert(key.header.name(), value);
    Ok(())
}

/// The body of a request as it goes to the provider.
enum RequestBody {
    Whole(Bytes),
    Stream(BoxStream<'static, io::Result<Bytes>>),
}

/// Returns the body of a request, and whether it asks for usage that the client has not asked for.
async fn request_body(
    body: Incoming,
    headers: &mut HeaderMap,
    (dialect, path): (Dialect, &str),
) -> Result<(RequestBody, bool), BrokerRefusal> {
    if body.is_end_stream() {
        return Ok((RequestBody::Whole(Bytes::new()), false));
    }
    let limited = Limited::new(body, MAX_REQUEST_BYTES);
    if dialect != Dialect::OpenAi || !path.ends_with("/chat/completions") {
        let pieces = TryStreamExt::map_err(BodyDataStream::new(limited), io::Error::other);
        return Ok((RequestBody::Stream(pieces.boxed()), false));
    }
    // Whole, because the question is a member of it.
    let too_large = |_| BrokerRefusal::too_large(MAX_REQUEST_BYTES);
    let whole = limited.collect().await.map_err(too_large)?.to_bytes();
    let (whole, has_asked) = match ask_for_usage(&whole) {
        Some(asking) => (asking, true),
        None => (whole, false),
    };
    headers.insert(CONTENT_LENGTH, HeaderValue::from(whole.len()));
    Ok((RequestBody::Whole(whole), has_asked))
}

/// Streams the response of a provider, and reads its usage on the way.
fn response_body(body: ResponseBody, sending: ProviderRequest) -> BrokerBody {
    let pieces = futures_util::stream::try_unfold(
        (body, sending),
        async |(mut body, mut sending): (ResponseBody, ProviderRequest)| {
            loop {
                let Some(piece) = body.next().await.map_err(io::Error::other)? else {
                    let rest = sending.usage.as_mut().map(UsageReader::finish).unwrap_or_default();
                    sending.received += rest.len() as u64;
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
        if let Some(usage) = self.usage.take() {
            observer.record_usage(usage.usage(&self.name, &self.prices));
        }
        observer.record(ConnectionRecord {
            host: self.target.host.clone(),
            port: self.target.port,
            kind: ConnectionKind::Key(self.name.clone()),
            outcome: self.decision.outcome,
            by: self.decision.by.take(),
            sent_bytes: self.sent.load(Ordering::Relaxed),
            received_bytes: self.received,
            duration: self.begin.elapsed(),
        });
    }
}
