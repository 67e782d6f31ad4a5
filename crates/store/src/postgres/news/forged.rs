//! The messages that an attacker with access to NATS alone can send, on a real NATS server between real nodes. None of them may be accepted, and none may hide a real one.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::broadcast::Receiver;
use trilogue_domain::event::MessageEvent;
use trilogue_domain::port::{Clock, SystemClock};
use trilogue_domain::{
    AgentName, Body, InterruptId, PrincipalId, RunId, RunKey, RunStatus, ThreadId, ThreadKey,
    Timestamp,
};

use super::encryption::{ClusterKey, ClusterKeys, Encryptor, KEY_BYTES, SEAL_BYTES};
use super::message::{AppendNotice, LogRemoval, NewsWriter};
use crate::fixtures::{START, tenant, thread_row};
use crate::news::{ChangedRow, PeerMessage, PeerNews, Peers, RowChange, ShownQuestion};
use crate::options::{Durability, NodeOptions, Options};
use crate::port::{Append, Batch, Change, Range, Read};
use crate::postgres::PostgresStore;
use crate::record::{Draft, Frame, NoOriginals};
use crate::services::{postgres_url, service};

/// Longer than any test: a node that learns of a change sooner has received a message.
const LATE: Duration = Duration::from_secs(3_600);
/// Longer than a message takes.
const PATIENCE: Duration = Duration::from_secs(10);
/// The length of the tag at the end of a sealed message, which authenticates it.
const TAG_BYTES: usize = 16;
/// A text of a conversation, which must not appear on the bus.
const SECRET: &str = "the launch code is 0451";

/// Creates messages of every kind like a node, but without any secret of a node.
struct Forger {
    /// The opening that it sends as.
    opening: i64,
    /// The number of the last message.
    number: u64,
}

/// Two nodes, and an attacker who has the address of their NATS server.
struct World {
    a: PostgresStore,
    b: PostgresStore,
    attacker: Attacker,
    subject: String,
    url: String,
    /// All messages on the bus.
    bus: async_nats::Subscriber,
    notes: Receiver<PeerNews>,
    threads: usize,
}

/// A NATS client that can wait until the server has passed its messages on.
struct Attacker {
    client: Client,
    echo: async_nats::Subscriber,
    echo_subject: String,
}

/// A thread of the first node that is read on the second.
struct ReadThread {
    thread: ThreadKey,
    last: u64,
}

fn frames(thread: ThreadKey, run: Option<RunKey>, first: u64, text: &str) -> Vec<Arc<Frame>> {
    let mut draft = Draft::default();
    let body = Body::Message(MessageEvent::Thought { message: None, text: Arc::from(text) });
    draft.push(START, &body, None).unwrap();
    let reader = Arc::new(NoOriginals) as _;
    draft.seal(thread, run, first, 0, &reader)
}

// === impl Forger ===

impl Forger {
    /// Sends as the node itself, with higher numbers than the node has used.
    fn new(opening: i64) -> Self {
        Self { opening, number: 1 << 40 }
    }

    fn entry(&mut self, put: impl FnOnce(&mut NewsWriter)) -> Vec<u8> {
        let mut writer = NewsWriter::new(self.opening);
        writer.begin(usize::MAX, SystemClock.now());
        writer.skip(self.number);
        self.number += 1;
        put(&mut writer);
        writer.finish().remove(0)
    }

    fn append(&mut self, thread: ThreadKey, last: u64, frames: Vec<Arc<Frame>>) -> Vec<u8> {
        let told = AppendNotice { thread, last, stamp: 7, removal: None, frames };
        self.entry(|writer| writer.append(&told))
    }

    fn removal(&mut self, thread: ThreadKey, last: u64, removal: LogRemoval) -> Vec<u8> {
        let removal = Some(removal);
        let told = AppendNotice { thread, last, stamp: 7, removal, frames: Vec::new() };
        self.entry(|writer| writer.append(&told))
    }

