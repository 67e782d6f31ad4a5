//! Where a protocol is mounted, which mount takes precedence, and the form of its errors.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use trilogue_domain::{Code, Rights};
use trilogue_gateway::{CommunicationOptions, Mount, Options, Server};
use trilogue_testkit::client::Reply;

use crate::rig::{Rig, Setup};

const APP: &str = "https://app.example.com";

pub(crate) fn at(prefix: &str) -> Mount {
    Mount::new(CommunicationOptions::default(), prefix).unwrap()
}

pub(crate) async fn mounted(mounts: Vec<Mount>) -> Rig {
    Rig::with(mounts).await
}

async fn get(rig: &Rig, path: &str) -> Reply {
    rig.alice().get(path).await.unwrap()
}

fn kind(reply: &Reply) -> &str {
    reply.headers["content-type"].to_str().unwrap()
}

/// Asserts that a response is an error of the protocol, and returns its parts.
fn fault(reply: &Reply) -> (u16, String, String) {
    assert_eq!(kind(reply), "application/json", "{}", reply.json());
    let body = reply.json();
    let keys: Vec<_> = body.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["code", "data", "message"], "{body}");
    assert!(!body["message"].as_str().unwrap().is_empty(), "{body}");
    assert!(body["data"]["transient"].is_boolean(), "{body}");
    assert_eq!(body["data"]["request_id"], reply.headers["x-request-id"].to_str().unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (reply.status, text(&body["code"]), text(&body["data"]["reason"]))
}

fn is(status: u16, code: &str, reason: &str) -> (u16, String, String) {
    (status, code.to_owned(), reason.to_owned())
}

#[tokio::test]
async fn a_protocol_is_served_where_it_is_mounted_and_nowhere_else() {
    for prefix in ["/communication", "/acp/v0.1/deep", "/"] {
        let rig = mounted(vec![at(prefix)]).await;
        let base = prefix.trim_end_matches('/');
        let reply = get(&rig, &format!("{base}/ping")).await;
        assert_eq!((reply.status, reply.json()), (200, json!({})), "{prefix}");
        assert_eq!(
            fault(&get(&rig, &format!("{base}/nope")).await),
            is(404, "not_found", "not_found")
        );
        if base.is_empty() {
            continue;
        }
        for elsewhere in ["/ping", "/communicationx/ping", &format!("{base}x/ping")] {
            let reply = get(&rig, elsewhere).await;
            let found = (reply.status, kind(&reply), reply.code());
            assert_eq!(found, (404, "application/problem+json", "not_found".to_owned()));
        }
        for bare in [base.to_owned(), format!("{base}/"), format!("{base}/ping/")] {
            assert_eq!(fault(&get(&rig, &bare).await), is(404, "not_found", "not_found"), "{bare}");
        }
    }
    let none = mounted(Vec::new()).await;
    assert_eq!(kind(&get(&none, "/communication/ping").await), "application/problem+json");
}

#[tokio::test]
async fn our_own_routes_win_over_a_protocol_at_the_root() {
    let rig = mounted(vec![at("/")]).await;
    assert_eq!(get(&rig, "/healthz").await.body, "ok\n");
    let agents = get(&rig, "/api/v1/agents").await.ok().unwrap();
    assert_eq!(agents["items"][0]["name"], "puppet");
    assert_eq!(get(&rig, "/agents").await.ok().unwrap()["agents"][0]["name"], "puppet");
    for own in ["/api/v1/nope", "/api/v2", "/healthz/x", "/api/v1/runs/none"] {
        let reply = get(&rig, own).await;
        assert_eq!((reply.status, kind(&reply)), (404, "application/problem+json"), "{own}");
    }
    let wrong = rig.alice().post("/healthz", &json!({})).await.unwrap();
    assert_eq!((wrong.status, kind(&wrong)), (405, "application/problem+json"));
}

