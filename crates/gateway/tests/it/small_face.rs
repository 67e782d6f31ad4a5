//! A protocol of this test, added as `docs/adding-a-face.md` says, without a line in another protocol.

use std::sync::Arc;

use http::StatusCode;
use serde_json::json;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error};
use trilogue_gateway::face::{
    self, Endpoint, Face, MountPoint, Operation, Protocol, Reply, Services, bind, operations,
};
use trilogue_gateway::{Mount, check_mounts, protocols};
use trilogue_runtime::Runtime;

use crate::rig::{Rig, user};

type Call = face::Call<State>;
type Route = face::Route<State>;

/// Whether agents' names are shown in capitals.
#[derive(Clone, Copy, Debug, Default)]
struct RosterOptions {
    capitals: bool,
}

#[derive(Debug)]
struct State {
    options: RosterOptions,
    place: MountPoint,
    runtime: Runtime,
}

const BASE: Route = Route::base(|call| Box::pin(async move { Ok(list(&call)) }))
    .path("/names")
    .describe("roster_list_names", "The names of the agents");

const ROUTES: &[Route] = &[
    BASE,
    BASE.at("/names/{name}", |call| Box::pin(async move { get(&call) }))
        .describe("roster_get_name", "One name"),
];

fn display_name(state: &State, name: &AgentName) -> String {
    match state.options.capitals {
        true => name.as_str().to_uppercase(),
        false => name.as_str().to_owned(),
    }
}

fn list(call: &Call) -> Reply {
    let agents = call.state.runtime.agents();
    let names: Vec<_> = agents.iter().map(|card| display_name(&call.state, &card.name)).collect();
    Reply::ok(&json!({ "names": names, "at": call.state.place.base_for(call) }))
}

fn get(call: &Call) -> Result<Reply> {
    let missing = |_| Error::new(Code::AgentNotFound, "nobody has this name");
    let name = AgentName::parse(call.param("name")).map_err(missing)?;
    call.reach(&name)?;
    let card = call.state.runtime.agent(&name).map_err(missing)?;
    Ok(Reply::ok(&json!({ "name": display_name(&call.state, &card.name) })))
}

impl Protocol for RosterOptions {
    fn name(&self) -> &'static str {
        "roster"
    }

    fn operations(&self) -> Vec<Operation> {
        operations(ROUTES)
    }

    fn open(&self, services: &Services, place: MountPoint) -> Arc<dyn Face> {
        Arc::new(State { options: *self, place, runtime: services.ports.runtime.clone() })
    }
}

impl Face for State {
    fn endpoints(self: Arc<Self>) -> Vec<Endpoint> {
        bind(ROUTES, &self)
    }

    fn respond(&self, error: &Error, _: Option<&str>) -> Reply {
        let status = match error.code() {
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            _ => StatusCode::NOT_FOUND,
        };
        Reply::json(status, &json!({ "oops": error.code().as_str() }))
    }

    fn unknown_path(&self, _: &str) -> Error {
        Error::new(Code::NotFound, "the roster has names and nothing else")
    }
}

#[tokio::test]
async fn a_face_is_added_without_touching_another() {
    let at = |capitals, prefix| Mount::new(RosterOptions { capitals }, prefix).unwrap();
    let mut mounts = Mount::defaults();
    mounts.extend([at(false, "/roster"), at(true, "/loud")]);
    check_mounts(&mounts).unwrap();
    let rig = Rig::with(mounts).await;
    rig.token("alpha", "reader", user(), false).await;
    let reader = rig.as_("alpha", "reader");
    for (path, name) in [("/roster", "puppet"), ("/loud", "PUPPET")] {
        let listed = reader.get(&format!("{path}/names")).await.unwrap().ok().unwrap();
        let at = format!("http://{}{path}", rig.address);
        assert_eq!(listed, json!({"names": [name], "at": at}));
        let one = reader.get(&format!("{path}/names/puppet")).await.unwrap().ok().unwrap();
        assert_eq!(one, json!({"name": name}));
    }
    // The pipeline refuses the request, and the protocol formats the error.
    let stranger = rig.stranger();
    for (client, method, path, expected) in [
        (&reader, "GET", "/roster/nope", (404, "not_found")),
        (&reader, "GET", "/roster/names/nobody", (404, "agent_not_found")),
        (&reader, "DELETE", "/roster/names", (405, "method_not_allowed")),
        (&stranger, "GET", "/roster/names", (401, "unauthenticated")),
    ] {
        let method = http::Method::from_bytes(method.as_bytes()).unwrap();
        let reply = client.send(method, path, &[], bytes::Bytes::new()).await.unwrap();
        let said = reply.json();
        assert_eq!((reply.status, said["oops"].as_str().unwrap()), expected, "{path}");
    }
    // The other protocols are unchanged.
    assert_eq!(reader.get("/communication/ping").await.unwrap().status, 200);
    assert_eq!(reader.get("/connect/agents/puppet").await.unwrap().status, 200);
    assert_eq!(reader.get("/api/v1/agents").await.unwrap().status, 200);
}

#[test]
fn every_protocol_has_a_name_of_its_own_and_names_its_operations() {
    let mut names: Vec<_> = protocols().iter().map(|protocol| protocol.name()).collect();
    names.push(RosterOptions::default().name());
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for protocol in protocols() {
        assert!(!protocol.operations().is_empty(), "{}", protocol.name());
    }
}
