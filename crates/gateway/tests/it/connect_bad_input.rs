//! Every operation with invalid input: it is refused as the protocol defines, and nothing changes.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use trilogue_egress::Policy;
use trilogue_gateway::{ConnectOptions, Protocol};

use crate::connect::{BASE, Face, NOBODY, expected_refusal, refusal, run_body};
use crate::rig::{Setup, text};

/// Everything that a client can read from a server.
async fn seen(face: &Face) -> Value {
    let all = json!({"limit": 1000});
    json!([
        face.post_ok("/runs/search", &all).await,
        face.post_ok("/threads/search", &all).await,
        face.post_ok("/agents/actor/configurations/search", &all).await,
    ])
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let face = Face::start().await;
    let thread = face.thread().await;
    let before = seen(&face).await;
    let long = "x".repeat(300);
    for id in [NOBODY, "abc", "%F0%9F%A6%80", "a%2Fb", "..%2f..", &long] {
        for (method, path, code) in [
            (Method::GET, format!("/runs/{id}"), "run_not_found"),
            (Method::GET, format!("/runs/{id}/wait"), "run_not_found"),
            (Method::GET, format!("/runs/{id}/stream"), "run_not_found"),
            (Method::GET, format!("/runs/{id}/output"), "run_not_found"),
            (Method::POST, format!("/runs/{id}"), "run_not_found"),
            (Method::POST, format!("/runs/{id}/cancel"), "run_not_found"),
            (Method::DELETE, format!("/runs/{id}"), "run_not_found"),
            (Method::GET, format!("/threads/{thread}/runs/{id}"), "run_not_found"),
            (Method::GET, format!("/threads/{thread}/runs/{id}/wait"), "run_not_found"),
            (Method::GET, format!("/threads/{thread}/runs/{id}/stream"), "run_not_found"),
            (Method::POST, format!("/threads/{thread}/runs/{id}"), "run_not_found"),
            (Method::POST, format!("/threads/{thread}/runs/{id}/cancel"), "run_not_found"),
            (Method::DELETE, format!("/threads/{thread}/runs/{id}"), "run_not_found"),
            (Method::GET, format!("/threads/{id}"), "thread_not_found"),
            (Method::PATCH, format!("/threads/{id}"), "thread_not_found"),
            (Method::DELETE, format!("/threads/{id}"), "thread_not_found"),
            (Method::POST, format!("/threads/{id}/copy"), "thread_not_found"),
            (Method::GET, format!("/threads/{id}/history"), "thread_not_found"),
            (Method::GET, format!("/threads/{id}/state"), "thread_not_found"),
            (Method::GET, format!("/threads/{id}/runs"), "thread_not_found"),
            (Method::POST, format!("/threads/{id}/runs"), "thread_not_found"),
            (Method::POST, format!("/threads/{id}/runs/wait"), "thread_not_found"),
            (Method::POST, format!("/threads/{id}/runs/stream"), "thread_not_found"),
            (Method::GET, format!("/threads/{id}/runs/{NOBODY}"), "thread_not_found"),
            (Method::GET, format!("/agents/actor/configurations/{id}"), "configuration_not_found"),
            (
                Method::PATCH,
                format!("/agents/actor/configurations/{id}"),
                "configuration_not_found",
            ),
            (
                Method::DELETE,
                format!("/agents/actor/configurations/{id}"),
                "configuration_not_found",
            ),
            (Method::POST, format!("/agents/{id}/configurations"), "agent_not_found"),
            (Method::POST, format!("/agents/{id}/configurations/search"), "agent_not_found"),
        ] {
            let body = match method {
                _ if path.contains("/configurations") => Value::Null,
                Method::POST | Method::PATCH => run_body("say", "x"),
                _ => Value::Null,
            };
            let reply = face.send(method.clone(), &path, &body).await;
            assert_eq!(refusal(&reply), expected_refusal(404, code), "{method} {path}");
            assert_eq!(reply.headers["x-acp-error-code"], code);
        }
    }
    assert_eq!(seen(&face).await, before);
}

