use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use trilogue_broker::AgentAccess;

use crate::fixtures::{TestBroker, check_echo, echo_host, read_to_end};

#[tokio::test]
async fn what_is_not_a_request_for_the_proxy_is_refused_with_a_reason() {
    let port = echo_host().await;
    let mut broker = TestBroker::start(AgentAccess::default()).await;
    let here = format!("http://127.0.0.1:{port}/");
    let long = "a".repeat(70_000);
    let many = "a: b\r\n".repeat(200);
    for (case, request, status) in [
        ("origin form", "GET / HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), 400),
        ("asterisk form", "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(), 400),
        ("https", "GET https://a.example/ HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("ftp", "GET ftp://a.example/ HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("user", "GET http://u:p@a.example/ HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("no port", "CONNECT a.example HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("port", "CONNECT a.example:99999 HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("old version", "CONNECT a.example:443 HTTP/1.0\r\n\r\n".to_owned(), 400),
        ("upgrade", format!("GET {here} HTTP/1.1\r\nupgrade: websocket\r\n\r\n"), 400),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 400),
        (
            "two kinds of length",
            format!(
                "POST {here} HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
            400,
        ),
        (
            "the same in the other order",
            format!(
                "POST {here} HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n"
            ),
            400,
        ),
        (
            "two lengths",
            format!("POST {here} HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc"),
            400,
        ),
        (
            "a length with a sign",
            format!("POST {here} HTTP/1.1\r\ncontent-length: +3\r\n\r\n"),
            400,
        ),
        ("a coding", format!("POST {here} HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n"), 400),
        ("two hosts", format!("GET {here} HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"), 400),
        ("a folded field", format!("GET {here} HTTP/1.1\r\na: b\r\n c: d\r\n\r\n"), 400),
        ("a bare LF", format!("GET {here} HTTP/1.1\na: b\r\n\r\n"), 400),
        ("only LF", format!("GET {here} HTTP/1.1\n\n"), 400),
        ("a bare CR", format!("GET {here} HTTP/1.1\r\na: b\rc: d\r\n\r\n"), 400),
        ("a NUL", format!("GET {here} HTTP/1.1\r\na: \0\r\n\r\n"), 400),
        ("a space before the colon", format!("GET {here} HTTP/1.1\r\na : b\r\n\r\n"), 400),
        ("TLS", "\u{16}\u{3}\u{1}\0\u{5}".to_owned(), 400),
        ("a large head", format!("GET {here} HTTP/1.1\r\na: {long}\r\n\r\n"), 431),
        ("a large head without an end", format!("GET {here}{long}"), 431),
        ("many fields", format!("GET {here} HTTP/1.1\r\n{many}\r\n"), 400),
    ] {
        let response = broker.exchange(&request).await;
        let version = if case == "old version" { "HTTP/1.0" } else { "HTTP/1.1" };
        assert!(response.starts_with(&format!("{version} {status}")), "{case}: {response}");
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("connection: close"), "{case}: {head}");
        let error: serde_json::Value = serde_json::from_str(body).unwrap();
        let member = |name: &str| error["error"][name].as_str().unwrap().to_owned();
        assert!(member("message").starts_with("trilogue: "), "{case}");
        assert!(!member("code").is_empty() && !member("hint").is_empty(), "{case}");
    }
    assert!(!broker.has_record());
    let (mut stream, _) = broker.open_tunnel(&format!("127.0.0.1:{port}"), "").await;
    check_echo(&mut stream, b"still here").await;
}

#[tokio::test]
async fn a_later_request_of_a_connection_is_checked_too() {
    let broker = TestBroker::start(AgentAccess::default()).await;
    let mut stream = TcpStream::connect(broker.address).await.unwrap();
    let first = "GET http://127.0.0.1:1/ HTTP/1.1\r\n\r\n";
    for later in [
        "POST http://127.0.0.1:1/ HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\na",
        "GET http://127.0.0.1:1/ HTTP/1.1\r\na: b\r\n c\r\n\r\n",
    ] {
        stream.write_all(first.as_bytes()).await.unwrap();
        stream.write_all(later.as_bytes()).await.unwrap();
        let responses = read_to_end(&mut stream).await;
        assert!(responses.starts_with("HTTP/1.1 502"), "{responses}");
        assert!(responses.contains("HTTP/1.1 400"), "{responses}");
        stream = TcpStream::connect(broker.address).await.unwrap();
    }
}

#[tokio::test]
async fn a_later_request_with_two_kinds_of_length_is_the_last() {
    let broker = TestBroker::start(AgentAccess::default()).await;
    let mut stream = TcpStream::connect(broker.address).await.unwrap();
    let first = "GET http://127.0.0.1:1/ HTTP/1.1\r\n\r\n";
    let later = "POST http://127.0.0.1:1/ HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    stream.write_all([first, later, first].concat().as_bytes()).await.unwrap();
    // By chunks, as the host reads it too.
    assert_eq!(read_to_end(&mut stream).await.matches("HTTP/1.1 502").count(), 2);
}

#[tokio::test]
async fn a_client_that_leaves_early_has_no_effect() {
    let mut broker = TestBroker::start(AgentAccess::default()).await;
    for begin in ["", "G", "GET http://a", "\u{5}", "\u{5}\u{1}\0\u{5}"] {
        let mut stream = TcpStream::connect(broker.address).await.unwrap();
        stream.write_all(begin.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        read_to_end(&mut stream).await;
    }
    assert!(!broker.has_record());
}
