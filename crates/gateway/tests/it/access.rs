//! Who may call, and how known attacks are refused. Many tests are named after such an attack.

use std::time::Instant;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use trilogue_domain::{Right, Rights};
use trilogue_gateway::{Access, Exposure, Options, Server};
use trilogue_store::memory::MemoryStore;
use trilogue_testkit::parts::principal;

use crate::page_sessions::{code, sign_in};
use crate::rig::{Rig, ports, text, user};
use crate::rights_matrix::{RegisteredRoute, routes};

fn operations() -> Vec<(Method, String)> {
    let document: Value = serde_json::from_str(&trilogue_gateway::openapi_document()).unwrap();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for verb in item.as_object().unwrap().keys() {
            let method = Method::from_bytes(verb.to_ascii_uppercase().as_bytes()).unwrap();
            found.push((method, path.clone()));
        }
    }
    assert!(found.len() > 30);
    found
}

fn is_native(path: &str) -> bool {
    !path.starts_with("/communication/") && !path.starts_with("/connect/")
}

async fn everywhere(rig: &Rig, headers: &[(&str, &str)], status: u16, code: &str) {
    for client in [rig.stranger(), rig.alice()] {
        for RegisteredRoute { method, path, .. } in routes() {
            let reply = client.send(method.clone(), &path, headers, Bytes::new()).await.unwrap();
            assert_eq!(reply.status, status, "{method} {path}");
            // The faces of other protocols have errors of their own.
            if is_native(&path) {
                assert_eq!(reply.code(), code, "{method} {path}");
                assert_eq!(reply.headers["content-type"], "application/problem+json");
            }
        }
    }
    let reply = rig.alice().send(Method::GET, "/nowhere", headers, Bytes::new()).await.unwrap();
    assert_eq!((reply.status, reply.code().as_str()), (status, code), "before routing");
}

#[tokio::test]
async fn dns_rebinding_foreign_host_is_refused_on_every_route() {
    let rig = Rig::start().await;
    everywhere(&rig, &[("host", "rebound.evil.example:7878")], 403, "host_not_allowed").await;
    everywhere(&rig, &[("host", "127.0.0.1.evil.example")], 403, "host_not_allowed").await;
}

#[tokio::test]
async fn cross_site_pages_are_refused_on_every_route() {
    let rig = Rig::start().await;
    for origin in ["https://evil.example", "null", "file://", "http://localhost:1"] {
        everywhere(&rig, &[("origin", origin)], 403, "origin_not_allowed").await;
    }
    everywhere(&rig, &[("sec-fetch-site", "cross-site")], 403, "origin_not_allowed").await;
}

#[tokio::test]
async fn no_route_lets_in_without_a_valid_token() {
    let rig = Rig::with(Options { max_failed_sign_ins: u32::MAX, ..Options::default() }).await;
    let routes = routes();
    let open = routes.iter().filter(|route| route.needs.is_none());
    let mut open: Vec<_> = open.map(|route| route.operation.as_str()).collect();
    open.sort_unstable();
    // A browser that signs in has no token yet, as a program that logs in. Programs learn here how to get one.
    let expected = [
        "begin_login",
        "collect_login",
        "connect_get_agent_authentication",
        "connect_get_agent_openapi",
        "connect_get_authentication",
        "connect_get_openapi",
        "connect_list_errors",
        "get_health",
        "get_readiness",
        "look_up_sign_in_link",
        "sign_in",
    ];
    assert_eq!(open, expected);
    for RegisteredRoute { method, path, needs, .. } in &routes {
        if needs.is_none() {
            continue;
        }
        for header in [
            None,
            Some(("authorization", "Bearer ")),
            Some(("authorization", "Bearer wrong")),
            Some(("authorization", "Basic alpha-alice")),
            Some(("authorization", "alpha-alice")),
            Some(("x-api-key", "")),
            Some(("x-api-key", "wrong")),
        ] {
            let headers: Vec<_> = header.into_iter().collect();
            let client = rig.stranger();
            let reply = client.send(method.clone(), path, &headers, Bytes::new()).await.unwrap();
            assert_eq!(reply.status, 401, "{method} {path} {header:?}");
            if is_native(path) {
                assert_eq!(reply.code(), "unauthenticated", "{method} {path} {header:?}");
            }
            assert!(reply.headers.contains_key("www-authenticate"));
        }
    }
}

