//! One side of a JSON-RPC connection over a pair of byte streams, in either role.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use trilogue_sdk::agent_client::peer::{RefuseAll, Options, Peer};
//!
//! let peer = Peer::start(tokio::io::stdin(), tokio::io::stdout(), Arc::new(RefuseAll), Options::agent());
//! let reply = peer.call("session/request_permission", &serde_json::json!({})).await?;
//! println!("{}", reply.as_str());
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//! - The [`Handler`] gets messages in the order in which they arrive. A caller gets its response only after the handler has taken
//!   everything that arrived before it.
//! - Reading never waits for the answer to a request: the owner of a request can answer it at any time. Reading waits only if the
//!   handler is full, or if the other side does not read our output.
//! - Lines, waiting calls, open requests and outgoing bytes have limits: see [`Options`].
//! - Params and results are kept as the other side wrote them.

mod call;
mod handler;
mod outbox;
mod raw_json;
mod reader;
mod request;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use trilogue_domain::lock;
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::{self, Counts, Encoder, ErrorObject, Id, Payload};

pub use call::{Call, CallFailure};
pub use handler::{Backpressure, Handler, IgnoredInput, IgnoredReason, RefuseAll};
pub use raw_json::RawJson;
pub use request::{Notification, Request};

use outbox::Outbox;

/// The method that asks the other side to cancel a request.
pub const CANCEL_REQUEST: &str = "$/cancel_request";

/// The limits of a connection, and the role of this side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The maximum length of a line, in bytes without its end. A longer line is an error for that message alone.
    pub max_line_bytes: usize,
    /// The maximum nesting depth of arrays and objects in a message.
    pub max_depth: usize,
    /// The maximum number of calls that wait for their responses.
    pub max_calls: usize,
    /// The maximum number of open requests of the other side. More are refused.
    pub max_requests: usize,
    /// The maximum number of bytes of their params. More are refused, but a single request is always taken.
    pub max_request_bytes: usize,
    /// The maximum number of bytes that wait to be written. Writers above it wait.
    pub max_outgoing_bytes: usize,
    /// Whether an invalid line without a request id gets an error response with a `null` id. An agent sends it. A client does not, because
    /// other text on an agent's output was not meant for the client.
    pub answers_nameless: bool,
    /// Whether dropping a call before its response arrives asks the other side to cancel the request.
    pub cancels_dropped: bool,
    /// The id of the first call. An earlier connection to the same program has used the smaller ones.
    pub first_call: u64,
    /// The number of bytes that the other side has sent over earlier connections.
    pub first_byte: u64,
}

/// A connection. Cheap to clone; it stays open until one side closes it.
#[derive(Clone)]
pub struct Peer(Arc<PeerShared>);

/// The counters of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// The number of lines, by kind.
    pub lines: Counts,
    /// The number of lines that looked like messages and were invalid.
    pub invalid: u64,
    /// The number of responses to unknown calls, or to calls without a waiting caller.
    pub unexpected: u64,
    /// The number of requests that were refused because too many were open, or because one with the same id was open.
    pub refused: u64,
}

struct PeerShared {
    options: Options,
    outbox: Outbox,
    last_id: AtomicU64,
    calls: Mutex<Calls>,
    requests: Mutex<Requests>,
    tally: Mutex<Counters>,
    /// Cancelled when nothing more will be read.
    ended: CancellationToken,
    /// Cancelled by [`Peer::abort`].
    aborted: CancellationToken,
}

#[derive(Default)]
struct Requests {
    /// The open requests, by id.
    in_work: HashMap<Id<'static>, RequestInWork>,
    /// The bytes of their params.
    bytes: usize,
    /// The number of requests whose response is not in the outbox yet.
    answering: usize,
}

struct RequestInWork {
    cancelled: CancellationToken,
    bytes: usize,
}

type CallReply = oneshot::Sender<Result<RawJson, CallFailure>>;

/// The waiting calls; `None` after the connection has ended.
type Calls = Option<HashMap<u64, CallReply>>;

// === impl Peer ===