/// The routes that take a body, with invalid bodies for each.
fn bodies(thread: &str) -> Vec<(Method, String, Vec<Value>)> {
    let run = || {
        vec![
            json!({"agent_id": 5}),
            json!({"metadata": []}),
            json!({"metadata": "x"}),
            json!({"webhook": 5}),
            json!({"callback": 5}),
            json!({"callback": {"events": ["status"]}}),
            json!({"callback": {"url": "http://a.example", "events": ["other"]}}),
            json!({"stream_mode": "updates"}),
            json!({"stream_mode": ["values", 5]}),
            json!({"on_disconnect": "stay"}),
            json!({"multitask_strategy": true}),
            json!({"after_seconds": -1}),
            json!({"on_completion": "archive"}),
            json!({"if_not_exists": "maybe"}),
            json!({"stream_subgraphs": "yes"}),
            json!([]),
            json!("text"),
        ]
    };
    let search = || {
        vec![
            json!({"limit": 0}),
            json!({"limit": 1001}),
            json!({"limit": "1"}),
            json!({"offset": -1}),
            json!([]),
        ]
    };
    vec![
        (Method::POST, "/runs".to_owned(), run()),
        (Method::POST, "/runs/wait".to_owned(), run()),
        (Method::POST, "/runs/stream".to_owned(), run()),
        (Method::POST, format!("/threads/{thread}/runs"), run()),
        (Method::POST, format!("/threads/{thread}/runs/wait"), run()),
        (Method::POST, format!("/threads/{thread}/runs/stream"), run()),
        (Method::POST, "/agents/search".to_owned(), search()),
        (Method::POST, "/runs/search".to_owned(), search()),
        (Method::POST, "/threads/search".to_owned(), search()),
        (Method::POST, "/threads".to_owned(), vec![json!({"metadata": 5}), json!([])]),
        (Method::PATCH, format!("/threads/{thread}"), vec![json!({"metadata": 5}), json!([])]),
        (
            Method::POST,
            "/agents/actor/configurations".to_owned(),
            vec![json!({"metadata": 5}), json!({"name": 5}), json!({"if_exists": "x"}), json!([])],
        ),
    ]
}

#[tokio::test]
async fn a_body_that_does_not_fit_changes_nothing() {
    let face = Face::start().await;
    let thread = face.thread().await;
    let before = seen(&face).await;
    for (method, path, bodies) in bodies(&thread) {
        for body in bodies {
            let reply = face.send(method.clone(), &path, &body).await;
            assert_eq!(refusal(&reply), expected_refusal(422, "validation_error"), "{path} {body}");
            assert!(reply.json()["data"]["errors"][0]["message"].is_string(), "{}", reply.json());
        }
        for malformed in
            ["{", "nul", "{\"metadata\":{},}", "\u{0}", "{} {}", "{\"name\":\"\\ud800\"}x"]
        {
            let body = Bytes::from(malformed);
            let reply = face.send_raw(&face.client, method.clone(), &path, &[], body).await;
            assert_eq!(
                refusal(&reply),
                expected_refusal(422, "invalid_json"),
                "{path} {malformed}"
            );
        }
        let invalid = Bytes::from_static(b"{\"metadata\":{\"a\":\"\xff\"}}");
        let reply = face.send_raw(&face.client, method.clone(), &path, &[], invalid).await;
        assert_eq!(reply.status, 422, "{path} {}", reply.json());
        if path != "/agents/search" {
            let (open, close) = ("[".repeat(200), "]".repeat(200));
            let deep = Bytes::from(format!("{{\"metadata\":{{\"a\":{open}1{close}}}}}"));
            let reply = face.send_raw(&face.client, method.clone(), &path, &[], deep).await;
            assert_eq!(reply.status, 422, "{path} {}", reply.json());
        }
    }
    assert_eq!(seen(&face).await, before);
}

