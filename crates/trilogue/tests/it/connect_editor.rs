//! `trilogue connect`, launched like an editor does: real processes on both sides.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use trilogue_testkit::schema::{Conversation, Side};

use crate::harness::{BINARY, Home, demo, until};

const LIMIT: Duration = Duration::from_secs(60);
const CONFIG: &str = "[server]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"text\"\n[agents.echo]\nkind = \"builtin\"\n[agents.mailcomposer]\nkind = \"builtin\"\n[agents.researcher]\nkind = \"builtin\"\n";

/// The server that a home's programs start on demand. Killed when dropped, so declare it before the editors.
#[derive(Debug)]
pub(crate) struct OnDemand<'a> {
    home: &'a Home,
}

#[derive(Debug)]
pub(crate) struct Editor {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    notes: Receiver<String>,
    ids: u64,
    /// Validates received messages against the official schema.
    conversation: Conversation,
}

// === impl OnDemand ===

impl<'a> OnDemand<'a> {
    /// No running server yet; the configuration has the built-in agents and these settings.
    pub(crate) fn of(home: &'a Home, settings: &str) -> Self {
        let folder = home.work().parent().unwrap().join(".config/trilogue");
        std::fs::create_dir_all(&folder).unwrap();
        let config = match settings.strip_prefix("[server]\n") {
            Some(server) => CONFIG.replace("[server]\n", &format!("[server]\n{server}\n")),
            None => format!("{CONFIG}{settings}"),
        };
        std::fs::write(folder.join("trilogue.toml"), config).unwrap();
        Self { home }
    }

    /// No running server yet, and no configuration.
    pub(crate) fn unconfigured(home: &'a Home) -> Self {
        Self { home }
    }

    pub(crate) fn record(&self) -> Option<Value> {
        self.home.server_record()
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        let pid = self.record()?["pid"].as_i64()?;
        Pid::from_raw(i32::try_from(pid).ok()?)
    }

    pub(crate) fn signal(&self, signal: Signal) -> Pid {
        let pid = until(|| self.pid());
        kill_process(pid, signal).unwrap();
        pid
    }

    /// Waits until a different server than this one runs.
    pub(crate) fn another(&self, than: Pid) -> Pid {
        until(|| self.pid().filter(|pid| *pid != than))
    }

    pub(crate) fn url(&self) -> String {
        let address = until(|| self.record()?["addresses"][0].as_str().map(str::to_owned));
        format!("http://{address}")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.home.state().join("server.log")).unwrap_or_default()
    }
}

