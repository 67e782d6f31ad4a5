//! `trilogue run`, `chat` and `agents` through our own face of the Agent Connect Protocol.

use std::process::Command;

use serde_json::Value;

use crate::harness::{BINARY, Ended, Home, Server, finish};
use crate::terminal::Screen;

const MAIL: &str = "Write to ada@example.com saying that the meeting moves to Friday";
const THREAD: &str = "87cd7dc0-0000-4000-8000-000000000002";

fn command(home: &Home, server: &Server<'_>, arguments: &[&str]) -> Command {
    let mut command = home.program(BINARY);
    command.args(arguments).args(["--url", &format!("{}/connect", server.url())]);
    command
}

fn through(home: &Home, server: &Server<'_>, arguments: &[&str]) -> Ended {
    finish(command(home, server, arguments), "")
}

#[test]
fn an_answer_looks_the_same_as_on_our_own_face() {
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
fn events_are_the_protocols_own_and_a_thread_is_a_thread() {
    let home = Home::new();
    let server = home.demo();
    let arguments = ["run", "echo", "one", "--thread", THREAD, "--json"];
    let events = through(&home, &server, &arguments).expect(0).lines();
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["status"]), (&"values".into(), &"success".into()));
    assert_eq!(last["values"]["message"], "one");
    let ends = events.iter().filter(|event| event["status"] != "pending").count();
    assert_eq!(ends, 1, "{events:#?}");
    server.run(&["run", "echo", "two", "--thread", THREAD]).expect(0);
    through(&home, &server, &["run", "echo", "three", "--thread", THREAD]).expect(0);
    let shown = server.run(&["threads", "show", THREAD]).expect(0).out;
    assert!(["one", "two", "three"].iter().all(|text| shown.contains(text)), "{shown}");
    let started = through(&home, &server, &["run", "echo", "later", "--no-wait"]).expect(0).out;
    let found = server.run(&["runs", "show", started.trim()]).expect(0);
    assert!(found.out.contains("echo"), "{}", found.out);
}

#[test]
fn agents_are_listed_and_described() {
    let home = Home::new();
    let server = home.demo();
    let listed = through(&home, &server, &["agents"]).expect(0).out;
    assert!(listed.contains("org.agntcy.mailcomposer") && listed.contains("echo"), "{listed}");
    let ids = through(&home, &server, &["agents", "-q"]).expect(0).out;
    let id = ids.lines().next().unwrap();
    through(&home, &server, &["run", id, "by its id"]).expect(0);
    let shown = through(&home, &server, &["agents", "org.agntcy.mailcomposer"]).expect(0).out;
    assert!(shown.contains("asks: mail_send_approval"), "{shown}");
    let shown = through(&home, &server, &["agents", "mailcomposer", "--json"]).expect(0).json();
    assert_eq!(shown["metadata"]["ref"]["name"], "org.agntcy.mailcomposer");
    through(&home, &server, &["agents", "nobody"]).expect(4);
}

#[test]
fn a_question_is_asked_member_by_member() {
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
    assert!(!seen.contains("the stream broke"), "{seen}");
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
    assert!(!seen.contains("the stream broke"), "{seen}");
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
    let ended = through(&home, &server, &["run", "echo", "x", "--token", "wrong"]).expect(5);
    assert!(ended.err.contains("--token"), "{}", ended.err);
    let ended = server.run(&["run", "echo", "x", "--protocol", "connect"]).expect(4);
    assert!(ended.err.contains("there is no route"), "{}", ended.err);
    for wrong in [r#"{"style":"rude"}"#, r#"{"configurable":{"style":"rude"}}"#] {
        let ended = through(&home, &server, &["run", "mailcomposer", "x", "--config", wrong]);
        let ended = ended.expect(2);
        assert!(ended.err.contains("style"), "{}", ended.err);
    }
    through(&home, &server, &["run", "mailcomposer", "--input", r#"{"message":7}"#]).expect(2);
    let formal = ["run", "mailcomposer", "Hello", "--config", r#"{"style":"formal"}"#];
    through(&home, &server, &formal).expect(0);
}

#[test]
fn attachments_and_artifacts_come_through() {
    let home = Home::new();
    let server = home.demo();
    home.write("note.txt", "some words");
    std::fs::write(home.work().join("x.png"), [0xff, 0xd8]).unwrap();
    let attaching = ["--attach", "note.txt", "--attach", "x.png"];
    let arguments = [&["run", "echo", "look", "--save", "out"][..], &attaching].concat();
    through(&home, &server, &arguments).expect(0);
    let saved = |name: &str| std::fs::read(home.work().join("out").join(name)).unwrap();
    assert_eq!((saved("note.txt"), saved("x.png")), (b"some words".to_vec(), vec![0xff, 0xd8]));
    let large = "0123456789abcdef".repeat(64 * 1024);
    home.write("large.txt", &large);
    let arguments = ["run", "echo", "look", "--save", "more", "--attach", "large.txt"];
    through(&home, &server, &arguments).expect(0);
    let more = std::fs::read_to_string(home.work().join("more/large.txt")).unwrap();
    assert_eq!(more.len(), large.len());
}

#[test]
fn what_the_demo_says_about_the_protocol_works_when_pasted() {
    let home = Home::new();
    let server =
        home.start(&["demo", "--listen", "127.0.0.1:0", "--mount", "connect=/acp/connect"]);
    let welcome =
        crate::harness::until(|| Some(home.log()).filter(|log| log.contains("Stop with")));
    let line = welcome.lines().find(|line| line.contains("/acp/connect/runs")).unwrap();
    assert!(line.contains(&server.url()), "{line}");
    let mut shell = home.program("sh");
    shell.args(["-c", line.trim()]);
    let waited: Value = finish(shell, "").expect(0).json();
    assert_eq!(waited["output"]["values"]["message"], "Hello");
}