impl Peer {
    /// Starts a connection over these streams. The handler gets the other side's requests and notifications.
    pub fn start<R, W>(read: R, write: W, handler: Arc<dyn Handler>, options: Options) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let shared = Arc::new(PeerShared {
            outbox: Outbox::new(options.max_outgoing_bytes, Box::new(write)),
            last_id: AtomicU64::new(options.first_call),
            calls: Mutex::new(Some(HashMap::new())),
            requests: Mutex::default(),
            tally: Mutex::default(),
            ended: CancellationToken::new(),
            aborted: CancellationToken::new(),
            options,
        });
        tokio::spawn(outbox::write(Arc::clone(&shared)));
        tokio::spawn(reader::read(Self(Arc::clone(&shared)), read, handler));
        Self(shared)
    }

    /// Calls the other side and waits for the result.
    ///
    /// # Errors
    /// The [`CallFailure`] of the [`Call`].
    pub async fn call<P>(&self, method: &str, params: &P) -> Result<RawJson, CallFailure>
    where
        P: Payload + Sync + ?Sized,
    {
        self.begin(method, params).await?.await
    }

    /// Sends a request. The returned [`Call`] waits for the response; dropping it stops waiting. If you drop this future before there is
    /// room, no request is sent.
    ///
    /// # Errors
    /// [`CallFailure::Closed`], or [`CallFailure::TooMany`] if too many calls wait.
    pub async fn begin<P>(&self, method: &str, params: &P) -> Result<Call, CallFailure>
    where
        P: Payload + Sync + ?Sized,
    {
        self.0.outbox.room().await?;
        let id = self.0.last_id.fetch_add(1, Ordering::Relaxed);
        // The call is registered before it is sent, so that its response finds a receiver. If the push fails, dropping the call removes its registration.
        let call = self.await_response(id)?;
        self.0.outbox.push_at_once(|lines| lines.request(&Id::number(id), method, params))?;
        Ok(call)
    }

    /// Waits for the response to a request that an earlier connection to the same program has sent.
    ///
    /// # Errors
    /// [`CallFailure::Closed`], or [`CallFailure::TooMany`] if too many calls wait.
    pub fn await_response(&self, id: u64) -> Result<Call, CallFailure> {
        let (sender, answer) = oneshot::channel();
        match &mut *lock(&self.0.calls) {
            None => return Err(CallFailure::Closed),
            Some(calls) if calls.len() >= self.0.options.max_calls => {
                return Err(CallFailure::TooMany);
            }
            Some(calls) => calls.insert(id, sender),
        };
        Ok(Call::new(self.clone(), id, answer))
    }

    /// Sends a notification, when there is room.
    ///
    /// # Errors
    /// [`CallFailure::Closed`].
    pub async fn notify<P>(&self, method: &str, params: &P) -> Result<(), CallFailure>
    where
        P: Payload + Sync + ?Sized,
    {
        self.write(|lines| lines.notification(method, params)).await
    }

    /// Sends a notification without waiting for room. Use it for short messages that must go out even if the other side does not read.
    ///
    /// # Errors
    /// [`CallFailure::Closed`], or [`CallFailure::TooMany`] if too many bytes wait.
    pub fn notify_now<P>(&self, method: &str, params: &P) -> Result<(), CallFailure>
    where
        P: Payload + ?Sized,
    {
        self.0.outbox.push_now(|lines| lines.notification(method, params))
    }

    #[cfg(feature = "stdio")]
    pub(crate) fn has_room(&self) -> Result<bool, CallFailure> {
        self.0.outbox.has_room()
    }

    #[cfg(feature = "stdio")]
    pub(crate) async fn room(&self) -> Result<(), CallFailure> {
        self.0.outbox.room().await
    }

    /// Sends a notification without a check for room. The caller has checked it, so that several messages stay together.
    #[cfg(feature = "stdio")]
    pub(crate) fn push<P: Payload + ?Sized>(
        &self,
        method: &str,
        params: &P,
    ) -> Result<(), CallFailure> {
        self.0.outbox.push(|lines| lines.notification(method, params))
    }

    /// Sends an already rendered message: one JSON object.
    ///
    /// # Errors
    /// [`CallFailure::Closed`].
    pub async fn send(&self, message: &[u8]) -> Result<(), CallFailure> {
        self.write(|lines| lines.message(message)).await
    }

    /// Sends bytes as they are, even if they are not a message. For programs that test the other side.
    ///
    /// # Errors
    /// [`CallFailure::Closed`].
    pub async fn send_raw(&self, bytes: &[u8]) -> Result<(), CallFailure> {
        self.0.outbox.room().await?;
        self.0.outbox.push_raw(bytes)
    }

    /// Writes the remaining output and closes our direction. The other side notices; its messages are still read.
    pub fn close(&self) {
        self.0.outbox.close();
    }

    /// Stops the connection at once. All waiting calls fail.
    pub fn abort(&self) {
        self.0.aborted.cancel();
        self.end();
        self.0.outbox.end();
    }

    /// Returns `true` if nothing more will be read.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.0.ended.is_cancelled()
    }

    /// Returns when nothing more will be read and the handler has taken every message.
    pub async fn wait_for_end(&self) {
        self.0.ended.cancelled().await;
    }

    /// Returns when all output is written, or can no longer be written.
    pub async fn wait_for_flush(&self) {
        self.0.outbox.wait_for_flush().await;
    }

    /// Returns the counters so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        *lock(&self.0.tally)
    }

    async fn write(&self, line: impl FnOnce(&mut Encoder) -> usize) -> Result<(), CallFailure> {
        self.0.outbox.room().await?;
        self.0.outbox.push(line)
    }

    /// Called when nothing more will be read: fails all waiting calls and cancels all open requests.
    fn end(&self) {
        let calls = lock(&self.0.calls).take();
        for (_, call) in calls.into_iter().flatten() {
            // A dropped call needs no response.
            drop(call.send(Err(CallFailure::Closed)));
        }
        for request in lock(&self.0.requests).in_work.values() {
            request.cancelled.cancel();
        }
        self.0.ended.cancel();
        self.0.outbox.drain();
    }

    fn answer(&self, id: &Id<'_>, answer: Result<RawJson, CallFailure>) {
        let call = number_of(id).and_then(|id| lock(&self.0.calls).as_mut()?.remove(&id));
        match call {
            // The caller may have stopped waiting.
            Some(call) => drop(call.send(answer)),
            None => lock(&self.0.tally).unexpected += 1,
        }
    }

    fn awaits(&self, id: &Id<'_>) -> bool {
        number_of(id)
            .is_some_and(|id| lock(&self.0.calls).as_ref().is_some_and(|it| it.contains_key(&id)))
    }

    /// Forgets a call. Returns `true` if it was waiting.
    fn forget(&self, call: u64) -> bool {
        lock(&self.0.calls).as_mut().is_some_and(|calls| calls.remove(&call).is_some())
    }

    async fn respond(
        &self,
        id: &Id<'_>,
        answer: Result<&RawJson, &ErrorObject>,
    ) -> Result<(), CallFailure> {
        self.write(|lines| match answer {
            Ok(result) => lines.response(id, result),
            Err(error) => lines.error(id, error),
        })
        .await
    }
}

