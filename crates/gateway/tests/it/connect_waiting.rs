//! Waits: time-outs, and clients that disconnect.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use trilogue_gateway::{ConnectOptions, Mount, Options};

use crate::connect::{BASE, Face, expected_refusal, refusal, run_body};
use crate::rig::{LIMIT, Setup, text};

#[tokio::test]
async fn an_impatient_client_gets_nothing_and_the_run_goes_on() {
    let face = Face::start().await;
    let id = face.begin("/runs", &run_body("hold", "x")).await;
    for query in ["timeout=0", "timeout=0.05", "block_timeout=0", "timeout=1e-3"] {
        let reply = face.get(&format!("/runs/{id}/wait?{query}")).await;
        assert_eq!((reply.status, reply.body.len()), (204, 0), "{query}");
        assert_eq!(reply.headers["x-run-id"], id);
    }
    assert_eq!(face.get(&format!("/runs/{id}/output")).await.status, 204);
    let reply = face.post("/runs/wait?timeout=0.05", &run_body("hold", "y")).await;
    assert_eq!(reply.status, 204);
    let other = reply.headers["x-run-id"].to_str().unwrap().to_owned();
    for bad in ["timeout=-1", "timeout=x", "timeout=", "timeout=inf", "timeout=NaN", "timeout=1e9"]
    {
        let reply = face.get(&format!("/runs/{id}/wait?{bad}")).await;
        assert_eq!(refusal(&reply), expected_refusal(422, "validation_error"), "{bad}");
    }
    face.gate.add_permits(2);
    for run in [id, other] {
        let done = face.get_ok(&format!("/runs/{run}/wait?timeout=20")).await;
        assert_eq!(done["run"]["status"], "success", "{done}");
        let at_once = face.get_ok(&format!("/runs/{run}/wait?timeout=0")).await;
        assert_eq!(at_once, done);
    }
}

#[tokio::test]
async fn a_wait_ends_by_the_servers_limit_and_the_run_goes_on() {
    let options = Options { max_wait: Duration::from_millis(50), ..Options::default() };
    let mounts = Some(vec![Mount::new(ConnectOptions::default(), BASE).unwrap()]);
    let face = Face::of(Setup { options, mounts, ..Setup::default() }).await;
    let id = face.begin("/runs", &run_body("hold", "x")).await;
    for query in ["", "?timeout=3600"] {
        let reply = face.get(&format!("/runs/{id}/wait{query}")).await;
        assert_eq!((reply.status, reply.body.len()), (204, 0), "{query}");
        assert_eq!(reply.headers["x-run-id"], id);
        let warning = reply.headers.get("warning").map(|it| it.to_str().unwrap());
        let cut = "199 - \"the server waits at most 0.05 seconds: server.limits.max_wait\"";
        assert_eq!(warning, (!query.is_empty()).then_some(cut), "{query}");
    }
    let reply = face.post("/runs/wait", &run_body("hold", "y")).await;
    assert_eq!(reply.status, 204);
    face.gate.add_permits(2);
    let created = reply.headers["x-run-id"].to_str().unwrap();
    for run in [id.as_str(), created] {
        face.reach(&format!("/runs/{run}"), "success").await;
        assert_eq!(face.get(&format!("/runs/{run}/wait")).await.status, 200);
    }
}

#[tokio::test]
async fn a_time_to_wait_in_the_body_is_not_ignored_in_silence() {
    for as_documented in [false, true] {
        let options = ConnectOptions { as_documented, ..ConnectOptions::default() };
        let mounts = Some(vec![Mount::new(options, BASE).unwrap()]);
        let face = Face::of(Setup { mounts, ..Setup::default() }).await;
        for name in ["timeout", "block_timeout"] {
            let mut body = run_body("echo", "x");
            body[name] = json!(5);
            let reply = face.post("/runs/wait", &body).await;
            if as_documented {
                assert_eq!(refusal(&reply), expected_refusal(422, "validation_error"), "{name}");
            } else {
                let warning =
                    format!("199 - \"'{name}' in the body has no effect: send it in the query\"");
                assert_eq!(reply.status, 200, "{name}");
                assert_eq!(reply.headers["warning"], warning, "{name}");
            }
            let reply = face.post(&format!("/runs/wait?{name}=5"), &run_body("echo", "x")).await;
            assert_eq!((reply.status, reply.headers.get("warning")), (200, None), "{name}");
        }
    }
}