impl Drop for OnDemand<'_> {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            // It may have exited already.
            let _ = kill_process(pid, Signal::KILL);
            let begun = Instant::now();
            while test_kill_process(pid).is_ok() && begun.elapsed() < LIMIT {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

// === impl Editor ===

impl Editor {
    pub(crate) fn launch(home: &Home, arguments: &[&str]) -> Self {
        let mut command = home.program(BINARY);
        command.args(arguments);
        Self::of(command)
    }

    pub(crate) fn of(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let lines = lines_of(child.stdout.take().unwrap());
        let notes = lines_of(child.stderr.take().unwrap());
        let conversation = Conversation::holding(Side::Agent);
        Self { child, stdin, lines, notes, ids: 0, conversation }
    }

    pub(crate) fn launch_initialized(home: &Home, arguments: &[&str]) -> Self {
        let mut editor = Self::launch(home, arguments);
        let met =
            editor.ask("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
        assert_eq!(met["result"]["protocolVersion"], 1, "{met}");
        editor
    }

    /// Launches an editor and opens a session.
    pub(crate) fn launch_with_session(home: &Home, arguments: &[&str]) -> (Self, String) {
        let mut editor = Self::launch_initialized(home, arguments);
        let session = editor.session();
        (editor, session)
    }

    /// Runs a turn, which must succeed; returns the lines before its end.
    pub(crate) fn turn(&mut self, session: &str, text: &str) -> Vec<String> {
        let id = self.prompt(session, text);
        let (answer, before) = self.answer(id);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        before
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn write(&mut self, line: &str) {
        if let Ok(message) = serde_json::from_str(line) {
            self.conversation.note(&message);
        }
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.write(&message.to_string());
    }

    #[expect(clippy::needless_pass_by_value, reason = "a test writes its params in place")]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.ids;
        self.ids += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    pub(crate) fn line(&mut self) -> String {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => {
                let message = serde_json::from_str(&line).unwrap();
                let held = self.conversation.hold(&message);
                held.unwrap_or_else(|error| panic!("{error:#}: {line}"));
                line
            }
            Err(error) => panic!("no line came: {error}; on standard error: {:?}", self.notes()),
        }
    }

    pub(crate) fn message(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Asserts that no message arrives for this time.
    pub(crate) fn silence(&mut self, for_long: Duration) {
        match self.lines.recv_timeout(for_long) {
            Err(RecvTimeoutError::Timeout) => {}
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn answer(&mut self, id: u64) -> (Value, Vec<String>) {
        let mut before = Vec::new();
        loop {
            let line = self.line();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id && message.get("method").is_none() {
                return (message, before);
            }
            before.push(line);
        }
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        self.answer(id).0
    }

    pub(crate) fn session(&mut self) -> String {
        let opened = self.ask("session/new", json!({ "cwd": "/", "mcpServers": [] }));
        let session = opened["result"]["sessionId"].as_str();
        session.unwrap_or_else(|| panic!("{opened}")).to_owned()
    }

    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.request("session/prompt", json!({ "sessionId": session, "prompt": prompt }))
    }

    pub(crate) fn load(&mut self, session: &str) -> Vec<String> {
        let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
        let id = self.request("session/load", params);
        let (answer, told) = self.answer(id);
        assert!(answer.get("error").is_none(), "{answer}");
        told
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        self.notes.try_iter().collect()
    }

    /// All its standard error, once it has exited.
    pub(crate) fn last_notes(&self) -> String {
        let next = || match self.notes.recv_timeout(LIMIT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("standard error stays open"),
        };
        std::iter::from_fn(next).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn note(&self, part: &str) -> String {
        let mut before = Vec::new();
        loop {
            match self.notes.recv_timeout(LIMIT) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => before.push(line),
                Err(error) => panic!("{error}: '{part}' was not said, but {before:?}"),
            }
        }
    }

    pub(crate) fn close(mut self) -> ExitStatus {
        drop(self.stdin.take());
        self.wait()
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        until(|| self.child.try_wait().unwrap())
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines_of(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { break };
            if send.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

pub(crate) fn is_users(line: &str) -> bool {
    line.contains(r#""sessionUpdate":"user_message_chunk""#)
}

pub(crate) fn agents(lines: &[String]) -> Vec<&String> {
    let updates = lines.iter().filter(|line| line.contains(r#""method":"session/update""#));
    updates.filter(|line| !is_users(line)).collect()
}

#[test]
fn a_server_is_started_where_none_runs_and_found_by_the_next() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "echo"]);
    let told = editor.turn(&session, "hello");
    assert_eq!(told.len(), 1, "{told:?}");
    let record = demand.record().unwrap();
    assert_eq!(record["started_by"], "on_demand", "{record}");
    let begun = Instant::now();
    assert_eq!(editor.close().code(), Some(0));
    // The exit does not wait: a wait for last responses would take longer than this.
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    // The session lives in the server, which keeps running.
    let mut other = Editor::launch_initialized(&home, &["connect", "echo"]);
    let replayed = other.load(&session);
    assert!(is_users(&replayed[0]), "{replayed:?}");
    assert_eq!(agents(&replayed), told.iter().collect::<Vec<_>>());
    assert_eq!(demand.record().unwrap(), record);
    assert_eq!(other.notes(), Vec::<String>::new());
    // The command line finds the same server.
    let shown = home.run(&["threads", "-q", "--url", &demand.url()]).expect(0).out;
    assert_eq!(shown.trim(), session);
}

#[test]
fn many_at_once_start_one_server() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let mut editors: Vec<_> =
        (0..12).map(|_| Editor::launch(&home, &["connect", "echo"])).collect();
    for editor in &mut editors {
        editor.request("initialize", json!({ "protocolVersion": 1 }));
    }
    for editor in &mut editors {
        let (met, _) = editor.answer(0);
        assert_eq!(met["result"]["agentInfo"]["name"], "echo", "{met}");
    }
    assert_eq!(demand.log().matches("listening: ").count(), 1, "{}", demand.log());
    // All of them reconnect to one server, too.
    let first = demand.signal(Signal::KILL);
    for editor in &mut editors {
        editor.note("again");
        editor.session();
    }
    demand.another(first);
    assert_eq!(demand.log().matches("listening: ").count(), 2, "{}", demand.log());
}

#[test]
fn an_agent_that_is_not_there_is_named_with_those_that_are() {
    let home = Home::new();
    let _demand = OnDemand::of(&home, "");
    let mut editor = Editor::launch(&home, &["connect", "nobody"]);
    // A slow editor sends its first request after the command knows that the agent does not exist.
    let why = editor.note("nobody");
    let answer = editor.ask("initialize", json!({ "protocolVersion": 1 }));
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("nobody"), "{answer}");
    assert_eq!(editor.wait().code(), Some(4));
    let said = why + &editor.last_notes();
    for part in ["nobody", "echo", "mailcomposer", "researcher"] {
        assert!(said.contains(part), "{said}");
    }
    // The message appears once.
    assert_eq!(said.matches("error:").count(), 1, "{said}");
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let home = Home::new();
    let _demand = OnDemand::of(&home, "[agents.x]\nkind = \"wrong\"\n");
    let mut editor = Editor::launch(&home, &["connect", "echo"]);
    assert_eq!(editor.wait().code(), Some(6));
    let said = editor.last_notes();
    assert!(said.contains("wrong") && said.contains("hint: "), "{said}");
}

#[test]
fn a_line_that_is_no_message_is_answered_before_anything_else_is_said() {
    let home = Home::new();
    let _demand = OnDemand::of(&home, "");
    let mut editor = Editor::launch(&home, &["connect", "echo"]);
    editor.write("{not json");
    let answer = editor.message();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(null), &json!(-32700)));
}

#[test]
fn lines_that_are_no_messages_are_answered_and_the_session_lives_on() {
    let home = Home::new();
    let _demand = OnDemand::of(&home, "");
    let mut editor = Editor::launch_initialized(&home, &["connect", "echo"]);
    for (line, code) in [
        ("{not json", -32700),
        ("\u{feff}[]", -32600),
        ("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":\"bom\",\"method\":\"no/such\"}", -32601),
        (r#"{"jsonrpc":"2.0","id":"x","method":"no/such"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":7.5,"method":"session/new","params":{}}"#, -32602),
    ] {
        editor.write(line);
        let answer = editor.message();
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
    }
    let long = "x".repeat(17 * 1024 * 1024);
    editor.write(&format!(
        r#"{{"jsonrpc":"2.0","id":"long","method":"session/new","params":{{"cwd":"{long}"}}}}"#
    ));
    let answer = editor.message();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("long"), &json!(-32600)));
    editor.write("\r\n\r");
    editor.write("#P nothing 1");
    editor.message();
    editor.session();
}

#[test]
fn the_editors_death_ends_no_turn() {
    let home = Home::new();
    let _demand = OnDemand::of(&home, "");
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "researcher"]);
    editor.prompt(&session, "bees");
    editor.line();
    kill_process(editor.pid(), Signal::KILL).unwrap();
    drop(editor);
    let mut other = Editor::launch_initialized(&home, &["connect", "researcher"]);
    let seen = other.load(&session);
    // The turn continues, and the client that is attached now sees it.
    let mut all = seen.clone();
    while !all.iter().any(|line| line.contains("report.md")) {
        all.push(other.line());
    }
    assert!(is_users(&seen[0]), "{seen:?}");
    other.turn(&session, "wasps");
}