    fn note(&mut self, note: &PeerMessage) -> Vec<u8> {
        self.entry(|writer| writer.push_message(note))
    }

    /// A message of each kind about a thread whose log ends here.
    fn every_kind(&mut self, thread: ThreadKey, last: u64) -> Vec<(&'static str, Vec<u8>)> {
        let next = frames(thread, None, last + 1, "forged");
        let again = frames(thread, None, last, "forged");
        let change = |row| RowChange {
            tenant: tenant("default"),
            principal: PrincipalId::generate(),
            thread: ThreadId::generate(),
            row,
        };
        let run = ChangedRow::Run {
            id: RunId::generate(),
            agent: AgentName::parse("echo").unwrap(),
            status: RunStatus::Completed,
        };
        let interrupt = ChangedRow::Interrupt {
            id: InterruptId::generate(),
            run: RunId::generate(),
            is_pending: true,
        };
        let rows = [run, interrupt, ChangedRow::Thread, ChangedRow::NoThread].map(change);
        let shown = ShownQuestion {
            principal: PrincipalId::generate(),
            run: RunId::generate(),
            interrupt: InterruptId::generate(),
            at: Timestamp::from_micros(i64::MAX),
        };
        vec![
            ("an event that continues the log", self.append(thread, last + 1, next)),
            ("another event in place of the last", self.append(thread, last, again)),
            ("a log that ends further on", self.append(thread, last + 1, Vec::new())),
            ("a log that ends nowhere", self.append(thread, u64::MAX, Vec::new())),
            ("a run that was removed", self.removal(thread, u64::MAX, LogRemoval::Run)),
            ("a thread that was removed", self.removal(thread, last, LogRemoval::Thread)),
            ("rows that changed", self.note(&PeerMessage::Rows(rows.to_vec()))),
            ("a question that was shown", self.note(&PeerMessage::Shown(shown))),
            ("a client that is connected", self.note(&PeerMessage::Present(vec![thread]))),
            ("a token that was revoked", self.note(&PeerMessage::Revoked([7; 32]))),
        ]
    }
}

