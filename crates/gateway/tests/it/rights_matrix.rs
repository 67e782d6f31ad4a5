//! Every right, with and without `own`, on every route of every protocol. The routes come from the registry, so a new one needs a line here.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use trilogue_domain::{Right, Rights};
use trilogue_gateway::protocols;
use trilogue_testkit::Client;
use trilogue_wire::agent_client::{Kind, METHODS, Side};

use crate::rig::{AgentPrograms, Rig, Setup, text};
use crate::websocket::editor_as;

/// An id that no object has, valid in every protocol.
const NOBODY: &str = "99999999-2222-4333-8444-000000000001";

/// The right that each operation needs; `None` if everyone may call it.
const NEEDS: &[(Option<Right>, &[&str])] = &[
    (
        None,
        &[
            "sign_in",
            "look_up_sign_in_link",
            "begin_login",
            "collect_login",
            "get_health",
            "get_readiness",
            "connect_get_openapi",
            "connect_get_agent_openapi",
            "connect_list_errors",
            "connect_get_authentication",
            "connect_get_agent_authentication",
        ],
    ),
    (
        Some(Right::Read),
        &[
            "client_open",
            "client_send",
            "client_close",
            "get_caller",
            "watch_changes",
            "get_event_forms",
            "get_run_requests",
            "get_thread_state",
            "create_sign_in_link",
            "create_ticket",
            "sign_out",
            "draw",
            "list_agents",
            "get_agent",
            "get_agent_forms",
            "list_fidelity",
            "list_interrupts",
            "get_interrupt",
            "get_document",
            "list_runs",
            "get_run",
            "list_run_events",
            "wait_for_run",
            "list_threads",
            "get_thread",
            "get_blob",
            "list_checkpoints",
            "list_thread_events",
            "export_thread",
            "list_messages",
            "get_metrics",
            "get_api_metrics",
            "communication_get_session",
            "communication_get_session_alias",
            "communication_get_state",
            "communication_get_blob",
            "communication_list_runs",
            "communication_list_run_events",
            "communication_get_run",
            "communication_ping",
            "communication_list_agents",
            "communication_get_agent",
            "communication_get_message",
            "communication_get_result",
            "connect_get_configuration",
            "connect_search_configurations",
            "connect_stream_run",
            "connect_stream_thread_run",
            "connect_list_agent_errors",
            "connect_search_runs",
            "connect_list_thread_runs",
            "connect_wait_for_run",
            "connect_wait_for_thread_run",
            "connect_get_run_output",
            "connect_get_thread_history",
            "connect_get_thread_state",
            "connect_get_blob",
            "connect_get_run_thread_state",
            "connect_search_threads",
            "connect_get_run",
            "connect_get_thread_run",
            "connect_get_agent",
            "connect_get_descriptor",
            "connect_get_descriptor_alias",
            "connect_search_agents",
            "connect_get_manifest",
            "connect_get_details",
            "connect_get_capabilities",
            "connect_get_schemas",
            "connect_get_thread",
        ],
    ),
    (
        Some(Right::Run),
        &[
            "create_run",
            "delete_run",
            "cancel_run",
            "create_thread",
            "patch_thread",
            "copy_thread",
            "hand_over_thread",
            "list_callback_keys",
            "communication_create_run",
            "communication_cancel_run",
            "connect_create_configuration",
            "connect_create_configuration_alias",
            "connect_patch_configuration",
            "connect_delete_configuration",
            "connect_create_run",
            "connect_create_run_and_wait",
            "connect_create_run_and_stream",
            "connect_create_thread_run",
            "connect_create_thread_run_and_wait",
            "connect_create_thread_run_and_stream",
            "connect_create_thread",
            "connect_patch_thread",
            "connect_delete_thread",
            "connect_copy_thread",
            "connect_cancel_run",
            "connect_delete_run",
            "connect_cancel_thread_run",
            "connect_delete_thread_run",
        ],
    ),
    (
        Some(Right::Answer),
        &[
            "answer_interrupt",
            "answer_run",
            "communication_resume_run",
            "connect_resume_run",
            "connect_resume_thread_run",
        ],
    ),
    (
        Some(Right::Admin),
        &[
            "list_deliveries",
            "redeliver",
            "erase_thread",
            "list_tokens",
            "create_token",
            "revoke_token",
            "look_up_login",
            "approve_login",
        ],
    ),
    (
        Some(Right::Server),
        &[
            "back_up",
            "get_process_stderr",
            "get_status",
            "list_nodes",
            "drain_node",
            "undrain_node",
        ],
    ),
];

