//! Where the Agent Connect Protocol is mounted, the deviations in paths that it tolerates, and the form of its errors.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use trilogue_domain::{Right, Rights};
use trilogue_gateway::{ConnectOptions, ErrorBody, Mount, Options};
use trilogue_testkit::client::Reply;

use crate::rig::{Rig, Setup};

fn at(prefix: &str) -> Mount {
    Mount::new(ConnectOptions::default(), prefix).unwrap()
}

async fn mounted(mounts: Vec<Mount>) -> Rig {
    Rig::with(mounts).await
}

async fn search(rig: &Rig, path: &str) -> u16 {
    let reply = rig.alice().post(path, &json!({})).await.unwrap();
    if reply.status == 200 {
        assert_eq!(reply.json()[0]["metadata"]["ref"]["name"], "puppet", "{path}");
    }
    reply.status
}

/// Asserts that a response is an error of the protocol, and returns its code and number.
fn fault(reply: &Reply) -> (u16, String, u64) {
    assert_eq!(reply.headers["content-type"], "application/json", "{}", reply.json());
    let body = reply.json();
    for text in ["description", "detail", "message"] {
        assert!(!body[text].as_str().unwrap().is_empty(), "{body}");
        assert_eq!(body[text], body["description"]);
    }
    let header = |name: &str| reply.headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("x-acp-error-code"), body["code"].as_str().unwrap());
    assert_eq!(header("x-acp-error-transient"), body["transient"].to_string());
    assert!(reply.headers.contains_key("x-request-id"));
    (reply.status, reply.code(), body["errcode"].as_u64().unwrap())
}

fn is(status: u16, code: &str, number: u64) -> (u16, String, u64) {
    (status, code.to_owned(), number)
}

#[tokio::test]
async fn paths_are_tidied_below_the_mount_and_nowhere_else() {
    for prefix in ["/connect", "/acp/v0.2/deep", "/"] {
        let rig = mounted(vec![at(prefix)]).await;
        let base = prefix.trim_end_matches('/');
        for path in [
            "/agents/search",
            "//agents/search",
            "/agents//search",
            "/agents/search/",
            "///agents///search//",
        ] {
            assert_eq!(search(&rig, &format!("{base}{path}")).await, 200, "{prefix} {path}");
        }
        for path in ["/agents/search/x", "/agent/search", "/agents/./search"] {
            assert_eq!(search(&rig, &format!("{base}{path}")).await, 404, "{prefix} {path}");
        }
        let own = rig.alice().get("/api/v1//agents").await.unwrap();
        assert_eq!(own.status, 404, "{prefix}");
        assert_eq!(rig.alice().get("/healthz").await.unwrap().status, 200);
    }
    let rig = Rig::start().await;
    assert_eq!(search(&rig, "/connect/agents/search").await, 200);
    assert_eq!(search(&rig, "/agents/search").await, 404);
    // The other protocol stays strict.
    for path in ["/communication//ping", "/communication/ping/"] {
        assert_eq!(rig.alice().get(path).await.unwrap().status, 404, "{path}");
    }
}

#[tokio::test]
async fn what_the_official_client_sends_is_taken_as_it_comes() {
    let rig = Rig::start().await;
    let alice = rig.alice();
    let agent = "/connect/agents/puppet";
    let head = alice.send(Method::HEAD, agent, &[], Bytes::new()).await.unwrap();
    assert_eq!((head.status, head.body.len()), (200, 0));
    let unknown = alice.get(&format!("{agent}?x=1&x=2&=3&limit=abc")).await.unwrap();
    assert_eq!(unknown.status, 200, "{}", unknown.json());
    for kind in ["application/json", "text/plain", "application/x-www-form-urlencoded", "nonsense"]
    {
        for accept in ["application/json", "text/event-stream", "image/png", ""] {
            let headers = [("content-type", kind), ("accept", accept)];
            let body = Bytes::from_static(b"{\"limit\":10,\"offset\":0}");
            let path = "/connect/agents/search";
            let reply = alice.send(Method::POST, path, &headers, body).await.unwrap();
            assert_eq!(reply.status, 200, "{kind} {accept}: {}", reply.json());
        }
    }
    let empty = alice.send(Method::POST, "/connect/threads", &[], Bytes::new()).await.unwrap();
    assert_eq!(empty.status, 200, "{}", empty.json());
}

type Case =
    (Method, &'static str, Vec<(&'static str, &'static str)>, Bytes, (u16, &'static str, u64));