/// The forms in which an attacker who has seen a real message can send a forged one.
fn forms(message: &[u8], real: &Bytes) -> [(&'static str, Bytes); 4] {
    // The format from before encryption: version 2, without a time, with a checksum.
    let mut readable = [&[2], &message[..16], &message[24..]].concat();
    readable.extend(crc32c::crc32c(&readable).to_le_bytes());
    let head = &real[..SEAL_BYTES - TAG_BYTES];
    let below_real_head = [head, message, &[0; TAG_BYTES]].concat();
    let key = ClusterKey::new(&[9; KEY_BYTES]);
    let keys = ClusterKeys::default();
    keys.set(Some(key.clone()), vec![key]);
    let sealed = Encryptor::new("trilogue.any.log").encrypt(&keys, message).unwrap();
    let as_if = [head, &sealed[head.len()..]].concat();
    [
        ("readable", readable.into()),
        ("readable below the head of a real message", below_real_head.into()),
        ("under a key of his own", sealed),
        ("under a key of his own below the head of a real message", as_if.into()),
    ]
}

/// The changed messages that an attacker can make from a real one.
fn changes(real: &Bytes) -> Vec<Bytes> {
    let flipped = |at: usize| {
        let mut changed = real.to_vec();
        changed[at] ^= 1;
        Bytes::from(changed)
    };
    let mut changed: Vec<_> =
        [0, 1, 9, 25, SEAL_BYTES - TAG_BYTES, real.len() - 1].map(flipped).into();
    changed.push(real.slice(..real.len() - 1));
    changed.push([&real[..], real].concat().into());
    changed.push(Bytes::new());
    // The unchanged message: it counts once.
    changed.push(real.clone());
    changed
}

// === impl Attacker ===

impl Attacker {
    async fn connect() -> Self {
        let client = async_nats::connect(service("TRILOGUE_NATS")).await.unwrap();
        let echo_subject = client.new_inbox();
        let echo = client.subscribe(echo_subject.clone()).await.unwrap();
        Self { client, echo, echo_subject }
    }

    /// Waits until the server has processed what this client sent: it keeps the order of a connection.
    async fn round_trip(&mut self) {
        self.client.publish(self.echo_subject.clone(), Bytes::new()).await.unwrap();
        tokio::time::timeout(PATIENCE, self.echo.next()).await.unwrap().unwrap();
    }
}

// === impl World ===

async fn node(url: &str, name: &str) -> PostgresStore {
    let node = NodeOptions {
        poll: LATE,
        news: Some(service("TRILOGUE_NATS")),
        ..NodeOptions::new(name.to_owned(), format!("http://{name}:1"))
    };
    let options = Options {
        durability: Durability::Buffered,
        node: Some(node),
        ..Options::new(Arc::new(NoOriginals))
    };
    PostgresStore::open(url, options).await.unwrap()
}

impl World {
    async fn new() -> Self {
        let url = postgres_url().await;
        let (a, b) = (node(&url, "a").await, node(&url, "b").await);
        let mut attacker = Attacker::connect().await;
        let subject = format!("trilogue.{}.log", a.database.id);
        let bus = attacker.client.subscribe(subject.clone()).await.unwrap();
        attacker.round_trip().await;
        let mut notes = b.subscribe().unwrap();
        // Messages are lost until both are connected.
        let marker = PeerMessage::Present(vec![ThreadKey(-1)]);
        let hearing = async {
            loop {
                a.publish(marker.clone());
                let heard = tokio::time::timeout(Duration::from_millis(100), notes.recv()).await;
                if matches!(heard, Ok(Ok(PeerNews::Message(_)))) {
                    break;
                }
            }
        };
        tokio::time::timeout(PATIENCE * 10, hearing).await.expect("the nodes hear each other");
        Self { notes: b.subscribe().unwrap(), a, b, attacker, subject, url, bus, threads: 0 }
    }

    async fn append(
        &self,
        thread: ThreadKey,
        last: u64,
        frames: Vec<Arc<Frame>>,
        new: Vec<Change>,
    ) {
        let batch = Batch {
            thread,
            epoch: thread_row(thread, "default", "t").epoch,
            expected_last: last,
            frames,
            changes: new,
            blobs: Vec::new(),
            vital: false,
        };
        self.a.append(batch).await.unwrap();
    }

    /// A new thread with an event.
    async fn subject(&mut self) -> ReadThread {
        self.threads += 1;
        let thread = self.a.next_thread_key();
        let row = thread_row(thread, "default", &format!("t{}", self.threads));
        self.append(thread, 0, Vec::new(), vec![Change::Thread(row)]).await;
        self.append(thread, 0, frames(thread, None, 1, SECRET), Vec::new()).await;
        ReadThread { thread, last: 1 }
    }

    async fn publish(&mut self, messages: &[Bytes]) {
        for message in messages {
            self.attacker.client.publish(self.subject.clone(), message.clone()).await.unwrap();
        }
        // Later messages of a node arrive after the attacker's.
        self.attacker.round_trip().await;
    }

    /// The wrong effect of these messages on the second node, for a thread. `None` if they had none.
    async fn harm(&mut self, subject: &mut ReadThread, messages: &[Bytes]) -> Option<&'static str> {
        let thread = subject.thread;
        let mut tail = self.b.tail(thread);
        let known = tail.committed.wait_for(|last| *last >= subject.last);
        tokio::time::timeout(PATIENCE, known).await.expect("its end is looked up").unwrap();
        while self.notes.try_recv().is_ok() {}
        self.publish(messages).await;
        subject.last += 1;
        let next = frames(thread, None, subject.last, SECRET);
        self.append(thread, subject.last - 1, next, Vec::new()).await;
        let arrives = tail.committed.wait_for(|last| *last >= subject.last);
        match tokio::time::timeout(PATIENCE, arrives).await {
            Err(_) => return Some("hides what is real"),
            Ok(Err(_)) => return Some("ends the readers of a thread"),
            Ok(Ok(_)) => {}
        }
        // Reads like a reader that has read everything before.
        let range = Range { run: None, after: subject.last - 1, max_bytes: usize::MAX };
        let mut read = Vec::new();
        for store in [&self.a, &self.b] {
            let frames = store.frames(thread, range).await.unwrap();
            read.push(frames.iter().map(|frame| frame.bytes().to_vec()).collect::<Vec<_>>());
        }
        if read[0] != read[1] {
            return Some("is served");
        }
        if *tail.committed.borrow() != subject.last {
            return Some("moves the end of the log");
        }
        // When this arrives, the node has processed everything that was published before it.
        self.a.publish(PeerMessage::Revoked([0; 32]));
        let mut heard = Vec::new();
        let last_note = async {
            loop {
                match self.notes.recv().await {
                    Ok(PeerNews::Message(PeerMessage::Revoked(hash))) if hash == [0; 32] => return,
                    other => heard.push(other),
                }
            }
        };
        if tokio::time::timeout(PATIENCE, last_note).await.is_err() {
            return Some("hides a real note");
        }
        (!heard.is_empty()).then_some("is passed on")
    }

    /// The next message that a node sends.
    async fn next_on_bus(&mut self) -> Bytes {
        tokio::time::timeout(PATIENCE, self.bus.next()).await.unwrap().unwrap().payload
    }

    /// All messages sent so far.
    async fn all_on_bus(&mut self) -> Vec<Bytes> {
        let last = Bytes::from_static(b"the last");
        self.publish(std::slice::from_ref(&last)).await;
        let mut all = Vec::new();
        loop {
            match self.next_on_bus().await {
                message if message == last => return all,
                message => all.push(message),
            }
        }
    }
}