/// The rights that each request below `/client` needs, beside [`Right::Read`], with which a connection opens.
const METHOD_NEEDS: &[(&[Right], &[&str])] = &[
    (
        &[],
        &[
            "initialize",
            "session/list",
            "session/load",
            "session/resume",
            "session/status",
            "session/close",
        ],
    ),
    (
        &[Right::Run],
        &[
            "session/new",
            "session/fork",
            "session/prompt",
            "session/options",
            "session/set_title",
            "session/archive",
            "session/unarchive",
        ],
    ),
    (&[Right::Admin], &["session/delete", "authenticate", "logout"]),
    (
        &[Right::Run, Right::Answer],
        &["session/set_mode", "session/set_config_option", EXTENSION, UNKNOWN_METHOD],
    ),
];
/// A method of an agent, which the protocol does not have.
const EXTENSION: &str = "_x/anything";
const UNKNOWN_METHOD: &str = "session/set_anything";

/// What a route demands of its caller beside a right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Guard {
    /// Nothing, or what its handler demands by what the request is about.
    Nothing,
    /// Not to be a program of a hosted agent.
    Person,
    /// The same, and that a page has signed in lately.
    NewSignIn,
}

/// The guard of each operation that changes something. Those that erase, make credentials, answer, or write settings with which agents ask less need one.
const GUARDS: &[(Guard, &[&str])] = &[
    (
        Guard::NewSignIn,
        &[
            "approve_login",
            "create_token",
            "revoke_token",
            "create_sign_in_link",
            "back_up",
            "drain_node",
            "undrain_node",
        ],
    ),
    (
        Guard::Person,
        &[
            "look_up_login",
            "create_ticket",
            "delete_run",
            "erase_thread",
            "hand_over_thread",
            "list_callback_keys",
            "answer_interrupt",
            "answer_run",
            "redeliver",
            "communication_resume_run",
            "connect_resume_run",
            "connect_resume_thread_run",
            "connect_delete_run",
            "connect_delete_thread_run",
            "connect_delete_thread",
            "connect_patch_configuration",
            "connect_delete_configuration",
            "client_open",
            "client_send",
            "client_close",
        ],
    ),
    (
        Guard::Nothing,
        &[
            // They give nothing without an approval.
            "begin_login",
            "collect_login",
            // Only for pages, which no agent is.
            "sign_in",
            "look_up_sign_in_link",
            "sign_out",
            // They read.
            "draw",
            "connect_search_configurations",
            "connect_search_runs",
            "connect_search_threads",
            "connect_search_agents",
            // Their handlers look at the settings, the strategy and the action of the request.
            "create_run",
            "cancel_run",
            "create_thread",
            "patch_thread",
            "copy_thread",
            "communication_create_run",
            "communication_cancel_run",
            "connect_create_configuration",
            "connect_create_configuration_alias",
            "connect_create_run",
            "connect_create_run_and_wait",
            "connect_create_run_and_stream",
            "connect_create_thread_run",
            "connect_create_thread_run_and_wait",
            "connect_create_thread_run_and_stream",
            "connect_create_thread",
            "connect_patch_thread",
            "connect_copy_thread",
            "connect_cancel_run",
            "connect_cancel_thread_run",
        ],
    ),
];

/// A route with its path filled in.
pub(crate) struct RegisteredRoute {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// `None` if the route needs no token.
    pub(crate) needs: Option<Right>,
    pub(crate) operation: String,
}

impl RegisteredRoute {
    fn new(method: &str, path: &str, operation: &str) -> Self {
        let found = NEEDS.iter().find(|(_, names)| names.contains(&operation));
        let (needs, _) = found.unwrap_or_else(|| panic!("{operation} needs a line in NEEDS"));
        let filled = path.split('/').map(|part| if part.contains('{') { NOBODY } else { part });
        Self {
            method: Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap(),
            path: filled.collect::<Vec<_>>().join("/"),
            needs: *needs,
            operation: operation.to_owned(),
        }
    }

    fn guard(&self) -> Guard {
        let operation = self.operation.as_str();
        match GUARDS.iter().find(|(_, names)| names.contains(&operation)) {
            Some((guard, _)) => *guard,
            None if self.method == Method::GET => Guard::Nothing,
            None => panic!("{operation} needs a line in GUARDS"),
        }
    }

    /// Whether a token with only this right may call the operation.
    fn admits(&self, right: Right, own: bool) -> bool {
        // Operations on the whole server are closed to callers that see only their own objects.
        let is_of_server =
            self.operation.ends_with("_metrics") || self.needs == Some(Right::Server);
        self.needs.is_none_or(|needs| needs == right) && !(own && is_of_server)
    }
}

