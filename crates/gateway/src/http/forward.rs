//! Forwards requests for threads that another node owns, and for agents that only another node has. Requests and answers pass unchanged.
//!
//! The other node checks the caller again: both know the same tokens. The number of hops is limited, so two nodes that each name the other do not pass a
//! request back and forth. A request names the node that it is for, because an address can lead to another one: a server that is not that node takes nothing.

use std::io;
use std::time::Duration;

use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, InterruptId};
use trilogue_egress::{Client, Policy};
use trilogue_store::ownership::{NextTry, next_try};
use trilogue_store::{Admin, NodeAddress};

use super::body::ReplyBody;
use super::reply::{INTERRUPT_ID, Reply};
use super::request::Request;

/// Marks a forwarded request with the number of nodes that have forwarded it.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("trilogue-forwarded");
/// Names the node that a forwarded request is for. That node repeats its name in the response; another one answers [`NOT_MEANT`].
pub(crate) const NODE: HeaderName = HeaderName::from_static("trilogue-node");
/// What a server answers that is not the node that a request names. No node can have it as its name.
pub(crate) const NOT_MEANT: HeaderValue = HeaderValue::from_static("?");
/// The most nodes that forward one request: to a node that has its agent, to the owner of its thread, and during a handover to the node that stands in and to
/// the new owner.
const MAX_HOPS: u16 = 4;
/// The mark of the first node that forwards.
pub(super) const YES: HeaderValue = HeaderValue::from_static("1");

const ADDRESS_HINT: &str =
    "give each node a `cluster.address` of its own, at which the other nodes reach it";

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
const OWNS_THREAD: &str = "owns the thread";

/// A node that can handle the request.
#[derive(Clone, Debug)]
pub(crate) struct OtherNode {
    pub(crate) name: String,
    pub(crate) address: String,
    /// The reason, as the end of a sentence about the node.
    pub(crate) reason: &'static str,
}

// === impl OtherNode ===

impl OtherNode {
    /// Returns the node that an error names because this one cannot handle the request: it owns the thread, or has the agent. Fails if the look-up fails.
    pub(crate) async fn of(error: &Error, admin: &dyn Admin) -> Result<Option<Self>> {
        if let Some(owner) = Self::owner(error) {
            return Ok(Some(owner));
        }
        let Some(agent) = error.missing_agent() else { return Ok(None) };
        let node = admin.node_with_agent(agent).await?;
        Ok(node.map(|NodeAddress { name, address }| Self {
            name,
            address,
            reason: "has the agent",
        }))
    }

    /// Returns the node that an error names as the owner of the thread.
    pub(crate) fn owner(error: &Error) -> Option<Self> {
        let (name, address) = (error.other_node_name()?, error.other_node()?);
        Some(Self { name: name.to_owned(), address: address.to_owned(), reason: OWNS_THREAD })
    }

    /// Returns the header that names the node in a request.
    pub(super) fn header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.name).unwrap_or(NOT_MEANT)
    }

    /// Checks that this node gave a response, and not another program or node.
    /// Errors: `peer_unavailable`.
    pub(super) fn check_response(&self, status: StatusCode, headers: &HeaderMap) -> Result<()> {
        match headers.get(NODE) {
            Some(name) if *name == self.header() => Ok(()),
            Some(_) => Err(another_node(&self.address, &self.name)),
            None => Err(foreign(&self.address, status)),
        }
    }

    /// The error if no try reached the node.
    pub(crate) fn unreachable(&self) -> Error {
        unreachable(&self.address, self.reason)
    }
}

/// Checks that a request is for this server, if it names a node.
/// Errors: `peer_unavailable`.
pub(crate) fn check_meant(headers: &HeaderMap, own_name: &str) -> Result<()> {
    match headers.get(NODE) {
        Some(name) if *name != *own_name => {
            let message = "this server is not the node that the request is for; nothing was taken";
            Err(Error::new(Code::PeerUnavailable, message).hint(ADDRESS_HINT))
        }
        _ => Ok(()),
    }
}

/// Returns what a response says of the node that its request names.
pub(crate) fn answered_node(headers: &HeaderMap, own_name: &str) -> Option<HeaderValue> {
    let name = headers.get(NODE)?;
    Some(if *name == *own_name { name.clone() } else { NOT_MEANT })
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
        onward.headers_mut().insert(NODE, node.header());
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
        // Each reply of the node has its name, also with an error.
        node.check_response(status, &headers)?;
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
            if ![header::CONNECTION, header::TRANSFER_ENCODING, NODE].contains(name) {
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
fn unreachable(address: &str, reason: &str) -> Error {
    tracing::warn!(address, "another node cannot be reached at its `cluster.address`");
    let message = format!("the node at {address} {reason} and cannot be reached");
    Error::new(Code::PeerUnavailable, message).hint(
        "nothing was taken; send the request again. If it stays so, correct `cluster.address` of that node, or the way to it: `trilogue doctor` looks at it",
    )
}

/// The error if another node answers at the address of a node.
fn another_node(address: &str, name: &str) -> Error {
    tracing::warn!(address, name, "another node answers at the `cluster.address` of a node");
    let message = format!(
        "at {address}, where the node '{}' should be, another node answered; nothing was taken",
        name.escape_debug()
    );
    Error::new(Code::PeerUnavailable, message).hint(ADDRESS_HINT)
}

/// The error if another program answers at the address of a node.
fn foreign(address: &str, status: StatusCode) -> Error {
    tracing::warn!(address, %status, "another program answers at the `cluster.address` of a node");
    let message = format!(
        "at {address}, where a node should be, another program answered with the status {status}"
    );
    Error::new(Code::PeerUnavailable, message).hint(
        "correct `cluster.address` of that node, or the proxy there; a node of an earlier version does not say its name, so restart all nodes together. Look whether the request was taken before you send it again",
    )
}
