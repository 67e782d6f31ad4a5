//! `trilogue run` and `chat` behave the same on every protocol of a server.

use std::process::Command;

use crate::harness::{BINARY, Home, ProgramOutput, Server, demo, finish};
use crate::terminal::{DECISION, REASON, Screen};

pub(crate) const MAIL: &str = "Write to ada@example.com saying that the meeting moves to Friday";

/// A protocol, by its mount prefix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Face(&'static str);

pub(crate) const NATIVE: Face = Face("");
pub(crate) const COMMUNICATION: Face = Face("/communication");
pub(crate) const CONNECT: Face = Face("/connect");

// === impl Face ===

impl Face {
    pub(crate) fn command(self, home: &Home, server: &Server, arguments: &[&str]) -> Command {
        let mut command = home.program(BINARY);
        command.args(arguments).args(["--url", &format!("{}{}", server.url(), self.0)]);
        command
    }

    pub(crate) fn run(self, home: &Home, server: &Server, arguments: &[&str]) -> ProgramOutput {
        finish(self.command(home, server, arguments), "")
    }

    pub(crate) fn ask(self, home: &Home, server: &Server) -> Screen {
        let mut screen = Screen::start(self.command(home, server, &["run", "mailcomposer", MAIL]));
        screen.wait_for("| Approval Decision");
        screen
    }
}

#[test]
fn an_answer_looks_the_same() {
    let (home, server) = demo();
    for (agent, question) in
        [("echo", "Grüße"), ("researcher", "honey bees"), ("mailcomposer", "Hello")]
    {
        for extra in [&[][..], &["--no-metadata"]] {
            let arguments = [&["run", agent, question][..], extra].concat();
            let native = NATIVE.run(&home, &server, &arguments).expect(0);
            for face in [COMMUNICATION, CONNECT] {
                let other = face.run(&home, &server, &arguments).expect(0);
                assert_eq!(other.out, native.out, "{face:?} {agent} {extra:?}");
            }
        }
    }
    for face in [COMMUNICATION, CONNECT] {
        let chat = face.command(&home, &server, &["chat", "echo"]);
        assert_eq!(finish(chat, "one\ntwo\n").expect(0).out, "one\ntwo\n", "{face:?}");
    }
}

#[test]
fn the_thread_in_a_hint_continues_it() {
    let (home, server) = demo();
    for face in [NATIVE, COMMUNICATION] {
        let first = Screen::start(face.command(&home, &server, &["run", "echo", "one"])).end_well();
        let thread = first.split("--thread ").nth(1).unwrap().split_whitespace().next().unwrap();
        assert_eq!(thread.len() == 8, face.0.is_empty(), "{first}");
        face.run(&home, &server, &["run", "echo", "two", "--thread", thread]).expect(0);
    }
    let threads = server.run(&["threads", "-q"]).expect(0).out;
    assert_eq!(threads.lines().count(), 2, "{threads}");
    let mut screen = Screen::start(server.command(&["chat", "echo"]));
    screen.answer("> ", "one\r");
    screen.answer("> ", "/quit\r");
    let chat = screen.end_well();
    let thread = chat.split("thread: ").nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(thread.len() == 8 && chat.contains(&format!("--thread {thread}`")), "{chat}");
    server.run(&["threads", "show", thread]).expect(0);
}

#[test]
fn a_question_is_asked_member_by_member() {
    let (home, server) = demo();
    for face in [NATIVE, COMMUNICATION, CONNECT] {
        let mut screen = face.ask(&home, &server);
        assert!(screen.seen().contains("ada@example.com"), "{}", screen.seen());
        screen.answer(DECISION, "n\r");
        screen.wait_for("| Approval Reason");
        screen.answer(REASON, "not today\r");
        let (code, seen) = screen.end();
        assert_eq!(code, Some(0), "{face:?}: {seen}");
        assert!(seen.rsplit("Approval Reason").next().unwrap().contains("not today"), "{seen}");
        assert!(!seen.contains("the stream broke"), "{face:?}: {seen}");
        assert_eq!(server.run(&["inbox", "-q"]).expect(0).out, "");
    }
}

#[test]
fn a_late_answer_is_reported_and_the_run_goes_on() {
    let (home, server) = demo();
    for face in [NATIVE, COMMUNICATION, CONNECT] {
        let mut screen = face.ask(&home, &server);
        let inbox = server.run(&["inbox", "-q"]).expect(0).out;
        let faster = ["approve", inbox.trim(), "--reject", "--message", "I was faster"];
        server.run(&faster).expect(0);
        screen.press("y\r");
        screen.press("\r");
        let (code, seen) = screen.end();
        assert_eq!(code, Some(0), "{face:?}: {seen}");
        // The terminal may close the question before it has read both lines.
        let notice = ["your answer was not taken", "the question is closed"];
        let (_, after) = notice.iter().find_map(|it| seen.split_once(it)).unwrap();
        assert!(after.contains("I was faster"), "{face:?} went on with the other answer: {seen}");
        assert!(!after.contains("the stream broke"), "{face:?}: {seen}");
        if face.0 == NATIVE.0 {
            assert!(after.contains("owner answered the question elsewhere"), "{seen}");
        }
    }
}