#[tokio::test]
async fn nothing_that_is_forged_is_taken_and_nothing_real_is_hidden() {
    let mut world = World::new().await;
    let node = world.a.database.keys.opening;
    let real = world.next_on_bus().await;
    let mut harms = Vec::new();
    for (whose, opening) in [("a stranger", 1 << 20), ("a node", node)] {
        let mut forger = Forger::new(opening);
        for kind in 0..forger.every_kind(ThreadKey(0), 1).len() {
            for form in 0..forms(&real, &real).len() {
                let mut subject = world.subject().await;
                let (what, message) =
                    forger.every_kind(subject.thread, subject.last).swap_remove(kind);
                let (how, forged) = forms(&message, &real)[form].clone();
                if let Some(harm) = world.harm(&mut subject, &[forged]).await {
                    harms.push(format!("{what}, {how}, as of {whose}, {harm}"));
                }
            }
        }
    }
    assert_eq!(harms, Vec::<String>::new());
}

#[tokio::test]
async fn real_messages_that_are_changed_repeated_or_of_another_store_do_nothing() {
    let mut world = World::new().await;
    let mut other = World::new().await;
    let mut subject = world.subject().await;
    let mut elsewhere = other.subject().await;
    assert_eq!(other.harm(&mut elsewhere, &[]).await, None);
    for round in 0..3 {
        let mut sent = world.all_on_bus().await;
        // The attacker's messages are in the list too.
        sent.retain(|real| real.len() > SEAL_BYTES);
        let mut messages: Vec<_> = sent.iter().flat_map(changes).collect();
        // Later ones first, and those of another store.
        sent.reverse();
        messages.extend(sent);
        messages.extend(other.all_on_bus().await);
        assert_eq!(world.harm(&mut subject, &messages).await, None, "round {round}");
        // Messages about the first thread do no harm to another one.
        let mut second = world.subject().await;
        assert_eq!(world.harm(&mut second, &messages).await, None, "round {round}");
        assert_eq!(other.harm(&mut elsewhere, &messages).await, None, "round {round}");
    }
}

