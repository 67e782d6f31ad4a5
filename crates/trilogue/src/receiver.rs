//! Receives callbacks on this machine: an HTTP listener that hands over whole requests, one after the other.

mod judge;
mod signature;
mod wording;

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

pub(crate) use judge::{Judge, Judged, Verdict};
pub(crate) use wording::{json, line};

/// The largest delivery that is taken, in bytes.
const MAX_DELIVERY_BYTES: usize = 16 * 1024 * 1024;
/// The most connections at a time; others wait.
const MAX_CONNECTIONS: u32 = 64;
/// How long a sender may take to say what it wants.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a sender may take for the body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the last answers may take to leave.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait after a connection that could not be accepted, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A request that came whole.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// The path that it was sent to, with its query.
    pub(crate) path: String,
    /// Its header fields.
    pub(crate) headers: HeaderMap,
    /// Its body.
    pub(crate) body: Bytes,
    /// Takes the status that the sender is answered with.
    pub(crate) answer: oneshot::Sender<StatusCode>,
}

/// A listener.
#[derive(Debug)]
pub(crate) struct Receiver {
    listener: TcpListener,
    address: SocketAddr,
    /// A place for each connection.
    places: Arc<Semaphore>,
}

// === impl Receiver ===

impl Receiver {
    /// Listens on this address, or on any free port of it for port 0.
    ///
    /// # Errors
    /// When the port is taken or not allowed, or the address is none of this machine.
    pub(crate) async fn bind(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, places: Arc::new(Semaphore::new(MAX_CONNECTIONS as usize)) })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Hands deliveries over, in the order in which they are complete, until it is dropped.
    pub(crate) async fn serve(&self, deliveries: mpsc::Sender<Delivery>) {
        loop {
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return };
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let deliveries = deliveries.clone();
            tokio::spawn(async move {
                connection(stream, deliveries).await;
                drop(place);
            });
        }
    }

    /// Waits until every sender has its answer, for a second at most.
    pub(crate) async fn drain(&self) {
        let all = self.places.acquire_many(MAX_CONNECTIONS);
        // Who takes longer than that sends it again.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, all).await;
    }
}

async fn connection(stream: TcpStream, deliveries: mpsc::Sender<Delivery>) {
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
    // A sender that breaks off will try again: there is nothing to say about it.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// Reads a request and hands it over; gives the status to answer with, in either case.
async fn receive(
    request: Request<Incoming>,
    deliveries: &mpsc::Sender<Delivery>,
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
    let (answer, answered) = oneshot::channel();
    let delivery = Delivery { path, headers: head.headers, body, answer };
    let gone = StatusCode::SERVICE_UNAVAILABLE;
    deliveries.send(delivery).await.map_err(|_| gone)?;
    answered.await.map_err(|_| gone)
}
