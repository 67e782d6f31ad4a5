//! Receives callbacks: an HTTP listener that hands over complete requests one by one.

mod format;
mod signature;
mod verify;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};

pub(crate) use format::{json, line};
pub(crate) use verify::{CheckedDelivery, Verdict, Verifier};

const MAX_DELIVERY_BYTES: usize = 16 * 1024 * 1024;
/// The most connections at a time; others wait.
const MAX_CONNECTIONS: u32 = 64;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait after a connection could not be accepted, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct ReceivedDelivery {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Takes the response's status.
    pub(crate) response: oneshot::Sender<StatusCode>,
}

#[derive(Debug)]
pub(crate) struct Receiver {
    listener: TcpListener,
    address: SocketAddr,
    /// A permit for each connection.
    permits: Arc<Semaphore>,
}

// === impl Receiver ===

impl Receiver {
    /// Listens on this address, or on any free port of it for port 0.
    pub(crate) async fn bind(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, permits: Arc::new(Semaphore::new(MAX_CONNECTIONS as usize)) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Hands deliveries over in the order in which they are complete, until it is dropped.
    pub(crate) async fn serve(&self, deliveries: mpsc::Sender<ReceivedDelivery>) {
        loop {
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else { return };
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let deliveries = deliveries.clone();
            tokio::spawn(async move {
                connection(stream, deliveries).await;
                // Held until here: it bounds the open connections.
                drop(permit);
            });
        }
    }

    /// Waits until every sender has its response, at most for a second.
    pub(crate) async fn drain(&self) {
        let all = self.permits.acquire_many(MAX_CONNECTIONS);
        // A slower sender tries again.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, all).await;
    }
}

async fn connection(stream: TcpStream, deliveries: mpsc::Sender<ReceivedDelivery>) {
    let service = service_fn(|request| {
        let deliveries = deliveries.clone();
        async move {
            let status = receive(request, &deliveries).await.unwrap_or_else(|status| status);
            let mut response = Response::new(Empty::<Bytes>::new());
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).keep_alive(false);
    // A sender that disconnects tries again.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// Reads a request and hands it over; returns the response's status in either case.
async fn receive(
    request: Request<Incoming>,
    deliveries: &mpsc::Sender<ReceivedDelivery>,
) -> Result<StatusCode, StatusCode> {
    let (head, body) = request.into_parts();
    if head.method != Method::POST {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let whole = Limited::new(body, MAX_DELIVERY_BYTES).collect();
    let body = match tokio::time::timeout(BODY_TIMEOUT, whole).await {
        Err(_) => return Err(StatusCode::REQUEST_TIMEOUT),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        Ok(Err(_)) => return Err(StatusCode::BAD_REQUEST),
        Ok(Ok(body)) => body.to_bytes(),
    };
    let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let (response, status) = oneshot::channel();
    let delivery = ReceivedDelivery { path, headers: head.headers, body, response };
    let gone = StatusCode::SERVICE_UNAVAILABLE;
    deliveries.send(delivery).await.map_err(|_| gone)?;
    status.await.map_err(|_| gone)
}
