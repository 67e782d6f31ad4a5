//! `trilogue run` through our own face of the Agent Communication Protocol.

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{BINARY, Ended, Home, Server, finish, lasting_address};
use crate::terminal::Screen;

const MAIL: &str = "Write to ada@example.com saying that the meeting moves to Friday";
const SESSION: &str = "87cd7dc0-0000-4000-8000-000000000001";

fn command(home: &Home, server: &Server<'_>, arguments: &[&str]) -> Command {
    let mut command = home.program(BINARY);
    command.args(arguments).args(["--url", &format!("{}/communication", server.url())]);
    command
}

fn through(home: &Home, server: &Server<'_>, arguments: &[&str]) -> Ended {
    finish(command(home, server, arguments), "")
}

#[test]
fn an_answer_looks_the_same_on_both_faces() {
    let home = Home::new();
    let server = home.demo();
    for (agent, question) in
        [("echo", "Grüße"), ("researcher", "honey bees"), ("mailcomposer", "Hello")]
    {
        for extra in [&[][..], &["--no-metadata"]] {
            let arguments = [&["run", agent, question][..], extra].concat();
            let ours = server.run(&arguments).expect(0);
            let theirs = through(&home, &server, &arguments).expect(0);
            assert_eq!(theirs.out, ours.out, "{agent} {extra:?}");
        }
    }
    let chatted = finish(command(&home, &server, &["chat", "echo"]), "one\ntwo\n").expect(0);
    assert_eq!(chatted.out, "one\ntwo\n");
}

#[test]
fn events_are_the_protocols_own_and_the_session_is_a_thread() {
    let home = Home::new();
    let server = home.demo();
    let arguments = ["run", "echo", "one", "--thread", SESSION, "--json"];
    let events = through(&home, &server, &arguments).expect(0).lines();
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "run.created",
            "run.in-progress",
            "message.created",
            "message.part",
            "message.completed",
            "run.completed"
        ]
    );
    assert_eq!(events[0]["run"]["session_id"], SESSION);
    server.run(&["run", "echo", "two", "--thread", SESSION]).expect(0);
    let shown = server.run(&["threads", "show", SESSION]).expect(0).out;
    assert!(shown.contains("one") && shown.contains("two"), "{shown}");
}

#[test]
fn a_question_of_another_kind_is_asked_as_what_it_is() {
    let home = Home::new();
    let server = home.demo();
    let mut screen = Screen::start(command(&home, &server, &["run", "mailcomposer", MAIL]));
    screen.wait_for("Approval Decision");
    assert!(screen.seen().contains("ada@example.com"), "{}", screen.seen());
    screen.press("n");
    screen.wait_for("Approval Reason");
    screen.press("not today\r");
    let (code, seen) = screen.end();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.rsplit("Approval Reason").next().unwrap().contains("not today"), "{seen}");
    assert_eq!(server.run(&["inbox", "-q"]).expect(0).out, "");
}

#[test]
fn an_answer_that_came_too_late_is_told_and_the_run_goes_on() {
    let home = Home::new();
    let server = home.demo();
    let mut screen = Screen::start(command(&home, &server, &["run", "mailcomposer", MAIL]));
    screen.wait_for("Approval Decision");
    let inbox = server.run(&["inbox", "-q"]).expect(0).out;
    let faster = ["approve", inbox.trim(), "--reject", "--message", "I was faster"];
    server.run(&faster).expect(0);
    screen.press("y");
    screen.wait_for("Approval Reason");
    screen.press("\r");
    let (code, seen) = screen.end();
    assert_eq!(code, Some(0), "{seen}");
    let (_, after) = seen.split_once("your answer was not taken").unwrap();
    assert!(after.contains("I was faster"), "the run went on with the other answer: {seen}");
    assert!(!after.contains("the stream broke"), "{seen}");
}

#[test]
fn ctrl_c_at_a_question_cancels_the_run() {
    let home = Home::new();
    let server = home.demo();
    let mut screen = Screen::start(command(&home, &server, &["run", "mailcomposer", MAIL]));
    screen.wait_for("Approval Decision");
    screen.press("\u{3}");
    let (code, seen) = screen.end();
    assert_eq!(code, Some(130), "{seen}");
    assert!(seen.contains("the run was cancelled"), "{seen}");
    assert!(!seen.contains("the stream broke"), "{seen}");
    let cursor = |shown: bool| seen.rfind(if shown { "\u{1b}[?25h" } else { "\u{1b}[?25l" });
    assert!(cursor(true) > cursor(false), "the cursor is shown again: {seen:?}");
    let runs = server.run(&["runs", "--json"]).expect(0).json();
    assert_eq!(runs["items"][0]["status"], "cancelled", "{runs}");
}

