//! Requests with a whole `http://` address.

use std::io;
use std::sync::Arc;

use http::header::{
    CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use crate::decision::Decisions;
use crate::host_rules::HostPort;
use crate::observer::{ConnectionKind, ConnectionOutcome};
use crate::refusal::{BrokerBody, BrokerRefusal};
use crate::relay::{BUFFER_BYTES, relay};
use crate::state::BrokerState;
use crate::tunnel::OpenConnection;

/// Fields that are about one connection, beside those that `Connection` names.
const OF_CONNECTION: [HeaderName; 6] =
    [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, UPGRADE];
/// The same without a constant.
const OF_CONNECTION_NAMES: [&str; 2] = ["keep-alive", "proxy-connection"];

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
    // The relay counts the bytes, and ends what is idle.
    let (near, far) = tokio::io::duplex(BUFFER_BYTES);
    let (idle, bytes) = (broker.idle, Arc::clone(&open.bytes));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { relay(far, stream, idle, &bytes).await });
    let broken = |error: hyper::Error| {
        tracing::debug!(%error, "a host broke off a request of an agent");
        BrokerRefusal::of_outcome(ConnectionOutcome::Unreachable, open.target())
    };
    let (mut sender, connection) =
        http1::Builder::new().handshake(TokioIo::new(near)).await.map_err(broken)?;
    // Its error is that of the response.
    tasks.spawn(async move { drop(connection.await) });
    head.uri = Uri::from(path.unwrap_or(PathAndQuery::from_static("/")));
    remove_hop_fields(&mut head.headers);
    // Each connection frames the body in its own way.
    head.headers.remove(TRANSFER_ENCODING);
    head.headers.insert(HOST, authority);
    let response = sender.send_request(Request::from_parts(head, body)).await;
    let (mut head, body) = response.map_err(broken)?.into_parts();
    remove_hop_fields(&mut head.headers);
    head.headers.remove(TRANSFER_ENCODING);
    // The tasks and the record end with the body.
    let body = body.map_frame(move |frame| {
        let _connection = (&tasks, &open);
        frame
    });
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
