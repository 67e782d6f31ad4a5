//! The interface of faces, and the services that they use.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Extensions, header};
use hyper::body::Incoming;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use trilogue_domain::{AgentName, Code, Error, Principal, lock};
use trilogue_mapping::native::escape_for_message;

use crate::access::authenticator::Authenticator;
pub use crate::access::schemes::Challenge;
use crate::core::lifecycle::Lifecycle;
use crate::core::meters::Meters;
use crate::core::options::Options;
use crate::core::ports::Ports;
use crate::http::forward::Forwarder;
pub use crate::http::mount_point::MountPoint;
use crate::http::node_client::NodeClient;
use crate::http::receive::{self, BodyBudget};
pub use crate::http::reply::Reply;
pub use crate::http::request::Request;
pub use crate::route::{
    Access, Call, Endpoint, Handler, HandlerFuture, Operation, Parameter, ResponseContent, Route,
    RouteResponse, SchemaOf, Verb, bind, of, operations,
};
use crate::stream::Streams;

/// A protocol that can be mounted, with its options.
pub trait Protocol: fmt::Debug + Send + Sync {
    /// Returns its name in configuration and on the command line.
    fn name(&self) -> &'static str;
    /// Returns the operations of its routes; empty if the protocol serves only its own connections.
    fn operations(&self) -> Vec<Operation>;
    /// Opens the face of this protocol at one mount point.
    fn open(&self, services: &Services, place: MountPoint) -> Arc<dyn Face>;
}

/// The names of the protocols in mounts, metrics and pages.
pub(crate) mod protocol_name {
    pub(crate) const CLIENT: &str = "client";
    pub(crate) const COMMUNICATION: &str = "communication";
    pub(crate) const CONNECT: &str = "connect";
}

/// A protocol at one mount point.
#[async_trait]
pub trait Face: fmt::Debug + Send + Sync {
    fn endpoints(self: Arc<Self>) -> Vec<Endpoint>;
    /// Returns the face for connections of a local socket, if the protocol has one.
    fn local(self: Arc<Self>) -> Option<Arc<dyn LocalFace>> {
        None
    }
    fn respond(&self, error: &Error, request_id: Option<&str>) -> Reply;
    /// Adds to a refusal what the agent accepts, if the protocol describes it in more detail.
    fn challenge(&self, refusal: Reply, _: &Challenge) -> Reply {
        refusal
    }
    /// Returns the error for a path without a route.
    fn unknown_path(&self, path: &str) -> Error {
        Error::new(Code::NotFound, format!("route '{}' not found", escape_for_message(path)))
    }
    /// Whether the server's own pages authenticate to it with their session cookie.
    fn takes_cookies(&self) -> bool {
        false
    }
    /// Returns the path after the mount's prefix in the form that routes are matched with.
    fn normalize_path<'a>(&self, path: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(path)
    }
    /// Returns the agent that an unauthenticated request names, if any: the refusal says which schemes that agent accepts.
    async fn requested_agent(&self, _: UnknownCaller<'_>) -> Option<AgentName> {
        None
    }
}

/// A face that programs on this machine reach by a local socket.
#[async_trait]
pub trait LocalFace: fmt::Debug + Send + Sync {
    fn max_connections(&self) -> usize;
    /// Serves a connection until it ends or the server stops.
    async fn serve(self: Arc<Self>, connection: LocalConnection);
}

/// A connection of a program that runs as the server's user.
#[derive(Debug)]
pub struct LocalConnection {
    pub stream: UnixStream,
    /// The principal of the program.
    pub principal: Arc<Principal>,
    /// Whether the face has reached its connection limit: it refuses the connection and ends.
    pub is_full: bool,
    /// Whether the program belongs to an agent that this server hosts: the face refuses it.
    pub is_agent: bool,
    /// Asks the connection to end.
    pub stop: CancellationToken,
}

/// The services that faces use; each face keeps those that it needs.
#[derive(Clone, Debug)]
pub struct Services {
    pub ports: Ports,
    pub options: Arc<Options>,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) body_budget: Arc<BodyBudget>,
    pub(crate) open_request_budget: Arc<BodyBudget>,
    pub(crate) response_budget: Arc<BodyBudget>,
    pub(crate) kept_budget: Arc<BodyBudget>,
    pub(crate) streams: Arc<Streams>,
    /// Forwards requests to other nodes, if there can be any.
    pub(crate) forwarder: Option<Forwarder>,
    /// Sends the requests of this node's editors to other nodes.
    pub(crate) node_client: Option<Arc<NodeClient>>,
    pub(crate) common_states: Arc<Mutex<Extensions>>,
}

/// A request without a known caller.
#[derive(Debug)]
pub struct UnknownCaller<'a> {
    pub operation: &'static str,
    pub params: &'a [(&'static str, String)],
    pub(crate) body: Incoming,
    pub(crate) options: &'a Options,
    pub(crate) budget: &'a Arc<BodyBudget>,
}

// === impl Services ===

impl Services {
    /// Returns the state that all mounts of one face share: one value for each server and type.
    pub fn common_state<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut states = lock(&self.common_states);
        Arc::clone(states.get_or_insert_with(Arc::<T>::default))
    }
}

// === impl UnknownCaller ===

impl UnknownCaller<'_> {
    /// Returns the body if it has at most this many bytes and arrives in time.
    pub async fn body(self, max_bytes: usize) -> Option<Bytes> {
        let read = receive::body_up_to(max_bytes, self.body, self.options, self.budget, None).await;
        read.ok().map(|(body, _)| body)
    }
}

pub(crate) fn challenged(face: &dyn Face, refusal: Reply, challenge: &Challenge) -> Reply {
    let refusal =
        challenge.ways.iter().fold(refusal.without(&header::WWW_AUTHENTICATE), |reply, way| {
            reply.also(header::WWW_AUTHENTICATE, way.clone())
        });
    face.challenge(refusal, challenge)
}
