use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use trilogue_broker::{
    AgentAccess, ConnectionKind, ConnectionOutcome, Dialect, KeyHeader, SecretText,
};

use crate::fixtures::{TestBroker, read_head, rules};
use crate::provider::{KEY, PLACEHOLDER, Provider, json_response, post, unchunk, with_placeholder};

#[tokio::test]
async fn the_key_replaces_the_placeholder_wherever_a_client_puts_it() {
    for (path, fields, header, expected) in [
        ("/v1/x?a=1", with_placeholder(), KeyHeader::Bearer, "authorization: Bearer "),
        (
            "/v1/x?a=1",
            format!("x-api-key: {PLACEHOLDER}\r\n"),
            KeyHeader::Named("x-api-key".parse().unwrap()),
            "x-api-key: ",
        ),
        (
            "/v1/x?a=1",
            format!("x-goog-api-key: {PLACEHOLDER}\r\nauthorization: Bearer other\r\n"),
            KeyHeader::Named("x-goog-api-key".parse().unwrap()),
            "x-goog-api-key: ",
        ),
        (
            "/v1/x?key=placeholder%2D1234&a=1",
            String::new(),
            KeyHeader::Named("api-key".parse().unwrap()),
            "api-key: ",
        ),
        ("/v1/x?%6bey=placeholder-1234&a=1", String::new(), KeyHeader::Bearer, "Bearer "),
    ] {
        let mut provider = Provider::start(json_response("{}")).await;
        let mut key = provider.key(Dialect::Unknown);
        key.header = header;
        // The secret of the proxy is not needed: the placeholder is one.
        let secret = Some(SecretText::new("s3cret".to_owned()));
        let access = AgentAccess { keys: vec![key], secret, ..AgentAccess::default() };
        let mut broker = TestBroker::start(access).await;
        let fields = format!(
            "{fields}x-kept: 1\r\nproxy-authorization: Basic x\r\naccept-encoding: gzip\r\n"
        );
        let response = broker.exchange(post(path, &fields, "body")).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        let request = provider.request().await;
        assert!(request.head.starts_with("POST /base/v1/x?a=1 HTTP/1.1\r\n"), "{}", request.head);
        assert!(request.head.contains(&format!("{expected}{KEY}\r\n")), "{}", request.head);
        assert!(request.head.contains("host: 127.0.0.1:"), "{}", request.head);
        assert!(request.head.contains("x-kept: 1"), "{}", request.head);
        assert!(request.head.contains("accept-encoding: identity"), "{}", request.head);
        for absent in [PLACEHOLDER, "proxy-authorization", "Bearer other", "key="] {
            assert!(!request.head.contains(absent), "{absent}: {}", request.head);
        }
        let record = broker.record().await;
        assert_eq!(record.kind, ConnectionKind::Key("API_KEY".to_owned()));
        assert_eq!((record.sent_bytes, record.received_bytes), (4, 2));
        let shown = format!("{record:?} {:?} {response}", broker.guard);
        assert!(!shown.contains(KEY) && !shown.contains(PLACEHOLDER), "{shown}");
    }
}

#[tokio::test]
async fn a_request_without_the_placeholder_reaches_no_provider() {
    for (dialect, pointer, kind) in [
        (Dialect::Anthropic, "/error/type", "authentication_error"),
        (Dialect::OpenAi, "/error/code", "key_placeholder_missing"),
        (Dialect::Gemini, "/error/status", "UNAUTHENTICATED"),
        (Dialect::Unknown, "/error/code", "key_placeholder_missing"),
    ] {
        let mut provider = Provider::start(json_response("{}")).await;
        let broker = TestBroker::start(provider.access(dialect)).await;
        for fields in [
            String::new(),
            format!("authorization: Bearer {PLACEHOLDER}5\r\n"),
            format!("authorization: Bearer {KEY}\r\n"),
            format!("authorization: Basic {PLACEHOLDER}\r\n"),
            "authorization: Bearer\r\n".to_owned(),
            format!("x-other: {PLACEHOLDER}\r\n"),
        ] {
            let response = broker.exchange(post("/v1/x", &fields, "")).await;
            assert!(response.starts_with("HTTP/1.1 401"), "{fields}: {response}");
            let body = response.split_once("\r\n\r\n").unwrap().1;
            let error: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(error.pointer(pointer).unwrap(), kind);
            let message = error.pointer("/error/message").unwrap().as_str().unwrap();
            assert!(message.starts_with("trilogue: "), "{message}");
        }
        assert!(!provider.has_request());
        let other =
            broker.exchange("GET /keys/OTHER/x HTTP/1.1\r\nconnection: close\r\n\r\n").await;
        assert!(other.starts_with("HTTP/1.1 404"), "{other}");
    }
}