/// Every route of every face.
pub(crate) fn routes() -> Vec<RegisteredRoute> {
    let document: Value = serde_json::from_str(&trilogue_gateway::openapi_document()).unwrap();
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (verb, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            routes.push(RegisteredRoute::new(verb, path, name));
        }
    }
    for protocol in protocols() {
        for operation in protocol.operations() {
            let path = format!("/{}{}", protocol.name(), operation.path);
            routes.push(RegisteredRoute::new(operation.method, &path, operation.name));
        }
    }
    routes
}

#[tokio::test]
async fn every_right_opens_exactly_its_routes_on_every_face() {
    let rig = Rig::start().await;
    let routes = routes();
    assert!(routes.len() > 90, "{}", routes.len());
    for own in [false, true] {
        for right in Right::ALL {
            let name = format!("{}-{own}", right.as_str());
            rig.token("alpha", &name, [right].into_iter().collect(), own).await;
            let client = rig.as_("alpha", &name);
            for route in &routes {
                let RegisteredRoute { method, path, operation, .. } = route;
                let reply = client.send(method.clone(), path, &[], Bytes::new()).await.unwrap();
                let is_admitted = reply.status != 403;
                assert_eq!(is_admitted, route.admits(right, own), "{name} on {operation} {path}");
                assert_ne!(reply.status, 401, "{name} on {operation} {path}");
            }
        }
    }
}

/// The requests of the registry of methods, and one of each kind that it does not have.
fn client_methods() -> Vec<&'static str> {
    let known = METHODS.iter().filter(|it| it.to != Side::Client && it.kind == Kind::Request);
    known.map(|method| method.name).chain([EXTENSION, UNKNOWN_METHOD]).collect()
}

#[tokio::test]
async fn every_right_opens_exactly_its_methods_below_client() {
    let rig = Rig::start().await;
    let optional = [Right::Run, Right::Answer, Right::Admin, Right::Server];
    for number in 0..1_usize << (optional.len() + 1) {
        let chosen = (0..optional.len()).filter(|bit| number >> bit & 1 == 1);
        let rights: Rights = chosen.map(|bit| optional[bit]).chain([Right::Read]).collect();
        let own = number >> optional.len() == 1;
        let name = format!("holder-{number}");
        rig.token("alpha", &name, rights, own).await;
        let mut client = editor_as(&rig, &format!("alpha-{name}")).await;
        client.initialize(json!({})).await;
        for method in client_methods() {
            let found = METHOD_NEEDS.iter().find(|(_, names)| names.contains(&method));
            let (needs, _) = found.unwrap_or_else(|| panic!("{method} needs a line"));
            let answer = client.call(method, json!({})).await;
            let is_refused = answer["error"]["data"]["code"] == "forbidden";
            let missing = needs.iter().find(|right| !rights.has(**right));
            assert_eq!(is_refused, missing.is_some(), "{rights:?} {method}: {answer}");
            if let Some(missing) = missing {
                let message = answer["error"]["message"].as_str().unwrap();
                assert!(message.contains(&format!("'{}'", missing.as_str())), "{message}");
            }
        }
    }
}

#[tokio::test]
async fn every_route_that_decides_for_a_person_refuses_programs_of_agents() {
    let agent_processes = Some(Arc::new(AgentPrograms::every()) as _);
    let rig = Rig::of(Setup { agent_processes, ..Setup::default() }).await;
    let client = rig.alice();
    for route in &routes() {
        let RegisteredRoute { method, path, operation, .. } = route;
        let reply = client.send(method.clone(), path, &[], Bytes::new()).await.unwrap();
        let told = String::from_utf8_lossy(&reply.body);
        let is_refused = told.contains("a program of a hosted agent");
        assert_eq!(is_refused, route.guard() != Guard::Nothing, "{operation}: {told}");
        assert_eq!(is_refused, reply.status == 403, "{operation}: {told}");
    }
}

#[tokio::test]
async fn every_route_that_outlives_a_session_needs_a_new_sign_in() {
    let rig = Rig::start().await;
    let old = rig.old_session("alpha", "alice").await;
    let headers = old.each_ref().map(|(name, value)| (*name, value.as_str()));
    // Signing out would end the session before the others are asked.
    for route in routes().iter().filter(|route| route.operation != "sign_out") {
        let RegisteredRoute { method, path, operation, .. } = route;
        let client = rig.stranger();
        let reply = client.send(method.clone(), path, &headers, Bytes::new()).await.unwrap();
        let told = String::from_utf8_lossy(&reply.body);
        let is_refused = told.contains("this needs a sign-in of the last");
        let is_page_route =
            !["/connect", "/communication", "/client"].iter().any(|it| path.starts_with(it));
        // A thread that is not found may be another principal's.
        let expected = route.guard() == Guard::NewSignIn || operation == "erase_thread";
        assert_eq!(is_refused, expected && is_page_route, "{operation}: {told}");
    }
}