#[tokio::test]
async fn failed_sign_ins_of_one_address_are_slowed_down_and_valid_tokens_are_not() {
    let options =
        Options { max_failed_sign_ins: 3, inspector: Some(String::new()), ..Options::default() };
    let rig = Rig::with(options).await;
    let fail = async |number: u32| match number % 3 {
        0 => rig.stranger().with_token("wrong").get("/api/v1/agents").await.unwrap(),
        1 => rig.stranger().with_token("wrong").get("/connect/threads/x").await.unwrap(),
        _ => sign_in(&rig, "tril_guessed").await,
    };
    for number in 0..3 {
        assert_eq!(fail(number).await.status, 401, "{number}");
    }
    for number in 0..3 {
        let refused = fail(number).await;
        assert_eq!(refused.status, 429, "{number}");
        let wait = refused.headers.get("retry-after").unwrap().to_str().unwrap();
        assert!((1..=60).contains(&wait.parse::<u32>().unwrap()), "{wait}");
        assert!(!refused.headers.contains_key("www-authenticate"));
    }
    assert_eq!(fail(0).await.code(), "overloaded");
    // Other callers from the same address are accepted, with tokens that were not looked up before.
    assert_eq!(rig.alice().get("/api/v1/agents").await.unwrap().status, 200);
    let link = code(&rig, "alpha", "alice").await;
    assert_eq!(sign_in(&rig, &link).await.status, 200);
    // A request without a token does not count.
    assert_eq!(rig.stranger().get("/api/v1/agents").await.unwrap().status, 401);
}