#[tokio::test]
async fn a_path_does_not_leave_the_base() {
    let mut provider = Provider::start(json_response("{}")).await;
    let broker = TestBroker::start(provider.access(Dialect::Unknown)).await;
    for path in [
        "/../x",
        "/v1/%2e%2E/x",
        "/v1/.%2e",
        "//other.example/x",
        "/v1//x",
        "/..\\x",
        "/%5c..",
        "/v1/./x",
        "/v1/..%2fx",
    ] {
        let response = broker.exchange(post(path, &with_placeholder(), "")).await;
        assert!(response.starts_with("HTTP/1.1 400"), "{path}: {response}");
    }
    assert!(!provider.has_request());
    for (path, expected) in
        [("", "/base"), ("/", "/base/"), ("/@other.example", "/base/@other.example")]
    {
        let response = broker.exchange(post(path, &with_placeholder(), "")).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{path}: {response}");
        let head = provider.request().await.head;
        assert!(head.starts_with(&format!("POST {expected} HTTP/1.1")), "{path}: {head}");
    }
}

#[tokio::test]
async fn a_response_passes_as_it_is() {
    let response = "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\nset-cookie: a=b\r\nx-request-id: 7\r\nretry-after: 3\r\nconnection: x-hop\r\nx-hop: 1\r\ncontent-length: 5\r\n\r\nmoved";
    let provider = Provider::start(response).await;
    let mut broker = TestBroker::start(provider.access(Dialect::Anthropic)).await;
    let response = broker.exchange(post("/v1/messages", &with_placeholder(), "{}")).await;
    assert!(response.starts_with("HTTP/1.1 307") && response.ends_with("moved"), "{response}");
    for kept in ["location: http://127.0.0.1:1/", "x-request-id: 7", "retry-after: 3"] {
        assert!(response.contains(kept), "{response}");
    }
    for absent in ["set-cookie", "x-hop: 1"] {
        assert!(!response.contains(absent), "{response}");
    }
    let usage = broker.usage().await;
    assert_eq!((usage.status, usage.tokens, usage.is_complete), (307, None, true));
}

#[tokio::test]
async fn an_event_reaches_the_client_before_the_next_is_sent() {
    let (mut provider, pieces) = Provider::start_driven().await;
    let mut broker = TestBroker::start(provider.access(Dialect::Anthropic)).await;
    let mut stream = TcpStream::connect(broker.address).await.unwrap();
    stream.write_all(post("/v1/messages", &with_placeholder(), "{}").as_bytes()).await.unwrap();
    provider.request().await;
    pieces.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200"));
    for event in [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n",
        "data: half of",
        " an event\n\n",
    ] {
        pieces.send(event).unwrap();
        let framed = format!("{:X}\r\n{event}\r\n", event.len());
        let mut received = vec![0; framed.len()];
        stream.read_exact(&mut received).await.unwrap();
        assert_eq!(String::from_utf8(received).unwrap(), framed);
    }
    // The client leaves in the middle of the stream.
    drop(stream);
    let usage = broker.usage().await;
    assert!(!usage.is_complete);
    let tokens = usage.tokens.unwrap();
    assert_eq!((tokens.input, tokens.output), (3, 1));
    assert_eq!(broker.record().await.outcome, ConnectionOutcome::Listed);
}