#[tokio::test]
async fn a_wait_that_takes_long_is_kept_alive_with_blank_space() {
    let face = Face::start().await;
    let id = face.begin("/runs", &run_body("hold", "x")).await;
    let mut connection = TcpStream::connect(face.rig.address).await.unwrap();
    let request = format!(
        "GET {BASE}/runs/{id}/wait HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer alpha-alice\r\nconnection: close\r\n\r\n",
        face.rig.address
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    let sign_of_life = async {
        // The head, followed by a chunk of one line break.
        while !String::from_utf8_lossy(&read).ends_with("\r\n\r\n1\r\n\n\r\n") {
            assert_ne!(connection.read_buf(&mut read).await.unwrap(), 0);
        }
    };
    timeout(LIMIT, sign_of_life).await.unwrap();
    face.gate.add_permits(1);
    timeout(LIMIT, connection.read_to_end(&mut read)).await.unwrap().unwrap();
    let whole = String::from_utf8(read).unwrap();
    assert!(whole.starts_with("HTTP/1.1 200 OK\r\n"), "{whole}");
    assert!(whole.contains(&format!("x-run-id: {id}\r\n")), "{whole}");
    assert!(whole.contains(r#""values":{"message":"x"}"#), "{whole}");
}

/// Sends a request and disconnects once its run is running.
async fn hang_up(face: &Face, path: &str, body: &Value) -> String {
    let client = face.client.clone();
    let (address, body) = (format!("{BASE}{path}"), Bytes::from(body.to_string()));
    let sending = async move { client.send(Method::POST, &address, &[], body).await };
    let request = tokio::spawn(sending);
    let found = async || {
        let runs = face.post_ok("/runs/search", &json!({"status": "pending"})).await;
        runs[0]["run_id"].as_str().map(str::to_owned)
    };
    let id = trilogue_testkit::until("the run to be there", LIMIT, found).await.unwrap();
    let begun = async || {
        let run = face.get_ok(&format!("/runs/{id}")).await;
        (run["phase"] == "running").then_some(())
    };
    trilogue_testkit::until("the run to be at work", LIMIT, begun).await.unwrap();
    request.abort();
    id
}

#[tokio::test]
async fn who_hangs_up_cancels_the_run_unless_told_otherwise() {
    let face = Face::start().await;
    for path in ["/runs/wait", "/runs/stream"] {
        let id = hang_up(&face, path, &run_body("sleep", "")).await;
        let gone = face.reach(&format!("/runs/{id}"), "error").await;
        assert_eq!(text(&gone, "/phase"), "cancelled", "{path}");
    }
    let mut stays = run_body("hold", "x");
    stays["on_disconnect"] = json!("continue");
    let id = hang_up(&face, "/runs/wait", &stays).await;
    face.gate.add_permits(1);
    let done = face.reach(&format!("/runs/{id}"), "success").await;
    assert_eq!(done["creation"]["on_disconnect"], "continue");
}

#[tokio::test]
async fn who_joins_and_hangs_up_cancels_nothing() {
    let face = Face::start().await;
    let id = face.begin("/runs", &run_body("hold", "x")).await;
    for path in ["wait", "stream"] {
        let path = format!("/runs/{id}/{path}");
        assert!(timeout(Duration::from_millis(200), face.get(&path)).await.is_err(), "{path}");
    }
    face.gate.add_permits(1);
    let done = face.get_ok(&format!("/runs/{id}/wait")).await;
    assert_eq!(done["run"]["status"], "success");
}
