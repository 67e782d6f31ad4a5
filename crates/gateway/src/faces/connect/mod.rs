//! The Agent Connect Protocol: its handlers, one file a noun or method, each with its rows of the route table.
//!
//! Paths stand without the mount's prefix, which the router has cut off.

mod agents;
mod asked;
mod authentication;
mod cancel;
mod configurations;
mod create;
mod document;
mod errors;
mod fold;
mod given;
mod history;
mod join;
mod known;
mod look_up;
mod request;
mod resume;
mod run_list;
mod run_show;
mod runs;
mod thread_list;
mod thread_show;
mod threads;
mod wait;

pub(crate) mod deliver;
pub(crate) mod fault;
pub(crate) mod view;

pub(crate) use asked::asked_agent;
pub(crate) use known::KnownAgents;

use trilogue_domain::Right;

use crate::routes::{Access, Answer, Content, Parameter, Route, SchemaOf, Verb};

/// How many rows a list has where the client does not say.
const DEFAULT_LIMIT: usize = 10;

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
    handler: |call| Box::pin(async move { Ok(document::of_face(&call)) }),
};

/// Every route of this protocol.
pub(crate) fn routes() -> Vec<Route> {
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

const fn answer(status: u16, about: &'static str, schema: SchemaOf) -> Answer {
    Answer { status, about, content: Content::Json(schema) }
}

const fn no_content(about: &'static str) -> Answer {
    Answer { status: 204, about, content: Content::Nothing }
}
