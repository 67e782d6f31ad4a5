//! Who may attach.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use super::{HOLDER_VERSION, RunningHolder, SECRET, next_frame};
use crate::broker::PassedListener;
use crate::holder::{FrameReader, HolderFrame, ServerFrame};

const HOUR_MS: u64 = 3_600_000;

fn attach(version: u16, secret: &str) -> ServerFrame {
    ServerFrame::Attach { version, secret: secret.to_owned() }
}

#[test]
fn a_connection_without_the_secret_is_closed() {
    let holder = RunningHolder::start("cat", 1000, HOUR_MS);
    let almost = format!("{}0", &SECRET[..63]);
    let firsts = [
        attach(HOLDER_VERSION, &almost).encode(),
        attach(HOLDER_VERSION, "").encode(),
        attach(HOLDER_VERSION, &format!("{SECRET}0")).encode(),
        ServerFrame::Input { label: "early".to_owned(), bytes: b"early".to_vec() }.encode(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        ServerFrame::Note(vec![0; 100_000]).encode(),
    ];
    let mut server = holder.attach();
    for first in firsts {
        let mut stream = holder.connect();
        // The holder may close it before it has everything.
        let _ = stream.write_all(&first);
        assert_eq!(next_frame(&mut stream, &mut FrameReader::new()), None);
    }
    // The attached server has noticed nothing.
    server.input("", "hello");
    server.take_output("hello");
    assert!(server.labels.is_empty());
    server.send(&ServerFrame::EndInput);
    assert_eq!(server.take_exit(), 0);
    assert_eq!(holder.join().unwrap().code(), Some(0));
}

#[test]
fn a_server_of_another_version_learns_the_version() {
    let holder = RunningHolder::start("cat", 1000, HOUR_MS);
    let mut server = holder.attach();
    let mut stream = holder.connect();
    stream.write_all(&attach(HOLDER_VERSION + 1, SECRET).encode()).unwrap();
    let mut reader = FrameReader::new();
    let state = next_frame(&mut stream, &mut reader);
    assert!(matches!(state, Some(HolderFrame::State { version: HOLDER_VERSION, .. })));
    assert_eq!(next_frame(&mut stream, &mut reader), None);
    // It replaces no other server.
    server.input("", "hello");
    server.take_output("hello");
    server.send(&ServerFrame::EndInput);
    assert_eq!(server.take_exit(), 0);
    holder.join();
}

#[test]
fn a_server_takes_the_listener_of_the_broker() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let broker = Some(PassedListener { listener, namespace: None });
    let holder = RunningHolder::start_with("cat", (1000, HOUR_MS), broker);
    let mut server = holder.attach();
    let take = |secret: &str| {
        let mut stream = holder.connect();
        stream.write_all(&ServerFrame::TakeBroker { secret: secret.to_owned() }.encode()).unwrap();
        PassedListener::receive(&stream)
    };
    assert!(take(&SECRET[1..]).unwrap().is_none());
    // A connection waits until a server has it.
    let mut waiting = TcpStream::connect(address).unwrap();
    waiting.write_all(b"hello").unwrap();
    let (first, second) = (take(SECRET).unwrap().unwrap(), take(SECRET).unwrap().unwrap());
    drop(first);
    let mut greeting = [0; 5];
    second.listener.accept().unwrap().0.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"hello");
    // The attached server has noticed nothing.
    server.input("", "hello");
    server.take_output("hello");
    server.send(&ServerFrame::EndInput);
    assert_eq!(server.take_exit(), 0);
    holder.join();
}

#[test]
fn a_holder_without_a_broker_passes_nothing() {
    let holder = RunningHolder::start("cat", 1000, HOUR_MS);
    let mut stream = holder.connect();
    stream.write_all(&ServerFrame::TakeBroker { secret: SECRET.to_owned() }.encode()).unwrap();
    assert!(PassedListener::receive(&stream).unwrap().is_none());
    let mut server = holder.attach();
    // An attached server may not send it.
    server.send(&ServerFrame::TakeBroker { secret: SECRET.to_owned() });
    assert_eq!(server.next(), None);
    let mut server = holder.attach();
    server.send(&ServerFrame::EndInput);
    assert_eq!(server.take_exit(), 0);
    holder.join();
}

#[test]
fn a_new_server_replaces_the_attached_one() {
    let holder = RunningHolder::start("cat", 1000, HOUR_MS);
    let mut first = holder.attach();
    first.input("one", "1");
    first.take_output("1");
    let mut second = holder.attach();
    assert_eq!(first.next(), None);
    assert_eq!(second.labels, ["one"]);
    second.take_output("1");
    second.send(&ServerFrame::EndInput);
    assert_eq!(second.take_exit(), 0);
    holder.join();
}

#[test]
fn silent_connections_do_not_keep_a_server_out() {
    let holder = RunningHolder::start("cat", 1000, HOUR_MS);
    let mut silent: Vec<_> = (0..6).map(|_| holder.connect()).collect();
    let mut server = holder.attach();
    // The oldest made room.
    assert_eq!(next_frame(&mut silent[0], &mut FrameReader::new()), None);
    // A proof in parts is as good as one at once.
    let mut slow = silent.pop().unwrap();
    let proof = attach(HOLDER_VERSION, SECRET).encode();
    let (last, first) = proof.split_last().unwrap();
    slow.write_all(first).unwrap();
    server.input("", "hello");
    server.take_output("hello");
    slow.write_all(&[*last]).unwrap();
    let mut reader = FrameReader::new();
    assert!(matches!(next_frame(&mut slow, &mut reader), Some(HolderFrame::State { .. })));
    assert_eq!(server.next(), None);
    slow.write_all(&ServerFrame::EndInput.encode()).unwrap();
    while next_frame(&mut slow, &mut reader).is_some() {}
    assert_eq!(holder.join().unwrap().code(), Some(0));
}

#[test]
fn an_invalid_frame_ends_the_connection_and_not_the_agent() {
    let holder = RunningHolder::start("cat", 1000, HOUR_MS);
    let ahead = ServerFrame::Mark { offset: 1 }.encode();
    for invalid in [vec![99], attach(HOLDER_VERSION, SECRET).encode(), ahead] {
        let mut server = holder.attach();
        server.stream.write_all(&invalid).unwrap();
        assert_eq!(server.next(), None);
    }
    let mut server = holder.attach();
    server.input("", "hello");
    server.take_output("hello");
    server.send(&ServerFrame::EndInput);
    assert_eq!(server.take_exit(), 0);
    holder.join();
}
