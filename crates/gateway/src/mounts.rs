//! The registry of faces: the protocols, their mounts, and the route of each request.

use std::fmt;
use std::sync::Arc;

use http::Method;
use percent_encoding::percent_decode_str;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, ThreadId};
use trilogue_mapping::native::escape_for_message;
use trilogue_runtime::Runtime;
use trilogue_store::rows::RunRow;

use crate::core::meters::OperationMeters;
use crate::core::options::Options;
use crate::face::{Face, LocalFace, MountPoint, Protocol, Services};
use crate::faces::client::ClientProtocol;
use crate::faces::client::event_form::EventForm;
use crate::faces::communication::CommunicationOptions;
use crate::faces::communication::view::CommunicationView;
use crate::faces::connect::ConnectOptions;
use crate::faces::connect::view::ConnectView;
use crate::faces::inspector::InspectorProtocol;
use crate::faces::native;
use crate::route::Endpoint;
use crate::stream::event_forms::{FormView, ProtocolPlaces, ProtocolView, ProtocolViews};

const MAX_PREFIX_BYTES: usize = 256;

/// Returns all protocols. Those with routes are mounted by default, under their names.
pub fn protocols() -> Vec<Arc<dyn Protocol>> {
    vec![
        Arc::new(CommunicationOptions::default()),
        Arc::new(ConnectOptions::default()),
        Arc::new(ClientProtocol::default()),
    ]
}

/// Returns these mounts, with the inspector's if it is enabled.
pub(crate) fn with_inspector(mounts: &[Mount], options: &Options) -> Result<Vec<Mount>> {
    let mut mounts = mounts.to_vec();
    if let Some(prefix) = &options.inspector {
        mounts.push(Mount::new(InspectorProtocol, prefix)?);
    }
    Ok(mounts)
}

/// The views of all protocols, with the addresses of the served ones.
#[derive(Debug)]
pub(crate) struct MountedViews {
    own: MountPoint,
    communication: MountPoint,
    connect: MountPoint,
    /// The names of the served protocols.
    served: Vec<&'static str>,
    runtime: Runtime,
    max_inline_bytes: usize,
}

/// A protocol and the prefix at which it is served.
#[derive(Clone, Debug)]
pub struct Mount {
    prefix: String,
    protocol: Arc<dyn Protocol>,
}

/// Finds routes: our own, and those of the protocols below their mounts.
#[derive(Debug)]
pub(crate) struct Router {
    own: MountedFace,
    /// The first segments of our own paths, which mounts cannot use.
    reserved: Vec<&'static str>,
    /// The longest prefix first.
    mounts: Vec<MountedFace>,
}

#[derive(Debug)]
pub(crate) struct MountedFace {
    prefix: String,
    pub(crate) face: Arc<dyn Face>,
    paths: matchit::Router<Vec<MeteredEndpoint>>,
}

#[derive(Debug)]
pub(crate) struct MeteredEndpoint {
    pub(crate) endpoint: Endpoint,
    pub(crate) meters: OperationMeters,
}

#[derive(Debug)]
pub(crate) struct Match<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) meters: &'a OperationMeters,
    pub(crate) params: Vec<(&'static str, String)>,
    pub(crate) face: &'a Arc<dyn Face>,
}

#[derive(Debug)]
pub(crate) struct Miss {
    pub(crate) error: Error,
    /// The methods of the path.
    pub(crate) allow: Option<String>,
}

/// Opens a protocol for programs on this machine, which connect over a local socket.
/// Errors: `invalid_request` if the protocol has no local connections.
pub(crate) fn open_local(
    protocol: &dyn Protocol,
    services: &Services,
    address: &str,
) -> Result<Arc<dyn LocalFace>> {
    let face = protocol.open(services, MountPoint::new("", address, &services.options));
    face.local().ok_or_else(|| {
        let name = protocol.name();
        Error::new(Code::InvalidRequest, format!("the protocol '{name}' has no local connections"))
    })
}

/// Checks whether a server can serve these mounts together.
///
/// # Errors
/// `already_exists` if two have one prefix, `invalid_request` if one would hide the server's own routes.
pub fn check_mounts(mounts: &[Mount]) -> Result<()> {
    for (place, mount) in mounts.iter().enumerate() {
        let earlier = mounts.iter().take(place);
        if let Some(other) = earlier.rev().find(|it| it.prefix == mount.prefix) {
            return Err(Error::new(
                Code::AlreadyExists,
                format!("the mounts {other} and {mount} have one prefix"),
            )
            .hint("give each mount a prefix of its own"));
        }
        let own = native::operations();
        if let Some(route) = own.iter().find(|route| lies_below(route.path, &mount.prefix))
            && !mount.prefix.is_empty()
        {
            let path = route.path;
            let message =
                format!("the mount {mount} lies where the server's own routes are: {path}");
            return Err(Error::new(Code::InvalidRequest, message)
                .hint("choose another prefix, such as /communication or /api/v1/acp"));
        }
    }
    Ok(())
}

