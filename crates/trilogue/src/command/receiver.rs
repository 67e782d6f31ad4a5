//! Receives callbacks: an HTTP listener that hands over complete requests one by one.

mod format;
mod signature;
mod verify;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;

pub(crate) use format::{json, line};
pub(crate) use verify::{CheckedDelivery, Verdict, Verifier};

const MAX_DELIVERY_BYTES: usize = 16 * 1024 * 1024;
/// The most connections at a time. A further one takes the place of the oldest whose request is incomplete.
const MAX_CONNECTIONS: u32 = 64;
/// The time limit of a head. A server sends it at once.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit of a body: the largest one takes less at 16 Mbit/s.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
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

/// A connection that is served, for the case that another one needs its place.
#[derive(Debug)]
struct DeliveryConnection {
    /// Whether its request was read whole.
    is_complete: Arc<AtomicBool>,
    task: AbortHandle,
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
        let mut connections: VecDeque<DeliveryConnection> = VecDeque::new();
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            connections
                .retain(|it| !it.task.is_finished() && !it.is_complete.load(Ordering::Relaxed));
            let Ok(permit) = self.permit(&mut connections).await else { return };
            let deliveries = deliveries.clone();
            let is_complete = Arc::new(AtomicBool::new(false));
            let completion = Arc::clone(&is_complete);
            let task = tokio::spawn(async move {
                connection(stream, deliveries, &completion).await;
                // Held until here: it bounds the open connections.
                drop(permit);
            });
            connections.push_back(DeliveryConnection { is_complete, task: task.abort_handle() });
        }
    }

    /// Returns a permit for a connection. Without a free one, the oldest connection whose request is incomplete ends, so that a sender that
    /// sends nothing delays no other. Its server tries again.
    async fn permit(
        &self,
        connections: &mut VecDeque<DeliveryConnection>,
    ) -> Result<OwnedSemaphorePermit, AcquireError> {
        if self.permits.available_permits() == 0
            && let Some(oldest) = connections.pop_front()
        {
            oldest.task.abort();
        }
        Arc::clone(&self.permits).acquire_owned().await
    }

    /// Waits until every sender has its response, at most for a second.
    pub(crate) async fn drain(&self) {
        let all = self.permits.acquire_many(MAX_CONNECTIONS);
        // A slower sender tries again.
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, all).await;
    }
}

async fn connection(
    stream: TcpStream,
    deliveries: mpsc::Sender<ReceivedDelivery>,
    is_complete: &AtomicBool,
) {
    let service = service_fn(|request| {
        let deliveries = deliveries.clone();
        async move {
            let status =
                receive(request, &deliveries, is_complete).await.unwrap_or_else(|status| status);
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
    is_complete: &AtomicBool,
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
    is_complete.store(true, Ordering::Relaxed);
    let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let (response, status) = oneshot::channel();
    let delivery = ReceivedDelivery { path, headers: head.headers, body, response };
    let gone = StatusCode::SERVICE_UNAVAILABLE;
    deliveries.send(delivery).await.map_err(|_| gone)?;
    status.await.map_err(|_| gone)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Less than an incomplete request may take.
    const DEADLINE: Duration = Duration::from_secs(4);

    #[tokio::test]
    async fn senders_that_send_nothing_more_delay_no_delivery() {
        let receiver = Receiver::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = receiver.address();
        let (deliveries, mut received) = mpsc::channel::<ReceivedDelivery>(1);
        let exchange = async {
            let mut silent = Vec::new();
            for number in 0..=MAX_CONNECTIONS {
                let mut stream = TcpStream::connect(address).await.unwrap();
                // One half stops in the head, the other half in the body.
                let end = if number % 2 == 0 { "" } else { "content-length: 9\r\n\r\n" };
                let head = format!("POST / HTTP/1.1\r\nhost: a\r\n{end}");
                stream.write_all(head.as_bytes()).await.unwrap();
                silent.push(stream);
            }
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = b"POST /hook HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(request).await.unwrap();
            let delivery = received.recv().await.unwrap();
            assert_eq!((delivery.path.as_str(), &delivery.body[..]), ("/hook", &b"{}"[..]));
            delivery.response.send(StatusCode::NO_CONTENT).unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).await.unwrap();
            assert!(response.starts_with("HTTP/1.1 204"), "{response}");
        };
        tokio::select! {
            () = receiver.serve(deliveries) => panic!("it serves until it is dropped"),
            done = tokio::time::timeout(DEADLINE, exchange) => done.expect("a delivery waits"),
        }
    }
}