/// Returns the number of the call that a response belongs to. Our ids are numbers; some programs return them as text, or with a fraction of zero.
fn number_of(id: &Id<'_>) -> Option<u64> {
    let text = || splice::decode(id.as_str())?.parse().ok();
    let whole = || {
        let (digits, fraction) = id.as_str().split_once('.')?;
        let is_nought = !fraction.is_empty() && fraction.bytes().all(|digit| digit == b'0');
        digits.parse().ok().filter(|_| is_nought)
    };
    id.as_number().or_else(text).or_else(whole)
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("is_ended", &self.is_ended()).finish_non_exhaustive()
    }
}

// === impl Requests ===

impl Requests {
    fn len(&self) -> usize {
        self.in_work.len() + self.answering
    }
}

// === impl Options ===

impl Options {
    /// Returns the options for an agent.
    #[must_use]
    pub const fn agent() -> Self {
        Self { answers_nameless: true, ..Self::client() }
    }

    /// Returns the options for a client.
    #[must_use]
    pub const fn client() -> Self {
        Self {
            max_line_bytes: jsonrpc::DEFAULT_MAX_LINE_BYTES,
            max_depth: jsonrpc::DEFAULT_MAX_DEPTH,
            max_calls: 1_024,
            max_requests: 256,
            max_request_bytes: 64 * 1024 * 1024,
            max_outgoing_bytes: 16 * 1024 * 1024,
            answers_nameless: false,
            cancels_dropped: false,
            first_call: 0,
            first_byte: 0,
        }
    }
}

#[cfg(test)]
mod tests;
