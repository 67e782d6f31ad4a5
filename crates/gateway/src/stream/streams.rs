//! The state that all streams of a server share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use tokio::time::{Interval, MissedTickBehavior, interval};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Right, ThreadKey};
use trilogue_runtime::{Presence, Runtime};
use trilogue_store::{Admin, Read};

use super::feed::Feeds;
use super::sample::Samplers;
use crate::access::authenticator::{Authenticator, Caller, revoked};
use crate::core::lifecycle::{Lifecycle, shutting_down};
use crate::core::meters::Meters;
use crate::core::options::Options;
use crate::core::ports::Ports;
use crate::http::body::ReplyBody;
use crate::http::reply::Reply;
use trilogue_runtime::shares::{HeldShare, Shares};

#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) feeds: Feeds,
    pub(crate) samplers: Samplers,
    pub(crate) read: Arc<dyn Read>,
    pub(crate) runtime: Runtime,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) meters: Arc<Meters>,
    /// How often an idle stream sends a heartbeat.
    pub(crate) heartbeat: Duration,
    /// How often the token of a stream is checked.
    pub(crate) token_recheck: Duration,
    admin: Arc<dyn Admin>,
    authenticator: Arc<Authenticator>,
    max_streams: usize,
    shares: Arc<Shares>,
}

/// One client's open stream: it is counted, lasts as long as the client's token, and sends heartbeats.
#[derive(Debug)]
pub(crate) struct OpenStream {
    pub(crate) streams: Arc<Streams>,
    pub(crate) caller: Caller,
    heartbeat: Duration,
    ticks: Interval,
    checked_at: Instant,
    sent_at: Instant,
    began: Instant,
    presence: Option<Presence>,
    _share: HeldShare,
}

// === impl Streams ===

impl Streams {
    pub(crate) fn new(
        options: &Options,
        ports: &Ports,
        authenticator: &Arc<Authenticator>,
        lifecycle: &Arc<Lifecycle>,
        meters: &Arc<Meters>,
    ) -> Self {
        Self {
            feeds: Feeds::new(options.render_cache_bytes),
            samplers: Samplers::default(),
            read: Arc::clone(&ports.read),
            runtime: ports.runtime.clone(),
            lifecycle: Arc::clone(lifecycle),
            meters: Arc::clone(meters),
            heartbeat: options.heartbeat,
            token_recheck: options.token_recheck,
            admin: Arc::clone(&ports.admin),
            authenticator: Arc::clone(authenticator),
            max_streams: options.max_streams,
            shares: Shares::new(options.max_streams_each()),
        }
    }

    /// Errors: if no further event can come; the client then reconnects after the server's restart.
    fn check_store(&self) -> Result<()> {
        match self.admin.health() {
            Err(error) if matches!(error.code(), Code::StoreReadOnly | Code::StoreCorrupt) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn stopping() -> Error {
    shutting_down().hint("connect again with the id of the last event that you have")
}

// === impl OpenStream ===

impl OpenStream {
    /// Counts one more stream, which is never silent for longer than `max_silence`.
    /// Errors: `overloaded` if there are too many, `shutting_down`.
    pub(crate) fn begin(
        streams: &Arc<Streams>,
        caller: &Caller,
        max_silence: Duration,
    ) -> Result<Self> {
        if streams.lifecycle.has_ended_streams() {
            return Err(stopping());
        }
        let share = streams.shares.take(&caller.principal).ok_or_else(|| {
            let most = streams.shares.max_each();
            let message = format!(
                "{most} event streams of yours are open, which is the most for one principal"
            );
            Error::new(Code::Overloaded, message)
                .hint("close one; an operator may raise `server.limits.max_streams_per_principal`")
        })?;
        let heartbeat = streams.heartbeat.min(max_silence);
        let mut ticks = interval(streams.token_recheck.min(heartbeat));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        let now = Instant::now();
        streams.meters.streams.add();
        let (streams, caller, presence) = (Arc::clone(streams), caller.clone(), None);
        let open = Self {
            streams,
            caller,
            heartbeat,
            ticks,
            checked_at: now,
            sent_at: now,
            began: now,
            presence,
            _share: share,
        };
        let most = open.streams.max_streams;
        if open.streams.meters.streams.get() > most as u64 {
            let message = format!("{most} event streams are open, which is the most");
            return Err(Error::new(Code::Overloaded, message)
                .hint("an operator may raise `server.limits.max_streams`"));
        }
        Ok(open)
    }

    /// Marks the client as a reader of this thread, if it can answer.
    pub(crate) fn attend(&mut self, thread: ThreadKey) {
        let may_answer = self.caller.principal.rights.has(Right::Answer);
        self.presence = may_answer.then(|| self.streams.runtime.present(thread));
    }

    /// Checks the token again if a check is due.
    /// Errors: if the token is not valid any more.
    pub(crate) async fn check(&mut self) -> Result<()> {
        match self.checked_at.elapsed() >= self.streams.token_recheck {
            true => self.check_token().await,
            false => Ok(()),
        }
    }

    async fn check_token(&mut self) -> Result<()> {
        self.checked_at = Instant::now();
        let admits = self.streams.authenticator.still_admits(&self.caller).await;
        if admits { Ok(()) } else { Err(revoked()) }
    }

    pub(crate) async fn next_tick(&mut self) {
        self.ticks.tick().await;
    }

    /// Processes a tick. Returns whether a heartbeat is due.
    /// Errors: if the token is not valid any more, or the store has failed.
    pub(crate) async fn tick(&mut self) -> Result<bool> {
        self.check_token().await?;
        self.streams.check_store()?;
        Ok(self.sent_at.elapsed() >= self.heartbeat)
    }

    pub(crate) fn record_sent(&mut self, piece: &Bytes) {
        self.sent_at = Instant::now();
        self.streams.meters.stream_bytes.increment(piece.len() as u64);
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.meters.streams.remove();
        self.streams.meters.stream_seconds.record(self.began.elapsed().as_secs_f64());
    }
}

/// The source of an open stream.
pub(crate) trait StreamSource: Send + 'static {
    /// Returns the next piece, or `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
    fn open(&mut self) -> &mut OpenStream;
    /// Called once, at the end.
    fn finish(&mut self) {}
}

/// Returns the reply that carries the pieces of an event stream.
pub(crate) fn stream_reply(content_type: HeaderValue, source: impl StreamSource) -> Reply {
    let pieces = futures_util::stream::unfold(source, |mut source| async move {
        let Some(piece) = source.next().await else {
            source.finish();
            return None;
        };
        source.open().record_sent(&piece);
        Some((Ok(piece), source))
    });
    Reply::new(StatusCode::OK, ReplyBody::pieces(pieces))
        .header(header::CONTENT_TYPE, content_type)
        .header(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))
}
