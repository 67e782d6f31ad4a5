//! Requests with a whole `http://` address.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{
    CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::task::JoinHandle;

use crate::decision::Decisions;
use crate::host_rules::HostPort;
use crate::observer::{ConnectionKind, ConnectionOutcome};
use crate::refusal::{BrokerBody, BrokerRefusal};
use crate::state::BrokerState;
use crate::tunnel::OpenConnection;

/// Fields that are about one connection, beside those that `Connection` names.
const OF_CONNECTION: [HeaderName; 6] =
    [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, UPGRADE];
/// The same without a constant.
const OF_CONNECTION_NAMES: [&str; 2] = ["keep-alive", "proxy-connection"];

/// The body of a response, which writes the record of its connection when it is dropped.
struct RecordedBody {
    body: Incoming,
    open: OpenConnection,
    sent: Arc<AtomicU64>,
    connection: JoinHandle<()>,
}

/// Forwards a request on a connection of its own, and returns the response of the host.
pub(crate) async fn forward(
    request: Request<Incoming>,
    broker: &BrokerState,
    decisions: &Arc<Decisions>,
) -> Result<Response<BrokerBody>, BrokerRefusal> {
    if request.headers().contains_key(UPGRADE) {
        return Err(BrokerRefusal::invalid("an upgrade needs a tunnel by CONNECT"));
    }
    let (mut head, body) = request.into_parts();
    let (authority, target) = host_of(&head.uri)?;
    let path = head.uri.path_and_query().cloned();
    let (open, stream) =
        OpenConnection::open(broker, decisions, target, ConnectionKind::Http).await?;
    let broken = |error: hyper::Error| {
        tracing::debug!(%error, "a host broke off a request of an agent");
        BrokerRefusal::of_outcome(ConnectionOutcome::Unreachable, open.target())
    };
    let (mut sender, connection) =
        http1::Builder::new().handshake(TokioIo::new(stream)).await.map_err(broken)?;
    head.uri = Uri::from(path.unwrap_or(PathAndQuery::from_static("/")));
    remove_hop_fields(&mut head.headers);
    // Each connection frames the body in its own way.
    head.headers.remove(TRANSFER_ENCODING);
    head.headers.insert(HOST, authority);
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    let body = body.map_frame(move |frame| {
        counted.fetch_add(frame.data_ref().map_or(0, Bytes::len) as u64, Ordering::Relaxed);
        frame
    });
    // Its error is that of the response.
    let connection = tokio::spawn(async move { drop(connection.await) });
    let response = sender.send_request(Request::from_parts(head, body)).await;
    let (mut head, body) = response.map_err(broken)?.into_parts();
    remove_hop_fields(&mut head.headers);
    let body = RecordedBody { body, open, sent, connection };
    Ok(Response::from_parts(head, body.map_err(io::Error::other).boxed_unsync()))
}

/// Returns the field `Host` and the host of a request with a whole address.
fn host_of(uri: &Uri) -> Result<(HeaderValue, HostPort), BrokerRefusal> {
    if uri.scheme() != Some(&Scheme::HTTP) {
        return Err(BrokerRefusal::invalid("the request has no whole http:// address"));
    }
    let invalid = || BrokerRefusal::invalid("the address of the request has no valid host");
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
    let authority = authority.ok_or_else(invalid)?;
    let target = HostPort::new(authority.host(), authority.port_u16().unwrap_or(80));
    let field = HeaderValue::from_str(authority.as_str()).map_err(|_| invalid())?;
    Ok((field, target.ok_or_else(invalid)?))
}

// === impl RecordedBody ===

impl Body for RecordedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let length = frame.data_ref().map_or(0, Bytes::len) as u64;
            self.open.bytes.received.fetch_add(length, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RecordedBody {
    fn drop(&mut self) {
        let sent = self.sent.load(Ordering::Relaxed);
        self.open.bytes.sent.store(sent, Ordering::Relaxed);
        self.connection.abort();
    }
}

/// Removes the fields that are about one connection.
pub(crate) fn remove_hop_fields(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|field| field.to_str().ok())
        .flat_map(|field| field.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_CONNECTION) {
        headers.remove(name);
    }
    for name in OF_CONNECTION_NAMES {
        headers.remove(name);
    }
}
