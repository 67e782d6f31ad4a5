//! The Agent Client Protocol, on streams of lines and over the network.
//!
//! A session is a thread. A client receives a session only from the thread's log, through one pump per open session.
//! Responses to the client's own requests go into the same outbox.
//!
//! Module map. Each of the first five uses only those above it in this list:
//! - `wire`: lines, the outbox, the interface of transports, the local socket.
//! - `connection`: one client's requests in flight, its session queues, its open sessions, its pending replies.
//! - `asking`: requests to the client, for interrupts and for agents.
//! - `session`: the pump that renders a log as lines.
//! - `methods`: the methods of the protocol.
//! - `local`, `serve`: accept a program's connection; read its lines and dispatch each message.
//! - `network`: the routes of the face, and the transports behind them. Each serves a connection with `serve`.
//! - `state`, `ask_registry`, `open_sessions`: what all connections share and count together.
//! - `options`, `thread_metadata`, `event_form`, `wrap`: settings, metadata keys, events for other faces, `trilogue wrap`.
//!
//! # Invariants
//! - The requests of one session are processed in the order in which they arrived.
//! - The response to a prompt follows the last event of its run.
//! - Nothing a client sends ends its connection, and a client that reads nothing stops no session.

mod ask_registry;
mod asking;
mod connection;
pub(crate) mod event_form;
mod local;
mod methods;
mod network;
mod open_sessions;
mod options;
mod serve;
mod session;
mod state;
mod thread_metadata;
mod wire;
mod wrap;

use std::borrow::Cow;
use std::sync::Arc;

use trilogue_domain::{AgentName, Error};

pub use options::{ClientOptions, MessageIdFormat, UserMessageId, WhenBusy};
pub use wire::socket::{LocalReader, LocalWriter, split_local};
pub use wrap::{Wrap, WrapCommand};

use self::state::State;
use crate::face::{Face, LocalFace, MountPoint, Protocol, Services, protocol_name};
use crate::http::problem;
use crate::http::reply::Reply;
use crate::route::{self, Endpoint, Operation, bind};

/// The Agent Client Protocol.
#[derive(Clone, Debug, Default)]
pub struct ClientProtocol {
    options: ClientOptions,
    /// Registers the commands of `trilogue wrap`.
    wrap: Option<Arc<dyn Wrap>>,
    /// The agent whose endpoint is the mount's own path too.
    agent: Option<AgentName>,
}

// === impl ClientProtocol ===

impl ClientProtocol {
    pub const NAME: &'static str = protocol_name::CLIENT;

    /// The protocol for programs on this machine.
    pub fn new(options: ClientOptions, wrap: Arc<dyn Wrap>) -> Self {
        Self { options, wrap: Some(wrap), agent: None }
    }

    /// The protocol for clients over the network. They reach this agent at the mount's own path too, if there is one.
    pub fn for_network(options: ClientOptions, agent: Option<AgentName>) -> Self {
        Self { options, wrap: None, agent }
    }
}

impl Protocol for ClientProtocol {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn operations(&self) -> Vec<Operation> {
        route::operations(network::ROUTES)
    }

    fn open(&self, services: &Services, _: MountPoint) -> Arc<dyn Face> {
        Arc::new(State::new(services, self))
    }
}

// === impl State ===

impl Face for State {
    fn endpoints(self: Arc<Self>) -> Vec<Endpoint> {
        bind(network::ROUTES, &self)
    }

    fn normalize_path<'a>(&self, path: &'a str) -> Cow<'a, str> {
        match &self.agent {
            Some(agent) if path.is_empty() || path == "/" => Cow::Owned(format!("/{agent}")),
            _ => Cow::Borrowed(path),
        }
    }

    fn respond(&self, error: &Error, request_id: Option<&str>) -> Reply {
        problem::respond(error, request_id)
    }

    fn local(self: Arc<Self>) -> Option<Arc<dyn LocalFace>> {
        Some(self)
    }
}