/// Whether a route's path equals this prefix, or begins with it; a parameter matches any segment.
fn lies_below(path: &str, prefix: &str) -> bool {
    let mut segments = path.split('/');
    prefix.split('/').all(|wanted| {
        segments.next().is_some_and(|segment| segment == wanted || segment.starts_with('{'))
    })
}

// === impl Mount ===

impl Mount {
    /// Creates a mount of the protocol at this prefix. `/` and an empty prefix are the root.
    ///
    /// # Errors
    /// `invalid_request` if the prefix cannot begin a path.
    pub fn new(protocol: impl Protocol + 'static, prefix: &str) -> Result<Self> {
        Self::of(Arc::new(protocol), prefix)
    }

    fn of(protocol: Arc<dyn Protocol>, prefix: &str) -> Result<Self> {
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let is_prefix = prefix.is_empty()
            || prefix.strip_prefix('/').is_some_and(|it| it.split('/').all(is_segment));
        if !is_prefix || prefix.len() > MAX_PREFIX_BYTES {
            let prefix = prefix.escape_debug();
            return Err(Error::new(Code::InvalidRequest, format!("invalid mount prefix '{prefix}'"))
                .hint("write '/', or segments such as '/communication' or '/acp/v0': letters, digits, '-', '_', '.' and '~'"));
        }
        Ok(Self { prefix: prefix.to_owned(), protocol })
    }

    /// Returns a mount for each protocol with routes: under its name, with default options.
    pub fn defaults() -> Vec<Self> {
        let mount = |protocol: Arc<dyn Protocol>| {
            let prefix = format!("/{}", protocol.name());
            Self { prefix, protocol }
        };
        let has_routes = |protocol: &Arc<dyn Protocol>| !protocol.operations().is_empty();
        protocols().into_iter().filter(has_routes).map(mount).collect()
    }

    /// Returns the prefix of every path: empty for the root, otherwise such as `/communication`, without a slash at its end.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn protocol(&self) -> &dyn Protocol {
        self.protocol.as_ref()
    }
}

/// Writes the mount as on the command line.
impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.prefix.is_empty() { "/" } else { &self.prefix };
        write!(f, "{}={prefix}", self.protocol.name())
    }
}

fn is_segment(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    !text.is_empty() && text != "." && text != ".." && text.bytes().all(fits)
}

// === impl MountedViews ===

impl MountedViews {
    pub(crate) fn new(mounts: &[Mount], services: &Services, address: &str) -> Self {
        let place = |name: &str| {
            let mount = mounts.iter().find(|mount| mount.protocol.name() == name);
            let prefix = mount.map_or_else(|| format!("/{name}"), |mount| mount.prefix.clone());
            MountPoint::new(&prefix, address, &services.options)
        };
        Self {
            own: MountPoint::new("", address, &services.options),
            communication: place(CommunicationOptions::NAME),
            connect: place(ConnectOptions::NAME),
            served: mounts.iter().map(|mount| mount.protocol.name()).collect(),
            runtime: services.ports.runtime.clone(),
            max_inline_bytes: services.options.max_output_bytes,
        }
    }
}

impl ProtocolViews for MountedViews {
    fn of(&self, thread: &ThreadId, run: Option<&RunRow>) -> Vec<ProtocolView> {
        let client = ProtocolView {
            protocol: ClientProtocol::NAME,
            title: "Agent Client Protocol: notifications",
            view: FormView::Events(Arc::new(EventForm(thread.clone()))),
        };
        let Some(run) = run else { return vec![client] };
        let (most, runtime) = (self.max_inline_bytes, &self.runtime);
        let communication = ProtocolView {
            protocol: CommunicationOptions::NAME,
            title: "Agent Communication Protocol: events of the run's stream",
            view: FormView::Events(Arc::new(CommunicationView::at(
                &self.communication,
                false,
                most,
            ))),
        };
        let connect = Arc::new(ConnectView::at(&self.connect, runtime, run, most));
        let values = ProtocolView {
            protocol: ConnectOptions::NAME,
            title: "Agent Connect Protocol: `values` of the run's stream",
            view: FormView::Samples(Arc::clone(&connect) as _),
        };
        let custom = ProtocolView {
            protocol: ConnectOptions::NAME,
            title: "Agent Connect Protocol: `custom` events of the run's stream",
            view: FormView::Events(connect),
        };
        vec![client, communication, values, custom]
    }

    fn places(&self) -> ProtocolPlaces<'_> {
        let served = |name, place| self.served.contains(&name).then_some(place);
        ProtocolPlaces {
            own: &self.own,
            communication: served(CommunicationOptions::NAME, &self.communication),
            connect: served(ConnectOptions::NAME, &self.connect),
        }
    }
}

// === impl Router ===

