//! Ping, agents, refused requests and their errors; and the same requests to a compatible and a strict mount.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::communication::{BASE, both, get, mount, post, run, run_of, served, start, with};
use crate::rig::text;
use trilogue_gateway::Options;

#[tokio::test]
async fn ping_answers_with_an_empty_object() {
    let rig = start().await;
    let reply = get(&rig.alice(), "/ping").await;
    assert_eq!((reply.status, &reply.body[..]), (200, &b"{}"[..]));
    assert_eq!(reply.headers["content-type"], "application/json");
}

#[tokio::test]
async fn agents_are_listed_whole_and_paged_only_when_asked() {
    let (_rig, client) = served().await;
    let list = get(&client, "/agents").await.ok().unwrap();
    let names: Vec<_> = list["agents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| text(agent, "/name").to_owned())
        .collect();
    assert_eq!(names.len(), 22, "{names:?}");
    for agent in list["agents"].as_array().unwrap() {
        assert!(agent["metadata"].is_object(), "{agent}");
        assert!(!agent["input_content_types"].as_array().unwrap().is_empty(), "{agent}");
        assert!(agent["description"].is_string(), "{agent}");
        let one = get(&client, &format!("/agents/{}", text(agent, "/name"))).await;
        assert_eq!(one.ok().unwrap(), *agent);
    }
    let page = |query: &'static str| {
        let client = client.clone();
        async move {
            let list = get(&client, &format!("/agents?{query}")).await.ok().unwrap();
            let agents = list["agents"].as_array().unwrap().clone();
            agents.iter().map(|agent| text(agent, "/name").to_owned()).collect::<Vec<_>>()
        }
    };
    assert_eq!(page("limit=3").await, names[..3]);
    assert_eq!(page("limit=3&offset=2").await, names[2..5]);
    assert_eq!(page("offset=19").await, names[19..]);
    assert_eq!(page("offset=99").await, Vec::<String>::new());
    assert_eq!(page("whatever=1").await, names);
    for bad in ["limit=0", "limit=1001", "limit=abc", "limit=", "offset=-1", "offset=x"] {
        let reply = get(&client, &format!("/agents?{bad}")).await;
        assert_eq!((reply.status, reply.code().as_str()), (422, "invalid_input"), "{bad}");
    }
}

#[tokio::test]
async fn an_agent_with_dots_has_a_name_that_fits_a_role_and_tells_its_own() {
    let (_rig, client) = served().await;
    let agent = get(&client, "/agents/org-dotted-name").await.ok().unwrap();
    assert_eq!(text(&agent, "/name"), "org-dotted-name");
    assert!(agent["metadata"]["x_trilogue"].to_string().contains("org.dotted.name"), "{agent}");
    let done = run(&client, "org-dotted-name", "hi").await;
    assert_eq!(text(&done, "/agent_name"), "org-dotted-name");
    assert_eq!(text(&done, "/output/0/role"), "agent/org-dotted-name");
    let typed = get(&client, "/agents/typed").await.ok().unwrap();
    assert_eq!(typed["input_content_types"], json!(["text/plain"]));
    assert_eq!(typed["output_content_types"], json!(["text/html", "text/css"]));
}

