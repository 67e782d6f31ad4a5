//! Pages of other origins that the operator allowed.

use bytes::Bytes;
use http::Method;
use trilogue_gateway::Options;
use trilogue_testkit::client::Reply;

use crate::rig::Rig;

const APP: &str = "https://app.example.com";

async fn rig() -> Rig {
    Rig::with(Options { allowed_origins: vec![APP.to_owned()], ..Options::default() }).await
}

async fn ask(rig: &Rig, method: Method, path: &str, headers: &[(&str, &str)]) -> Reply {
    rig.alice().send(method, path, headers, Bytes::new()).await.unwrap()
}

fn grants(reply: &Reply) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
    let granted = reply.headers.iter().filter(|(name, _)| {
        name.as_str().starts_with("access-control-") || *name == http::header::VARY
    });
    let mut granted: Vec<_> =
        granted.map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    granted.sort();
    granted
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The headers of every response to an allowed page.
const READABLE: [(&str, &str); 3] = [
    ("access-control-allow-origin", APP),
    (
        "access-control-expose-headers",
        "trilogue-durability, x-request-id, location, content-location, run-id, x-run-id, interrupt-id, x-acp-error-code, x-acp-error-transient, retry-after, warning, link, trilogue-next, www-authenticate, acp-connection-id",
    ),
    ("vary", "Origin"),
];

#[tokio::test]
async fn an_allowed_page_may_read_answers_and_errors() {
    let rig = rig().await;
    for (path, status) in
        [("/api/v1/agents", 200), ("/api/v1/threads/none", 404), ("/nowhere", 404)]
    {
        let reply = ask(&rig, Method::GET, path, &[("origin", APP)]).await;
        assert_eq!((reply.status, grants(&reply)), (status, pairs(&READABLE)), "{path}");
    }
    let bad = [("origin", APP), ("authorization", "Bearer wrong")];
    let reply = ask(&rig, Method::GET, "/api/v1/agents", &bad).await;
    assert_eq!((reply.status, grants(&reply)), (401, pairs(&READABLE)));
    let own = format!("http://{}", rig.address);
    for headers in [&[][..], &[("origin", own.as_str())]] {
        let reply = ask(&rig, Method::GET, "/api/v1/agents", headers).await;
        assert_eq!((reply.status, grants(&reply)), (200, Vec::new()), "{headers:?}");
    }
    let reply = ask(&rig, Method::GET, "/api/v1/agents", &[("origin", "https://evil.example")]);
    let reply = reply.await;
    assert_eq!((reply.status, grants(&reply)), (403, Vec::new()));
}

#[tokio::test]
async fn a_preflight_is_told_the_methods_of_its_route_without_a_token() {
    let rig = rig().await;
    let asks = [("origin", APP), ("access-control-request-method", "POST")];
    for (path, methods) in [("/api/v1/runs", "POST, GET"), ("/api/v1/runs/x/cancel", "POST")] {
        let stranger = rig.stranger();
        let reply = stranger.send(Method::OPTIONS, path, &asks, Bytes::new()).await.unwrap();
        assert_eq!((reply.status, reply.body.len()), (204, 0), "{path}");
        let mut expected = pairs(&READABLE);
        expected.extend(pairs(&[
            (
                "access-control-allow-headers",
                "authorization, x-api-key, content-type, idempotency-key, interrupt-id, last-event-id, traceparent, acp-connection-id, acp-session-id",
            ),
            ("access-control-allow-methods", methods),
            ("access-control-max-age", "600"),
        ]));
        expected.sort();
        assert_eq!(grants(&reply), expected, "{path}");
    }
    let reply = ask(&rig, Method::OPTIONS, "/nowhere", &asks).await;
    assert_eq!(reply.status, 404);
    let reply = ask(&rig, Method::OPTIONS, "/api/v1/runs", &asks[..1]).await;
    assert_eq!(reply.status, 405, "it asks for nothing");
    let foreign = [("origin", "https://evil.example"), asks[1]];
    let reply = ask(&rig, Method::OPTIONS, "/api/v1/runs", &foreign).await;
    assert_eq!((reply.status, grants(&reply)), (403, Vec::new()));
}

#[tokio::test]
async fn nothing_is_granted_where_no_origin_is_named() {
    let rig = Rig::start().await;
    let own = format!("http://{}", rig.address);
    let asks = [("origin", own.as_str()), ("access-control-request-method", "POST")];
    let reply = ask(&rig, Method::OPTIONS, "/api/v1/runs", &asks).await;
    assert_eq!((reply.status, grants(&reply)), (405, Vec::new()));
    let reply = ask(&rig, Method::GET, "/api/v1/agents", &asks[..1]).await;
    assert_eq!((reply.status, grants(&reply)), (200, Vec::new()));
}
