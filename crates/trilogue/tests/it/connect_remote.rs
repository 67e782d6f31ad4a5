//! `trilogue connect --url`: an editor on one machine and its server on another, as two homes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent_client_examples::example;
use crate::connect_editor::{Editor, agents, is_users};
use crate::harness::{Home, Server, audits, demo, lasting_address};
use crate::terminal::Screen;

const ROUNDS: usize = 8;

const SETTINGS: &str = "[store]\nurl = \"sqlite:t.db\"\n[agents.echo]\nkind = \"builtin\"\n[agents.mailcomposer]\nkind = \"builtin\"\n[agents.researcher]\nkind = \"builtin\"\n";

/// The secret of a new token of this server.
fn token(server: &Server, rights: &[&str]) -> String {
    let rights = rights.iter().flat_map(|right| ["--right", right]);
    let create = ["token", "create", "--label", "laptop", "--json"];
    let create: Vec<_> = create.into_iter().chain(rights).collect();
    server.run(&create).expect(0).json()["secret"].as_str().unwrap().to_owned()
}

/// A home that has saved a token for the server.
fn laptop(server: &Server) -> Home {
    let laptop = Home::new();
    let token = token(server, &["read", "run", "answer"]);
    let login = laptop.run_with(&["login", &server.url()], &format!("{token}\n"));
    login.expect(0);
    laptop
}

#[test]
fn nothing_is_lost_doubled_or_reordered_when_a_server_elsewhere_is_killed_in_a_turn() {
    let machine = Home::new();
    let config = machine.write("t.toml", SETTINGS);
    let address = lasting_address();
    let serve = ["serve", "--config", config.to_str().unwrap(), "--listen", &address];
    let mut server = machine.start(&serve);
    let laptop = laptop(&server);
    let url = server.url();
    let connect = ["connect", "researcher", "--url", &url];
    let (mut editor, session) = Editor::launch_with_session(&laptop, &connect);
    let mut told = Vec::new();
    for round in 0..ROUNDS {
        let id = editor.prompt(&session, "honey bees");
        // Each round kills the server at a different point of the turn.
        for _ in 0..round {
            told.push(editor.line());
        }
        server.stop(Signal::KILL);
        server = machine.start(&serve);
        let (answer, before) = editor.answer(id);
        told.extend(before);
        let ended = answer["error"]["data"]["code"] == "agent_lost"
            || answer["result"]["stopReason"] == "end_turn";
        assert!(ended, "{round}: {answer}");
    }
    told.extend(editor.turn(&session, "honey bees"));
    let mut other = Editor::launch_initialized(&laptop, &connect);
    let replayed = other.load(&session);
    assert_eq!(replayed.iter().filter(|line| is_users(line)).count(), ROUNDS + 1);
    let (seen, logged) = (agents(&told), agents(&replayed));
    let differs = seen.iter().zip(&logged).position(|(seen, logged)| seen != logged);
    assert_eq!(differs, None, "{:?}", differs.map(|at| (seen[at], logged[at])));
    assert_eq!(seen.len(), logged.len());
    assert!(editor.close().success());
    drop(server);
}