#[tokio::test]
async fn a_token_gives_no_right_that_it_lacks() {
    let rig = Rig::start().await;
    for own in [false, true] {
        for right in Right::ALL {
            let name = format!("admin-{}-{own}", right.as_str());
            let held: Rights = [Right::Admin, right].into_iter().collect();
            rig.token("alpha", &name, held, own).await;
            let client = rig.as_("alpha", &name);
            for given in Right::ALL {
                let body = json!({"label": "x", "rights": [given.as_str()]});
                let status = client.post("/api/v1/tokens", &body).await.unwrap().status;
                let expected = match held.has(given) {
                    true if own && given == Right::Server => 400,
                    true => 201,
                    false if own && given == Right::Server => 400,
                    false => 403,
                };
                assert_eq!(status, expected, "{name} gives {given:?}");
            }
        }
    }
}

#[tokio::test]
async fn who_may_not_read_changes_threads_and_learns_nothing_of_them() {
    let rig = Rig::start().await;
    rig.token("alpha", "runner", [Right::Run].into_iter().collect(), false).await;
    let (alice, runner) = (rig.as_("alpha", "alice"), rig.as_("alpha", "runner"));
    let new = json!({ "metadata": { "word": "secret", "trilogue.title": "secret" } });
    let thread = alice.post("/api/v1/threads", &new).await.unwrap().ok().unwrap();
    let id = text(&thread, "/id");
    let state = json!({ "values": { "word": "secret" } });
    let thread = format!("/threads/{id}");
    let change = async |client: &Client, base: &str, body: &Value| {
        let body = Bytes::from(body.to_string());
        let headers = [("content-type", "application/json")];
        client.send(Method::PATCH, &format!("{base}{thread}"), &headers, body).await.unwrap()
    };
    assert_eq!(change(&alice, "/api/v1", &state).await.status, 200);
    let existing = json!({ "thread_id": id, "if_exists": "do_nothing" });
    let metadata = json!({ "metadata": {} });
    for (client, may_read) in [(&alice, true), (&runner, false)] {
        for reply in [
            change(client, "/api/v1", &metadata).await,
            change(client, "/connect", &metadata).await,
            client.post(&format!("/api/v1{thread}/copy"), &json!({})).await.unwrap(),
            client.post(&format!("/connect{thread}/copy"), &json!({})).await.unwrap(),
            client.post("/connect/threads", &existing).await.unwrap(),
        ] {
            let shown = reply.ok().unwrap().to_string();
            assert_eq!(shown.contains("secret"), may_read, "{shown}");
        }
    }
}

#[tokio::test]
async fn an_own_token_sees_and_revokes_only_tokens_of_its_principal() {
    let rig = Rig::start().await;
    let held: Rights = [Right::Read, Right::Admin].into_iter().collect();
    rig.token("alpha", "owner", held, true).await;
    rig.token("alpha", "admin", [Right::Admin].into_iter().collect(), false).await;
    let (owner, admin) = (rig.as_("alpha", "owner"), rig.as_("alpha", "admin"));
    let all = admin.get("/api/v1/tokens").await.unwrap().ok().unwrap();
    let token_of = |principal: &str| {
        let items = all["items"].as_array().unwrap();
        let found = items.iter().find(|item| item["principal"] == principal).unwrap();
        format!("/api/v1/tokens/{}", found["id"].as_str().unwrap())
    };
    let seen = owner.get("/api/v1/tokens").await.unwrap().ok().unwrap();
    let seen: Vec<_> =
        seen["items"].as_array().unwrap().iter().map(|it| it["principal"].clone()).collect();
    assert_eq!(seen, ["owner"]);
    let revoke = async |client: &Client, path: &str| {
        client.send(Method::DELETE, path, &[], Bytes::new()).await.unwrap().status
    };
    assert_eq!(revoke(&owner, &token_of("alice")).await, 404);
    assert_eq!(revoke(&owner, &token_of("admin")).await, 404);
    // An administrator of a tenant cannot lock out the server's operator.
    assert_eq!(revoke(&admin, &token_of("alice")).await, 403);
    assert_eq!(rig.alice().get("/api/v1/status").await.unwrap().status, 200);
    assert_eq!(revoke(&owner, &token_of("owner")).await, 204);
    assert_eq!(owner.get("/api/v1/agents").await.unwrap().status, 401);
}
