//! An agent whose servers come and go.

use std::io::{ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::test_kill_process;

use super::{MIB, RunningHolder, wait_until};
use crate::holder::{MAX_LABELS, ServerFrame};

const HOUR_MS: u64 = 3_600_000;

#[test]
fn output_without_a_server_is_there_for_the_next_one() {
    let script =
        "read a; echo \"1 $a\"; read b; echo \"2 $b\"; touch written; read c; echo \"3 $c\"";
    let holder = RunningHolder::start(script, 1000, HOUR_MS);
    let mut server = holder.attach();
    assert_eq!((server.output_from, server.labels.len(), server.note.len()), (0, 0, 0));
    server.input("first", "a\n");
    server.take_output("1 a\n");
    server.send(&ServerFrame::Note(b"one".to_vec()));
    server.send(&ServerFrame::Note(b"two".to_vec()));
    server.send(&ServerFrame::Mark { offset: 2 });
    server.input("second", "b\n");
    // It is killed with what it has sent on its way.
    drop(server);
    holder.wait_for_file("written");
    let mut server = holder.attach();
    assert_eq!((server.output_from, server.seen_to), (2, 4));
    assert_eq!(server.note, b"two");
    assert_eq!(server.labels, ["second"]);
    server.take_output("a\n2 b\n");
    server.input("third", "c\n");
    server.take_output("a\n2 b\n3 c\n");
    assert_eq!(server.take_exit(), 0);
    assert_eq!(server.output_end, Some(12));
    assert_eq!(holder.join().unwrap().code(), Some(0));
}

#[test]
fn an_input_that_is_partly_received_has_no_effect() {
    let holder = RunningHolder::start("cat", 1000, HOUR_MS);
    let mut server = holder.attach();
    server.input("whole", "whole\n");
    let (label, bytes) = ("part".to_owned(), b"part\n".to_vec());
    let part = ServerFrame::Input { label, bytes }.encode();
    server.stream.write_all(&part[..part.len() - 1]).unwrap();
    drop(server);
    let mut server = holder.attach();
    assert_eq!(server.labels, ["whole"]);
    server.input("next", "next\n");
    server.take_output("whole\nnext\n");
    server.send(&ServerFrame::EndInput);
    assert_eq!(server.take_exit(), 0);
    assert_eq!(server.output, b"whole\nnext\n");
    holder.join();
}

#[test]
fn a_holder_says_that_it_has_lost_labels() {
    let holder = RunningHolder::start("cat", 100_000, HOUR_MS);
    let mut server = holder.attach();
    for number in 0..MAX_LABELS + 2 {
        server.input(&number.to_string(), "x");
        server.input("", "y");
    }
    server.take_until(|server| server.output.len() == 2 * (MAX_LABELS + 2));
    let mut server = holder.attach();
    assert_eq!((server.labels.len(), server.has_lost_labels), (MAX_LABELS, true));
    server.send(&ServerFrame::Mark { offset: 0 });
    server.send(&ServerFrame::EndInput);
    assert_eq!(server.take_exit(), 0);
    holder.join();
}

#[test]
fn an_agent_waits_while_the_buffer_is_full() {
    let script = "head -c 10485760 /dev/zero & echo $! >.head; mv .head head; wait $!; touch done; exec >&-; read line || exit 0";
    let holder = RunningHolder::start(script, MIB, HOUR_MS);
    holder.wait_for_file("head");
    let head = std::fs::read_to_string(holder.folder.join("head")).unwrap();
    let io = format!("/proc/{}/io", head.trim());
    wait_until(|| {
        let io = std::fs::read_to_string(&io).unwrap();
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
        written.parse::<u64>().unwrap() >= MIB
    });
    assert!(!holder.folder.join("done").exists());
    let mut server = holder.attach();
    // At most the buffer, the pipe and the socket took output.
    assert!(!holder.folder.join("done").exists());
    assert_eq!(server.output_from, 0);
    server.take_until(|server| server.output_end.is_some());
    assert_eq!(server.output_end, Some(10 * MIB));
    assert!(server.output.iter().all(|byte| *byte == 0));
    holder.wait_for_file("done");
    server.send(&ServerFrame::EndInput);
    assert_eq!(server.take_exit(), 0);
    holder.join();
}

#[test]
fn a_server_that_does_not_read_loses_nothing() {
    let script = "head -c 10485760 /dev/zero; touch done; cat";
    let holder = RunningHolder::start(script, MIB, HOUR_MS);
    let mut server = holder.attach();
    server.take_until(|server| !server.output.is_empty());
    assert!(!holder.folder.join("done").exists());
    server.take_until(|server| server.end() == 10 * MIB);
    server.send(&ServerFrame::EndInput);
    assert_eq!(server.take_exit(), 0);
    holder.join();
}

#[test]
fn old_output_is_dropped_while_a_server_is_attached() {
    let script = "head -c 3145728 /dev/zero; cat";
    let holder = RunningHolder::start(script, MIB, HOUR_MS);
    let mut server = holder.attach();
    server.take_until(|server| server.end() == 3 * MIB);
    drop(server);
    let mut server = holder.attach();
    assert_eq!(server.output_from, 2 * MIB);
    server.take_until(|server| server.end() == 3 * MIB);
    server.send(&ServerFrame::Mark { offset: 3 * MIB });
    server.input("", "more\n");
    server.take_until(|server| server.output.ends_with(b"more\n"));
    let server = holder.attach();
    assert_eq!(server.output_from, 3 * MIB);
    drop(server);
    let mut server = holder.attach();
    server.send(&ServerFrame::EndInput);
    assert_eq!(server.take_exit(), 0);
    assert_eq!(server.output, b"more\n");
    holder.join();
}

#[test]
fn a_server_waits_while_the_agent_does_not_read() {
    let script = "while ! test -e start; do sleep 0.01; done; wc -c";
    let holder = RunningHolder::start(script, 1000, HOUR_MS);
    let mut server = holder.attach();
    let mut sender = server.stream.try_clone().unwrap();
    let frame = ServerFrame::Input { label: String::new(), bytes: vec![b'x'; 100_000] }.encode();
    sender.set_nonblocking(true).unwrap();
    let bytes = frame.repeat(100);
    let mut taken = 0;
    // Without a limit, the holder would take everything.
    while taken < 1024 * 1024 || can_write(&sender) {
        match sender.write(&bytes[taken..]) {
            Ok(written) => taken += written,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(taken < 4 * 1024 * 1024, "{taken} bytes were taken");
    }
    std::fs::write(holder.folder.join("start"), "").unwrap();
    sender.set_nonblocking(false).unwrap();
    sender.write_all(&bytes[taken..]).unwrap();
    server.send(&ServerFrame::EndInput);
    assert_eq!(server.take_exit(), 0);
    assert_eq!(String::from_utf8_lossy(&server.output).trim(), "10000000");
    holder.join();
}

/// Whether a socket takes bytes within a moment. A slow holder only makes the test weaker.
fn can_write(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::OUT)];
    let moment = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    poll(&mut fds, Some(&moment)).unwrap() == 1
}

