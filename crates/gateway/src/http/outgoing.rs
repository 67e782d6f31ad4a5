//! Response bodies on their way to a client.
//!
//! On HTTP/1.1 the socket's writes have a time limit. On HTTP/2 a client can keep the window of one stream closed while the
//! socket works well, so each body has its own limit: the connection passes the client's stream one piece at a time, and checks
//! which piece was not taken.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Response, StatusCode, Version, header};
use http_body::{Body, Frame, SizeHint};
use trilogue_domain::lock;

use super::activity::ActiveRequest;
use super::body::ReplyBody;
use super::receive::{BodyBudget, HeldBytes};

/// The most bytes of a response that wait for one HTTP/2 stream's window: its usual frame size.
const PIECE_BYTES: usize = 16 * 1024;

/// The responses on one HTTP/2 connection.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// The budget of responses to callers without a token, over all connections.
    anonymous_budget: Arc<BodyBudget>,
    next_id: AtomicU64,
    bodies: Mutex<HashMap<u64, Arc<Mutex<TimedBody>>>>,
}

/// The body of a response on its way.
#[derive(Debug)]
pub(crate) enum SentBody {
    Plain { body: ReplyBody, _at_work: ActiveRequest },
    Timed(Arc<Mutex<TimedBody>>),
}

/// A body of which an HTTP/2 client must take a piece within the time limit.
#[derive(Debug)]
pub(crate) struct TimedBody {
    /// `None` after the client was too slow.
    body: Option<ReplyBody>,
    /// The rest of the body's last chunk, after the waiting piece.
    rest: Bytes,
    /// When the waiting piece was passed on.
    handed_at: Option<Instant>,
    /// Whether the last piece was passed on: the response ends when the client has taken it.
    is_handed: bool,
    /// `None` after the response has ended for us.
    carried: Option<Carried>,
}

/// Removes a response from its connection's list when dropped.
#[derive(Debug)]
struct Carried {
    id: u64,
    outgoing: Arc<Outgoing>,
    _at_work: ActiveRequest,
    _held: HeldBytes,
}

struct LastPiece {
    bytes: Bytes,
    body: Arc<Mutex<TimedBody>>,
}

/// Returns the response to this request as its connection carries it.
pub(crate) fn carry(
    outgoing: &Arc<Outgoing>,
    version: Version,
    response: Response<ReplyBody>,
    mut at_work: ActiveRequest,
    is_authenticated: bool,
) -> Response<SentBody> {
    if is_authenticated {
        at_work.mark_authenticated();
    }
    let has_room = is_authenticated || at_work.mark_anonymous();
    if version != Version::HTTP_2 {
        return response.map(|body| SentBody::Plain { body, _at_work: at_work });
    }
    let mut held = HeldBytes::new(&outgoing.anonymous_budget);
    let is_within = is_authenticated || held.grow(known_bytes(response.body())).is_ok();
    let response = if has_room && is_within { response } else { too_many_anonymous() };
    response.map(|body| outgoing.add(body, at_work, held))
}

fn known_bytes(body: &ReplyBody) -> usize {
    usize::try_from(body.size_hint().lower()).unwrap_or_default()
}

/// Returns a refusal without a body, so that nothing waits for a window.
fn too_many_anonymous() -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Whole(None));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response.headers_mut().insert(header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    response
}

// === impl Outgoing ===

impl Outgoing {
    pub(crate) fn new(anonymous_budget: &Arc<BodyBudget>) -> Self {
        Self {
            anonymous_budget: Arc::clone(anonymous_budget),
            next_id: AtomicU64::new(0),
            bodies: Mutex::default(),
        }
    }

