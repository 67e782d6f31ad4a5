//! What a NATS client can learn of conversations, and what it can make servers show. The store's tests cover messages that an attacker sends.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use trilogue_testkit::client::{ServerSent, Stream};
use trilogue_testkit::services::service;

use crate::nodes::two_nodes;
use crate::rig::{LIMIT, Setup, text};

const SECRET: &str = "the launch code is 0451";

/// A message on the bus: its subject and its bytes.
type BusMessage = (String, Vec<u8>);

/// A NATS client that receives everything and can send anything.
struct Tap(BufReader<TcpStream>);

impl Tap {
    async fn connect() -> Self {
        let url = service("TRILOGUE_NATS").unwrap();
        let address = url.strip_prefix("nats://").unwrap();
        let mut tap = Self(BufReader::new(TcpStream::connect(address).await.unwrap()));
        tap.send(b"CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB trilogue.> 1\r\n").await;
        tap.messages().await;
        tap
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).await.unwrap();
    }

    async fn publish(&mut self, (subject, payload): &BusMessage) {
        self.send(format!("PUB {subject} {}\r\n", payload.len()).as_bytes()).await;
        self.send(&[payload, &b"\r\n"[..]].concat()).await;
    }

    /// The messages so far. The server has delivered everything that this client sent.
    async fn messages(&mut self) -> Vec<BusMessage> {
        self.send(b"PING\r\n").await;
        let mut messages = Vec::new();
        loop {
            let mut line = String::new();
            let read = tokio::time::timeout(LIMIT, self.0.read_line(&mut line)).await;
            assert_ne!(read.unwrap().unwrap(), 0, "NATS closed the connection");
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                ["PONG"] => return messages,
                ["PING"] => self.send(b"PONG\r\n").await,
                ["MSG", subject, _, bytes] => {
                    let mut payload = vec![0; bytes.parse::<usize>().unwrap() + 2];
                    self.0.read_exact(&mut payload).await.unwrap();
                    payload.truncate(payload.len() - 2);
                    messages.push((subject.to_owned(), payload));
                }
                _ => assert!(!line.starts_with("-ERR"), "{line}"),
            }
        }
    }
}

/// The events of a stream up to the end of a run.
async fn until_end(stream: &mut Stream) -> Vec<ServerSent> {
    let mut events = Vec::new();
    let reading = async {
        loop {
            let event = stream.next().await.unwrap().unwrap();
            let data: Value = serde_json::from_str(&event.data).unwrap();
            events.push(event);
            if data["type"] == "run.ended" {
                return;
            }
        }
    };
    let ended = tokio::time::timeout(LIMIT, reading).await;
    assert!(ended.is_ok(), "the run does not end in {events:?}");
    events
}

#[tokio::test]
async fn a_client_of_nats_reads_no_conversation_and_changes_none() {
    let mut tap = Tap::connect().await;
    let (a, b) = two_nodes(Setup::default).await;
    let events = "/api/v1/threads/talk/events";
    a.alice().post("/api/v1/threads", &json!({ "id": "talk" })).await.unwrap().ok().unwrap();
    let mut here = a.alice().stream(events, None).await.unwrap();
    let mut there = b.alice().stream(events, None).await.unwrap();
    let first = a.run_on("talk", SECRET).await;
    let (mut shown_here, mut shown_there) =
        (until_end(&mut here).await, until_end(&mut there).await);
    let asked = a.run_on("asks", "ask").await;
    let messages = tap.messages().await;
    assert!(messages.len() >= 5, "{} messages", messages.len());
    let question = text(&asked, "/interrupts/0/id");
    for part in [SECRET, "talk", "alice", text(&first, "/id"), question] {
        let has = |payload: &[u8]| payload.windows(part.len()).any(|at| at == part.as_bytes());
        let shown = messages.iter().filter(|(_, payload)| has(payload)).count();
        assert_eq!(shown, 0, "messages show '{part}'");
    }
    let mut changes = b.alice().stream("/api/v1/changes", None).await.unwrap();
    for message in messages.iter().rev() {
        tap.publish(message).await;
        let (subject, payload) = message;
        for at in [0, payload.len() / 2, payload.len() - 1] {
            let mut changed = payload.clone();
            changed[at] ^= 1;
            tap.publish(&(subject.clone(), changed)).await;
        }
    }
    tap.messages().await;
    let second = a.run_on("talk", "on").await;
    shown_here.extend(until_end(&mut here).await);
    shown_there.extend(until_end(&mut there).await);
    assert_eq!(shown_here, shown_there);
    // No change is listed that did not happen.
    let listed = async {
        loop {
            let change = changes.next().await.unwrap().unwrap();
            assert!(!change.data.contains(text(&first, "/id")), "{change:?}");
            assert!(!change.data.contains(question), "{change:?}");
            if change.data.contains(text(&second, "/id")) && change.data.contains("completed") {
                return;
            }
        }
    };
    tokio::time::timeout(LIMIT, listed).await.unwrap();
}
