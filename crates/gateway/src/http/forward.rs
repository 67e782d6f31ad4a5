//! Forwards requests for threads that another node owns, and for agents that only another node has. Requests and answers pass unchanged.
//!
//! The other node checks the caller again: both know the same tokens. The number of hops is limited, so two nodes that each name the other do not pass a
//! request back and forth.

use std::io;
use std::time::Duration;

use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, InterruptId};
use trilogue_egress::{Client, Policy};
use trilogue_store::Admin;
use trilogue_store::ownership::{NextTry, next_try};

use super::body::ReplyBody;
use super::reply::{INTERRUPT_ID, REQUEST_ID, Reply};
use super::request::Request;

/// Marks a forwarded request with the number of nodes that have forwarded it.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("trilogue-forwarded");
/// The most nodes that forward one request: to a node that has its agent, to the owner of its thread, and during a handover to the node that stands in and to
/// the new owner.
const MAX_HOPS: u16 = 4;
/// The mark of the first node that forwards.
pub(super) const YES: HeaderValue = HeaderValue::from_static("1");

/// How long the other node may send nothing: as long as a run without news.
const SILENCE: Duration = Duration::from_secs(3_600);
/// How long connecting to a node may take.
const CONNECT: Duration = Duration::from_secs(2);
/// How long a request waits for the threads of a node that does not answer to be taken over.
const TAKE_OVER: Duration = Duration::from_secs(10);
/// How long it waits before each further try.
const PAUSE: Duration = Duration::from_millis(200);

/// Headers that concern one connection only, or that were checked here and would be refused there.
const LEFT_OUT: [HeaderName; 11] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
    header::ORIGIN,
    header::COOKIE,
    header::ACCEPT_ENCODING,
];

#[derive(Clone, Debug)]
pub(crate) struct Forwarder {
    client: Client,
}

/// The tries of one request.
#[derive(Debug)]
pub(crate) struct TakeOverWait(tokio::time::Instant);

/// The reason to forward to the owner of a thread, as the end of a sentence about that node.
pub(crate) const OWNS_THREAD: &str = "owns the thread";

/// A node that can handle the request.
#[derive(Debug)]
pub(crate) struct OtherNode {
    pub(crate) address: String,
    /// The reason, as the end of a sentence about the node.
    pub(crate) reason: &'static str,
}

// === impl OtherNode ===

impl OtherNode {
    /// Returns the node that an error names because this one cannot handle the request: it owns the thread, or has the agent. Fails if the look-up fails.
    pub(crate) async fn of(error: &Error, admin: &dyn Admin) -> Result<Option<Self>> {
        if let Some(address) = error.other_node() {
            return Ok(Some(Self { address: address.to_owned(), reason: OWNS_THREAD }));
        }
        let Some(agent) = error.missing_agent() else { return Ok(None) };
        let node = admin.node_with_agent(agent).await?;
        Ok(node.map(|node| Self { address: node.address, reason: "has the agent" }))
    }

    /// The error if no try reached the node.
    pub(crate) fn unreachable(&self) -> Error {
        unreachable(&self.address, self.reason)
    }
}

/// Whether the request may be forwarded once more.
pub(crate) fn may_go_on(headers: &HeaderMap) -> bool {
    hops(headers) < MAX_HOPS
}

/// Returns how many nodes have forwarded a request.
fn hops(headers: &HeaderMap) -> u16 {
    let Some(value) = headers.get(FORWARDED) else { return 0 };
    value.to_str().ok().and_then(|text| text.parse().ok()).unwrap_or(MAX_HOPS)
}

// === impl Forwarder ===