#[tokio::test]
async fn a_body_streams_to_the_provider_and_is_bounded() {
    let mut provider = Provider::start(json_response("{}")).await;
    let mut broker = TestBroker::start(provider.access(Dialect::Anthropic)).await;
    let mut stream = TcpStream::connect(broker.address).await.unwrap();
    let head = format!(
        "POST /keys/API_KEY/v1/messages HTTP/1.1\r\nconnection: close\r\ntransfer-encoding: chunked\r\n{}\r\n",
        with_placeholder()
    );
    // In pieces: the broker does not wait for the end of the body.
    for piece in [head.as_str(), "3\r\nabc\r\n", "2\r\nde\r\n", "0\r\n\r\n"] {
        stream.write_all(piece.as_bytes()).await.unwrap();
    }
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200"));
    assert_eq!(
        unchunk(&format!("\r\n\r\n{}", String::from_utf8(provider.request().await.body).unwrap())),
        "abcde"
    );
    assert_eq!(broker.record().await.sent_bytes, 5);

    for length in ["content-length: 67108865", "content-length: 99999999999999999999"] {
        let request = format!(
            "POST /keys/API_KEY/v1/messages HTTP/1.1\r\n{length}\r\nconnection: close\r\n{}\r\n",
            with_placeholder()
        );
        let response = broker.exchange(request).await;
        let is_refused =
            response.starts_with("HTTP/1.1 413") || response.starts_with("HTTP/1.1 400");
        assert!(is_refused, "{response}");
    }
    // In chunks, the length is known too late.
    let mut stream = TcpStream::connect(broker.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("100000\r\n{}\r\n", "a".repeat(0x10_0000));
    for _ in 0..65 {
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    let response = read_head(&mut stream).await;
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");
}

#[tokio::test]
async fn the_ceiling_holds_for_providers_and_rules_do_not() {
    let mut provider = Provider::start(json_response("{}")).await;
    let mut access = provider.access(Dialect::OpenAi);
    access.network = crate::fixtures::listed(&[], trilogue_broker::Unlisted::Refuse).network;
    let mut broker = TestBroker::start(access.clone()).await;
    let response = broker.exchange(post("/x", &with_placeholder(), "")).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    provider.request().await;
    assert_eq!(broker.record().await.outcome, ConnectionOutcome::Listed);
    access.ceiling = Some(rules(&["127.0.0.1"]));
    broker.guard.set_access(access);
    let response = broker.exchange(post("/x", &with_placeholder(), "")).await;
    assert!(response.starts_with("HTTP/1.1 403"), "{response}");
    assert_eq!(broker.record().await.outcome, ConnectionOutcome::Ceiling);
    assert!(!provider.has_request());
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_named() {
    let provider = Provider::start("").await;
    let mut broker = TestBroker::start(provider.access(Dialect::OpenAi)).await;
    let response = broker.exchange(post("/x", &with_placeholder(), "")).await;
    assert!(response.starts_with("HTTP/1.1 502"), "{response}");
    assert!(response.contains("trilogue: ") && !response.contains(KEY), "{response}");
    assert_eq!(broker.record().await.outcome, ConnectionOutcome::Unreachable);
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_request_to_the_provider() {
    let (mut provider, pieces) = Provider::start_driven().await;
    let mut broker = TestBroker::start(provider.access(Dialect::OpenAi)).await;
    let mut stream = TcpStream::connect(broker.address).await.unwrap();
    let request = post("/v1/chat/completions", &with_placeholder(), "{}");
    stream.write_all(request.as_bytes()).await.unwrap();
    provider.request().await;
    // Before the head of the response.
    drop(stream);
    let record = broker.record().await;
    assert_eq!((record.sent_bytes, record.received_bytes), (2, 0));
    drop(pieces);
}

#[tokio::test]
async fn one_connection_carries_several_requests() {
    let provider = Provider::start(json_response("{}")).await;
    let broker = TestBroker::start(provider.access(Dialect::Anthropic)).await;
    let mut stream = TcpStream::connect(broker.address).await.unwrap();
    let request = post("/v1/messages", &with_placeholder(), "{}");
    let request = request.replace("connection: close\r\n", "");
    for _ in 0..3 {
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200"));
        let mut body = [0; 2];
        stream.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"{}");
    }
}
