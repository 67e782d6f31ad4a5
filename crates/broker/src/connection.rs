//! Finds out what a connection of a process wants.

use std::convert::Infallible;
use std::io::Cursor;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::PROXY_AUTHORIZATION;
use http::{Method, Request, Response, Version};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use trilogue_domain::lock;

use crate::access::SecretText;
use crate::decision::Decisions;
use crate::head_check::{MAX_FIELDS, MAX_HEAD_BYTES, read_head};
use crate::host_rules::HostPort;
use crate::observer::ConnectionKind;
use crate::refusal::{BrokerBody, BrokerRefusal, empty};
use crate::state::{BrokerState, HEAD_TIMEOUT};
use crate::tunnel::OpenConnection;
use crate::{forward, key_route, placeholder, socks};

/// How long a client may take to read why it was refused, and the bytes of it that are read meanwhile.
const LINGER: (Duration, u64) = (Duration::from_secs(1), 1024 * 1024);

/// A tunnel whose response is on its way: it begins when the connection is handed over.
struct AcceptedTunnel {
    open: OpenConnection,
    host: TcpStream,
    client: OnUpgrade,
}

/// Serves a connection until it ends.
pub(crate) async fn serve(stream: TcpStream, broker: &BrokerState, decisions: &Arc<Decisions>) {
    let mut first = [0];
    match timeout(HEAD_TIMEOUT, stream.peek(&mut first)).await {
        Ok(Ok(1)) if first == [socks::VERSION] => socks::serve(stream, broker, decisions).await,
        Ok(Ok(1)) => serve_http(stream, broker, decisions).await,
        // It sends nothing.
        _ => {}
    }
}

async fn serve_http(mut stream: TcpStream, broker: &BrokerState, decisions: &Arc<Decisions>) {
    // It is for a program on this machine.
    let _ = stream.set_nodelay(true);
    let head = match timeout(HEAD_TIMEOUT, read_head(&mut stream)).await {
        Ok(Ok(Some(head))) => head,
        Ok(Err(refusal)) => return refuse(stream, &refusal).await,
        Ok(Ok(None)) | Err(_) => return,
    };
    let (read, write) = stream.into_split();
    // The HTTP reader gets what was read already. It refuses different lengths of later requests too. One that also has chunks is read by its chunks, and is the last.
    let stream = tokio::io::join(Cursor::new(head).chain(read), write);
    let tunnel = Mutex::new(None);
    let service = service_fn(|request: Request<Incoming>| async {
        let response = respond(request, broker, decisions, &tunnel).await;
        Ok::<_, Infallible>(response.unwrap_or_else(|refusal| refusal.response()))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_FIELDS)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection of an agent broke off");
    }
    let accepted = lock(&tunnel).take();
    if let Some(AcceptedTunnel { open, host, client }) = accepted
        && let Ok(client) = client.await
    {
        open.carry(TokioIo::new(client), host, broker.idle).await;
    }
}

/// Refuses the first request of a connection, which ends.
async fn refuse(mut stream: TcpStream, refusal: &BrokerRefusal) {
    let (limit, max_bytes) = LINGER;
    let refusing = async {
        stream.write_all(refusal.to_bytes().as_bytes()).await?;
        stream.shutdown().await?;
        // A connection with unread bytes would be reset, and the client may not see the reason.
        tokio::io::copy(&mut stream.take(max_bytes), &mut tokio::io::sink()).await
    };
    if !timeout(limit, refusing).await.is_ok_and(|refused| refused.is_ok()) {
        tracing::debug!("a client of the proxy left before it was refused");
    }
}

async fn respond(
    mut request: Request<Incoming>,
    broker: &BrokerState,
    decisions: &Arc<Decisions>,
    tunnel: &Mutex<Option<AcceptedTunnel>>,
) -> Result<Response<BrokerBody>, BrokerRefusal> {
    if let Some(route) = placeholder::name_of(request.uri()) {
        let route = route.to_owned();
        // The placeholder of the key is the proof.
        return Ok(key_route::forward(request, &route, broker, decisions).await);
    }
    let access = decisions.access();
    if let Some(secret) = &access.secret
        && !has_password(&request, secret)
    {
        return Err(BrokerRefusal::no_credentials());
    }
    if *request.method() != Method::CONNECT {
        return forward::forward(request, broker, decisions).await;
    }
    let authority = request.uri().authority();
    let authority =
        authority.filter(|it| request.version() == Version::HTTP_11 && !it.as_str().contains('@'));
    let target = authority
        .and_then(|authority| HostPort::new(authority.host(), authority.port_u16()?))
        .ok_or_else(|| BrokerRefusal::invalid("CONNECT needs a host and a port, over HTTP/1.1"))?;
    let client = hyper::upgrade::on(&mut request);
    let (open, host) =
        OpenConnection::open(broker, decisions, target, ConnectionKind::Connect).await?;
    *lock(tunnel) = Some(AcceptedTunnel { open, host, client });
    Ok(Response::new(empty()))
}

/// Whether a request has the secret of the process as the password of the proxy.
fn has_password(request: &Request<Incoming>, secret: &SecretText) -> bool {
    let field = request.headers().get(PROXY_AUTHORIZATION).and_then(|field| field.to_str().ok());
    let encoded = field.and_then(|field| field.strip_prefix("Basic "));
    let decoded = encoded.and_then(|encoded| STANDARD.decode(encoded.trim()).ok());
    let text = decoded.and_then(|decoded| String::from_utf8(decoded).ok());
    text.as_deref().and_then(|text| text.split_once(':')).is_some_and(|(_, it)| secret.is(it))
}
