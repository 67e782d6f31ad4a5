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
//! - What comes is given to the [`Handler`] in the order in which it came, and a response is given to its caller only after everything
//!   before it was taken by the handler.
//! - Reading never waits for an answer: a request is answered by whoever holds it, whenever that is. It waits only where the handler
//!   has no room, or where nobody takes what we write.
//! - Nothing grows without bound: lines, waiting calls, requests in work and outgoing bytes have limits in [`Options`].
//! - Params and results are carried as they were written.

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
pub use handler::{Backpressure, Handler, RefuseAll};
pub use raw_json::RawJson;
pub use request::{Notification, Request};

use outbox::Outbox;

/// The method that asks to give up on a request.
pub const CANCEL_REQUEST: &str = "$/cancel_request";

/// The limits of a connection, and which side of it this is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The longest line that is taken, in bytes without its end. A longer one is an error for that message alone.
    pub max_line_bytes: usize,
    /// How deeply arrays and objects of a message may lie in each other.
    pub max_depth: usize,
    /// The most calls that wait for their response at once.
    pub max_calls: usize,
    /// The most requests of the other side that are in work at once. More are refused.
    pub max_requests: usize,
    /// The most bytes of their params. More are refused, unless there is only one.
    pub max_request_bytes: usize,
    /// How much may wait to be written, in bytes. Who writes more waits.
    pub max_outgoing_bytes: usize,
    /// Whether a line that names no request is answered, with a `null` id. An agent does that; a client does not, because whatever
    /// stands on an agent's output beside its messages was not meant for anybody.
    pub answers_nameless: bool,
    /// Whether the other side is asked to give up on a call that is dropped before its answer came.
    pub cancels_dropped: bool,
}

/// A connection. Cheap to clone; it stays open until one side closes it.
#[derive(Clone)]
pub struct Peer(Arc<PeerShared>);

/// What was counted on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Lines, by kind.
    pub lines: Counts,
    /// Lines that looked like messages and were none.
    pub invalid: u64,
    /// Responses to calls that nobody made, or that nobody waits for any more.
    pub unexpected: u64,
    /// Requests that were refused because too many were in work, or one of the same id was.
    pub refused: u64,
}

struct PeerShared {
    options: Options,
    outbox: Outbox,
    last_id: AtomicU64,
    calls: Mutex<Calls>,
    requests: Mutex<Requests>,
    tally: Mutex<Tally>,
    /// Cancelled when nothing more will be read.
    ended: CancellationToken,
    /// Cancelled when nothing more is wanted.
    aborted: CancellationToken,
}

#[derive(Default)]
struct Requests {
    /// Those that are in work, by id.
    in_work: HashMap<Id<'static>, RequestInWork>,
    /// The bytes of their params.
    bytes: usize,
    /// How many have an answer that is not among what is to be written yet.
    answering: usize,
}

struct RequestInWork {
    cancelled: CancellationToken,
    bytes: usize,
}

type Answered = oneshot::Sender<Result<RawJson, CallFailure>>;

/// The calls that wait; `None` when the connection has ended.
type Calls = Option<HashMap<u64, Answered>>;

// === impl Peer ===

