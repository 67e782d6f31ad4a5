//! Routes as data: the router, the OpenAPI document and the isolation tests are built from one table.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use http::Method;
use percent_encoding::percent_decode_str;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Right};

use crate::http::call::{Call, shown};
use crate::http::reply::Reply;
use crate::mount::{Mount, Protocol};

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
    /// Who has this right, and whoever shows no token while some agent takes such callers: the handler asks [`Call::reach`] before it touches an agent, and lists nothing.
    Agent(Right),
}

/// A parameter of the query, or a header. A name that ends in `*` stands for every name with that beginning; `*` alone for every name.
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

/// Finds routes: our own, and those of the protocols below their mounts.
pub(crate) struct Router {
    own: Table,
    /// First segments of our own paths, which no mount takes.
    reserved: Vec<&'static str>,
    /// The longest prefix first.
    mounts: Vec<(Arc<Mount>, Arc<Table>)>,
    /// Ours first. A protocol's stand here once, however often it is mounted.
    routes: Vec<Route>,
    own_routes: usize,
}

/// The paths of one face, with the numbers of the routes on each.
#[derive(Default)]
struct Table(matchit::Router<Vec<usize>>);

/// A route that was found, with the parameters of its path.
#[derive(Debug)]
pub(crate) struct Match<'a> {
    pub(crate) route: &'a Route,
    pub(crate) params: Vec<(&'static str, String)>,
    /// Where the route is mounted; `None` for our own.
    pub(crate) mount: Option<Arc<Mount>>,
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
    /// `already_exists` when two mounts have one prefix, `invalid_request` when one would hide our own routes; when two routes have paths that cannot be told apart: a mistake in the table.
    pub(crate) fn new(own: Vec<Route>, mounts: &[Mount]) -> Result<Self> {
        let first = |path: &'static str| path.split('/').nth(1).unwrap_or_default();
        let mut router = Self {
            own: Table::new(&own, 0)?,
            reserved: own.iter().map(|route| first(route.path)).collect(),
            mounts: Vec::new(),
            own_routes: own.len(),
            routes: own,
        };
        router.reserved.sort_unstable();
        router.reserved.dedup();
        let mut tables: Vec<(Protocol, Arc<Table>)> = Vec::new();
        for mount in mounts {
            router.check(mount)?;
            let known = tables.iter().find(|(protocol, _)| *protocol == mount.protocol);
            let table = match known {
                Some((_, table)) => Arc::clone(table),
                None => {
                    let routes = mount.protocol.routes();
                    let table = Arc::new(Table::new(&routes, router.routes.len())?);
                    router.routes.extend(routes);
                    tables.push((mount.protocol, Arc::clone(&table)));
                    table
                }
            };
            router.mounts.push((Arc::new(mount.clone()), table));
        }
        router.mounts.sort_by_key(|(mount, _)| std::cmp::Reverse(mount.prefix.len()));
        Ok(router)
    }

    fn check(&self, mount: &Mount) -> Result<()> {
        if let Some((other, _)) = self.mounts.iter().find(|(it, _)| it.prefix == mount.prefix) {
            return Err(Error::new(
                Code::AlreadyExists,
                format!("the mounts {other} and {mount} have one prefix"),
            )
            .hint("give each mount a prefix of its own"));
        }
        match self.own_routes().iter().find(|route| lies_below(route.path, &mount.prefix)) {
            Some(route) if !mount.prefix.is_empty() => Err(Error::new(
                Code::InvalidRequest,
                format!("the mount {mount} lies where the server's own routes are: {}", route.path),
            )
            .hint("choose another prefix, such as /communication or /api/v1/acp")),
            _ => Ok(()),
        }
    }

    fn is_reserved(&self, path: &str) -> bool {
        path.split('/').nth(1).is_some_and(|segment| self.reserved.contains(&segment))
    }

    /// Every route, in the order of the numbers that [`Router::find`] gives.
    pub(crate) fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The routes of our own face.
    pub(crate) fn own_routes(&self) -> &[Route] {
        self.routes.get(..self.own_routes).unwrap_or_default()
    }

    /// The mount that a path lies under; `None` for our own paths, and for those that nobody has.
    pub(crate) fn mount(&self, path: &str) -> Option<&Arc<Mount>> {
        self.place(path).1
    }

    fn place<'a, 'p>(&'a self, path: &'p str) -> (&'a Table, Option<&'a Arc<Mount>>, &'p str) {
        let mut below =
            self.mounts.iter().filter_map(|(mount, it)| Some((mount, it, mount.rest(path)?)));
        // What nobody has below our own first segments is ours to refuse, unless a mount was put there.
        let is_theirs = |mount: &Mount| !self.is_reserved(path) || self.is_reserved(&mount.prefix);
        match below.next() {
            Some((mount, table, rest)) if is_theirs(mount) => (table, Some(mount), rest),
            _ => (&self.own, None, path),
        }
    }

    pub(crate) fn find(&self, method: &Method, path: &str) -> Result<(usize, Match<'_>), Miss> {
        let (table, mount, rest) = self.place(path);
        let rest = match mount {
            Some(mount) if mount.protocol.tidies_paths() => tidied(rest),
            _ => Cow::Borrowed(rest),
        };
        let Ok(found) = table.0.at(&rest) else {
            let error = Error::new(Code::NotFound, format!("there is no route '{}'", shown(path)));
            let error = match mount {
                None => error.hint("the routes are listed at /api/v1/openapi.json"),
                Some(_) => error,
            };
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
        Ok((number, Match { route, params: params.collect(), mount: mount.cloned() }))
    }
}

/// The path without doubled slashes and without one at its end.
fn tidied(path: &str) -> Cow<'_, str> {
    let is_tidy = !path.contains("//") && (path == "/" || !path.ends_with('/'));
    if is_tidy {
        return Cow::Borrowed(path);
    }
    let mut tidy = String::with_capacity(path.len());
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        tidy.push('/');
        tidy.push_str(segment);
    }
    Cow::Owned(tidy)
}

/// Whether a route's path is this prefix, or begins with it; a parameter begins with anything.
fn lies_below(path: &str, prefix: &str) -> bool {
    let mut segments = path.split('/');
    prefix.split('/').all(|wanted| {
        segments.next().is_some_and(|segment| segment == wanted || segment.starts_with('{'))
    })
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.routes).finish()
    }
}

// === impl Table ===

impl Table {
    /// The paths of these routes, which are numbered from `first` on.
    fn new(routes: &[Route], first: usize) -> Result<Self> {
        let mut paths: Vec<(&'static str, Vec<usize>)> = Vec::new();
        for (number, route) in (first..).zip(routes) {
            match paths.iter_mut().find(|(path, _)| *path == route.path) {
                Some((_, numbers)) => numbers.push(number),
                None => paths.push((route.path, vec![number])),
            }
        }
        let mut table = matchit::Router::new();
        for (path, numbers) in paths {
            table.insert(path, numbers).map_err(|error| {
                Error::new(Code::Internal, format!("the route {path} cannot be added: {error}"))
            })?;
        }
        Ok(Self(table))
    }
}