#[test]
fn a_question_of_a_server_elsewhere_is_asked_and_answered_once() {
    let (_machine, server) = demo();
    let laptop = laptop(&server);
    let url = server.url();
    let connect = ["connect", "mailcomposer", "--url", &url];
    let (mut editor, session) = Editor::launch_with_session(&laptop, &connect);
    let id = editor.prompt(&session, "Write to ada@example.com: we meet on Friday");
    let question = loop {
        let message = editor.message();
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    let options = question["params"]["options"].as_array().unwrap();
    let option = options.iter().find(|option| option["kind"] == "allow_once").unwrap();
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": option["optionId"] } });
    editor.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": outcome }));
    assert_eq!(editor.answer(id).0["result"]["stopReason"], "end_turn");
    // Closing the editor sends what it said last.
    editor.prompt(&session, "Write to bob@example.com: good bye");
    assert!(editor.close().success());
    let runs = server.run(&["runs", "--json"]).expect(0).json();
    assert_eq!(runs["items"].as_array().unwrap().len(), 2, "{runs}");
}

#[test]
fn an_editor_elsewhere_works_below_the_roots_of_the_agent() {
    let machine = Home::new();
    let work = machine.work().canonicalize().unwrap();
    let agent = example("scripted_agent");
    let settings = format!(
        "[agents.reviewer]\nkind = \"agent-client\"\ncommand = [{:?}]\n",
        agent.to_str().unwrap()
    );
    let config = machine.write("t.toml", &format!("[store]\nurl = \"memory:\"\n{settings}"));
    let config = config.to_str().unwrap();
    let server = machine.start(&["serve", "--config", config, "--listen", "127.0.0.1:0"]);
    let laptop = laptop(&server);
    let url = server.url();
    let mut editor = Editor::launch_initialized(&laptop, &["connect", "reviewer", "--url", &url]);
    let outside = tempfile::tempdir().unwrap();
    for folder in [outside.path(), std::path::Path::new("/etc"), &work.join("missing/../../..")] {
        let new = editor.ask("session/new", json!({ "cwd": folder, "mcpServers": [] }));
        let message = new["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("agents.reviewer.roots"), "{folder:?}: {new}");
    }
    let refused = audits(&machine.log(), "request_refused");
    assert!(refused.iter().any(|line| line["subject"] == "session/new"), "{}", machine.log());
    assert!(refused.iter().all(|line| line["token"].is_string()), "{refused:?}");
    let new = editor.ask("session/new", json!({ "cwd": work, "mcpServers": [] }));
    let session = new["result"]["sessionId"].as_str().unwrap().to_owned();
    let told = editor.turn(&session, "say:hello");
    assert!(told.iter().any(|line| line.contains("hello")), "{told:?}");
}

#[test]
fn a_saved_token_is_checked_private_and_for_one_server() {
    let (_machine, server) = demo();
    let laptop = Home::new();
    let url = server.url();
    let refused = laptop.run_with(&["login", &url], "tril_wrong\n").expect(5).err;
    assert!(refused.contains("token"), "{refused}");
    let saved = || -> Vec<_> {
        let found = std::fs::read_dir(laptop.state().join("logins"));
        found.into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
    };
    assert_eq!(saved(), Vec::<std::path::PathBuf>::new());
    let connect = ["connect", "echo", "--url", &url];
    let mut editor = Editor::launch(&laptop, &connect);
    editor.ask("initialize", json!({ "protocolVersion": 1 }));
    assert_eq!(editor.wait().code(), Some(5), "{}", editor.last_notes());
    let token = token(&server, &["read"]);
    laptop.run_with(&["login", &url], &format!("{token}\n")).expect(0);
    let [file] = &saved()[..] else { panic!("{:?}", saved()) };
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    laptop.run(&["threads", "--url", &url]).expect(0);
    // With this token, an editor observes.
    let mut editor = Editor::launch_initialized(&laptop, &connect);
    let new = editor.ask("session/new", json!({ "cwd": "/", "mcpServers": [] }));
    assert_eq!(new["error"]["data"]["code"], "forbidden", "{new}");
    drop(editor);
    laptop.run(&["login", &url, "--forget"]).expect(0);
    laptop.run(&["threads", "--url", &url]).expect(5);
}

#[test]
fn an_agent_that_a_server_elsewhere_does_not_have_is_named() {
    let (_machine, server) = demo();
    let laptop = laptop(&server);
    let url = server.url();
    let mut editor = Editor::launch(&laptop, &["connect", "nobody", "--url", &url]);
    let answer = editor.ask("initialize", json!({ "protocolVersion": 1 }));
    assert!(answer["error"]["message"].as_str().unwrap().contains("nobody"), "{answer}");
    assert_eq!(editor.wait().code(), Some(4));
    // The command of a laptop does not run on the server.
    let wrap = laptop.run(&["wrap", "--url", &url, "--", "sh"]).expect(2).err;
    assert!(wrap.contains("trilogue connect AGENT --url URL"), "{wrap}");
    // No server answers there.
    let nobody = format!("http://{}", lasting_address());
    let mut editor =
        Editor::launch(&laptop, &["connect", "echo", "--url", &nobody, "--token", "t"]);
    let answer: Value = editor.ask("initialize", json!({ "protocolVersion": 1 }));
    assert!(answer["error"]["message"].as_str().unwrap().contains(&nobody), "{answer}");
    assert_eq!(editor.wait().code(), Some(6));
}

#[test]
fn a_websocket_without_our_subprotocol_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = BufReader::new(&stream).lines().map(Result::unwrap);
        let head: Vec<_> = head.take_while(|line| !line.is_empty()).collect();
        let key = head.iter().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
        let accept = trilogue_egress::WebSocket::accept_key(key.as_bytes());
        let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket";
        write!(stream, "{head}\r\nsec-websocket-accept: {accept}\r\n\r\n").unwrap();
        let mut rest = Vec::new();
        drop(stream.read_to_end(&mut rest));
        rest
    });
    let home = Home::new();
    let mut editor = Editor::launch(&home, &["connect", "echo", "--url", &url, "--token", "t"]);
    let answer = editor.ask("initialize", json!({ "protocolVersion": 1 }));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("not a Trilogue server"), "{answer}");
    assert_eq!(editor.wait().code(), Some(6));
    let sent = serving.join().unwrap();
    // The first frame has no line of the editor.
    assert_ne!(sent.first(), Some(&0x81));
}

/// At a terminal, `login` shows a code and waits until the operator of the server approves it.
#[test]
fn a_login_without_a_token_waits_for_an_approval_on_the_server() {
    let (_machine, server) = demo();
    let laptop = Home::new();
    let url = server.url();
    let mut login = laptop.program(env!("CARGO_BIN_EXE_trilogue"));
    login.args(["login", &url]);
    let mut screen = Screen::of_columns(login, 2_000);
    screen.wait_for("trilogue token approve ");
    screen.wait_for("`");
    let seen = screen.seen();
    let (_, rest) = seen.split_once("trilogue token approve ").unwrap();
    let code: String = rest.chars().take(9).collect();
    // Without a terminal, the approval needs `--yes`.
    server.run(&["token", "approve", &code]).complains(2, "--yes");
    server.run(&["token", "approve", "XXXX-XXXX", "--yes"]).complains(4, "no login waits");
    let approved = server.run(&["token", "approve", &code.to_lowercase(), "--yes"]).expect(0);
    assert!(approved.err.contains("the program gets the token"), "{}", approved.err);
    screen.wait_for("saved the token of");
    screen.end_well();
    laptop.run(&["threads", "--url", &url]).expect(0);
}
