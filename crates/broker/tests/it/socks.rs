use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use trilogue_broker::{AgentAccess, ConnectionKind, ConnectionOutcome, SecretText, Unlisted};

use crate::fixtures::{TestBroker, check_echo, echo_host, listed, read_to_end};

/// The request for a connection to a name.
fn connect_to(name: &str, port: u16) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap();
    [&[5, 1, 0, 3, length], name.as_bytes(), &port.to_be_bytes()].concat()
}

/// Sends messages, and checks the reply to each.
async fn converse(broker: &TestBroker, steps: &[(&[u8], &[u8])]) -> TcpStream {
    let mut stream = TcpStream::connect(broker.address).await.unwrap();
    for (message, reply) in steps {
        stream.write_all(message).await.unwrap();
        let mut received = vec![0; reply.len()];
        stream.read_exact(&mut received).await.unwrap();
        assert_eq!(received, *reply, "{message:?}");
    }
    stream
}

fn reply(code: u8) -> [u8; 10] {
    [5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

#[tokio::test]
async fn socks_reaches_names_and_addresses() {
    let port = echo_host().await;
    let [high, low] = port.to_be_bytes();
    let access = listed(&["localhost:*", "127.0.0.1:*"], Unlisted::Refuse);
    let mut broker = TestBroker::start(access).await;
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];
    for (request, host) in [
        (connect_to("localhost", port), "localhost"),
        (connect_to("LocalHost.", port), "localhost"),
        (vec![5, 1, 0, 1, 127, 0, 0, 1, high, low], "127.0.0.1"),
        ([&[5, 1, 0, 4], &mapped[..], &[high, low]].concat(), "127.0.0.1"),
    ] {
        let mut stream = converse(&broker, &[(&[5, 1, 0], &[5, 0]), (&request, &reply(0))]).await;
        check_echo(&mut stream, b"hello").await;
        drop(stream);
        let record = broker.record().await;
        assert_eq!((record.host.as_str(), record.sent_bytes), (host, 5));
        assert_eq!(record.kind, ConnectionKind::Socks5);
        assert_eq!(record.outcome, ConnectionOutcome::Listed);
    }
}

#[tokio::test]
async fn socks_refuses_the_rest_with_its_codes() {
    let mut broker = TestBroker::start(listed(&["127.0.0.1:*"], Unlisted::Refuse)).await;
    for (request, code) in [
        (connect_to("a.example", 443), 2),
        (vec![5, 1, 0, 1, 127, 0, 0, 1, 0, 1], 4),
        (vec![5, 2, 0, 1, 127, 0, 0, 1, 0, 80], 7),
        (vec![5, 3, 0, 1, 127, 0, 0, 1, 0, 80], 7),
        (vec![5, 1, 0, 9, 127, 0, 0, 1, 0, 80], 8),
        (vec![5, 1, 0, 3, 1, 0xff, 0, 80], 8),
        (connect_to("a b", 443), 8),
    ] {
        let mut stream =
            converse(&broker, &[(&[5, 1, 0], &[5, 0]), (&request, &reply(code))]).await;
        assert_eq!(read_to_end(&mut stream).await, "");
    }
    assert_eq!(broker.record().await.outcome, ConnectionOutcome::Refused);
    assert_eq!(broker.record().await.outcome, ConnectionOutcome::Unreachable);
    assert!(!broker.has_record());
}

#[tokio::test]
async fn socks_wants_the_secret_as_the_password() {
    let port = echo_host().await;
    let secret = Some(SecretText::new("s3cret".to_owned()));
    let broker = TestBroker::start(AgentAccess { secret, ..AgentAccess::default() }).await;
    converse(&broker, &[(&[5, 1, 0], &[5, 0xff])]).await;
    let wrong = converse(&broker, &[(&[5, 2, 0, 2], &[5, 2]), (b"\x01\x01a\x05wrong", &[1, 1])]);
    assert_eq!(read_to_end(&mut wrong.await).await, "");
    let steps: &[(&[u8], &[u8])] = &[
        (&[5, 1, 2], &[5, 2]),
        (b"\x01\x01a\x06s3cret", &[1, 0]),
        (&connect_to("127.0.0.1", port), &reply(0)),
    ];
    check_echo(&mut converse(&broker, steps).await, b"hello").await;
}
