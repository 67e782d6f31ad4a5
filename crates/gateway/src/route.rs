//! Routes as data: request handling, the OpenAPI documents and the isolation tests use the same tables.

use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Right};

use crate::http::reply::Reply;
use crate::http::request::Request;

/// A response in preparation.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Result<Reply>> + Send>>;
pub type Handler<S> = fn(Call<S>) -> HandlerFuture;
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One method on one path of a face with this state.
pub struct Route<S> {
    pub verb: Verb,
    /// The path after the mount's prefix, with parameters in braces.
    pub path: &'static str,
    pub access: Access,
    /// Whether the route decides in a user's name, so that programs of hosted agents are refused. See [`Endpoint::is_for_people`].
    pub for_people: bool,
    /// Whether a page needs a new sign-in for every such request.
    pub new_sign_in: bool,
    /// Whether the route searches rows of many threads or runs, of which one principal does few at a time.
    pub is_search: bool,
    /// The operation's name in the document, in metrics and in the log.
    pub operation: &'static str,
    pub summary: &'static str,
    pub query: &'static [Parameter],
    pub headers: &'static [Parameter],
    pub request: Option<SchemaOf>,
    pub answers: &'static [RouteResponse],
    /// The errors in addition to those of every route.
    pub errors: &'static [Code],
    pub handler: Handler<S>,
}

/// A request, with the state of the face that handles it.
pub struct Call<S> {
    pub state: Arc<S>,
    pub request: Request,
}

pub struct Endpoint {
    pub(crate) verb: Verb,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    for_people: bool,
    pub(crate) new_sign_in: bool,
    pub(crate) is_search: bool,
    pub(crate) operation: &'static str,
    pub(crate) query: &'static [Parameter],
    pub(crate) handler: Box<dyn Fn(Request) -> HandlerFuture + Send + Sync>,
}

/// An operation that a protocol's clients can call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    pub method: &'static str,
    /// The path after the mount's prefix, with parameters in braces.
    pub path: &'static str,
    /// The operation's name in metrics and in the log.
    pub name: &'static str,
}

/// The methods of routes. Unlike [`Method`], it can be part of a constant table and be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    Get,
    Post,
    Patch,
    Delete,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// All callers that pass the host and origin checks. Tokens and bodies are not read.
    Open,
    /// Like `Open`, but the handler learns which token the request carries.
    Public,
    /// Callers with this right.
    Right(Right),
    /// Callers with this right, and anonymous callers if any agent accepts them: the handler calls [`Request::reach`] before it touches an agent, and lists nothing.
    Agent(Right),
}

/// A parameter of the query, or a header. A name that ends in `*` matches every name with that beginning; `*` alone matches every name.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub about: &'static str,
}

/// One of a route's responses.
#[derive(Clone, Copy, Debug)]
pub struct RouteResponse {
    pub status: u16,
    pub about: &'static str,
    pub content: ResponseContent,
}

#[derive(Clone, Copy, Debug)]
pub enum ResponseContent {
    Nothing,
    Json(SchemaOf),
    /// Any other type, by its MIME type.
    Other(&'static str),
}

pub fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

pub(crate) const fn json_response(
    status: u16,
    about: &'static str,
    schema: SchemaOf,
) -> RouteResponse {
    RouteResponse { status, about, content: ResponseContent::Json(schema) }
}

pub(crate) const fn no_content(about: &'static str) -> RouteResponse {
    RouteResponse { status: 204, about, content: ResponseContent::Nothing }
}

/// Binds these routes to the state of their face.
pub fn bind<S: Send + Sync + 'static>(routes: &[Route<S>], state: &Arc<S>) -> Vec<Endpoint> {
    routes.iter().map(|route| route.bind(state)).collect()
}

pub fn operations<S>(routes: &[Route<S>]) -> Vec<Operation> {
    let operation = |route: &Route<S>| Operation {
        method: route.verb.as_str(),
        path: route.path,
        name: route.operation,
    };
    routes.iter().map(operation).collect()
}

// === impl Route ===

impl<S> Route<S> {
    /// Returns a `GET` route with the read right and nothing more: tables change what differs.
    pub const fn base(handler: Handler<S>) -> Self {
        Self {
            verb: Verb::Get,
            path: "",
            access: Access::Right(Right::Read),
            for_people: false,
            new_sign_in: false,
            is_search: false,
            operation: "",
            summary: "",
            query: &[],
            headers: &[],
            request: None,
            answers: &[],
            errors: &[],
            handler,
        }
    }