    fn add(self: &Arc<Self>, body: ReplyBody, at_work: ActiveRequest, held: HeldBytes) -> SentBody {
        if body.is_end_stream() {
            return SentBody::Plain { body, _at_work: at_work };
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let carried = Carried { id, outgoing: Arc::clone(self), _at_work: at_work, _held: held };
        let timed = TimedBody {
            body: Some(body),
            rest: Bytes::new(),
            handed_at: None,
            is_handed: false,
            carried: Some(carried),
        };
        let timed = Arc::new(Mutex::new(timed));
        lock(&self.bodies).insert(id, Arc::clone(&timed));
        SentBody::Timed(timed)
    }

    /// Releases the bodies of which the client took nothing for this long. Returns their number.
    pub(crate) fn release_stalled(&self, limit: Duration) -> usize {
        let carried: Vec<_> = lock(&self.bodies).values().map(Arc::clone).collect();
        carried.into_iter().filter(|body| lock(body).release_after(limit)).count()
    }
}

// === impl SentBody ===

impl Body for SentBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut *self {
            Self::Plain { body, .. } => Pin::new(body).poll_frame(context),
            Self::Timed(body) => {
                let piece = ready!(lock(body).poll_piece(context));
                let is_last = lock(body).is_handed;
                Poll::Ready(piece.map(|piece| {
                    piece.map(|frame| if is_last { LastPiece::of(frame, body) } else { frame })
                }))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Plain { body, .. } => body.is_end_stream(),
            Self::Timed(body) => lock(body).is_at_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Plain { body, .. } => body.size_hint(),
            Self::Timed(body) => lock(body).body.as_ref().map(Body::size_hint).unwrap_or_default(),
        }
    }
}

impl Drop for SentBody {
    /// Runs when the client has reset the stream, or everything was passed on.
    fn drop(&mut self) {
        if let Self::Timed(body) = self {
            let mut body = lock(body);
            if !body.is_handed {
                body.carried = None;
            }
        }
    }
}

// === impl TimedBody ===

impl TimedBody {
    fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.handed_at = None;
        if self.rest.is_empty() {
            let Some(body) = &mut self.body else {
                let error = io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing");
                return Poll::Ready(Some(Err(error)));
            };
            match ready!(Pin::new(body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => self.rest = bytes,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end => return Poll::Ready(end),
            }
        }
        self.handed_at = Some(Instant::now());
        Poll::Ready(Some(Ok(Frame::data(self.next_piece()))))
    }

    fn next_piece(&mut self) -> Bytes {
        if self.rest.len() > PIECE_BYTES {
            // Copy the piece: a slice would keep the whole buffer alive.
            let piece = Bytes::copy_from_slice(&self.rest[..PIECE_BYTES]);
            self.rest = self.rest.split_off(PIECE_BYTES);
            return piece;
        }
        let bytes = std::mem::take(&mut self.rest);
        self.is_handed = self.is_at_end();
        bytes
    }

    fn is_at_end(&self) -> bool {
        self.rest.is_empty() && self.body.as_ref().is_some_and(Body::is_end_stream)
    }

    /// Releases the body if the client has not taken a piece for this long. Returns whether it did so.
    fn release_after(&mut self, limit: Duration) -> bool {
        if self.handed_at.is_none_or(|at| at.elapsed() < limit) {
            return false;
        }
        self.rest = Bytes::new();
        self.carried = None;
        self.body.take().is_some()
    }
}

// === impl Carried ===

impl Drop for Carried {
    fn drop(&mut self) {
        let removed = lock(&self.outgoing.bodies).remove(&self.id);
        // Outside the lock, because dropping a body runs the code of its stream.
        drop(removed);
    }
}

// === impl LastPiece ===

impl LastPiece {
    fn of(frame: Frame<Bytes>, body: &Arc<Mutex<TimedBody>>) -> Frame<Bytes> {
        let body = Arc::clone(body);
        frame.map_data(|bytes| Bytes::from_owner(Self { bytes, body }))
    }
}

impl Drop for LastPiece {
    fn drop(&mut self) {
        lock(&self.body).carried = None;
    }
}

impl AsRef<[u8]> for LastPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
