use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use trilogue_broker::{
    AgentAccess, BrokerOptions, ConnectionKind, ConnectionOutcome, MAX_CONNECTIONS, SecretText,
    Unlisted,
};
use trilogue_egress::Policy;

use crate::fixtures::{
    PATIENCE, TestBroker, check_echo, echo_host, listed, local, read_head, read_to_end, rules,
    serve_host,
};

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_and_has_a_record() {
    let port = echo_host().await;
    let mut broker = TestBroker::start(listed(&["localhost:*"], Unlisted::Refuse)).await;
    // The first bytes may come with the request.
    let mut stream = TcpStream::connect(broker.address).await.unwrap();
    let request = format!("CONNECT LOCALHOST.:{port} HTTP/1.1\r\n\r\n\0early");
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200"));
    let mut early = [0; 6];
    stream.read_exact(&mut early).await.unwrap();
    assert_eq!(&early, b"\0early");
    check_echo(&mut stream, &[7; 100_000]).await;
    stream.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "");
    let record = broker.record().await;
    assert_eq!((record.host.as_str(), record.port), ("localhost", port));
    assert_eq!(record.kind, ConnectionKind::Connect);
    assert_eq!(record.outcome, ConnectionOutcome::Listed);
    assert_eq!(record.by.as_deref(), Some("localhost:*"));
    assert_eq!((record.sent_bytes, record.received_bytes), (100_006, 100_006));
}

#[tokio::test]
async fn a_refused_tunnel_says_why_and_reaches_no_host() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed_port = closed.local_addr().unwrap().port();
    drop(closed);
    let ceiling = AgentAccess { ceiling: Some(rules(&["a.example"])), ..AgentAccess::default() };
    let here = format!("127.0.0.1:{port}");
    let refuse = |pattern: &str| listed(&[pattern], Unlisted::Refuse);
    use ConnectionOutcome as Outcome;
    for (options, access, target, status, code, outcome) in [
        (local(), refuse("a.example"), here.clone(), 403, "network_refused", Outcome::Refused),
        (local(), ceiling, here.clone(), 403, "network_refused", Outcome::Ceiling),
        (
            BrokerOptions::default(),
            refuse("localhost:*"),
            format!("localhost:{port}"),
            403,
            "address_refused",
            Outcome::Address,
        ),
        (
            BrokerOptions::default(),
            refuse("127.0.0.1:*"),
            here,
            403,
            "address_refused",
            Outcome::Address,
        ),
        (
            BrokerOptions { addresses: Policy::anywhere(), ..BrokerOptions::default() },
            refuse("169.254.169.254"),
            "[::ffff:a9fe:a9fe]:80".to_owned(),
            403,
            "address_refused",
            Outcome::Address,
        ),
        (
            local(),
            AgentAccess::default(),
            format!("127.0.0.1:{closed_port}"),
            502,
            "host_unreachable",
            Outcome::Unreachable,
        ),
    ] {
        let mut broker = TestBroker::start_with(options, access).await;
        let request = format!("CONNECT {target} HTTP/1.1\r\nconnection: close\r\n\r\n");
        let response = broker.exchange(request).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{target}: {response}");
        let body = response.split_once("\r\n\r\n").unwrap().1;
        let error: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(error["error"]["code"], code, "{target}");
        assert!(error["error"]["message"].as_str().unwrap().starts_with("trilogue: "));
        assert_eq!(broker.record().await.outcome, outcome, "{target}");
    }
    let listener = listener.into_std().unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_proxy_with_a_secret_wants_it_as_the_password() {
    let port = echo_host().await;
    let secret = Some(SecretText::new("s3cret".to_owned()));
    let broker = TestBroker::start(AgentAccess { secret, ..AgentAccess::default() }).await;
    let target = format!("127.0.0.1:{port}");
    for fields in [
        "",
        "proxy-authorization: Basic YTp3cm9uZw==\r\n",
        "proxy-authorization: Basic !!\r\n",
        "proxy-authorization: Bearer s3cret\r\n",
    ] {
        let (_, head) = broker.open_tunnel(&target, fields).await;
        assert!(head.starts_with("HTTP/1.1 407"), "{fields}: {head}");
        assert!(head.contains("proxy-authenticate: Basic"), "{head}");
    }
    // `any:s3cret`
    let fields = "proxy-authorization: Basic YW55OnMzY3JldA==\r\n";
    let (mut stream, head) = broker.open_tunnel(&target, fields).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    check_echo(&mut stream, b"hello").await;
}

