//! The Agent Communication Protocol: its handlers, one file a noun or method, each with its rows of the route table.
//!
//! Paths stand without the mount's prefix, which the router has cut off.

mod agents;
mod answering;
mod cancel;
mod events;
mod fetch;
mod given;
mod in_order;
mod log;
mod request;
mod resources;
mod resume;
mod run_create;
mod run_list;
mod runs;
mod sessions;

pub(crate) mod fault;
pub(crate) mod view;

pub use fetch::HistoryFetch;
pub(crate) use in_order::InOrder;

use trilogue_domain::Right;

use crate::routes::{Access, Parameter, Route, Verb};

/// Clients of this protocol send parameters that a server need not know.
const ANYTHING: Parameter = Parameter { name: "*", about: "Others are ignored." };

const BASE: Route = Route {
    verb: Verb::Get,
    path: "",
    access: Access::Right(Right::Read),
    operation: "",
    summary: "",
    query: &[ANYTHING],
    headers: &[],
    request: None,
    answers: &[],
    errors: &[],
    handler: |call| Box::pin(async move { Ok(agents::ping(&call)) }),
};

/// Every route of this protocol.
pub(crate) fn routes() -> Vec<Route> {
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