#[tokio::test]
async fn input_and_config_that_do_not_fit_name_the_place() {
    let face = Face::start().await;
    let thread = face.thread().await;
    let before = seen(&face).await;
    for path in ["/runs", "/runs/wait", "/runs/stream"] {
        for path in [path.to_owned(), format!("/threads/{thread}{path}")] {
            for (body, code, place) in [
                (json!({"input": {"do": 5}}), "input_schema_violation", "/do"),
                (json!({"input": {}}), "input_schema_violation", ""),
                (json!({}), "input_schema_violation", ""),
                (json!({"input": "x"}), "input_schema_violation", ""),
                (
                    json!({"input": {"do": "say"}, "config": {"style": "rude"}}),
                    "config_schema_violation",
                    "/style",
                ),
                (
                    json!({"input": {"do": "say"}, "config": {"configurable": {"pace": "x"}}}),
                    "config_schema_violation",
                    "/pace",
                ),
                (json!({"input": {"do": "say"}, "webhook": "not a url"}), "invalid_webhook", ""),
                (
                    json!({"input": {"do": "say"}, "webhook": "ftp://a.example"}),
                    "invalid_webhook",
                    "",
                ),
                (
                    json!({"input": {"do": "say"}, "callback": "http://127.0.0.1:1/x"}),
                    "invalid_webhook",
                    "",
                ),
                (
                    json!({"agent_id": "plain", "input": "x", "stream_mode": "custom"}),
                    if path.starts_with("/threads") {
                        "threads_not_supported"
                    } else {
                        "stream_mode_not_supported"
                    },
                    "",
                ),
            ] {
                let reply = face.post(&path, &body).await;
                assert_eq!(
                    refusal(&reply),
                    expected_refusal(422, code),
                    "{path} {body} {}",
                    reply.json()
                );
                if !place.is_empty() {
                    assert_eq!(text(&reply.json(), "/data/path"), place, "{}", reply.json());
                }
            }
            let unknown = json!({"agent_id": NOBODY, "input": {}});
            let reply = face.post(&path, &unknown).await;
            assert_eq!(refusal(&reply), expected_refusal(404, "agent_not_found"), "{path}");
        }
    }
    assert_eq!(seen(&face).await, before);
}

#[tokio::test]
async fn what_has_no_effect_is_said() {
    let face = Face::of(Setup { egress: Policy::local(), ..Setup::default() }).await;
    let plain = json!({"agent_id": "plain", "input": "x", "webhook": "https://a.example/hook"});
    let reply = face.post("/runs/wait", &plain).await;
    assert_eq!(reply.status, 200, "{}", reply.json());
    assert!(reply.headers["warning"].to_str().unwrap().contains("callback"));
    let mut deep = run_body("say", "x");
    deep["config"] = json!({"recursion_limit": 5, "tags": ["a"]});
    let reply = face.post("/runs/wait", &deep).await;
    assert!(reply.headers["warning"].to_str().unwrap().contains("recursion_limit"));
    assert_eq!(reply.json()["run"]["creation"]["config"], deep["config"]);
    let warned = async |body: Value, word: &str| {
        let reply = face.post("/runs/wait", &body).await;
        let warning = reply.headers.get("warning").map(|it| it.to_str().unwrap().to_owned());
        assert!(warning.unwrap_or_default().contains(word), "{body}: {}", reply.json());
    };
    // An agent that declares no configuration gets it unchecked.
    let undeclared = json!({"agent_id": "plain", "input": "x", "config": {"style": "formal"}});
    warned(undeclared, "configuration").await;
    let modes = json!({"agent_id": "primitive", "input": "x", "stream_mode": ["values", "custom"]});
    warned(modes, "'custom'").await;
    let url = "http://127.0.0.1:9/x";
    let callback = json!({"url": url, "events": ["status", "custom"]});
    let events = json!({"agent_id": "primitive", "input": "x", "callback": callback});
    warned(events, "'callback.events': the agent does not stream 'custom'").await;
    let empty = json!({"agent_id": "plain", "input": "x", "config": {}});
    let quiet = face.post("/runs/wait", &empty).await;
    assert!(quiet.headers.get("warning").is_none(), "{:?}", quiet.headers);
    let quiet = face.post("/runs/wait", &run_body("say", "x")).await;
    assert!(quiet.headers.get("warning").is_none());
}