#[tokio::test]
async fn a_silent_tunnel_ends() {
    let port = echo_host().await;
    let options = BrokerOptions { idle: Duration::from_millis(50), ..local() };
    for access in [AgentAccess::default(), listed(&["127.0.0.1:*"], Unlisted::Refuse)] {
        let mut broker = TestBroker::start_with(options.clone(), access).await;
        let (mut stream, _) = broker.open_tunnel(&format!("127.0.0.1:{port}"), "").await;
        assert_eq!(read_to_end(&mut stream).await, "");
        assert_eq!(broker.record().await.sent_bytes, 0);
    }
}

#[tokio::test]
async fn access_changes_for_new_connections_and_all_end_with_the_guard() {
    let port = echo_host().await;
    let target = format!("127.0.0.1:{port}");
    let mut broker = TestBroker::start(AgentAccess::default()).await;
    let (mut stream, _) = broker.open_tunnel(&target, "").await;
    check_echo(&mut stream, b"before").await;
    broker.guard.set_access(listed(&["a.example"], Unlisted::Refuse));
    let (_, head) = broker.open_tunnel(&target, "").await;
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    assert_eq!(broker.record().await.outcome, ConnectionOutcome::Refused);
    check_echo(&mut stream, b"after").await;
    let TestBroker { guard, address, .. } = broker;
    drop(guard);
    assert_eq!(read_to_end(&mut stream).await, "");
    let refused = tokio::time::timeout(PATIENCE, async {
        // The listener is closed a moment later.
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    });
    refused.await.unwrap();
}

#[tokio::test]
async fn a_hundred_tunnels_work_beside_each_other() {
    let port = echo_host().await;
    let mut broker = TestBroker::start(listed(&["127.0.0.1:*"], Unlisted::Refuse)).await;
    let mut streams = Vec::new();
    for _ in 0..100 {
        streams.push(broker.open_tunnel(&format!("127.0.0.1:{port}"), "").await.0);
    }
    for stream in &mut streams {
        check_echo(stream, &[1; 5_000]).await;
    }
    drop(streams);
    for _ in 0..100 {
        assert_eq!(broker.record().await.sent_bytes, 5_000);
    }
}

#[tokio::test]
async fn a_slow_reader_holds_the_host_back() {
    let (written, mut progress) = tokio::sync::watch::channel(0_usize);
    let port = serve_host(move |mut stream: TcpStream| {
        let written = written.clone();
        async move {
            while stream.write_all(&[5; 64 * 1024]).await.is_ok() {
                written.send_modify(|count| *count += 64 * 1024);
            }
        }
    })
    .await;
    let broker = TestBroker::start(AgentAccess::default()).await;
    let (mut stream, _) = broker.open_tunnel(&format!("127.0.0.1:{port}"), "").await;
    // The host is held back once the buffers of the sockets are full.
    let quiet = Duration::from_millis(300);
    while tokio::time::timeout(quiet, progress.changed()).await.is_ok() {}
    let held = *progress.borrow();
    assert!(held < 64 * 1024 * 1024, "{held}");
    let mut rest = vec![0; held];
    stream.read_exact(&mut rest).await.unwrap();
    assert!(rest.iter().all(|byte| *byte == 5));
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let port = echo_host().await;
    let broker = TestBroker::start(AgentAccess::default()).await;
    let mut silent = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        silent.push(TcpStream::connect(broker.address).await.unwrap());
    }
    let mut stream = TcpStream::connect(broker.address).await.unwrap();
    let request = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let quiet = Duration::from_millis(100);
    assert!(tokio::time::timeout(quiet, stream.peek(&mut [0])).await.is_err());
    silent.pop();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200"));
    check_echo(&mut stream, b"hello").await;
}
