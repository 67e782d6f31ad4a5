//! Serves the files of the inspector's page. The page reads all its data from `/api/v1`.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use trilogue_domain::Error;
use trilogue_domain::error::Result;
use trilogue_inspector::page;

use crate::core::not_found::no_route;
use crate::face::{Face, MountPoint, Protocol, Services};
use crate::http::body::ReplyBody;
use crate::http::problem;
use crate::http::reply::Reply;
use crate::route::{
    self, Access, Endpoint, Operation, Parameter, ResponseContent, RouteResponse, bind,
};

/// What the page is allowed to do: run its own files, and talk to its own server.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; \
     media-src 'self' blob:; connect-src 'self'; frame-src 'self'; manifest-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types inspector",
);
const FRAME_OPTIONS: HeaderName = HeaderName::from_static("x-frame-options");
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");
/// A file's name changes with its content, so it can be cached for ever.
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// The path of the page's files, before the edition.
const ASSETS: &str = "/assets";

type InspectorCall = route::Call<State>;
type InspectorRoute = route::Route<State>;

const BASE: InspectorRoute =
    InspectorRoute::base(|call| Box::pin(async move { Ok(document(&call)) }))
        .access(Access::Open)
        .path("/");
/// The page's address can contain parameters from others.
const ANYTHING: Parameter = Parameter { name: "*", about: "Not looked at." };

const ROUTES: &[InspectorRoute] = &[
    BASE.describe("get_inspector", "The inspector's page")
        .query(&[ANYTHING])
        .answers(&[file("text/html")]),
    BASE.at("/assets/{edition}/{*file}", |call| Box::pin(async move { asset(&call) }))
        .describe("get_inspector_file", "A file of the inspector's page")
        .answers(&[file("*/*")]),
];

const fn file(kind: &'static str) -> RouteResponse {
    RouteResponse { status: 200, about: "The file.", content: ResponseContent::Other(kind) }
}

#[derive(Debug)]
pub(crate) struct InspectorProtocol;

#[derive(Debug)]
struct State {
    document: Bytes,
}

// === impl InspectorProtocol ===

impl Protocol for InspectorProtocol {
    fn name(&self) -> &'static str {
        "inspector"
    }

    fn operations(&self) -> Vec<Operation> {
        route::operations(ROUTES)
    }

    fn open(&self, _: &Services, place: MountPoint) -> Arc<dyn Face> {
        let assets = format!("{}{ASSETS}/{}", place.prefix, page::edition());
        Arc::new(State { document: page::document(&assets).into() })
    }
}

// === impl State ===

impl Face for State {
    fn endpoints(self: Arc<Self>) -> Vec<Endpoint> {
        bind(ROUTES, &self)
    }

    fn respond(&self, error: &Error, request_id: Option<&str>) -> Reply {
        problem::respond(error, request_id)
    }

    fn unknown_path(&self, path: &str) -> Error {
        no_route(path)
    }

    fn normalize_path<'a>(&self, path: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(if path.is_empty() { "/" } else { path })
    }
}

fn document(call: &InspectorCall) -> Reply {
    Reply::new(StatusCode::OK, ReplyBody::whole(call.state.document.clone()))
        .header(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"))
        .header(header::CONTENT_SECURITY_POLICY, POLICY)
        .header(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"))
        .header(FRAME_OPTIONS, HeaderValue::from_static("DENY"))
        .header(OPENER_POLICY, SAME_ORIGIN)
        .header(RESOURCE_POLICY, SAME_ORIGIN)
}

fn asset(call: &InspectorCall) -> Result<Reply> {
    let name = call.param("*file");
    let missing = || no_route(&format!("{ASSETS}/{}/{name}", call.param("edition")));
    let file = page::find(name).filter(|_| call.param("edition") == page::edition());
    let file = file.ok_or_else(missing)?;
    let kind = file.content_type().ok_or_else(missing)?;
    let takes_gzip = call.header(&header::ACCEPT_ENCODING).is_some_and(takes_gzip);
    let bytes = Bytes::from_static(if takes_gzip { file.gzip } else { file.plain });
    let reply = Reply::new(StatusCode::OK, ReplyBody::whole(bytes))
        .header(header::CONTENT_TYPE, HeaderValue::from_static(kind))
        .header(header::CACHE_CONTROL, FOR_EVER)
        .header(header::VARY, HeaderValue::from_static("accept-encoding"))
        .header(RESOURCE_POLICY, SAME_ORIGIN);
    Ok(match takes_gzip {
        true => reply.header(header::CONTENT_ENCODING, HeaderValue::from_static("gzip")),
        false => reply,
    })
}

/// Whether a client accepts gzip with a weight other than zero.
fn takes_gzip(header: &str) -> bool {
    header.split(',').any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|it| it.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight != Some(0.0)
    })
}