#[tokio::test]
async fn the_longest_prefix_decides() {
    let options = CommunicationOptions { strict: true, ..CommunicationOptions::default() };
    let strict = Mount::new(options, "/a/b").unwrap();
    let rig = mounted(vec![at("/a"), strict, at("/")]).await;
    // Only a strict mount refuses a part with metadata alone.
    let metadata = json!({"kind": "citation"});
    let part = json!({"content_type": "text/plain", "metadata": metadata});
    let body = json!({"agent_name": "puppet", "input": [{"role": "user", "parts": [part]}]});
    for (path, status) in [("/a/runs", 200), ("/a/b/runs", 422), ("/runs", 200)] {
        let reply = rig.alice().post(path, &body).await.unwrap();
        assert_eq!(reply.status, status, "{path}: {}", reply.json());
    }
    assert_eq!(get(&rig, "/a/ping").await.status, 200);
    // The shorter prefix has no such route, and no other mount is tried.
    assert_eq!(get(&rig, "/a/x/ping").await.status, 404);
}

#[tokio::test]
async fn a_mount_may_lie_beside_our_own_routes() {
    let rig = mounted(vec![at("/api/v1/acp"), at("/")]).await;
    for (path, status) in [
        ("/api/v1/acp/ping", 200),
        ("/api/v1/agents", 200),
        ("/ping", 200),
        ("/api/v1/acp/nope", 404),
        ("/api/v1/nope", 404),
    ] {
        assert_eq!(get(&rig, path).await.status, status, "{path}");
    }
    let theirs = get(&rig, "/api/v1/acp/nope").await.json();
    assert_eq!(theirs["code"], "not_found");
    assert!(theirs.get("detail").is_none(), "{theirs}");
    assert!(get(&rig, "/api/v1/nope").await.json().get("detail").is_some());
}

#[tokio::test]
async fn mounts_that_collide_are_refused_at_the_start() {
    for (mounts, code) in [
        (vec![at("/x"), at("/x")], Code::AlreadyExists),
        (vec![at("/"), at("")], Code::AlreadyExists),
        (vec![at("/api")], Code::InvalidRequest),
        (vec![at("/api/v1")], Code::InvalidRequest),
        (vec![at("/api/v1/threads/mail")], Code::InvalidRequest),
        (vec![at("/metrics")], Code::InvalidRequest),
    ] {
        let checked = trilogue_gateway::check_mounts(&mounts);
        assert_eq!(checked.map_err(|error| error.code()), Err(code), "{mounts:?}");
        let store = std::sync::Arc::new(trilogue_store::memory::MemoryStore::default());
        let ports = crate::rig::ports(store).await;
        let started = Server::start(Options::default(), &mounts, ports, Vec::new());
        assert_eq!(started.map(drop).map_err(|error| error.code()), Err(code));
    }
}

#[tokio::test]
async fn every_refusal_under_a_mount_is_the_protocols_and_elsewhere_a_problem() {
    let options = Options { max_body_bytes: 1024, ..Options::default() };
    let rig = Rig::with(options).await;
    rig.token("alpha", "nobody", Rights::default(), false).await;
    let (alice, stranger) = (rig.alice(), rig.stranger());
    let nobody = rig.as_("alpha", "nobody");
    let large = Bytes::from("x".repeat(2048));
    let none = Bytes::new;
    let evil = [("host", "evil.example")];
    let page = [("origin", "https://evil.example")];
    for (client, method, path, headers, body, expected) in [
        (
            &stranger,
            Method::GET,
            "/runs",
            &[][..],
            none(),
            (401, "server_error", "unauthenticated"),
        ),
        (&nobody, Method::GET, "/runs", &[], none(), (403, "server_error", "forbidden")),
        (&alice, Method::GET, "/runs", &evil, none(), (403, "server_error", "host_not_allowed")),
        (&alice, Method::GET, "/runs", &page, none(), (403, "server_error", "origin_not_allowed")),
        (&alice, Method::GET, "/nope", &[], none(), (404, "not_found", "not_found")),
        (&alice, Method::DELETE, "/runs", &[], none(), (405, "server_error", "method_not_allowed")),
        (&alice, Method::POST, "/runs", &[], large, (413, "invalid_input", "body_too_large")),
        (
            &alice,
            Method::GET,
            "/runs?token=x",
            &[],
            none(),
            (422, "invalid_input", "invalid_request"),
        ),
    ] {
        let (status, code, reason) = expected;
        let under = format!("/communication{path}");
        let reply = client.send(method.clone(), &under, headers, body.clone()).await.unwrap();
        assert_eq!(fault(&reply), is(status, code, reason), "{under}");
        if status == 405 {
            assert!(!reply.headers["allow"].is_empty());
        }
        if status == 401 {
            assert!(reply.headers.contains_key("www-authenticate"));
        }
        let own = format!("/api/v1{path}");
        let reply = client.send(method, &own, headers, body).await.unwrap();
        assert_eq!(
            (kind(&reply), reply.code().as_str()),
            ("application/problem+json", reason),
            "{own}"
        );
    }
}