impl Peer {
    /// Speaks over these streams from now on. The handler gets what the other side asks and says.
    pub fn start<R, W>(read: R, write: W, handler: Arc<dyn Handler>, options: Options) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let shared = Arc::new(PeerShared {
            outbox: Outbox::new(options.max_outgoing_bytes, Box::new(write)),
            last_id: AtomicU64::new(0),
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

    /// Asks the other side, and waits for its answer.
    ///
    /// # Errors
    /// As [`Call`] ends with.
    pub async fn call<P>(&self, method: &str, params: &P) -> Result<RawJson, CallFailure>
    where
        P: Payload + Sync + ?Sized,
    {
        self.begin(method, params).await?.await
    }

    /// Asks the other side. The answer comes with the [`Call`]; dropping it gives up waiting. Where this is given up before there was
    /// room, nothing was asked.
    ///
    /// # Errors
    /// [`CallFailure::Closed`], or [`CallFailure::TooMany`] where too many calls wait.
    pub async fn begin<P>(&self, method: &str, params: &P) -> Result<Call, CallFailure>
    where
        P: Payload + Sync + ?Sized,
    {
        self.0.outbox.room().await?;
        let id = self.0.last_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        match &mut *lock(&self.0.calls) {
            None => return Err(CallFailure::Closed),
            Some(calls) if calls.len() >= self.0.options.max_calls => {
                return Err(CallFailure::TooMany);
            }
            Some(calls) => calls.insert(id, sender),
        };
        let call = Call::new(self.clone(), id, answer);
        self.0.outbox.push_at_once(|lines| lines.request(&Id::number(id), method, params))?;
        Ok(call)
    }

    /// Tells the other side.
    ///
    /// # Errors
    /// [`CallFailure::Closed`].
    pub async fn notify<P>(&self, method: &str, params: &P) -> Result<(), CallFailure>
    where
        P: Payload + Sync + ?Sized,
    {
        self.write(|lines| lines.notification(method, params)).await
    }

    /// As [`Self::notify`], without waiting for room. For what is short and has to be said even to one who takes nothing.
    ///
    /// # Errors
    /// [`CallFailure::Closed`], or [`CallFailure::TooMany`] where too much of that waits.
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

    /// As [`Self::notify`], for whoever has looked for room: several messages together stay together.
    #[cfg(feature = "stdio")]
    pub(crate) fn push<P: Payload + ?Sized>(
        &self,
        method: &str,
        params: &P,
    ) -> Result<(), CallFailure> {
        self.0.outbox.push(|lines| lines.notification(method, params))
    }

    /// Sends a message that is rendered already: one JSON object.
    ///
    /// # Errors
    /// [`CallFailure::Closed`].
    pub async fn send(&self, message: &[u8]) -> Result<(), CallFailure> {
        self.write(|lines| lines.message(message)).await
    }

    /// Sends bytes that need not be a message, as they are. For programs that test their other side.
    ///
    /// # Errors
    /// [`CallFailure::Closed`].
    pub async fn send_raw(&self, bytes: &[u8]) -> Result<(), CallFailure> {
        self.0.outbox.room().await?;
        self.0.outbox.push_raw(bytes)
    }

    /// Writes what is left and closes our direction. The other side notices, and what it still says is heard.
    pub fn close(&self) {
        self.0.outbox.close();
    }

    /// Stops at once: whatever waits fails.
    pub fn abort(&self) {
        self.0.aborted.cancel();
        self.end();
        self.0.outbox.end();
    }

    /// Whether nothing more will be heard.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.0.ended.is_cancelled()
    }

    /// Returns when nothing more will be heard, and everything that was heard was taken by the handler.
    pub async fn ended(&self) {
        self.0.ended.cancelled().await;
    }

    /// Returns when everything that was to be written was written, or cannot be any more.
    pub async fn flushed(&self) {
        self.0.outbox.flushed().await;
    }

    /// What was counted so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        *lock(&self.0.tally)
    }

    async fn write(&self, line: impl FnOnce(&mut Encoder) -> usize) -> Result<(), CallFailure> {
        self.0.outbox.room().await?;
        self.0.outbox.push(line)
    }

    /// The other side says nothing any more: fails everything that waits for it.
    fn end(&self) {
        let calls = lock(&self.0.calls).take();
        for (_, call) in calls.into_iter().flatten() {
            // Who gave up waiting needs no answer.
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
            Some(call) => drop(call.send(answer)),
            None => lock(&self.0.tally).unexpected += 1,
        }
    }

    fn awaits(&self, id: &Id<'_>) -> bool {
        number_of(id)
            .is_some_and(|id| lock(&self.0.calls).as_ref().is_some_and(|it| it.contains_key(&id)))
    }

    /// Forgets a call. Says whether it waited.
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

/// The call that an answer means. Our ids are all numbers; some write them back as text, or with a fraction of nought.
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
    /// For the side that works.
    #[must_use]
    pub const fn agent() -> Self {
        Self { answers_nameless: true, ..Self::client() }
    }

    /// For the side that shows it to the user.
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
        }
    }
}

#[cfg(test)]
mod tests;
