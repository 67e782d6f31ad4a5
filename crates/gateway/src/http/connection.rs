//! One connection: protocol settings, time limits, graceful end.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use http::{HeaderValue, Request, Response, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trilogue_domain::lock;

use super::activity::{ActiveRequest, Activity};
use super::body::ReplyBody;
use super::outgoing::{self, Outgoing};
use super::receive::BodyBudget;
use super::stall::Stall;
use super::upgrade::{self, UpgradeHandler, UpgradedConnection};
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

/// A connection that carries another protocol after its current response.
struct PendingUpgrade {
    on_upgrade: OnUpgrade,
    handler: UpgradeHandler,
    _at_work: ActiveRequest,
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
        // Boxed, so that a connection that carries another protocol holds no memory for HTTP.
        let upgrade = Box::pin(self.serve_http(stream, activity, handle)).await;
        if let Some(upgrade) = upgrade {
            Box::pin(self.serve_upgraded(upgrade, activity)).await;
        }
    }

    /// Serves a connection that carries another protocol now, until it ends, must give way, or the server stops.
    async fn serve_upgraded(&self, upgrade: PendingUpgrade, activity: &Arc<Activity>) {
        let PendingUpgrade { on_upgrade, handler, _at_work } = upgrade;
        let stream = match on_upgrade.await {
            Ok(stream) => TokioIo::new(stream),
            Err(error) => return tracing::debug!(%error, "a connection broke"),
        };
        let stop = self.stop.child_token();
        let mut serving = handler(UpgradedConnection { stream, stop: stop.clone() });
        tokio::select! {
            () = &mut serving => return,
            () = activity.must_give_way() => self.meters.relieved_connections.increment(1),
        }
        stop.cancel();
        drop(tokio::time::timeout(self.options.connection_grace, serving).await);
    }

    /// Returns the protocol that the connection carries after HTTP, if it changed.
    async fn serve_http<A>(
        &self,
        stream: TcpStream,
        activity: &Arc<Activity>,
        handle: impl Fn(Request<Incoming>) -> A,
    ) -> Option<PendingUpgrade>
    where
        A: Future<Output = ServedResponse> + Send + 'static,
    {
        // Small writes here are whole events: Nagle's algorithm would only delay them, also if this fails.
        drop(stream.set_nodelay(true));
        let (idle, patience) = (self.options.head_timeout, self.options.write_timeout);
        let outgoing = Arc::new(Outgoing::new(&self.anonymous_budget));
        let io = TokioIo::new(Stall::new(stream, patience).with_activity(activity));
        let is_http2 = AtomicBool::new(false);
        let upgraded = Arc::new(Mutex::new(None));
        let service = service_fn(|request| {
            let at_work = ActiveRequest::begin(activity);
            let (version, outgoing) = (request.version(), Arc::clone(&outgoing));
            is_http2.store(version == Version::HTTP_2, Ordering::Relaxed);
            let last_requests = self.last_requests.clone();
            let on_upgrade = request.extensions().get::<OnUpgrade>().cloned();
            let upgrade = on_upgrade.map(|it| (it, Arc::clone(activity), Arc::clone(&upgraded)));
            // Boxed, because the HTTP library moves this future several times for each request.
            let answering = Box::pin(handle(request));
            async move {
                let ServedResponse { mut response, is_authenticated } = answering.await;
                if let Some((on_upgrade, activity, upgraded)) = upgrade
                    && let Some(handler) = upgrade::take(&mut response)
                {
                    // The connection stays at work when the response has been sent.
                    let mut at_work = ActiveRequest::begin(&activity);
                    if is_authenticated {
                        at_work.mark_authenticated();
                    } else {
                        at_work.mark_anonymous();
                    }
                    let pending = PendingUpgrade { on_upgrade, handler, _at_work: at_work };
                    *lock(&upgraded) = Some(pending);
                }
                if version != Version::HTTP_2 && last_requests.is_cancelled() {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(header::CONNECTION, close);
                }
                let response =
                    outgoing::carry(&outgoing, version, response, at_work, is_authenticated);
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        let mut connection = pin!(self.builder.serve_connection_with_upgrades(io, service));
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
                    return lock(&upgraded).take();
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
                        return None;
                    }
                }
                () = reached(deadline) => {
                    // Requests of callers with a token finish first.
                    if activity.can_end() {
                        return None;
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
                        return None;
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