#[tokio::test]
async fn every_refusal_has_the_protocols_body() {
    let (rig, client) = served().await;
    let unknown = "00000000-0000-4000-8000-000000000000";
    let done = run(&client, "echo", "x").await;
    let (run_id, session) = (text(&done, "/run_id"), text(&done, "/session_id"));
    for (method, path, status, code) in [
        (Method::GET, "/agents/nope".to_owned(), 404, "not_found"),
        (Method::GET, "/agents/Echo".to_owned(), 404, "not_found"),
        (Method::GET, "/agents/org.dotted.name".to_owned(), 404, "not_found"),
        (Method::GET, format!("/runs/{unknown}"), 404, "not_found"),
        (Method::GET, "/runs/abc".to_owned(), 422, "invalid_input"),
        (Method::GET, format!("/runs/{unknown}/events"), 404, "not_found"),
        (Method::GET, "/runs/abc/events".to_owned(), 422, "invalid_input"),
        (Method::POST, format!("/runs/{unknown}/cancel"), 404, "not_found"),
        (Method::POST, "/runs/abc/cancel".to_owned(), 422, "invalid_input"),
        (Method::POST, format!("/runs/{run_id}/cancel"), 403, "server_error"),
        (Method::GET, format!("/sessions/{unknown}"), 404, "not_found"),
        (Method::GET, format!("/session/{unknown}"), 404, "not_found"),
        (Method::GET, "/sessions/abc".to_owned(), 422, "invalid_input"),
        (Method::GET, format!("/sessions/{session}/state/{unknown}"), 404, "not_found"),
        (Method::GET, format!("/sessions/{session}/state/abc"), 422, "invalid_input"),
        (Method::GET, format!("/sessions/{session}/blobs/abc"), 404, "not_found"),
        (Method::GET, format!("/resources/{unknown}"), 404, "not_found"),
        (Method::GET, "/resources/abc".to_owned(), 422, "invalid_input"),
        (Method::GET, "/nothing".to_owned(), 404, "not_found"),
        (Method::GET, "/runs/".to_owned(), 404, "not_found"),
        (Method::PUT, "/runs".to_owned(), 405, "server_error"),
    ] {
        let path = format!("{BASE}{path}");
        let reply = client.send(method.clone(), &path, &[], Bytes::new()).await.unwrap();
        let body = reply.json();
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{method} {path} {body}");
        assert_eq!(reply.headers["content-type"], "application/json", "{path}");
        assert!(!text(&body, "/message").is_empty(), "{path}");
        assert!(!text(&body, "/data/reason").is_empty(), "{path}");
        assert_eq!(text(&body, "/data/request_id"), reply.headers["x-request-id"], "{path}");
        assert_eq!(body.as_object().unwrap().len(), 3, "{body}");
    }
    let reply = rig.stranger().get(&format!("{BASE}/agents")).await.unwrap();
    assert_eq!((reply.status, reply.code().as_str()), (401, "server_error"));
}

#[tokio::test]
async fn ids_of_the_path_are_read_in_every_form() {
    let (_rig, client) = served().await;
    let done = run(&client, "echo", "x").await;
    let id = text(&done, "/run_id");
    let simple = id.replace('-', "");
    for form in
        [id.to_ascii_uppercase(), simple.clone(), format!("%7B{id}%7D"), format!("urn:uuid:{id}")]
    {
        let again = get(&client, &format!("/runs/{form}")).await.ok().unwrap();
        assert_eq!(again, done, "{form}");
    }
}

/// A body, the status on a default mount and on a strict one, and the member that a refusal names.
fn departures() -> Vec<(Value, u16, u16, &'static str)> {
    let parts =
        |parts: Value| json!({"agent_name": "echo", "input": [{"role": "user", "parts": parts}]});
    let plain = "text/plain";
    let citation = json!({"kind": "citation", "url": "https://a.example"});
    vec![
        (parts(json!([{"content": "x", "content_type": plain}])), 200, 200, ""),
        (parts(json!([{"content": "x"}])), 422, 422, "input[0].parts[0].content_type"),
        (
            parts(json!([{"content": "x", "content_type": null}])),
            422,
            422,
            "input[0].parts[0].content_type",
        ),
        (
            parts(json!([{"content": "x", "content_type": "zzz"}])),
            422,
            422,
            "input[0].parts[0].content_type",
        ),
        (parts(json!([{"content_type": plain}])), 422, 422, "input[0].parts[0]"),
        (parts(json!([{"content_type": plain, "name": "a.txt"}])), 422, 422, "input[0].parts[0]"),
        (
            parts(json!([{"content_type": plain, "metadata": citation}])),
            200,
            422,
            "input[0].parts[0]",
        ),
        (
            parts(json!([{"content_type": plain, "name": "a.txt", "metadata": citation}])),
            422,
            422,
            "input[0].parts[0]",
        ),
        (
            parts(json!([{"content_type": plain, "content": "", "metadata": citation}])),
            200,
            200,
            "",
        ),
        (
            parts(
                json!([{"content_type": "image/png", "content": "%%", "content_encoding": "base64"}]),
            ),
            422,
            422,
            "input[0].parts[0].content",
        ),
        (
            parts(
                json!([{"content": "x", "content_url": "https://a.example", "content_type": plain}]),
            ),
            422,
            422,
            "input[0].parts[0]",
        ),
        (
            parts(json!([{"content_url": "not/absolute", "content_type": plain}])),
            422,
            422,
            "input[0].parts[0].content_url",
        ),
        (parts(json!([{"content_url": "data:text/plain,x", "content_type": plain}])), 200, 200, ""),
        (
            parts(json!([{"content": "x", "content_type": plain, "content_encoding": "gzip"}])),
            422,
            422,
            "input[0].parts[0].content_encoding",
        ),
        (
            parts(json!([{"content": 123, "content_type": plain}])),
            422,
            422,
            "input[0].parts[0].content",
        ),
        (
            parts(json!([{"content": "x", "content_type": plain, "metadata": {"kind": "other"}}])),
            422,
            422,
            "input[0].parts[0].metadata",
        ),
        (
            parts(json!([{"content": "x", "content_type": plain, "metadata": {}}])),
            422,
            422,
            "input[0].parts[0].metadata",
        ),
        (
            json!({"agent_name": "echo", "input": [{"parts": [{"content": "x", "content_type": plain}]}]}),
            422,
            422,
            "input[0].role",
        ),
        (
            json!({"agent_name": "echo", "input": [{"role": "system", "parts": []}]}),
            422,
            422,
            "input[0].role",
        ),
    ]
}

