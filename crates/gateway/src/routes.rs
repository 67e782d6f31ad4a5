//! Routes as data: the router, the OpenAPI document and the isolation tests are built from one table.

use std::fmt;
use std::pin::Pin;

use http::Method;
use percent_encoding::percent_decode_str;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Right};

use crate::http::call::{Call, shown};
use crate::http::reply::Reply;

/// Answers a request.
pub(crate) type Handler = fn(Call) -> Pin<Box<dyn Future<Output = Result<Reply>> + Send>>;
/// Makes the JSON Schema of a type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One method on one path.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) verb: Verb,
    /// The path, with parameters in braces.
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    /// Names the operation in the document, in metrics and in the log.
    pub(crate) operation: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) query: &'static [Parameter],
    pub(crate) headers: &'static [Parameter],
    pub(crate) request: Option<SchemaOf>,
    pub(crate) answers: &'static [Answer],
    /// What can go wrong beside what can go wrong everywhere.
    pub(crate) errors: &'static [Code],
    pub(crate) handler: Handler,
}

/// The methods that routes have; unlike [`Method`] it can stand in a constant table and be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Get,
    Post,
    Patch,
    Delete,
}

/// Who may call a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Everybody who passes the host and origin checks.
    Public,
    /// Who has this right.
    Right(Right),
}

/// A parameter of the query, or a header. A name that ends in `*` stands for every name with that beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
}

/// One way in which a route answers.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) about: &'static str,
    pub(crate) content: Content,
}

/// What an answer carries.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    Nothing,
    Json(SchemaOf),
    /// Anything else, by its MIME type.
    Other(&'static str),
}

/// Finds routes.
pub(crate) struct Router {
    paths: matchit::Router<Vec<usize>>,
    routes: Vec<Route>,
}

/// A route that was found, with the parameters of its path.
#[derive(Debug)]
pub(crate) struct Match<'a> {
    pub(crate) route: &'a Route,
    pub(crate) params: Vec<(&'static str, String)>,
}

/// Why no route was found.
#[derive(Debug)]
pub(crate) struct Miss {
    pub(crate) error: Error,
    /// The methods that the path has.
    pub(crate) allow: Option<String>,
}

/// The schema of a type, for the table.
pub(crate) fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

// === impl Route ===

impl Route {
    /// The path's parameters, in order.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} ({})", self.verb, self.path, self.operation)
    }
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

    fn takes(self, method: &Method) -> bool {
        method.as_str() == self.as_str() || (self == Self::Get && method == Method::HEAD)
    }
}

// === impl Router ===

impl Router {
    /// # Errors
    /// When two routes have paths that cannot be told apart: a mistake in the table.
    pub(crate) fn new(routes: Vec<Route>) -> Result<Self> {
        let mut paths: Vec<(&'static str, Vec<usize>)> = Vec::new();
        for (number, route) in routes.iter().enumerate() {
            match paths.iter_mut().find(|(path, _)| *path == route.path) {
                Some((_, numbers)) => numbers.push(number),
                None => paths.push((route.path, vec![number])),
            }
        }
        let mut router = matchit::Router::new();
        for (path, numbers) in paths {
            router.insert(path, numbers).map_err(|error| {
                Error::new(Code::Internal, format!("the route {path} cannot be added: {error}"))
            })?;
        }
        Ok(Self { paths: router, routes })
    }

    pub(crate) fn routes(&self) -> &[Route] {
        &self.routes
    }

    pub(crate) fn find(&self, method: &Method, path: &str) -> Result<(usize, Match<'_>), Miss> {
        let Ok(found) = self.paths.at(path) else {
            let error = Error::new(Code::NotFound, format!("there is no route '{}'", shown(path)))
                .hint("the routes are listed at /api/v1/openapi.json");
            return Err(Miss { error, allow: None });
        };
        let candidates =
            || found.value.iter().filter_map(|number| Some((*number, self.routes.get(*number)?)));
        let Some((number, route)) = candidates().find(|(_, route)| route.verb.takes(method)) else {
            let allow: Vec<_> = candidates().map(|(_, route)| route.verb.as_str()).collect();
            let allow = allow.join(", ");
            let method = shown(method.as_str());
            let error = Error::new(
                Code::MethodNotAllowed,
                format!("the route '{}' has no method {method}", shown(path)),
            )
            .hint(format!("it has: {allow}"));
            return Err(Miss { error, allow: Some(allow) });
        };
        let decode = |value: &str| percent_decode_str(value).decode_utf8_lossy().into_owned();
        let params = route.parameters().zip(found.params.iter().map(|(_, value)| decode(value)));
        Ok((number, Match { route, params: params.collect() }))
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.routes).finish()
    }
}
