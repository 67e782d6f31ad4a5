//! Reading request bodies within limits, and the budgets for bodies of both directions.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use metrics::{Counter, counter};
use serde::de::DeserializeOwned;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Principal};
use trilogue_wire::json::{self, MAX_TREE_FACTOR};

use crate::core::metric_names::{REFUSED_BODIES, REFUSED_RESPONSES};
use crate::core::options::Options;
use trilogue_runtime::shares::{HeldShare, Shares};

/// Bodies up to this size, in bytes, skip the count of their JSON values.
const SMALL_BODY_BYTES: usize = 1024;

/// Bodies up to this size, in bytes, do not count for their principal.
const FREE_BYTES: usize = 16 * 1024;

/// What counting one batch of messages, or one request, takes itself, in bytes.
const WAITING_OVERHEAD_BYTES: usize = 256;

/// The bytes of bodies that the whole server holds.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    kind: BodyKind,
    max_bytes: usize,
    held: AtomicUsize,
    /// The bytes that each principal holds.
    shares: Arc<Shares>,
    /// Bodies that were refused.
    refused: Counter,
}

/// The part of the budget that one request holds.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    budget: Arc<BodyBudget>,
    bytes: usize,
    /// The principal of the body, if it is known.
    principal: Option<Principal>,
    /// The held part of the principal's share, once the body is larger than [`FREE_BYTES`].
    share: Option<HeldShare>,
}

/// A body whose bytes count when they arrive. Bytes that a client announces and never sends take nothing from others.
struct CountedBody<'a> {
    body: Incoming,
    held: &'a mut HeldBytes,
}

/// Part of a response, which counts until the client has taken it.
struct CountedPiece {
    bytes: Bytes,
    _held: HeldBytes,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BodyKind {
    Request,
    Response,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BudgetSpent {
    #[error("the server holds as many bytes of {0} as it may")]
    OfServer(BodyKind),
    #[error("the server holds as many bytes of your {0} as one principal may have there")]
    OfPrincipal(BodyKind),
}

/// Reads a whole body, and holds its bytes of the budget until the result is dropped. Errors: `body_too_large`,
/// `json_too_complex`, `overloaded`, and `invalid_request` if the body comes too late or breaks off.
pub(crate) async fn body(
    body: Incoming,
    options: &Options,
    budget: &Arc<BodyBudget>,
    principal: &Principal,
) -> Result<(Bytes, Option<HeldBytes>)> {
    body_up_to(options.max_body_bytes, body, options, budget, Some(principal)).await
}

/// Like [`body`], for a body of at most this many bytes.
pub(crate) async fn body_up_to(
    most: usize,
    body: Incoming,
    options: &Options,
    budget: &Arc<BodyBudget>,
    principal: Option<&Principal>,
) -> Result<(Bytes, Option<HeldBytes>)> {
    if body.is_end_stream() {
        return Ok((Bytes::new(), None));
    }
    if body.size_hint().lower() > most as u64 {
        return Err(too_large(most));
    }
    let mut held = HeldBytes::new(budget);
    held.principal = principal.cloned();
    let collecting = collect(CountedBody { body, held: &mut held }, most);
    match tokio::time::timeout(options.body_timeout, collecting).await {
        Ok(read) => {
            let body = read?;
            held.hold_tree(&body, options.max_json_tree_bytes)?;
            Ok((body, Some(held)))
        }
        Err(_) => Err(Error::new(
            Code::InvalidRequest,
            format!("the body did not arrive within {} s", options.body_timeout.as_secs()),
        )),
    }
}

async fn collect(body: CountedBody<'_>, most: usize) -> Result<Bytes> {
    match Limited::new(body, most).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(most)),
        Err(error) => Err(match error.downcast_ref::<BudgetSpent>() {
            Some(spent) => spent.to_error(),
            None => Error::new(Code::InvalidRequest, format!("the body broke off: {error}")),
        }),
    }
}