#[tokio::test]
async fn too_many_streams_are_refused_in_the_protocols_words() {
    let rig = Rig::with(Options { max_streams: 0, ..Options::default() }).await;
    let body = json!({"agent_name": "puppet", "input": [{"role": "user", "parts": [{"content": "x", "content_type": "text/plain"}]}], "mode": "stream"});
    let reply = rig.alice().post("/communication/runs", &body).await.unwrap();
    assert_eq!(fault(&reply), is(429, "server_error", "overloaded"));
    assert_eq!(reply.headers["retry-after"], "1");
    assert_eq!(reply.json()["data"]["transient"], true);
}

#[tokio::test]
async fn parameters_that_nobody_knows_are_ignored_by_the_protocol_alone() {
    let rig = Rig::start().await;
    for query in ["x=1", "a=b&a=c&=d", "limit=abc", "%ff=%ff"] {
        let reply = get(&rig, &format!("/communication/ping?{query}")).await;
        assert_eq!(reply.status, 200, "{query}: {}", reply.json());
    }
    assert_eq!(get(&rig, "/api/v1/agents?x=1").await.status, 400);
}

#[tokio::test]
async fn a_page_may_read_the_protocols_headers_and_asks_for_its_methods() {
    let options = Options { allowed_origins: vec![APP.to_owned()], ..Options::default() };
    let rig = Rig::with(options).await;
    let origin = [("origin", APP)];
    let alice = rig.alice();
    let path = "/communication/ping";
    let reply = alice.send(Method::GET, path, &origin, Bytes::new()).await.unwrap();
    let exposed = reply.headers["access-control-expose-headers"].to_str().unwrap();
    for name in ["run-id", "interrupt-id", "location", "x-request-id"] {
        assert!(exposed.split(", ").any(|it| it == name), "{exposed}");
    }
    let asks = [("origin", APP), ("access-control-request-method", "POST")];
    let path = "/communication/runs";
    let reply = rig.stranger().send(Method::OPTIONS, path, &asks, Bytes::new()).await.unwrap();
    assert_eq!(reply.status, 204);
    let methods = reply.headers["access-control-allow-methods"].to_str().unwrap();
    assert!(methods.split(", ").any(|it| it == "POST"), "{methods}");
}

#[tokio::test]
async fn addresses_that_are_handed_out_begin_with_the_clients_way_or_the_operators_word() {
    let session = "0f0f0f0f-0f0f-4f0f-8f0f-0f0f0f0f0f0f";
    let body = json!({
        "agent_name": "puppet", "session_id": session, "input": [{"role": "user", "parts": [{"content": "x", "content_type": "text/plain"}]}],
    });
    let history = async |rig: &Rig, prefix: &str, host: &str| {
        let headers = [("host", host)];
        let runs = format!("{prefix}/runs");
        let made = Bytes::from(body.to_string());
        let made = rig.alice().send(Method::POST, &runs, &headers, made).await.unwrap();
        assert_eq!(made.status, 200, "{}", made.json());
        let path = format!("{prefix}/sessions/{session}");
        let reply = rig.alice().send(Method::GET, &path, &headers, Bytes::new()).await.unwrap();
        reply.ok().unwrap()["history"][0].as_str().unwrap().to_owned()
    };
    let rig = mounted(vec![at("/a/b"), at("/")]).await;
    for (prefix, host, base) in [
        ("/a/b", "localhost:99", "http://localhost:99/a/b/resources/"),
        ("", "127.0.0.1:7", "http://127.0.0.1:7/resources/"),
    ] {
        let first = history(&rig, prefix, host).await;
        assert!(first.starts_with(base), "{first}");
    }
    let public_url = Some("https://agents.example.com/base/".to_owned());
    let options = Options { public_url, ..Options::default() };
    let mounts = Some(vec![at("/a")]);
    let rig = Rig::of(Setup { options, mounts, ..Setup::default() }).await;
    let first = history(&rig, "/a", "localhost").await;
    assert!(first.starts_with("https://agents.example.com/base/a/resources/"), "{first}");
}