impl Forwarder {
    /// # Errors
    /// When the TLS roots cannot be loaded.
    pub(crate) fn new() -> Result<Self> {
        let options = trilogue_egress::Options {
            connect_timeout: CONNECT,
            idle_timeout: SILENCE,
            total_timeout: None,
            max_response_bytes: u64::MAX,
            ..trilogue_egress::Options::default()
        };
        // The operators of the nodes wrote these addresses, so every address is allowed.
        let client = Client::new(Policy::anywhere(), options)
            .map_err(|error| Error::new(Code::Internal, error.to_string()))?;
        Ok(Self { client })
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Forwards a request, with its method, address and shown question, to the node that an error names. Returns `Ok(None)` if the node was not reached and the
    /// request can be tried again. Fails with `peer_unavailable`.
    pub(crate) async fn send(
        &self,
        (method, uri): (&Method, &Uri),
        request: &Request,
        node: &OtherNode,
        shown: Option<&InterruptId>,
        wait: &TakeOverWait,
    ) -> Result<Option<Reply>> {
        let address = node.address.as_str();
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut onward = http::Request::new(request.body.clone());
        *onward.method_mut() = method.clone();
        *onward.uri_mut() = target(address, path)?;
        *onward.headers_mut() = request.headers.clone();
        LEFT_OUT.iter().for_each(|name| drop(onward.headers_mut().remove(name)));
        onward
            .headers_mut()
            .insert(FORWARDED, HeaderValue::from(hops(&request.headers).saturating_add(1)));
        let only_reads = matches!(*method, Method::GET | Method::HEAD);
        request.agent_check.add_caller_header(onward.headers_mut(), only_reads).await;
        if let Some(shown) = shown.and_then(|id| HeaderValue::from_str(id.as_str()).ok()) {
            // An interrupt that the client names takes precedence.
            onward.headers_mut().entry(INTERRUPT_ID).or_insert(shown);
        }
        let (status, headers, body) = match self.client.send(onward).await {
            Ok(answer) => answer,
            Err(error) => {
                return match next_try(!error.is_unreached(), wait.is_over()) {
                    NextTry::Again => Ok(None),
                    NextTry::NothingTaken => Err(node.unreachable()),
                    NextTry::MayBeTaken => Err(unanswered(address, &error)),
                };
            }
        };
        // Each reply of a node has this header, also with an error.
        if !headers.contains_key(REQUEST_ID) {
            return Err(foreign(address, status));
        }
        let pieces = stream::unfold(Some(body), |body| async move {
            let mut body = body?;
            match body.next().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(body))),
                Ok(None) => None,
                // The client sees a broken connection, as it would from the node itself.
                Err(error) => Some((Err(io::Error::other(error.to_string())), None)),
            }
        });
        let mut reply = Reply::new(status, ReplyBody::pieces(pieces));
        for (name, value) in &headers {
            if *name != header::CONNECTION && *name != header::TRANSFER_ENCODING {
                reply = reply.header(name.clone(), value.clone());
            }
        }
        Ok(Some(reply))
    }
}

// === impl TakeOverWait ===

impl TakeOverWait {
    pub(crate) fn begin() -> Self {
        Self(tokio::time::Instant::now())
    }

    /// Waits before the next try. `false` when the time for tries is over.
    pub(crate) async fn pause(&self) -> bool {
        if self.is_over() {
            return false;
        }
        tokio::time::sleep(PAUSE).await;
        true
    }

    /// Whether the time for tries is over.
    fn is_over(&self) -> bool {
        self.0.elapsed() >= TAKE_OVER
    }
}

pub(super) fn target(address: &str, path: &str) -> Result<Uri> {
    let target = format!("{}{path}", address.trim_end_matches('/'));
    target.parse().map_err(|_| {
        Error::new(Code::Internal, format!("a node has the address '{}'", address.escape_debug()))
    })
}

/// The error if a node was reached and gave no answer.
pub(super) fn unanswered(address: &str, error: &trilogue_egress::Error) -> Error {
    let message =
        format!("the node at {address} did not answer, and may have taken the request: {error}");
    Error::new(Code::PeerUnavailable, message)
        .hint("look whether it did before you send the request again")
}

/// The error if no try reached the node that has to handle the request for this reason.
pub(crate) fn unreachable(address: &str, reason: &str) -> Error {
    tracing::warn!(address, "another node cannot be reached at its `cluster.address`");
    let message = format!("the node at {address} {reason} and cannot be reached");
    Error::new(Code::PeerUnavailable, message).hint(
        "nothing was taken; send the request again. If it stays so, correct `cluster.address` of that node, or the way to it: `trilogue doctor` looks at it",
    )
}

/// The error if another program answers at the address of a node.
pub(super) fn foreign(address: &str, status: StatusCode) -> Error {
    tracing::warn!(address, %status, "another program answers at the `cluster.address` of a node");
    let message = format!(
        "at {address}, where a node should be, another program answered with the status {status}"
    );
    Error::new(Code::PeerUnavailable, message).hint(
        "correct `cluster.address` of that node, or the proxy there; look whether the request was taken before you send it again",
    )
}