impl Router {
    /// Creates the router. Errors: as [`check_mounts`]; if two routes have indistinguishable paths, which is a mistake in a table.
    pub(crate) fn new(
        own: Arc<dyn Face>,
        mounts: &[Mount],
        services: &Services,
        address: &str,
    ) -> Result<Self> {
        check_mounts(mounts)?;
        let first = |path: &'static str| path.split('/').nth(1).unwrap_or_default();
        let mut reserved: Vec<_> =
            native::operations().iter().map(|route| first(route.path)).collect();
        reserved.sort_unstable();
        reserved.dedup();
        let place = |mount: &Mount| {
            let point = MountPoint::new(&mount.prefix, address, &services.options);
            let face = mount.protocol.open(services, point);
            MountedFace::new(mount.protocol.name(), &mount.prefix, face)
        };
        let mounts: Result<Vec<_>> = mounts.iter().map(place).collect();
        let mut router =
            Self { own: MountedFace::new("native", "", own)?, reserved, mounts: mounts? };
        router.mounts.sort_by_key(|place| std::cmp::Reverse(place.prefix.len()));
        Ok(router)
    }

    fn is_reserved(&self, path: &str) -> bool {
        path.split('/').nth(1).is_some_and(|segment| self.reserved.contains(&segment))
    }

    /// Returns the face that is responsible for a path.
    pub(crate) fn face(&self, path: &str) -> &dyn Face {
        self.place(path).0.face.as_ref()
    }

    fn place<'p>(&self, path: &'p str) -> (&MountedFace, &'p str) {
        let mut below = self.mounts.iter().filter_map(|place| Some((place, place.rest(path)?)));
        // An unknown path below our own first segments gets our error, unless a mount uses that segment.
        let is_theirs = |it: &MountedFace| !self.is_reserved(path) || self.is_reserved(&it.prefix);
        match below.next() {
            Some((place, rest)) if is_theirs(place) => (place, rest),
            _ => (&self.own, path),
        }
    }

    pub(crate) fn find(&self, method: &Method, path: &str) -> Result<Match<'_>, Miss> {
        let (place, rest) = self.place(path);
        let face = &place.face;
        let rest = face.normalize_path(rest);
        let Ok(found) = place.paths.at(&rest) else {
            return Err(Miss { error: face.unknown_path(path), allow: None });
        };
        let Some(MeteredEndpoint { endpoint, meters }) =
            found.value.iter().find(|it| it.endpoint.verb.takes(method))
        else {
            let allow: Vec<_> = found.value.iter().map(|it| it.endpoint.verb.as_str()).collect();
            let allow = allow.join(", ");
            let method = escape_for_message(method.as_str());
            let error = Error::new(
                Code::MethodNotAllowed,
                format!("the route '{}' has no method {method}", escape_for_message(path)),
            )
            .hint(format!("it has: {allow}"));
            return Err(Miss { error, allow: Some(allow) });
        };
        let decode = |value: &str| percent_decode_str(value).decode_utf8_lossy().into_owned();
        let values = found.params.iter().map(|(_, value)| decode(value));
        let params = endpoint.parameters().zip(values).collect();
        Ok(Match { endpoint, meters, params, face })
    }
}

// === impl MountedFace ===

impl MountedFace {
    fn new(name: &'static str, prefix: &str, face: Arc<dyn Face>) -> Result<Self> {
        let mut by_path: Vec<(&'static str, Vec<MeteredEndpoint>)> = Vec::new();
        for endpoint in Arc::clone(&face).endpoints() {
            let path = endpoint.path;
            let meters = OperationMeters::new(name, endpoint.operation, &format!("{prefix}{path}"));
            let metered = MeteredEndpoint { endpoint, meters };
            match by_path.iter_mut().find(|(known, _)| *known == path) {
                Some((_, endpoints)) => endpoints.push(metered),
                None => by_path.push((path, vec![metered])),
            }
        }
        let mut paths = matchit::Router::new();
        for (path, endpoints) in by_path {
            paths.insert(path, endpoints).map_err(|error| {
                Error::new(Code::Internal, format!("the route {path} cannot be added: {error}"))
            })?;
        }
        Ok(Self { prefix: prefix.to_owned(), face, paths })
    }

    fn rest<'p>(&self, path: &'p str) -> Option<&'p str> {
        below(path, &self.prefix)
    }
}

/// Returns the part of the path after a prefix, if the path begins with it at a segment border.
fn below<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
    path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_root_or_whole_segments() {
        let of = |text: &str| {
            Mount::new(CommunicationOptions::default(), text).map(|mount| mount.prefix)
        };
        for (text, prefix) in [
            ("", ""),
            ("/", ""),
            ("/communication", "/communication"),
            ("/a/b-c/v0.1/", "/a/b-c/v0.1"),
        ] {
            assert_eq!(of(text).as_deref(), Ok(prefix), "{text}");
        }
        for bad in ["a", "//", "/a//b", "/a b", "/{x}", "/..", "/a/./b", "/a?b", "/%61", "/ä"] {
            assert_eq!(of(bad).map_err(|error| error.code()), Err(Code::InvalidRequest), "{bad}");
        }
    }

    #[test]
    fn a_path_lies_under_a_mount_at_the_border_of_a_segment() {
        for (path, rest) in [("/a/b", Some("")), ("/a/b/c", Some("/c")), ("/a/b/", Some("/"))] {
            assert_eq!(below(path, "/a/b"), rest, "{path}");
        }
        for path in ["/a/bc", "/a", "/", "/x/a/b"] {
            assert_eq!(below(path, "/a/b"), None, "{path}");
        }
        assert_eq!(below("/runs", ""), Some("/runs"));
    }
}
