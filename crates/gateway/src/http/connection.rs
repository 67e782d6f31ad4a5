//! One connection: protocol settings, time limits, graceful end.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::body::ReplyBody;
use super::stall::Stall;
use crate::core::options::Options;

/// The smallest buffer that the HTTP/1 reader takes, in bytes.
const MIN_BUFFER_BYTES: usize = 8 * 1024;
/// So many headers the HTTP/1 reader takes where nobody says how many, and then it reads them without asking for memory.
const MAX_HEADERS_ON_STACK: usize = 100;
/// The most HTTP/2 streams that a peer may have reset before we have looked at them: a reset flood ends there.
const MAX_RESET_STREAMS: usize = 32;

#[derive(Debug)]
struct Activity {
    opened: Instant,
    requests: AtomicUsize,
    /// Milliseconds after `opened` at which the last request ended.
    quiet_since_ms: AtomicU64,
}

/// Counts a request as at work until its response is made.
struct AtWork(Arc<Activity>);

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
        .max_concurrent_streams(options.max_requests_per_connection)
        .max_header_list_size(u32::try_from(options.max_head_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(MAX_RESET_STREAMS)
        .keep_alive_interval(options.head_timeout)
        .keep_alive_timeout(options.head_timeout);
    builder
}

/// Serves one connection with this handler until it ends, idles too long, or the server stops.
pub(crate) async fn serve<A>(
    options: &Options,
    handle: impl Fn(Request<Incoming>) -> A,
    builder: Arc<Builder<TokioExecutor>>,
    stream: TcpStream,
    stop: CancellationToken,
) where
    A: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    // Small writes are whole events here: waiting to join them only delays them.
    drop(stream.set_nodelay(true));
    let idle = options.head_timeout;
    let activity = Arc::new(Activity {
        opened: Instant::now(),
        requests: AtomicUsize::new(0),
        quiet_since_ms: AtomicU64::new(0),
    });
    let io = TokioIo::new(Stall::new(stream, options.write_timeout));
    let service = service_fn(|request| {
        let at_work = AtWork::begin(&activity);
        let answering = handle(request);
        async move {
            let response = answering.await;
            drop(at_work);
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let mut connection = pin!(builder.serve_connection(io, service));
    let mut stopping = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(error = %error, "a connection broke");
                }
                return;
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            // A peer that sends half a request line, or nothing, reaches no other time limit.
            () = tokio::time::sleep(idle) => if !stopping && activity.is_idle_for(idle) {
                stopping = true;
                if activity.was_never_used() {
                    return;
                }
                connection.as_mut().graceful_shutdown();
            },
        }
    }
}

// === impl Activity ===

impl Activity {
    fn is_idle_for(&self, limit: Duration) -> bool {
        let quiet = Duration::from_millis(self.quiet_since_ms.load(Ordering::Relaxed));
        self.requests.load(Ordering::Relaxed) == 0
            && self.opened.elapsed().saturating_sub(quiet) >= limit
    }

    fn was_never_used(&self) -> bool {
        self.quiet_since_ms.load(Ordering::Relaxed) == 0
    }
}

// === impl AtWork ===

impl AtWork {
    fn begin(activity: &Arc<Activity>) -> Self {
        activity.requests.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(activity))
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let now = u64::try_from(self.0.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.quiet_since_ms.store(now.max(1), Ordering::Relaxed);
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}
