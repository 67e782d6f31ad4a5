//! Requests for threads that another node owns: sent there as they came, and its answer given back as it comes.
//!
//! The node checks the caller again: both know the same tokens. A request is sent on once: two nodes that each name the other do not pass it back and forth.

use std::io;
use std::time::Duration;

use futures_util::stream;
use http::{HeaderName, HeaderValue, Method, Uri, header};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, InterruptId};
use trilogue_egress::{Client, Policy};
use trilogue_store::ownership::{NextTry, next_try};

use super::body::ReplyBody;
use super::reply::{INTERRUPT_ID, Reply};
use super::request::Request;

/// Marks a request that a node has sent on.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("trilogue-forwarded");
pub(super) const YES: HeaderValue = HeaderValue::from_static("1");

/// How long a node that takes the request may say nothing: as long as a run without news.
const SILENCE: Duration = Duration::from_secs(3_600);
/// How long connecting to a node may take.
const CONNECT: Duration = Duration::from_secs(2);
/// How long a request waits for the threads of a node that does not answer to be taken over.
const TAKE_OVER: Duration = Duration::from_secs(10);
/// How long it waits before each further try.
const PAUSE: Duration = Duration::from_millis(200);

/// What concerns one connection only, or was checked here and would be refused there.
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
        // The addresses are those that the operators of the nodes wrote.
        let client = Client::new(Policy::anywhere(), options)
            .map_err(|error| Error::new(Code::Internal, error.to_string()))?;
        Ok(Self { client })
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Sends a request, with the method and address that it came with, to the node that an error names, and with the question that was shown here. `Ok(None)` where the node was not reached, and the request can be tried again. Fails with `peer_unavailable`.
    pub(crate) async fn send(
        &self,
        (method, uri): (&Method, &Uri),
        request: &Request,
        address: &str,
        shown: Option<&InterruptId>,
        wait: &TakeOverWait,
    ) -> Result<Option<Reply>> {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut onward = http::Request::new(request.body.clone());
        *onward.method_mut() = method.clone();
        *onward.uri_mut() = target(address, path)?;
        *onward.headers_mut() = request.headers.clone();
        LEFT_OUT.iter().for_each(|name| drop(onward.headers_mut().remove(name)));
        onward.headers_mut().insert(FORWARDED, YES);
        if let Some(shown) = shown.and_then(|id| HeaderValue::from_str(id.as_str()).ok()) {
            // One that the client names stays.
            onward.headers_mut().entry(INTERRUPT_ID).or_insert(shown);
        }
        let (status, headers, body) = match self.client.send(onward).await {
            Ok(answer) => answer,
            Err(error) => {
                return match next_try(!error.is_unreached(), wait.is_over()) {
                    NextTry::Again => Ok(None),
                    NextTry::NothingTaken => Err(unreachable(address)),
                    NextTry::MayBeTaken => Err(unanswered(address, &error)),
                };
            }
        };
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

/// The error where a node was reached and gave no answer.
pub(super) fn unanswered(address: &str, error: &trilogue_egress::Error) -> Error {
    let message =
        format!("the node at {address} did not answer, and may have taken the request: {error}");
    Error::new(Code::PeerUnavailable, message)
        .hint("look whether it did before you send the request again")
}

/// The error where no try met a node that owns the thread.
pub(crate) fn unreachable(address: &str) -> Error {
    let message = format!("the node at {address} owns the thread and cannot be reached");
    Error::new(Code::PeerUnavailable, message).hint("nothing was taken; send the request again")
}