#[tokio::test]
async fn what_is_too_large_is_refused() {
    let face = Face::start().await;
    let before = seen(&face).await;
    let large = json!({"input": {"do": "say"}, "metadata": {"a": "x".repeat(70_000)}});
    for path in ["/runs", "/runs/wait", "/runs/stream"] {
        let reply = face.post(path, &large).await;
        assert_eq!(refusal(&reply), expected_refusal(413, "payload_too_large"), "{path}");
    }
    let long = json!({"input": {"do": "say"}, "webhook": format!("https://a.example/{}", "x".repeat(70_000))});
    assert_eq!(refusal(&face.post("/runs", &long).await), expected_refusal(422, "invalid_webhook"));
    assert_eq!(seen(&face).await, before);
}

#[tokio::test]
async fn secrets_are_not_shown_again() {
    let face = Face::start().await;
    let mut body = run_body("config", "");
    body["config"] = json!({"key": "hunter2", "style": "formal"});
    let done = face.post_ok("/runs/wait", &body).await;
    assert!(text(&done, "/output/values/message").contains("hunter2"), "the agent gets it");
    assert_eq!(done["run"]["creation"]["config"], json!({"style": "formal"}));
    let made =
        face.post_ok("/agents/actor/configurations", &json!({"config": {"key": "hunter2"}})).await;
    assert!(!made.to_string().contains("hunter2"), "{made}");
}

#[tokio::test]
async fn methods_that_a_path_does_not_have_are_named() {
    let face = Face::start().await;
    for (method, path) in [
        (Method::PUT, "/runs"),
        (Method::DELETE, "/agents/search"),
        (Method::PATCH, "/runs/search"),
        (Method::GET, "/threads/search/copy"),
    ] {
        let reply = face.send(method.clone(), path, &Value::Null).await;
        assert_eq!(refusal(&reply), expected_refusal(405, "method_not_allowed"), "{method} {path}");
        assert!(reply.headers.contains_key("allow"));
    }
    let reply = face.get("/nothing/here").await;
    assert_eq!(refusal(&reply), expected_refusal(404, "not_found"));
}

#[tokio::test]
async fn query_parameters_that_nobody_knows_are_passed_over_on_every_route() {
    let face = Face::start().await;
    for operation in ConnectOptions::default().operations() {
        let path = operation.path.replace("{agent_id}", "actor").replace(['{', '}'], "");
        let method = Method::from_bytes(operation.method.as_bytes()).unwrap();
        let send = async |query: &str| {
            let path = format!("{BASE}{path}{query}");
            face.client.send(method.clone(), &path, &[], Bytes::new()).await.unwrap()
        };
        let (plain, asked) = (send("").await, send("?nobody=knows&x-signature=1").await);
        assert_eq!(asked.status, plain.status, "{operation:?}");
        let told = String::from_utf8_lossy(&asked.body).into_owned();
        assert!(!told.contains("query parameter"), "{operation:?}: {told}");
    }
}

#[tokio::test]
async fn an_agent_without_threads_leaves_none_behind() {
    let face = Face::start().await;
    let before = seen(&face).await;
    let body = json!({"agent_id": "plain", "input": "x", "on_completion": "keep"});
    for path in ["/runs", "/runs/wait", "/runs/stream"] {
        let reply = face.post(path, &body).await;
        assert_eq!(refusal(&reply), expected_refusal(422, "threads_not_supported"), "{path}");
    }
    assert_eq!(seen(&face).await, before);
}

#[tokio::test]
async fn content_that_is_called_base64_and_is_none_is_refused() {
    let face = Face::start().await;
    let image = |content: &str| {
        let metadata = json!({
            "content_type": "image/png", "content": content, "content_encoding": "base64",
        });
        let block = json!({ "type": "image", "metadata": metadata });
        json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "x" }, block] }] })
    };
    let run = |content: &str| json!({ "agent_id": "plain", "input": image(content) });
    let before = seen(&face).await;
    let reply = face.send(Method::POST, "/runs/wait", &run("a$b")).await;
    assert_eq!(refusal(&reply), expected_refusal(422, "input_schema_violation"), "{reply:?}");
    assert!(format!("{reply:?}").contains("/input/messages/0/content/1/metadata/content"));
    assert_eq!(seen(&face).await, before);
    let reply = face.send(Method::POST, "/runs/wait", &run("aGk=")).await;
    assert_eq!(reply.status, 200, "{reply:?}");
}
