//! What a face is, and what it is made of.

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
use trilogue_mapping::native::shown;

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
    /// Its name in configuration and on the command line.
    fn name(&self) -> &'static str;
    /// Everything that its clients can ask for by routes: nothing where it has connections of its own only.
    fn operations(&self) -> Vec<Operation>;
    /// The protocol as it is served at one place.
    fn open(&self, services: &Services, place: MountPoint) -> Arc<dyn Face>;
}

/// The names of the protocols in mounts, metrics and pages.
pub(crate) mod protocol_name {
    pub(crate) const CLIENT: &str = "client";
    pub(crate) const COMMUNICATION: &str = "communication";
    pub(crate) const CONNECT: &str = "connect";
}

/// A protocol as it is served at one place.
#[async_trait]
pub trait Face: fmt::Debug + Send + Sync {
    fn endpoints(self: Arc<Self>) -> Vec<Endpoint>;
    /// The same for connections of a local socket, where the protocol has any.
    fn local(self: Arc<Self>) -> Option<Arc<dyn LocalFace>> {
        None
    }
    fn respond(&self, error: &Error, request_id: Option<&str>) -> Reply;
    /// Adds to the refusal of an agent where more is said of what it takes.
    fn challenge(&self, refusal: Reply, _: &Challenge) -> Reply {
        refusal
    }
    /// That no route has this path.
    fn unknown_path(&self, path: &str) -> Error {
        Error::new(Code::NotFound, format!("there is no route '{}'", shown(path)))
    }
    /// Whether pages of ours show their session to it.
    fn takes_cookies(&self) -> bool {
        false
    }
    /// The path behind the mount's prefix as it is looked for.
    fn tidied<'a>(&self, path: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(path)
    }
    /// The agent that a request of an unknown caller is for, where the request names one: the caller is told what that agent takes.
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
    /// In whose name the program acts.
    pub principal: Arc<Principal>,
    /// Whether the face has as many connections as it takes: it says so and ends.
    pub is_full: bool,
    /// Whether the program is of an agent that this server hosts: the face refuses it.
    pub is_agent: bool,
    /// Asks the connection to end.
    pub stop: CancellationToken,
}

/// What every face is made of; each keeps what it needs.
#[derive(Clone, Debug)]
pub struct Services {
    pub ports: Ports,
    pub options: Arc<Options>,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) body_budget: Arc<BodyBudget>,
    pub(crate) streams: Arc<Streams>,
    /// Sends requests on to other nodes, where there may be some.
    pub(crate) forwarder: Option<Forwarder>,
    /// Asks other nodes what editors of this one want.
    pub(crate) node_client: Option<Arc<NodeClient>>,
    pub(crate) common_states: Arc<Mutex<Extensions>>,
}

/// A request of a caller whom nobody knows.
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
    /// What all mounts of one face have in common: one for each server and type.
    pub fn common_state<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut states = lock(&self.common_states);
        Arc::clone(states.get_or_insert_with(Arc::<T>::default))
    }
}

// === impl UnknownCaller ===

impl UnknownCaller<'_> {
    /// The body, where it has at most this many bytes and comes in time.
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