/// Requests that fail before a handler runs, the same on every route.
fn cases() -> Vec<Case> {
    let none = Bytes::new;
    let search = "/agents/search";
    let large = Bytes::from(vec![b' '; 2_000]);
    vec![
        (Method::GET, "/nope", vec![], none(), (404, "not_found", 4040)),
        (Method::GET, "", vec![], none(), (404, "not_found", 4040)),
        (Method::DELETE, search, vec![], none(), (405, "method_not_allowed", 4050)),
        (Method::POST, search, vec![], large, (413, "payload_too_large", 4130)),
        (Method::POST, search, vec![], Bytes::from_static(b"{"), (422, "invalid_json", 4226)),
        (Method::POST, search, vec![], Bytes::from_static(b"[]"), (422, "validation_error", 4220)),
        (Method::POST, search, vec![("host", "evil.example")], none(), (403, "forbidden", 4030)),
        (
            Method::POST,
            search,
            vec![("origin", "https://evil.example")],
            none(),
            (403, "forbidden", 4030),
        ),
        (Method::POST, "/agents/search?api_key=x", vec![], none(), (422, "validation_error", 4220)),
        (
            Method::POST,
            search,
            vec![("authorization", "Bearer wrong")],
            none(),
            (401, "unauthenticated", 4010),
        ),
        (Method::GET, "/agents/none", vec![], none(), (404, "agent_not_found", 4041)),
        (Method::GET, "/runs/none", vec![], none(), (404, "run_not_found", 4043)),
        (Method::GET, "/threads/none", vec![], none(), (404, "thread_not_found", 4042)),
    ]
}

#[tokio::test]
async fn errors_have_one_shape_whoever_finds_them() {
    let options = Options { max_body_bytes: 1_000, ..Options::default() };
    let rig = Rig::with(options).await;
    for (method, path, headers, body, (status, code, number)) in cases() {
        let path = format!("/connect{path}");
        let reply = rig.alice().send(method, &path, &headers, body).await.unwrap();
        assert_eq!(fault(&reply), is(status, code, number), "{path}: {}", reply.json());
        assert_eq!(reply.headers.contains_key("allow"), status == 405);
        assert_eq!(reply.headers.contains_key("www-authenticate"), status == 401);
        if status == 401 {
            assert_eq!(reply.headers["link"], "</connect/authentication>; rel=\"authentication\"");
        }
    }
    let rights: Rights = [Right::Run].into_iter().collect();
    rig.token("alpha", "runner", rights, false).await;
    let reply =
        rig.as_("alpha", "runner").post("/connect/agents/search", &json!({})).await.unwrap();
    assert_eq!(fault(&reply), is(403, "forbidden", 4030));
    assert!(reply.json()["description"].as_str().unwrap().contains("'read'"));
}

#[tokio::test]
async fn an_error_is_its_description_alone_where_the_mount_says_so() {
    let connect = ConnectOptions { error_body: ErrorBody::String, ..ConnectOptions::default() };
    let strings = Mount::new(connect, "/strings").unwrap();
    let options = Options { max_body_bytes: 1_000, ..Options::default() };
    let mounts = Some(vec![strings, at("/connect")]);
    let rig = Rig::of(Setup { options, mounts, ..Setup::default() }).await;
    for (method, path, headers, body, (status, code, _)) in cases() {
        let under = |prefix: &str| format!("{prefix}{path}");
        let send = async |path: String| {
            rig.alice().send(method.clone(), &path, &headers, body.clone()).await.unwrap()
        };
        let (reply, other) = (send(under("/strings")).await, send(under("/connect")).await);
        assert_eq!(reply.status, status, "{path}");
        let told = reply.json();
        assert!(told.is_string(), "{told}");
        assert_eq!(reply.headers["x-acp-error-code"], code);
        let expected =
            other.json()["description"].as_str().unwrap().replace("/connect", "/strings");
        assert_eq!(told, Value::from(expected), "{path}");
    }
}

#[tokio::test]
async fn too_many_streams_are_refused_as_something_that_passes() {
    let rig = Rig::with(Options { max_streams: 0, ..Options::default() }).await;
    let body = json!({"agent_id": "puppet", "input": {"message": "x"}});
    let reply = rig.alice().post("/connect/runs/stream", &body).await.unwrap();
    assert_eq!(fault(&reply), is(429, "rate_limited", 4290));
    assert_eq!(
        (reply.headers["retry-after"].to_str().unwrap(), &reply.json()["transient"]),
        ("1", &json!(true))
    );
}

#[tokio::test]
async fn a_page_may_read_the_protocols_headers_and_asks_for_its_methods() {
    let app = "https://app.example.com";
    let options = Options { allowed_origins: vec![app.to_owned()], ..Options::default() };
    let rig = Rig::with(options).await;
    let asks = [("origin", app), ("access-control-request-method", "POST")];
    let path = "/connect//runs/";
    let reply = rig.stranger().send(Method::OPTIONS, path, &asks, Bytes::new()).await.unwrap();
    assert_eq!(reply.status, 204);
    assert_eq!(reply.headers["access-control-allow-methods"], "POST");
    let exposed = reply.headers["access-control-expose-headers"].to_str().unwrap();
    for name in ["x-run-id", "content-location", "x-acp-error-code", "warning"] {
        assert!(exposed.split(", ").any(|it| it == name), "{exposed}");
    }
}