/// Counts a piece of a response until the client has taken it.
/// Errors: if the budget has no room for it.
pub(crate) fn hold_response(
    budget: &Arc<BodyBudget>,
    principal: &Principal,
    bytes: Bytes,
) -> Result<Bytes, BudgetSpent> {
    if bytes.len() <= FREE_BYTES {
        return Ok(bytes);
    }
    let mut held = HeldBytes::of(budget, principal);
    match held.grow(bytes.len()) {
        Ok(()) => Ok(held.count(bytes)),
        Err(spent) => {
            budget.refused.increment(1);
            Err(spent)
        }
    }
}

fn too_complex(tree: usize) -> Error {
    let message = format!("the values of the JSON would take {tree} bytes of memory");
    Error::new(Code::JsonTooComplex, message).hint(format!(
        "send fewer values, or longer ones: they may take {MAX_TREE_FACTOR} times the body, or `server.limits.max_json_tree`, which an operator may raise with `server.limits.max_bodies`"
    ))
}

fn too_large(most: usize) -> Error {
    Error::new(Code::BodyTooLarge, format!("the body is larger than {most} bytes"))
        .hint("large content goes in by reference, or the operator raises `server.limits.max_body`")
}

/// Reads JSON as a type; an empty body counts as `{}`. Errors: `invalid_json` if it is not JSON, `invalid_request` if it does not
/// fit the type; both name line and column.
pub(crate) fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => {
            Error::new(Code::InvalidRequest, format!("the body does not fit: {error}"))
        }
        _ => Error::new(Code::InvalidJson, format!("the body is not JSON: {error}")),
    })
}

// === impl BodyBudget ===

impl BodyBudget {
    /// Makes a budget for callers that share one principal: it has no shares.
    pub(crate) fn anonymous(max_bytes: usize) -> Arc<Self> {
        Self::new(BodyKind::Response, max_bytes, max_bytes)
    }

    /// Makes a budget for all principals, of which one principal holds at most `max_share_bytes`.
    pub(crate) fn new(kind: BodyKind, max_bytes: usize, max_share_bytes: usize) -> Arc<Self> {
        let refused = match kind {
            BodyKind::Request => counter!(REFUSED_BODIES),
            BodyKind::Response => counter!(REFUSED_RESPONSES),
        };
        let shares = Shares::new(max_share_bytes);
        Arc::new(Self { kind, max_bytes, held: AtomicUsize::new(0), shares, refused })
    }

    /// Makes the budget for request bodies. One share has room for a body of the largest size.
    pub(crate) fn of(options: &Options) -> Arc<Self> {
        let all = options.max_bodies_bytes.max(options.max_body_bytes);
        let largest = options.max_body_bytes.saturating_mul(1 + MAX_TREE_FACTOR);
        Self::new(BodyKind::Request, all, (all / 4 * 3).max(largest).min(all))
    }

    /// The budget for requests of editors that arrived and are not answered. It is one of its own, because they can wait for
    /// as long as a turn takes, and bodies must arrive meanwhile.
    pub(crate) fn of_open_requests(options: &Options) -> Arc<Self> {
        let all = options.max_bodies_bytes.max(options.max_body_bytes);
        Self::new(BodyKind::Request, all, (all / 2).max(options.max_body_bytes))
    }

    /// The budget for responses on their way. A share of it has room for one of the largest.
    pub(crate) fn of_responses(options: &Options) -> Arc<Self> {
        let all = options.max_responses_bytes.max(options.max_output_bytes);
        Self::new(BodyKind::Response, all, (all / 2).max(options.max_output_bytes))
    }

    /// The budget for messages that were sent and are kept for clients that continue. Nothing is refused for it: older ones go.
    pub(crate) fn of_kept_messages(options: &Options) -> Arc<Self> {
        let all = options.max_responses_bytes / 4;
        Self::new(BodyKind::Response, all, all / 2)
    }

    /// Returns the bytes that are held now.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

// === impl HeldBytes ===

impl HeldBytes {
    pub(crate) fn new(budget: &Arc<BodyBudget>) -> Self {
        Self { budget: Arc::clone(budget), bytes: 0, principal: None, share: None }
    }

    /// Holds nothing yet, and counts for this principal.
    pub(crate) fn of(budget: &Arc<BodyBudget>, principal: &Principal) -> Self {
        let mut held = Self::new(budget);
        held.principal = Some(principal.clone());
        held
    }

