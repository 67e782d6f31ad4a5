//! One connection: protocol settings, time limits, graceful end.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderValue, Request, Response, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::activity::{ActiveRequest, Activity};
use super::body::ReplyBody;
use super::outgoing::{self, Outgoing};
use super::receive::BodyBudget;
use super::stall::Stall;
use crate::core::meters::Meters;
use crate::core::options::Options;

/// The smallest buffer that the HTTP/1 reader takes, in bytes.
const MIN_BUFFER_BYTES: usize = 8 * 1024;
/// hyper's default header limit for HTTP/1; with it, the reader needs no allocation.
const MAX_HEADERS_ON_STACK: usize = 100;
/// The most HTTP/2 streams that a peer can reset before the server has processed them: this bounds a reset flood.
const MAX_RESET_STREAMS: usize = 32;

/// The most unread bytes of request bodies on one HTTP/2 connection.
const HTTP2_WINDOW_BYTES: u32 = 256 * 1024;

/// The most bytes of HTTP/2 responses to callers without a token, over all connections together.
pub(crate) const MAX_ANONYMOUS_BYTES: usize = 16 * 1024 * 1024;

/// The shared settings and limits of connections.
#[derive(Clone)]
pub(crate) struct ConnectionServer {
    pub(crate) options: Arc<Options>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) builder: Arc<Builder<TokioExecutor>>,
    /// The budget of HTTP/2 responses to callers without a token.
    pub(crate) anonymous_budget: Arc<BodyBudget>,
    /// Stops clients from sending further requests on the connection: on HTTP/1.1 the next response is the last, and HTTP/2 sends GOAWAY.
    pub(crate) last_requests: CancellationToken,
    /// Asks the connection to end.
    pub(crate) stop: CancellationToken,
}

/// A response, and whether its caller showed a valid token.
pub(crate) struct ServedResponse {
    pub(crate) response: Response<ReplyBody>,
    pub(crate) is_authenticated: bool,
}

pub(crate) fn builder(options: &Options) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_buf_size(options.max_head_bytes.max(MIN_BUFFER_BYTES));
    if options.max_headers != MAX_HEADERS_ON_STACK {
        builder.http1().max_headers(options.max_headers);
    }
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES)
        .max_concurrent_streams(options.max_requests_per_connection)
        .max_header_list_size(u32::try_from(options.max_head_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(MAX_RESET_STREAMS)
        .keep_alive_interval(options.head_timeout)
        .keep_alive_timeout(options.head_timeout);
    builder
}

// === impl ConnectionServer ===

impl ConnectionServer {
    /// Serves one connection with this handler until it ends, is idle too long, accepts too little, must give way, or the server stops.
    pub(crate) async fn serve<A>(
        self,
        stream: TcpStream,
        activity: &Arc<Activity>,
        handle: impl Fn(Request<Incoming>) -> A,
    ) where
        A: Future<Output = ServedResponse> + Send + 'static,
    {
        // Small writes here are whole events: Nagle's algorithm would only delay them, also if this fails.
        drop(stream.set_nodelay(true));
        let (idle, patience) = (self.options.head_timeout, self.options.write_timeout);
        let outgoing = Arc::new(Outgoing::new(&self.anonymous_budget));
        let io = TokioIo::new(Stall::new(stream, patience).with_activity(activity));
        let is_http2 = AtomicBool::new(false);
        let service = service_fn(|request| {
            let at_work = ActiveRequest::begin(activity);
            let (version, outgoing) = (request.version(), Arc::clone(&outgoing));
            is_http2.store(version == Version::HTTP_2, Ordering::Relaxed);
            let last_requests = self.last_requests.clone();
            // Boxed, because the HTTP library moves this future several times for each request.
            let answering = Box::pin(handle(request));
            async move {
                let ServedResponse { mut response, is_authenticated } = answering.await;
                if version != Version::HTTP_2 && last_requests.is_cancelled() {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(header::CONNECTION, close);
                }
                let response =
                    outgoing::carry(&outgoing, version, response, at_work, is_authenticated);
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        let mut connection = pin!(self.builder.serve_connection(io, service));
        // Set once the connection accepts no more requests.
        let mut deadline: Option<Instant> = None;
        let mut has_said_goaway = false;
        let grace = self.options.connection_grace;
        loop {
            let is_ending = deadline.is_some();
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(error = %error, "a connection broke");
                    }
                    return;
                }
                () = self.stop.cancelled(), if !is_ending => {}
                () = self.last_requests.cancelled(), if !is_ending && !has_said_goaway => {
                    has_said_goaway = true;
                    // Only HTTP/2: its streams continue. On HTTP/1.1 this would close an idle connection to which a request may be on its way.
                    if is_http2.load(Ordering::Relaxed) {
                        connection.as_mut().graceful_shutdown();
                    }
                    continue;
                }
                () = activity.must_give_way(), if !is_ending => {
                    self.meters.relieved_connections.increment(1);
                    if activity.is_idle() && activity.was_never_used() {
                        return;
                    }
                }
                () = reached(deadline) => {
                    // Requests of callers with a token finish first.
                    if activity.can_end() {
                        return;
                    }
                    deadline = Some(Instant::now() + grace);
                    continue;
                }
                () = tokio::time::sleep(idle.min(patience / 2)) => {
                    let stalled = outgoing.release_stalled(patience);
                    self.meters.stalled_responses.increment(stalled as u64);
                    let is_idle = activity.is_idle_for(idle);
                    // A peer that sends half a request line, or nothing, reaches no other time limit.
                    if is_idle && activity.was_never_used() {
                        return;
                    }
                    if is_ending || (stalled == 0 && !is_idle) {
                        continue;
                    }
                }
            }
            connection.as_mut().graceful_shutdown();
            deadline = Some(Instant::now() + grace);
        }
    }
}

async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
