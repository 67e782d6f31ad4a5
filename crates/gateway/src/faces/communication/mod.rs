//! The Agent Communication Protocol: its handlers, one file for each noun or method, with the rows of its routes.
//!
//! Paths do not include the mount's prefix, which the router has removed.

mod agents;
mod answer_target;
mod cancel;
mod events;
mod fault;
mod fetch;
mod history_replacement;
mod log;
mod named_session;
mod request;
mod resources;
mod resume;
mod run_create;
mod run_list;
mod runs;
mod sessions;
pub(crate) mod view;

use std::sync::Arc;

use trilogue_domain::Error;
use trilogue_domain::port::Clock;
use trilogue_runtime::Runtime;
use trilogue_store::Read;

pub use fetch::HistoryFetch;

use crate::face::{Face, MountPoint, Protocol, Services, protocol_name};
use crate::faces::common::turns::Turns;
use crate::http::reply::Reply;
use crate::route::{self, Endpoint, Operation, Parameter, bind};
use crate::stream::Streams;

type CommunicationCall = route::Call<State>;
type CommunicationRoute = route::Route<State>;

/// The options of a mount of the Agent Communication Protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CommunicationOptions {
    /// Whether the protocol's documents are enforced literally, for input and for the output of agents.
    pub strict: bool,
    /// Whether an answer to a permission must name its interrupt.
    pub require_interrupt_id: bool,
}

#[derive(Debug)]
pub(crate) struct State {
    options: CommunicationOptions,
    place: MountPoint,
    runtime: Runtime,
    read: Arc<dyn Read>,
    clock: Arc<dyn Clock>,
    streams: Arc<Streams>,
    common: Arc<CommonState>,
    max_output_bytes: usize,
    max_part_metadata_bytes: usize,
}

#[derive(Debug, Default)]
struct CommonState {
    /// Serialises requests that replace a session's history.
    session_turns: Turns,
}

/// Clients of this protocol send parameters that the server does not know.
const ANYTHING: Parameter = Parameter { name: "*", about: "Others are ignored." };

const BASE: CommunicationRoute =
    CommunicationRoute::base(|_| Box::pin(async { Ok(agents::ping()) })).query(&[ANYTHING]);

fn routes() -> Vec<CommunicationRoute> {
    [
        agents::ROUTES,
        run_list::ROUTES,
        run_create::ROUTES,
        runs::ROUTES,
        resume::ROUTES,
        cancel::ROUTES,
        events::ROUTES,
        sessions::ROUTES,
        resources::ROUTES,
    ]
    .concat()
}

// === impl CommunicationOptions ===

impl CommunicationOptions {
    pub const NAME: &'static str = protocol_name::COMMUNICATION;
}

impl Protocol for CommunicationOptions {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn operations(&self) -> Vec<Operation> {
        route::operations(&routes())
    }

    fn open(&self, services: &Services, place: MountPoint) -> Arc<dyn Face> {
        let Services { ports, options, .. } = services;
        Arc::new(State {
            options: *self,
            place,
            runtime: ports.runtime.clone(),
            read: Arc::clone(&ports.read),
            clock: Arc::clone(&ports.clock),
            streams: Arc::clone(&services.streams),
            common: services.common_state(),
            max_output_bytes: options.max_output_bytes,
            max_part_metadata_bytes: options.max_part_metadata_bytes,
        })
    }
}

// === impl State ===

impl Face for State {
    fn endpoints(self: Arc<Self>) -> Vec<Endpoint> {
        bind(&routes(), &self)
    }

    fn respond(&self, error: &Error, request_id: Option<&str>) -> Reply {
        fault::respond(error, request_id)
    }
}