    pub const fn get(self, path: &'static str, handler: Handler<S>) -> Self {
        self.verb(Verb::Get).at(path, handler)
    }

    pub const fn post(self, path: &'static str, handler: Handler<S>) -> Self {
        self.verb(Verb::Post).at(path, handler)
    }

    pub const fn patch(self, path: &'static str, handler: Handler<S>) -> Self {
        self.verb(Verb::Patch).at(path, handler)
    }

    pub const fn delete(self, path: &'static str, handler: Handler<S>) -> Self {
        self.verb(Verb::Delete).at(path, handler)
    }

    /// Returns a route at another path with the same method.
    pub const fn at(self, path: &'static str, handler: Handler<S>) -> Self {
        Self { path, handler, ..self }
    }

    /// Returns the same route at another path.
    pub const fn path(self, path: &'static str) -> Self {
        Self { path, ..self }
    }

    pub const fn verb(self, verb: Verb) -> Self {
        Self { verb, ..self }
    }

    pub const fn handler(self, handler: Handler<S>) -> Self {
        Self { handler, ..self }
    }

    pub const fn access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// Refuses programs of hosted agents.
    pub const fn for_people(self) -> Self {
        Self { for_people: true, ..self }
    }

    /// Refuses pages whose sign-in is not new.
    pub const fn new_sign_in(self) -> Self {
        Self { new_sign_in: true, ..self }
    }

    /// Limits how many such requests of one principal work at a time.
    pub const fn search(self) -> Self {
        Self { is_search: true, ..self }
    }

    /// Sets the operation and its summary in the document.
    pub const fn describe(self, operation: &'static str, summary: &'static str) -> Self {
        Self { operation, summary, ..self }
    }

    pub const fn operation(self, operation: &'static str) -> Self {
        Self { operation, ..self }
    }

    pub const fn query(self, query: &'static [Parameter]) -> Self {
        Self { query, ..self }
    }

    pub const fn headers(self, headers: &'static [Parameter]) -> Self {
        Self { headers, ..self }
    }

    pub const fn request(self, body: SchemaOf) -> Self {
        Self { request: Some(body), ..self }
    }

    pub const fn answers(self, answers: &'static [RouteResponse]) -> Self {
        Self { answers, ..self }
    }

    pub const fn errors(self, errors: &'static [Code]) -> Self {
        Self { errors, ..self }
    }

    /// Returns the path's parameters in order.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &'static str> + use<S> {
        parameters(self.path)
    }
}

impl<S: Send + Sync + 'static> Route<S> {
    fn bind(&self, state: &Arc<S>) -> Endpoint {
        let (state, handler) = (Arc::clone(state), self.handler);
        Endpoint {
            verb: self.verb,
            path: self.path,
            access: self.access,
            for_people: self.for_people,
            new_sign_in: self.new_sign_in,
            is_search: self.is_search,
            operation: self.operation,
            query: self.query,
            handler: Box::new(move |request| handler(Call { state: Arc::clone(&state), request })),
        }
    }
}

impl<S> Clone for Route<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Route<S> {}

impl<S> fmt::Debug for Route<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} ({})", self.verb, self.path, self.operation)
    }
}

// === impl Call ===

impl<S> Deref for Call<S> {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.request
    }
}

impl<S> fmt::Debug for Call<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.fmt(f)
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// Whether programs of hosted agents are refused with any token: if the route answers interrupts, changes what needs the right `admin` or `server`, or is marked so.
    pub(crate) fn is_for_people(&self) -> bool {
        match self.access {
            Access::Open | Access::Public => self.for_people,
            Access::Right(right) | Access::Agent(right) => {
                self.for_people
                    || right == Right::Answer
                    || (matches!(right, Right::Admin | Right::Server) && self.verb != Verb::Get)
            }
        }
    }

    pub(crate) fn parameters(&self) -> impl Iterator<Item = &'static str> {
        parameters(self.path)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} ({})", self.verb, self.path, self.operation)
    }
}

fn parameters(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
}

// === impl Verb ===

impl Verb {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    pub(crate) fn takes(self, method: &Method) -> bool {
        method.as_str() == self.as_str() || (self == Self::Get && method == Method::HEAD)
    }
}