#[tokio::test]
async fn a_node_that_starts_later_serves_nothing_but_the_log_when_old_messages_are_repeated() {
    let mut world = World::new().await;
    let subject = world.subject().await;
    for last in subject.last..subject.last + 5 {
        world
            .append(subject.thread, last, frames(subject.thread, None, last + 1, SECRET), vec![])
            .await;
    }
    let sent = world.all_on_bus().await;
    let c = node(&world.url, "c").await;
    let (mut tail, mut notes) = (c.tail(subject.thread), c.subscribe().unwrap());
    let known = tail.committed.wait_for(|last| *last == subject.last + 5);
    tokio::time::timeout(PATIENCE, known).await.unwrap().unwrap();
    let hearing = async {
        loop {
            world.publish(&sent).await;
            world.a.publish(PeerMessage::Revoked([1; 32]));
            let heard = tokio::time::timeout(Duration::from_millis(100), notes.recv()).await;
            if matches!(heard, Ok(Ok(PeerNews::Message(PeerMessage::Revoked(_))))) {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE * 3, hearing).await.expect("the new node hears the others");
    assert_eq!(*tail.committed.borrow(), subject.last + 5);
    let range = Range { run: None, after: 0, max_bytes: usize::MAX };
    let mut numbers = Vec::new();
    for frame in c.frames(subject.thread, range).await.unwrap() {
        numbers.extend(frame.first()..=frame.last());
    }
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn a_conversation_is_not_readable_on_the_bus() {
    let mut world = World::new().await;
    let mut subject = world.subject().await;
    assert_eq!(world.harm(&mut subject, &[]).await, None);
    let all = world.all_on_bus().await;
    for message in &all {
        let has = |part: &[u8]| message.windows(part.len()).any(|at| at == part);
        assert!(!has(SECRET.as_bytes()), "the words of a conversation");
        assert!(!has(&subject.thread.0.to_le_bytes()), "the key of a thread");
        assert!(!has(&[0; 32]), "the hash of a token");
    }
    assert!(all.len() >= 3, "{} messages were on the bus", all.len());
}

#[tokio::test]
async fn a_new_key_reaches_nodes_that_run_and_an_old_one_counts_no_more() {
    let mut world = World::new().await;
    let mut subject = world.subject().await;
    let old = world.all_on_bus().await;
    let key_of = |message: &Bytes| message.slice(1..9);
    // As if a day had passed: a node that starts makes a new key and uses it.
    let conn = world.a.database.connect().await.unwrap();
    let age = "UPDATE news_keys SET made_at = made_at - interval '25 hours'";
    conn.batch_execute(age).await.unwrap();
    let c = node(&world.url, "c").await;
    assert_eq!(
        world.harm(&mut subject, &[]).await,
        None,
        "the old key is used until all know the new one"
    );
    assert!(world.all_on_bus().await.iter().all(|sent| key_of(sent) == key_of(&old[0])));
    // As if all nodes had read it. A node that starts forgets the old key.
    conn.batch_execute("UPDATE news_keys SET made_at = made_at - interval '2 hours'")
        .await
        .unwrap();
    let d = node(&world.url, "d").await;
    let count = conn.query_one("SELECT count(*) FROM news_keys", &[]).await.unwrap();
    assert_eq!(count.get::<_, i64>(0), 1);
    // The first nodes learn of the key from messages that they cannot open.
    let learning = async {
        loop {
            d.publish(PeerMessage::Present(vec![ThreadKey(-2)]));
            world.a.publish(PeerMessage::Present(vec![ThreadKey(-2)]));
            let sent = world.all_on_bus().await;
            if sent
                .iter()
                .filter(|it| it.len() > SEAL_BYTES)
                .all(|it| key_of(it) != key_of(&old[0]))
            {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE * 3, learning).await.expect("the nodes use the new key");
    let mut second = world.subject().await;
    let hearing = async { while world.harm(&mut second, &old).await.is_some() {} };
    tokio::time::timeout(PATIENCE * 3, hearing).await.expect("the nodes hear each other");
    drop(c);
}