    /// Holds the bytes of messages that wait for their client, or of a request that waits for its response. Small ones count for the principal too, because many
    /// can wait. Errors: when the budget is spent.
    pub(crate) fn of_waiting(
        budget: &Arc<BodyBudget>,
        principal: &Principal,
        bytes: usize,
    ) -> Result<Self, BudgetSpent> {
        let mut held = Self::of(budget, principal);
        held.share = Some(budget.shares.begin(principal));
        match held.grow(bytes + WAITING_OVERHEAD_BYTES) {
            Ok(()) => Ok(held),
            Err(spent) => {
                budget.refused.increment(1);
                Err(spent)
            }
        }
    }

    /// Returns the bytes, which count until their last part is dropped.
    pub(crate) fn count(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(CountedPiece { bytes, _held: self })
    }

    /// Holds the bytes that the JSON of a body takes as a tree of values. Errors: `json_too_complex`; `overloaded` if the budget
    /// is spent.
    fn hold_tree(&mut self, body: &[u8], max_tree_bytes: usize) -> Result<()> {
        if body.len() <= SMALL_BODY_BYTES {
            return Ok(());
        }
        let tree = json::tree_bytes(body);
        let max_tree = max_tree_bytes.max(body.len() * MAX_TREE_FACTOR);
        // A tree larger than the whole budget would never be accepted.
        if tree > max_tree || body.len() + tree > self.budget.max_bytes {
            return Err(too_complex(tree));
        }
        self.grow(tree).map_err(|spent| {
            self.budget.refused.increment(1);
            spent.to_error()
        })
    }

    /// Errors: when the budget is spent. The requested bytes count until this is dropped.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), BudgetSpent> {
        let before = self.budget.held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        if before + bytes > self.budget.max_bytes {
            return Err(BudgetSpent::OfServer(self.budget.kind));
        }
        let Some(principal) = &self.principal else { return Ok(()) };
        // Small bodies skip the shares.
        let (share, more) = match &mut self.share {
            Some(share) => (share, bytes),
            None if self.bytes <= FREE_BYTES => return Ok(()),
            none => (none.insert(self.budget.shares.begin(principal)), self.bytes),
        };
        if share.grow(more) { Ok(()) } else { Err(BudgetSpent::OfPrincipal(self.budget.kind)) }
    }

    /// Like [`Self::grow`], but counts nothing more if the budget is spent: then returns `false`.
    pub(crate) fn try_grow(&mut self, bytes: usize) -> bool {
        let is_counted = self.grow(bytes).is_ok();
        if !is_counted {
            self.budget.held.fetch_sub(bytes, Ordering::Relaxed);
            self.bytes -= bytes;
        }
        is_counted
    }

    /// Gives bytes back.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        self.budget.held.fetch_sub(bytes, Ordering::Relaxed);
        self.bytes -= bytes;
        if let Some(share) = &mut self.share {
            share.shrink(bytes);
        }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

// === impl CountedPiece ===

impl AsRef<[u8]> for CountedPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

// === impl BodyKind ===

impl fmt::Display for BodyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "request bodies",
            Self::Response => "responses that were not taken",
        })
    }
}

// === impl BudgetSpent ===

impl BudgetSpent {
    pub(crate) fn to_error(&self) -> Error {
        let (Self::OfServer(kind) | Self::OfPrincipal(kind)) = self;
        Error::new(Code::Overloaded, self.to_string()).hint(match kind {
            BodyKind::Request => "try again; an operator may raise `server.limits.max_bodies`",
            BodyKind::Response => {
                "take the responses of earlier requests first; an operator may raise `server.limits.max_responses`"
            }
        })
    }
}

// === impl CountedBody ===

impl Body for CountedBody<'_> {
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => return Poll::Ready(None),
        };
        if let Some(bytes) = frame.data_ref()
            && let Err(spent) = self.held.grow(bytes.len())
        {
            self.held.budget.refused.increment(1);
            return Poll::Ready(Some(Err(spent.into())));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