#[tokio::test]
async fn refused_credentials_show_in_the_metrics() {
    let rig = Rig::start().await;
    let refused = async || {
        let metrics = rig.alice().get("/metrics").await.unwrap();
        let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
        let name = "trilogue_http_refused_total{code=\"unauthenticated\"} ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        line.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    let before = refused().await;
    for _ in 0..3 {
        let client = rig.stranger().with_token("wrong");
        assert_eq!(client.get("/api/v1/agents").await.unwrap().status, 401);
    }
    assert!(refused().await >= before + 3);
}

#[tokio::test]
async fn both_headers_carry_a_token_and_the_address_does_not() {
    let rig = Rig::start().await;
    for header in [("authorization", "bearer alpha-alice"), ("x-api-key", "alpha-alice")] {
        let client = rig.stranger();
        let reply =
            client.send(Method::GET, "/api/v1/agents", &[header], Bytes::new()).await.unwrap();
        assert_eq!(reply.status, 200, "{header:?}");
    }
    for name in ["token", "_token", "access_token", "api_key"] {
        let path = format!("/api/v1/agents?{name}=alpha-alice");
        for client in [rig.stranger(), rig.alice()] {
            let reply = client.get(&path).await.unwrap();
            assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_request"));
            assert!(!reply.json().to_string().contains("alpha-alice"));
        }
    }
}

#[tokio::test]
async fn each_right_opens_its_own_doors() {
    let rig = Rig::start().await;
    let document: Value = serde_json::from_str(&trilogue_gateway::openapi_document()).unwrap();
    for right in Right::ALL {
        let without: Rights = Right::ALL.into_iter().filter(|other| *other != right).collect();
        rig.token("alpha", right.as_str(), without, false).await;
        for (method, path) in operations() {
            let verb = method.as_str().to_ascii_lowercase();
            let needs = &document["paths"][&path][&verb]["x-right"];
            if needs != right.as_str() {
                continue;
            }
            let client = rig.as_("alpha", right.as_str());
            let reply = client.send(method.clone(), &path, &[], Bytes::new()).await.unwrap();
            assert_eq!(
                (reply.status, reply.code().as_str()),
                (403, "forbidden"),
                "{method} {path}"
            );
        }
    }
}

#[tokio::test]
async fn a_revoked_token_is_refused_at_once_and_its_streams_end_within_five_seconds() {
    let rig = Rig::start().await;
    let made = json!({"label": "short", "principal": "bob", "rights": ["read", "run"]});
    let made = rig.alice().post("/api/v1/tokens", &made).await.unwrap().ok().unwrap();
    let secret = text(&made, "/secret").to_owned();
    let random = secret.strip_prefix("tril_").unwrap();
    let base64url = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    assert!(random.len() == 43 && random.bytes().all(base64url), "32 bytes in base64url");
    let listed = rig.alice().get("/api/v1/tokens").await.unwrap();
    assert!(!String::from_utf8_lossy(&listed.body).contains(&secret));
    let bob = rig.stranger().with_token(secret);
    let new = json!({"agent": "puppet", "input": "sleep", "mode": "async"});
    let run = bob.post("/api/v1/runs", &new).await.unwrap().ok().unwrap();
    let path = format!("/api/v1/runs/{}/events", text(&run, "/id"));
    let mut stream = bob.stream(&path, None).await.unwrap();
    assert!(stream.next().await.unwrap().is_some());

    let token = format!("/api/v1/tokens/{}", text(&made, "/token/id"));
    let begun = Instant::now();
    let reply = rig.alice().send(Method::DELETE, &token, &[], Bytes::new()).await.unwrap();
    assert_eq!(reply.status, 204);
    assert_eq!(bob.get("/api/v1/agents").await.unwrap().status, 401);
    let mut last = None;
    while let Some(event) = stream.next().await.unwrap() {
        last = Some(event);
    }
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    let last = last.unwrap();
    assert_eq!(last.event.as_deref(), Some("error"));
    assert!(last.data.contains("unauthenticated"), "{last:?}");
}

#[tokio::test]
async fn waits_and_synchronous_answers_end_soon_after_a_revocation() {
    let rig = Rig::start().await;
    let run = rig.run("hello").await;
    let new = json!({"agent": "puppet", "input": "sleep", "mode": "async"});
    let sleeping = rig.alice().post("/api/v1/runs", &new).await.unwrap().ok().unwrap();
    let (run, sleeping) = (text(&run, "/id"), text(&sleeping, "/id"));
    let input =
        json!([{"role": "user", "parts": [{"content_type": "text/plain", "content": "sleep"}]}]);
    let native = json!({"agent": "puppet", "input": "sleep", "mode": "wait"});
    let communication = json!({"agent_name": "puppet", "input": input, "mode": "sync"});
    let connect = json!({"agent_id": "puppet", "input": {"message": "sleep"}});
    for (method, path, body) in [
        (Method::GET, format!("/api/v1/runs/{sleeping}/wait"), Value::Null),
        (Method::POST, "/api/v1/runs".to_owned(), native),
        (Method::POST, "/communication/runs".to_owned(), communication),
        (Method::POST, "/connect/runs/wait".to_owned(), connect),
        (Method::GET, format!("/connect/runs/{sleeping}/wait"), Value::Null),
        (Method::GET, format!("/connect/runs/{sleeping}/wait?timeout=60"), Value::Null),
    ] {
        let (client, token) = rig.short_lived().await;
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let seen = client.get(&format!("/api/v1/runs/{run}")).await.unwrap();
        assert_eq!(seen.status, 200);
        let before = rig.alice().get("/api/v1/runs").await.unwrap().ok().unwrap();
        let waiting = client.send(method, &path, &[], body);
        let revoking = async {
            // The request has begun once its run exists; for waits, it has begun by now.
            let begun = async || {
                let after = rig.alice().get("/api/v1/runs").await.unwrap().ok().unwrap();
                (after != before || path.contains("/wait")).then_some(())
            };
            trilogue_testkit::until("the run", crate::rig::LIMIT, begun).await.unwrap();
            rig.revoke(&token).await;
            Instant::now()
        };
        let (reply, revoked) = tokio::join!(waiting, revoking);
        let reply = reply.unwrap();
        assert!(revoked.elapsed().as_secs() < 5, "{path}: {:?}", revoked.elapsed());
        // Keep-alives may have begun the response; then its body has the error.
        let told = String::from_utf8_lossy(&reply.body).into_owned();
        assert!(told.contains("revoked"), "{path}: {} {told}", reply.status);
    }
}

#[tokio::test]
async fn a_token_that_sees_only_its_own_makes_none_that_sees_more() {
    let rig = Rig::start().await;
    rig.token("alpha", "owner", Rights::all(), true).await;
    let owner = rig.as_("alpha", "owner");
    let other = owner.post("/api/v1/tokens", &json!({"label": "x", "principal": "alice"})).await;
    assert_eq!(other.unwrap().status, 403);
    let same = owner.post("/api/v1/tokens", &json!({"label": "x"})).await.unwrap().ok().unwrap();
    assert_eq!(same["token"]["own"], true);
}

#[tokio::test]
async fn an_own_token_sees_only_what_its_principal_created() {
    let rig = Rig::start().await;
    rig.token("alpha", "own", user(), true).await;
    let own = rig.as_("alpha", "own");
    let theirs = rig.run_on("theirs", "suspend").await;
    let body = json!({"agent": "puppet", "input": "x", "thread_id": "mine", "create_thread": true});
    let mine = own.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    for path in ["/api/v1/threads/theirs", "/api/v1/threads/theirs/events"] {
        assert_eq!(own.get(path).await.unwrap().code(), "thread_not_found", "{path}");
    }
    let path = format!("/api/v1/runs/{}", text(&theirs, "/id"));
    assert_eq!(own.get(&path).await.unwrap().code(), "run_not_found");
    let path = format!("/api/v1/interrupts/{}/answer", text(&theirs, "/interrupts/0/id"));
    let answer = own.post(&path, &json!({"value": 1})).await.unwrap();
    assert_eq!(answer.code(), "interrupt_not_found");
    let runs = own.get("/api/v1/runs").await.unwrap().ok().unwrap();
    assert_eq!(runs["items"].as_array().unwrap().len(), 1);
    assert_eq!(runs["items"][0]["id"], mine["id"]);
    let all = rig.alice().get("/api/v1/runs").await.unwrap().ok().unwrap();
    assert_eq!(all["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn open_access_is_for_loopback_only_and_a_public_bind_names_the_fix() {
    let principal = principal("local", "local");
    let open = Options { access: Access::Open(principal), ..Options::default() };
    let start = async |options: Options, address: &str| {
        let listener = TcpListener::bind(address).await.unwrap();
        let ports = ports(std::sync::Arc::new(MemoryStore::default())).await;
        Server::start(options, &[], ports, vec![listener])
    };
    let error =
        start(Options { exposure: Exposure::DangerouslyPublic, ..open.clone() }, "0.0.0.0:0")
            .await
            .unwrap_err();
    assert!(error.hint_text().unwrap().contains("authentication"), "{error:?}");
    let error = start(Options::default(), "0.0.0.0:0").await.unwrap_err();
    for key in ["`server.trusted_proxies`", "`server.dangerously_plain_http"] {
        assert!(error.hint_text().unwrap().contains(key), "{error:?}");
    }
    let server = start(open, "127.0.0.1:0").await.unwrap();
    let client = trilogue_testkit::Client::new(server.addresses()[0]);
    assert_eq!(client.get("/api/v1/agents").await.unwrap().status, 200);
    let foreign =
        client.send(Method::GET, "/api/v1/agents", &[("host", "evil.example")], Bytes::new());
    assert_eq!(foreign.await.unwrap().status, 403);
}

#[tokio::test]
async fn dns_rebinding_foreign_authority_is_refused_over_http2() {
    let rig = Rig::start().await;
    let stream = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(stream),
    )
    .await
    .unwrap();
    tokio::spawn(connection);
    for (authority, status) in [("localhost:7878", 200), ("evil.example", 403)] {
        let request = http::Request::get(format!("http://{authority}/api/v1/agents"))
            .header("authorization", "Bearer alpha-alice")
            .body(http_body_util::Empty::<Bytes>::new())
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{authority}");
    }
}
