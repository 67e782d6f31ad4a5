//! Reading histories and states from working and from faulty servers.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use trilogue_domain::port::Fetch;
use trilogue_domain::{Code, Content, Role, Timestamp};
use trilogue_egress::{Client, Options, Policy};
use trilogue_gateway::HistoryFetch;

const MIB: usize = 1024 * 1024;

async fn serve(answer: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = vec![0_u8; 4096];
            drop(stream.read(&mut head).await);
            // A client that has read enough closes the connection.
            drop(stream.write_all(&answer).await);
        }
    });
    address
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn ok(body: &[u8]) -> Vec<u8> {
    answer("200 OK", "", body)
}

fn fetch(policy: Policy) -> HistoryFetch {
    HistoryFetch::new(Client::new(policy, Options::default()).unwrap())
}

#[tokio::test]
async fn a_message_is_read_with_what_its_server_says_of_it() {
    let body = br#"{"role":"agent/x","parts":[{"content":"hi","new":1},{"content":"x","metadata":{"kind":"new"}}],"created_at":"2026-11-20T23:50:09Z","completed_at":null,"more":2}"#;
    let at = serve(ok(body)).await;
    let message = fetch(Policy::local()).message(&format!("http://{at}/m")).await.unwrap();
    assert_eq!(message.role, Role::NamedAgent("x".into()));
    assert_eq!(message.parts[0].content, Content::Text("hi".into()));
    assert_eq!(message.parts.len(), 2);
    assert_eq!(message.created_at, Timestamp::parse("2026-11-20T23:50:09Z"));
    assert_eq!(message.completed_at, None);
}

#[tokio::test]
async fn what_is_no_message_is_refused_by_naming_its_server_and_nothing_it_said() {
    let large = format!(r#"{{"parts":[{{"content":"{}"}}]}}"#, "x".repeat(MIB));
    let chunked = {
        let mut chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        chunked.extend_from_slice(format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len()).as_bytes());
        chunked
    };
    let message = br#"{"parts":[]}"#;
    for (sent, said) in [
        (answer("404 Not Found", "", message), "status 404"),
        (answer("302 Found", "location: http://127.0.0.1/\r\n", message), "status 302"),
        (answer("206 Partial Content", "", message), "status 206"),
        (answer("500 Oops", "", message), "status 500"),
        (ok(b"the password is tomato"), "invalid message"),
        (ok(br#"{"password":"tomato"}"#), "invalid message"),
        (ok(br#"{"role":"tomato","parts":[]}"#), "invalid message"),
        (ok(large.as_bytes()), "more than 1048576 bytes"),
        (chunked, "more than 1048576 bytes"),
        (b"tomato".to_vec(), "could not be reached"),
    ] {
        let at = serve(sent).await;
        let read = fetch(Policy::local()).message(&format!("http://{at}/m")).await;
        let error = read.unwrap_err();
        assert_eq!(error.code(), Code::PeerUnavailable, "{error:?}");
        assert!(
            error.message().contains("127.0.0.1") && error.message().contains(said),
            "{error:?}"
        );
        assert!(!format!("{error:?}").contains("tomato"), "{error:?}");
    }
}

#[tokio::test]
async fn a_state_is_json_or_else_text() {
    for (body, expected) in
        [(&br#"{"a": 1.0}"#[..], r#"{"a": 1.0}"#), (b"just text", r#""just text""#), (b"", r#""""#)]
    {
        let at = serve(ok(body)).await;
        let state = fetch(Policy::local()).state(&format!("http://{at}/s")).await.unwrap();
        assert_eq!(state.as_str(), expected);
    }
    let large = vec![b'1'; 16 * MIB + 1];
    for (body, said) in
        [(&b"\xff\xfe"[..], "neither JSON nor UTF-8"), (&large, "more than 16777216 bytes")]
    {
        let at = serve(ok(body)).await;
        let error = fetch(Policy::local()).state(&format!("http://{at}/s")).await.unwrap_err();
        assert_eq!(error.code(), Code::PeerUnavailable, "{error:?}");
        assert!(error.message().contains(said), "{error:?}");
    }
}

#[tokio::test]
async fn a_history_of_many_small_values_is_refused_before_it_is_read() {
    let values = vec![r#"{"a":1}"#; 100_000].join(",");
    let body = format!(r#"{{"role":"user","parts":[],"metadata":[{values}]}}"#);
    assert!(body.len() < MIB, "no other limit refuses it");
    let at = serve(ok(body.as_bytes())).await;
    let fetch = fetch(Policy::local());
    let message = fetch.message(&format!("http://{at}/m")).await.unwrap_err();
    let state = fetch.state(&format!("http://{at}/s")).await.unwrap_err();
    for error in [message, state] {
        assert_eq!(error.code(), Code::PeerUnavailable, "{error:?}");
        assert!(error.message().contains("too many values"), "{error:?}");
    }
}

#[tokio::test]
async fn a_history_is_asked_for_without_credentials() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = vec![0_u8; 4096];
        let read = stream.read(&mut head).await.unwrap();
        stream.write_all(&ok(br#"{"role":"user","parts":[]}"#)).await.unwrap();
        String::from_utf8(head[..read].to_vec()).unwrap().to_ascii_lowercase()
    });
    fetch(Policy::local()).message(&format!("http://{at}/m")).await.unwrap();
    let head = asked.await.unwrap();
    let names: Vec<_> = head.lines().skip(1).filter_map(|line| line.split_once(':')).collect();
    let names: Vec<_> = names.into_iter().map(|(name, _)| name).collect();
    assert!(names.iter().all(|name| ["accept", "host", "user-agent"].contains(name)), "{head}");
}

#[tokio::test]
async fn where_nobody_may_go_nothing_is_asked() {
    for (policy, address) in [
        (Policy::default(), "http://127.0.0.1:9/m"),
        (Policy::default(), "http://[::1]:9/m"),
        (Policy::default(), "http://169.254.169.254/latest"),
        (Policy::default(), "http://10.0.0.1/m"),
        (Policy::local(), "http://user:tomato@127.0.0.1:9/m"),
        (Policy::local(), "ftp://127.0.0.1/m"),
        (Policy::local(), "no address"),
    ] {
        let error = fetch(policy).message(address).await.unwrap_err();
        assert_eq!(error.code(), Code::EgressRefused, "{address} {error:?}");
        assert!(!format!("{error:?}").contains("tomato"), "{error:?}");
    }
    let error = fetch(Policy::local()).message("http://127.0.0.1:1/m").await.unwrap_err();
    assert_eq!(error.code(), Code::PeerUnavailable, "{error:?}");
}

#[tokio::test]
async fn a_name_that_is_unknown_and_one_that_is_internal_give_one_error() {
    let ask = async |host: &str| {
        let fetch = fetch(Policy::default());
        let (message, state) = (format!("http://{host}:9/m"), format!("http://{host}:9/s"));
        let error = fetch.message(&message).await.unwrap_err();
        assert_eq!(fetch.state(&state).await.unwrap_err(), error);
        assert_eq!(error.code(), Code::EgressRefused, "{error:?}");
        format!("{error:?}").replace(host, "HOST")
    };
    assert_eq!(ask("nothing.invalid").await, ask("localhost").await);
}