#[tokio::test]
async fn every_departure_from_the_documents_holds_on_one_mount_and_not_on_the_other() {
    let rig = both().await;
    let client = rig.alice();
    for (body, compatible, strict, named) in departures() {
        let reply = post(&client, "/runs", &body).await;
        assert_eq!(reply.status, compatible, "{body} {}", reply.json());
        let reply = client.post("/strict/runs", &body).await.unwrap();
        assert_eq!(reply.status, strict, "{body} {}", reply.json());
        if strict == 422 {
            let message = reply.json();
            assert_eq!(text(&message, "/code"), "invalid_input");
            assert!(text(&message, "/message").contains(named), "{body} {message}");
        }
    }
}

#[tokio::test]
async fn the_compatible_matrix_is_the_reference_servers() {
    let (_rig, client) = served().await;
    let echo = |input: Value| json!({"agent_name": "echo", "input": input});
    let other = "00000000-0000-4000-8000-000000000001";
    let mine = "00000000-0000-4000-8000-000000000002";
    for (body, status) in [
        (json!([]), 422),
        (json!({}), 422),
        (json!({"agent_name": "echo"}), 422),
        (json!({"input": []}), 422),
        (echo(json!([{"role": "user"}])), 422),
        (echo(json!([])), 200),
        (echo(json!([{"parts": []}])), 422),
        (echo(json!([{"role": "user", "parts": []}])), 200),
        (echo(json!([{"role": "agent/", "parts": []}])), 422),
        (echo(json!([{"role": "agent/a b", "parts": []}])), 422),
        (echo(json!([{"role": null, "parts": []}])), 422),
        (echo(json!([{"role": "agent/x_-1", "parts": []}])), 200),
        (json!({"agent_name": "nope", "input": []}), 404),
        (json!({"agent_name": "Echo", "input": []}), 404),
        (json!({"agent_name": "nope", "input": [{"role": "system", "parts": []}]}), 422),
        (json!({"agent_name": "echo", "input": [], "mode": "turbo"}), 422),
        (json!({"agent_name": "echo", "input": [], "mode": null}), 422),
        (json!({"agent_name": "echo", "input": [], "session_id": "abc"}), 422),
        (
            json!({"agent_name": "echo", "input": [], "session_id": other, "session": {"id": mine}}),
            400,
        ),
        (
            json!({"agent_name": "nope", "input": [], "session_id": other, "session": {"id": mine}}),
            404,
        ),
        (
            json!({"agent_name": "echo", "input": [], "session_id": mine, "session": {"id": mine}}),
            200,
        ),
        (json!({"agent_name": "echo", "input": [], "session": {}}), 200),
        (
            json!({"agent_name": "echo", "input": [], "session": {"history": ["ftp://a.example/x"]}}),
            422,
        ),
        (json!({"agent_name": "echo", "input": [], "unknown": 1}), 200),
    ] {
        let reply = post(&client, "/runs", &body).await;
        assert_eq!(reply.status, status, "{body} {}", reply.json());
        if status >= 400 {
            let code = if status == 404 { "not_found" } else { "invalid_input" };
            assert_eq!(reply.code(), code, "{body}");
        }
    }
    for body in ["", "x", "{", "\"text\""] {
        let send = client.send(Method::POST, "/communication/runs", &[], Bytes::from(body));
        let reply = send.await.unwrap();
        assert_eq!((reply.status, reply.code().as_str()), (422, "invalid_input"), "{body}");
    }
}

