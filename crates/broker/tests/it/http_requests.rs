use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use trilogue_broker::{AgentAccess, BrokerOptions, ConnectionKind, ConnectionOutcome, Unlisted};

use crate::fixtures::{TestBroker, listed, local, read_head, read_to_end, serve_host};
use crate::provider::{Provider, unchunk};

#[tokio::test]
async fn a_request_with_a_whole_address_is_forwarded_hop_by_hop() {
    let response = "HTTP/1.1 201 Created\r\ncontent-length: 4\r\nset-cookie: a=b\r\nkeep-alive: timeout=1\r\nconnection: x-hop\r\nx-hop: 1\r\n\r\ndone";
    let mut host = Provider::start(response).await;
    let address = host.key(trilogue_broker::Dialect::Unknown).base;
    let port = address.port().unwrap();
    let mut broker = TestBroker::start(listed(&["localhost:*"], Unlisted::Refuse)).await;
    let request = format!(
        "POST http://localhost:{port}/a/../b?c=d HTTP/1.1\r\nhost: other.example\r\nconnection: close, x-mine\r\nx-mine: 1\r\nproxy-connection: close\r\nproxy-authorization: Basic eDp5\r\nte: trailers\r\nauthorization: Bearer kept\r\ncontent-length: 5\r\n\r\nhello"
    );
    let received = broker.exchange(request).await;
    assert!(received.starts_with("HTTP/1.1 201") && received.ends_with("done"), "{received}");
    assert!(received.contains("set-cookie: a=b"), "{received}");
    for absent in ["keep-alive", "x-hop"] {
        assert!(!received.contains(absent), "{received}");
    }
    let request = host.request().await;
    assert!(request.head.starts_with("POST /a/../b?c=d HTTP/1.1\r\n"), "{}", request.head);
    assert!(request.head.contains(&format!("host: localhost:{port}\r\n")), "{}", request.head);
    assert!(request.head.contains("authorization: Bearer kept"), "{}", request.head);
    for absent in ["other.example", "x-mine", "proxy-", "te: ", "connection"] {
        assert!(!request.head.contains(absent), "{absent}: {}", request.head);
    }
    assert_eq!(request.body, b"hello");
    let record = broker.record().await;
    assert_eq!((record.kind, record.outcome), (ConnectionKind::Http, ConnectionOutcome::Listed));
    assert!(record.sent_bytes > 5 && record.received_bytes > 4);
}

#[tokio::test]
async fn a_request_to_another_host_is_refused_on_a_connection_that_stays() {
    let mut broker = TestBroker::start(listed(&["a.example"], Unlisted::Refuse)).await;
    let mut stream = TcpStream::connect(broker.address).await.unwrap();
    for _ in 0..2 {
        stream.write_all(b"GET http://b.example/ HTTP/1.1\r\n\r\n").await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 403"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut body).await.unwrap();
        let record = broker.record().await;
        assert_eq!((record.host.as_str(), record.port), ("b.example", 80));
        assert_eq!(record.outcome, ConnectionOutcome::Refused);
    }
}

#[tokio::test]
async fn slow_bodies_pass_piece_by_piece() {
    // The host answers each byte of the body with one of its own.
    let port = serve_host(async |mut stream: TcpStream| {
        read_head(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let (mut read, mut write) = stream.split();
        drop(tokio::io::copy(&mut read, &mut write).await);
    })
    .await;
    let broker = TestBroker::start(AgentAccess::default()).await;
    let mut stream = TcpStream::connect(broker.address).await.unwrap();
    let head = format!(
        "POST http://127.0.0.1:{port}/ HTTP/1.1\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200"));
    for _ in 0..3 {
        stream.write_all(b"1\r\na\r\n").await.unwrap();
        let mut back = [0; 6];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut back).await.unwrap();
        assert_eq!(&back, b"1\r\na\r\n");
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    assert_eq!(unchunk(&format!("\r\n\r\n{}", read_to_end(&mut stream).await)), "");
}

#[tokio::test]
async fn a_host_that_breaks_off_is_unreachable() {
    let port = serve_host(async |mut stream: TcpStream| {
        read_head(&mut stream).await;
    })
    .await;
    let broker = TestBroker::start(AgentAccess::default()).await;
    let request = format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nconnection: close\r\n\r\n");
    let response = broker.exchange(request).await;
    assert!(response.starts_with("HTTP/1.1 502"), "{response}");
}

#[tokio::test]
async fn a_host_that_stays_silent_is_given_up() {
    let port = serve_host(async |mut stream: TcpStream| {
        read_head(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let options = BrokerOptions { idle: Duration::from_millis(50), ..local() };
    let broker = TestBroker::start_with(options, AgentAccess::default()).await;
    let request = format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nconnection: close\r\n\r\n");
    let response = broker.exchange(request).await;
    assert!(response.starts_with("HTTP/1.1 502"), "{response}");
}