#[test]
fn ctrl_c_at_a_question_cancels_the_run() {
    let (home, server) = demo();
    for face in [COMMUNICATION, CONNECT] {
        let mut screen = face.ask(&home, &server);
        screen.answer(DECISION, "\u{3}");
        let (code, seen) = screen.end();
        assert_eq!(code, Some(130), "{face:?}: {seen}");
        assert!(seen.contains("the run was cancelled"), "{face:?}: {seen}");
        assert!(!seen.contains("the stream broke"), "{face:?}: {seen}");
        let marks = |on: bool| seen.rfind(if on { "\u{1b}[?2004h" } else { "\u{1b}[?2004l" });
        assert!(marks(false) > marks(true), "the terminal is left as it was: {seen:?}");
        let runs = server.run(&["runs", "--json"]).expect(0).json();
        assert_eq!(runs["items"][0]["status"], "cancelled", "{runs}");
    }
}

#[test]
fn a_question_that_cannot_be_asked_here_waits() {
    let (home, server) = demo();
    for (waiting, face) in (1..).zip([COMMUNICATION, CONNECT]) {
        let ended = face.run(&home, &server, &["run", "mailcomposer", MAIL]).expect(3);
        assert!(ended.err.contains("ada@example.com"), "{}", ended.err);
        assert!(ended.err.contains("needs an answer (mail_send_approval)"), "{}", ended.err);
        assert_eq!(server.run(&["inbox", "-q"]).expect(0).out.lines().count(), waiting);
    }
}

#[test]
fn attachments_and_artifacts_come_through() {
    let (home, server) = demo();
    let large = "0123456789abcdef".repeat(1024 * 1024 / 4);
    home.write("large.txt", &large);
    home.write("note.txt", "some words");
    std::fs::write(home.work().join("x.png"), [0xff, 0xd8]).unwrap();
    for face in [COMMUNICATION, CONNECT] {
        let folder = face.0.trim_start_matches('/');
        let run = |files: &[&str]| {
            let attach = files.iter().flat_map(|file| ["--attach", file]);
            let arguments = ["run", "echo", "look", "--save", folder].into_iter().chain(attach);
            face.run(&home, &server, &arguments.collect::<Vec<_>>()).expect(0)
        };
        run(&["note.txt", "x.png"]);
        let saved = |name: &str| std::fs::read(home.work().join(folder).join(name)).unwrap();
        assert_eq!((saved("note.txt"), saved("x.png")), (b"some words".to_vec(), vec![0xff, 0xd8]));
        run(&["large.txt"]);
        assert!(saved("large.txt") == large.as_bytes(), "{face:?} fetches large content");
    }
    let address = "https://example.com/a.pdf";
    let linked = ["run", "echo", "look", "--attach", address];
    let ended = COMMUNICATION.run(&home, &server, &linked).expect(0);
    assert!(ended.out.contains(&format!("[application/pdf, {address}]")), "{}", ended.out);
}

#[test]
fn refusals_have_the_same_exit_codes() {
    let (home, server) = demo();
    for (face, missing) in [(COMMUNICATION, "served at another address"), (CONNECT, "route '")] {
        face.run(&home, &server, &["run", "ecko", "x"]).complains(4, "ecko");
        face.run(&home, &server, &["run", "echo", "x", "--token", "wrong"]).complains(5, "token");
        let protocol = face.0.trim_start_matches('/');
        server.run(&["run", "echo", "x", "--protocol", protocol]).complains(4, missing);
        let wrong = ["run", "mailcomposer", "x", "--config", r#"{"style":"rude"}"#];
        face.run(&home, &server, &wrong).complains(2, "style");
    }
}

#[test]
fn an_agent_with_the_name_of_a_coding_agent_is_the_server_s_on_every_protocol() {
    let home = Home::new();
    let names = ["claude", "codex", "goose", "go", "q", "rs"];
    let agents =
        names.map(|name| format!("[agents.{name}]\nkind = \"builtin\"\nbuiltin = \"echo\"\n"));
    let config = home.write("named.toml", &agents.concat());
    let server = home.start(&[
        "serve",
        "--config",
        config.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--store",
        "memory:",
    ]);
    for face in [NATIVE, COMMUNICATION, CONNECT] {
        for name in names {
            assert_eq!(face.run(&home, &server, &["run", name, "Hello"]).expect(0).out, "Hello\n");
            let chat = face.command(&home, &server, &["chat", name]);
            assert_eq!(finish(chat, "Hello\n").expect(0).out, "Hello\n", "{face:?} {name}");
        }
        let missing = face.run(&home, &server, &["run", "rss", "x"]);
        missing.complains(4, "rss");
    }
}