#[tokio::test]
async fn a_body_is_json_whatever_json_calls_itself() {
    let rig = start().await;
    let body = Bytes::from(run_of("echo", "x", "sync").to_string());
    let send = |kind: &'static str| {
        let (client, body) = (rig.alice(), body.clone());
        async move {
            let headers = [("content-type", kind)];
            client.send(Method::POST, "/communication/runs", &headers, body).await.unwrap().status
        }
    };
    for kind in ["application/json", "application/json; charset=utf-8", "Application/Vnd.x+JSON"] {
        assert_eq!(send(kind).await, 200, "{kind}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "text/json+json", "x"] {
        assert_eq!(send(kind).await, 422, "{kind}");
    }
}

#[tokio::test]
async fn a_body_without_a_content_type_is_json_as_the_official_client_sends_it() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let rig = start().await;
    let body = run_of("echo", "x", "sync").to_string();
    let request = format!(
        "POST /communication/runs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer alpha-alice\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_mount_at_the_root_serves_the_same_and_our_own_routes_stay() {
    let mounts = vec![mount("/", false, false)];
    let rig = with(mounts).await;
    let client = rig.alice();
    let done = client.post("/runs", &run_of("echo", "x", "sync")).await.unwrap().ok().unwrap();
    let session = client.get(&format!("/sessions/{}", text(&done, "/session_id"))).await.unwrap();
    let session = session.ok().unwrap();
    let address = text(&session, "/history/0");
    assert!(address.starts_with(&format!("http://{}/resources/", rig.address)), "{address}");
    assert_eq!(client.get("/api/v1/agents").await.unwrap().status, 200);
    assert_eq!(client.get("/healthz").await.unwrap().body, "ok\n");
}

#[tokio::test]
async fn a_run_is_configured_by_what_the_agents_schema_takes() {
    let (_rig, client) = served().await;
    let mut body = run_of("setter", "x", "sync");
    body["config"] = json!({"temperature": 0.5});
    let done = post(&client, "/runs", &body).await.ok().unwrap();
    assert_eq!(text(&done, "/output/0/parts/0/content"), r#"{"temperature":0.5}"#);
    body["config"] = json!({"temperature": "hot"});
    let reply = post(&client, "/runs", &body).await;
    assert_eq!((reply.status, reply.code().as_str()), (422, "invalid_input"));
    assert!(text(&reply.json(), "/message").contains("temperature"));
    let manifest = get(&client, "/agents/setter").await.ok().unwrap();
    assert!(manifest["metadata"].to_string().contains("temperature"), "{manifest}");
}

#[tokio::test]
async fn metadata_has_a_limit_of_its_own_and_the_part_is_named() {
    let rig = with(Options { max_part_metadata_bytes: 200, ..Options::default() }).await;
    let client = rig.alice();
    let send = async |length: usize| {
        let metadata = json!({"kind": "trajectory", "message": "x".repeat(length)});
        let part = |metadata: Value| json!({"content_type": "text/plain", "content": "x", "metadata": metadata});
        let parts = json!([part(Value::Null), part(metadata)]);
        let input = json!([{"role": "user", "parts": parts}]);
        let body = json!({"agent_name": "echo", "input": input, "mode": "sync"});
        post(&client, "/runs", &body).await
    };
    assert_eq!(send(20).await.status, 200);
    let refused = send(500).await;
    assert_eq!((refused.status, refused.code().as_str()), (422, "invalid_input"));
    let message = refused.json();
    assert!(text(&message, "/message").contains("input[0].parts[1].metadata"), "{message}");
}