#[test]
fn an_exit_without_a_server_waits_for_one() {
    let holder = RunningHolder::start("echo last; echo why >&2; exit 3", 1000, HOUR_MS);
    // The holder has reaped it.
    wait_until(|| test_kill_process(holder.agent).is_err());
    let mut server = holder.attach();
    assert_eq!(server.take_exit(), 3 << 8);
    assert_eq!((&*server.output, &*server.errors), (&b"last\n"[..], &b"why\n"[..]));
    assert_eq!(holder.join().unwrap().code(), Some(3));
}

#[test]
fn a_signal_is_the_status_of_an_agent() {
    let holder = RunningHolder::start("kill -KILL $$", 1000, HOUR_MS);
    let mut server = holder.attach();
    assert_eq!(server.take_exit(), 9);
    assert_eq!(holder.join().unwrap().signal(), Some(9));
}

#[test]
fn a_descendant_does_not_hold_the_output_open() {
    let started = Instant::now();
    let holder = RunningHolder::start("echo last; sleep 600 & exit 0", 1000, HOUR_MS);
    let mut server = holder.attach();
    assert_eq!(server.take_exit(), 0);
    assert_eq!(server.output, b"last\n");
    assert!(started.elapsed() >= Duration::from_millis(500));
    holder.join();
}