#[test]
fn a_question_nobody_can_answer_here_waits() {
    let home = Home::new();
    let server = home.demo();
    let ended = through(&home, &server, &["run", "mailcomposer", MAIL]).expect(3);
    assert!(ended.err.contains("ada@example.com"), "{}", ended.err);
    assert!(ended.err.contains("needs an answer (mail_send_approval)"), "{}", ended.err);
    assert_eq!(server.run(&["inbox", "-q"]).expect(0).out.lines().count(), 1);
}

#[test]
fn refusals_end_as_they_do_on_our_own_face() {
    let home = Home::new();
    let server = home.demo();
    let ended = through(&home, &server, &["run", "ecko", "x"]).expect(4);
    assert!(ended.err.contains("ecko"), "{}", ended.err);
    through(&home, &server, &["run", "echo", "x", "--token", "wrong"]).expect(5);
    // Each protocol has its own address.
    let ended = through(&home, &server, &["agents"]).expect(1);
    assert!(ended.err.contains("served at another address"), "{}", ended.err);
    let ended = server.run(&["run", "echo", "x", "--protocol", "communication"]).expect(4);
    assert!(ended.err.contains("served at another address"), "{}", ended.err);
    let wrong = ["run", "mailcomposer", "x", "--config", r#"{"style":"rude"}"#];
    let ended = through(&home, &server, &wrong).expect(2);
    assert!(ended.err.contains("style"), "{}", ended.err);
}

#[test]
fn attachments_and_artifacts_come_through() {
    let home = Home::new();
    let server = home.demo();
    let large = "0123456789abcdef".repeat(1024 * 1024 / 4);
    home.write("large.txt", &large);
    std::fs::write(home.work().join("x.png"), [0xff, 0xd8]).unwrap();
    let address = "https://example.com/a.pdf";
    let attaching = ["--attach", "large.txt", "--attach", "x.png", "--attach", address];
    let arguments = [&["run", "echo", "look", "--save", "out"][..], &attaching].concat();
    let ended = through(&home, &server, &arguments).expect(0);
    assert!(ended.out.contains(&format!("[application/pdf, {address}]")), "{}", ended.out);
    let saved = |name: &str| std::fs::read(home.work().join("out").join(name)).unwrap();
    assert_eq!(saved("x.png"), [0xff, 0xd8]);
    assert!(saved("large.txt") == large.as_bytes(), "large content is fetched from its address");
}

#[test]
fn a_stream_goes_on_after_the_server_was_killed() {
    let home = Home::new();
    let address = lasting_address();
    let start = || home.start(&["demo", "--listen", &address]);
    let server = start();
    let mut screen = Screen::start(command(&home, &server, &["run", "mailcomposer", MAIL]));
    screen.wait_for("Approval Decision");
    let inbox = server.run(&["inbox", "-q"]).expect(0).out;
    server.stop(Signal::KILL);
    let server = start();
    // Another command follows the question that is there again.
    let faster = ["approve", inbox.trim(), "--reject", "--message", "after the kill"];
    server.run(&faster).expect(0);
    screen.press("y");
    screen.wait_for("Approval Reason");
    screen.press("\r");
    let (code, seen) = screen.end();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("after the kill"), "{seen}");
}

#[test]
fn a_server_of_ours_speaks_its_own_protocol_where_it_has_both_at_one_address() {
    let home = Home::new();
    let server = home.start(&["demo", "--listen", "127.0.0.1:0", "--mount", "communication=/"]);
    let kind = |arguments: &[&str]| -> Value {
        server.run(arguments).expect(0).lines().pop().unwrap()["type"].clone()
    };
    assert_eq!(kind(&["run", "echo", "x", "--json"]), "run.ended");
    let communication = ["run", "echo", "x", "--json", "--protocol", "communication"];
    assert_eq!(kind(&communication), "run.completed");
}
