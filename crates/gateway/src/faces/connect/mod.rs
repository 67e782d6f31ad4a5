//! The Agent Connect Protocol: its handlers, one file for each noun or method, with the rows of its routes.
//!
//! Paths do not include the mount's prefix, which the router has removed.

mod agent_index;
mod agents;
mod authentication;
mod cancel;
mod configurations;
mod create;
mod deliver;
mod disconnect;
mod document;
mod errors;
mod fault;
mod fold;
mod history;
mod join;
mod look_up;
mod parsed_request;
mod request;
mod requested_agent;
mod resume;
mod run_list;
mod run_show;
mod runs;
mod state_pieces;
mod stream;
mod thread_list;
mod thread_show;
mod threads;
pub(crate) mod view;
mod wait;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::header;
use trilogue_domain::port::Clock;
use trilogue_domain::{AgentName, Error};
use trilogue_runtime::Runtime;
use trilogue_store::{Configurations, Read};

pub use deliver::CallbackDelivery;

use self::agent_index::AgentIndex;
use crate::core::lifecycle::Lifecycle;
use crate::face::{Challenge, Face, MountPoint, Protocol, Services, UnknownCaller, protocol_name};
use crate::faces::common::shared_documents::SharedDocuments;
use crate::faces::common::turns::Turns;
use crate::http::reply::Reply;
use crate::route::{self, Endpoint, Operation, Parameter, bind};
use crate::stream::Streams;

type ConnectCall = route::Call<State>;
type ConnectRoute = route::Route<State>;

/// The options of a mount of the Agent Connect Protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectOptions {
    /// Whether the mount follows the protocol's document even if an official client cannot: a stream begins with its run, and a thread's state is hidden if no agent of its runs declares one.
    pub as_documented: bool,
    /// The form of an error's body.
    pub error_body: ErrorBody,
    /// Whether an answer to a permission must name its interrupt.
    pub require_interrupt_id: bool,
}

/// The form of an error's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ErrorBody {
    /// An object: code, number, description, whether a retry can help, details.
    #[default]
    Object,
    /// The description alone, as a JSON string, as in version 0.2.3 of the OpenAPI document.
    String,
}

#[derive(Debug)]
pub(crate) struct State {
    options: ConnectOptions,
    place: MountPoint,
    runtime: Runtime,
    read: Arc<dyn Read>,
    configurations: Arc<dyn Configurations>,
    clock: Arc<dyn Clock>,
    /// Checks callback addresses.
    egress: trilogue_egress::Client,
    lifecycle: Arc<Lifecycle>,
    streams: Arc<Streams>,
    common: Arc<CommonState>,
    max_output_bytes: usize,
    /// The longest wait for a run.
    max_wait: Duration,
}

#[derive(Debug, Default)]
struct CommonState {
    agents: AgentIndex,
    /// Serialises changes of a configured instance.
    config_turns: Turns,
    documents: SharedDocuments,
}

const DEFAULT_LIMIT: usize = 10;

/// Clients of this protocol send parameters that the server does not know.
const ANYTHING: Parameter = Parameter { name: "*", about: "Others are ignored." };

const BASE: ConnectRoute =
    ConnectRoute::base(|call| Box::pin(async move { Ok(document::of_face(&call)) }))
        .query(&[ANYTHING]);

fn routes() -> Vec<ConnectRoute> {
    [
        agents::ROUTES,
        authentication::ROUTES,
        errors::ROUTES,
        document::ROUTES,
        configurations::ROUTES,
        create::ROUTES,
        run_list::ROUTES,
        runs::ROUTES,
        wait::ROUTES,
        join::ROUTES,
        resume::ROUTES,
        cancel::ROUTES,
        threads::ROUTES,
        thread_list::ROUTES,
        history::ROUTES,
    ]
    .concat()
}

// === impl ConnectOptions ===

impl ConnectOptions {
    pub const NAME: &'static str = protocol_name::CONNECT;
}

impl Protocol for ConnectOptions {
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
            configurations: Arc::clone(&ports.configurations),
            clock: Arc::clone(&ports.clock),
            egress: ports.egress.clone(),
            lifecycle: Arc::clone(&services.lifecycle),
            streams: Arc::clone(&services.streams),
            common: services.common_state(),
            max_output_bytes: options.max_output_bytes,
            max_wait: options.max_wait,
        })
    }
}

// === impl State ===

#[async_trait]
impl Face for State {
    fn endpoints(self: Arc<Self>) -> Vec<Endpoint> {
        bind(&routes(), &self)
    }

    fn respond(&self, error: &Error, request_id: Option<&str>) -> Reply {
        fault::respond(self, error, request_id)
    }

    fn challenge(&self, refusal: Reply, challenge: &Challenge) -> Reply {
        let (prefix, agent) = (&self.place.prefix, &challenge.agent);
        let link = format!("<{prefix}/agents/{agent}/authentication>; rel=\"authentication\"");
        refusal.header_text(header::LINK, &link)
    }

    /// Removes doubled slashes and a trailing slash: clients join a base address and a path unchanged.
    fn normalize_path<'a>(&self, path: &'a str) -> Cow<'a, str> {
        let is_tidy = !path.contains("//") && (path == "/" || !path.ends_with('/'));
        if is_tidy {
            return Cow::Borrowed(path);
        }
        let segments = path.split('/').filter(|segment| !segment.is_empty());
        Cow::Owned(segments.flat_map(|segment| ["/", segment]).collect())
    }

    async fn requested_agent(&self, caller: UnknownCaller<'_>) -> Option<AgentName> {
        requested_agent::requested_agent(self, caller).await
    }
}