#[test]
fn a_descendant_that_keeps_writing_does_not_delay_the_exit() {
    let script = "yes & head -c 100000 /dev/zero; exit 0";
    let holder = RunningHolder::start(script, 10_000, HOUR_MS);
    let mut server = holder.attach();
    assert_eq!(server.take_exit(), 0);
    assert_eq!(server.output.iter().filter(|byte| **byte == 0).count(), 100_000);
    holder.join();
}

#[test]
fn an_agent_without_a_server_ends_after_the_orphan_time() {
    let holder = RunningHolder::start("sleep 600", 1000, 20);
    assert_eq!(holder.join(), None);
}

#[test]
fn the_orphan_time_begins_when_a_server_is_lost() {
    let holder = RunningHolder::start("read go; sleep 1.5; echo late; cat", 1000, 1000);
    let mut server = holder.attach();
    server.input("", "\n");
    server.take_output("late\n");
    let lost = Instant::now();
    drop(server);
    assert_eq!(holder.join(), None);
    assert!(lost.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_server_sets_the_orphan_time() {
    let holder = RunningHolder::start("cat", 1000, HOUR_MS);
    let mut server = holder.attach();
    server.send(&ServerFrame::OrphanTime { ms: 100 });
    server.input("", "x\n");
    server.take_output("x\n");
    drop(server);
    assert!(holder.join().is_none());
}

#[test]
fn the_exit_of_an_orphan_is_its_status() {
    let holder = RunningHolder::start("exit 4", 1000, 300);
    assert_eq!(holder.join().unwrap().code(), Some(4));
}

#[test]
fn the_last_errors_are_kept_without_a_server() {
    let script = "head -c 300000 /dev/zero | tr '\\0' a >&2; echo end >&2; touch written; cat; echo live >&2";
    let holder = RunningHolder::start(script, 1000, HOUR_MS);
    holder.wait_for_file("written");
    let mut server = holder.attach();
    // What was in the pipe until now can follow.
    server.take_until(|server| server.errors.ends_with(b"end\n"));
    assert!(server.errors.len() >= 64 * 1024);
    assert!(server.errors.len() <= 192 * 1024, "{}", server.errors.len());
    server.errors.clear();
    server.send(&ServerFrame::EndInput);
    assert_eq!(server.take_exit(), 0);
    assert_eq!(server.errors, b"live\n");
    holder.join();
}

#[test]
fn a_server_that_does_not_read_gets_the_newest_errors() {
    let script = "read go; head -c 4194304 /dev/zero >&2; echo end >&2; touch written; cat";
    let holder = RunningHolder::start(script, 1000, HOUR_MS);
    let mut server = holder.attach();
    server.input("", "\n");
    // The agent never waits for a reader of its errors.
    holder.wait_for_file("written");
    server.take_until(|server| server.errors.ends_with(b"end\n"));
    assert!(server.errors.len() < 2 * 1024 * 1024, "{}", server.errors.len());
    server.send(&ServerFrame::EndInput);
    assert_eq!(server.take_exit(), 0);
    holder.join();
}

#[test]
fn an_agent_that_closes_its_input_loses_only_input() {
    let holder = RunningHolder::start(
        "exec <&-; touch closed; read x </dev/null; while ! test -e end; do sleep 0.01; done",
        1000,
        HOUR_MS,
    );
    holder.wait_for_file("closed");
    let mut server = holder.attach();
    for _ in 0..50 {
        server.input("label", &"x".repeat(100_000));
    }
    std::fs::write(holder.folder.join("end"), "").unwrap();
    assert_eq!(server.take_exit(), 0);
    holder.join();
}