#[test]
fn a_second_server_says_that_it_is_not_the_one_that_is_found() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "");
    let _editor = Editor::launch_initialized(&home, &["connect", "echo"]);
    let settings = "[store]\nurl = \"memory:\"\n[log]\nformat = \"text\"\n";
    home.write("second.toml", settings);
    let second = home.start(&["serve", "--config", "second.toml", "--listen", "127.0.0.1:0"]);
    let pid = demand.pid().unwrap().as_raw_nonzero();
    let named = format!("another server of this user: {} (process {pid},", demand.url());
    assert!(home.log().contains(&named), "{}", home.log());
    drop(second);
    home.write("t.toml", &format!("[server]\nsocket = \"off\"\n{settings}"));
    let before = home.log().len();
    let _off = home.start(&["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"]);
    assert!(!home.log()[before..].contains("another server"), "{}", home.log());
}

#[test]
fn a_demo_is_what_connect_finds_and_says_how_an_editor_is_set_up() {
    let (home, server) = demo();
    assert!(
        until(|| Some(home.log()).filter(|log| log.contains("Ctrl-C")))
            .contains("\"args\": [\"connect\", \"echo\"]")
    );
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "echo"]);
    editor.turn(&session, "hello");
    let shown = server.run(&["threads", "-q"]).expect(0).out;
    assert_eq!(shown.trim(), session);
}

#[test]
fn a_server_that_nobody_needs_ends() {
    let home = Home::new();
    let demand = OnDemand::of(&home, "[server]\nidle_exit = \"300ms\"");
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "mailcomposer"]);
    let pid = demand.pid().unwrap();
    editor.silence(Duration::from_millis(900));
    assert_eq!(demand.pid(), Some(pid));
    editor.prompt(&session, "Write to ada@example.com: we meet on Friday");
    while editor.message()["method"] != "session/request_permission" {}
    drop(editor);
    // A run that waits for an answer keeps the server running.
    let mut other = Editor::launch_initialized(&home, &["connect", "mailcomposer"]);
    other.silence(Duration::from_millis(900));
    assert_eq!(demand.pid(), Some(pid));
    other.load(&session);
    let asked = loop {
        let message = other.message();
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    let outcome =
        json!({ "outcome": "selected", "optionId": asked["params"]["options"][0]["optionId"] });
    other.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "outcome": outcome } }));
    assert_eq!(other.close().code(), Some(0));
    until(|| demand.record().is_none().then_some(()));
    assert!(!home.state().join("server.sock").exists());
    assert!(demand.log().contains("the server is idle and stops"), "{}", demand.log());
    assert!(Editor::launch_initialized(&home, &["connect", "echo"]).close().success());
}
