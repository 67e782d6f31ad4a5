use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use trilogue_broker::{ConnectionOutcome, NetworkAnswer, Unlisted};

use crate::fixtures::{TestBroker, check_echo, echo_host, listed, read_head, rules};

fn answer(is_allowed: bool) -> NetworkAnswer {
    NetworkAnswer { is_allowed, by: "ada".to_owned() }
}

/// Begins a request for a tunnel, and does not wait for the response.
async fn begin_tunnel(broker: &TestBroker, target: &str) -> TcpStream {
    let mut stream = TcpStream::connect(broker.address).await.unwrap();
    let request = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn one_answer_is_for_all_connections_that_wait() {
    let port = echo_host().await;
    let target = format!("127.0.0.1:{port}");
    let mut broker = TestBroker::start(listed(&["a.example"], Unlisted::Ask)).await;
    let mut first = begin_tunnel(&broker, &target).await;
    let (asked, pending) = broker.question().await;
    assert_eq!(asked.to_string(), target);
    let mut second = begin_tunnel(&broker, &target).await;
    // Another question shows that the broker has read the second request.
    let third = begin_tunnel(&broker, "b.example:443").await;
    let (asked, _other) = broker.question().await;
    assert_eq!(asked.to_string(), "b.example:443");
    pending.send(answer(true)).unwrap();
    for stream in [&mut first, &mut second] {
        assert!(read_head(stream).await.starts_with("HTTP/1.1 200"));
        check_echo(stream, b"\0hello").await;
    }
    drop((first, second, third));
    for _ in 0..2 {
        let record = broker.record().await;
        if record.host == "127.0.0.1" {
            assert_eq!(record.outcome, ConnectionOutcome::Answered);
            assert_eq!(record.by.as_deref(), Some("ada"));
        }
    }
    // It holds for those that begin a moment later too, and not for another port.
    let mut next = begin_tunnel(&broker, &target).await;
    assert!(read_head(&mut next).await.starts_with("HTTP/1.1 200"));
    let _other = begin_tunnel(&broker, "127.0.0.1:1").await;
    assert_eq!(broker.question().await.0.to_string(), "127.0.0.1:1");
}

#[tokio::test]
async fn a_refusal_is_for_those_that_wait() {
    let mut broker = TestBroker::start(listed(&[], Unlisted::Ask)).await;
    for _ in 0..2 {
        let mut stream = begin_tunnel(&broker, "a.example:443").await;
        let (_, pending) = broker.question().await;
        pending.send(answer(false)).unwrap();
        assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 403"));
        let record = broker.record().await;
        assert_eq!(record.outcome, ConnectionOutcome::Refused);
        assert_eq!(record.by.as_deref(), Some("ada"));
    }
}

#[tokio::test]
async fn a_permission_that_comes_late_is_for_the_next_connection() {
    let port = echo_host().await;
    let target = format!("127.0.0.1:{port}");
    let socks = [&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1], &port.to_be_bytes()[..]].concat();
    let http = format!("CONNECT {target} HTTP/1.1\r\n\r\n").into_bytes();
    for request in [http, socks] {
        let mut broker = TestBroker::start(listed(&[], Unlisted::Ask)).await;
        let mut stream = TcpStream::connect(broker.address).await.unwrap();
        stream.write_all(&request).await.unwrap();
        let (_, pending) = broker.question().await;
        drop(stream);
        // The broker has noticed that the client has left.
        assert_eq!(broker.record().await.outcome, ConnectionOutcome::Refused);
        pending.send(answer(true)).unwrap();
        let mut next = begin_tunnel(&broker, &target).await;
        assert!(read_head(&mut next).await.starts_with("HTTP/1.1 200"));
        check_echo(&mut next, b"\0hello").await;
        assert!(!broker.has_question());
        drop(next);
        assert_eq!(broker.record().await.outcome, ConnectionOutcome::Answered);
    }
}

#[tokio::test]
async fn no_answer_goes_beyond_the_ceiling() {
    let mut access = listed(&[], Unlisted::Ask);
    access.ceiling = Some(rules(&["a.example"]));
    let mut broker = TestBroker::start(access.clone()).await;
    let mut stream = begin_tunnel(&broker, "b.example:443").await;
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 403"));
    assert_eq!(broker.record().await.outcome, ConnectionOutcome::Ceiling);
    assert!(!broker.has_question());
    // Nor does one to a question from before.
    let mut stream = begin_tunnel(&broker, "a.example:443").await;
    let (_, pending) = broker.question().await;
    access.ceiling = Some(rules(&["c.example"]));
    broker.guard.set_access(access);
    pending.send(answer(true)).unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 403"));
    assert_eq!(broker.record().await.outcome, ConnectionOutcome::Ceiling);
}

#[tokio::test]
async fn questions_end_with_the_process_and_are_bounded() {
    let mut broker = TestBroker::start(listed(&[], Unlisted::Ask)).await;
    let (mut streams, mut open) = (Vec::new(), Vec::new());
    for number in 0..32 {
        streams.push(begin_tunnel(&broker, &format!("host{number}.example:443")).await);
        open.push(broker.question().await.1);
    }
    let mut stream = begin_tunnel(&broker, "more.example:443").await;
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 403"));
    assert_eq!(broker.record().await.outcome, ConnectionOutcome::Limit);
    let TestBroker { guard, .. } = broker;
    drop(guard);
    for pending in &mut open {
        pending.closed().await;
    }
}
