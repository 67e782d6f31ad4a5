//! `trilogue agents trace`: the rules that it prints are those that the agent needs.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{BINARY, Home, ProgramOutput, finish};

/// An agent that does what the lines of a prompt say, in a process of its own.
const AGENT: &str = r#"
import json, os, socket, subprocess, sys

def act(line):
    verb, _, rest = line.partition(" ")
    if verb == "read":
        return open(os.path.expanduser(rest)).read()
    if verb == "write":
        folder, name = os.path.split(rest)
        os.chdir(folder)
        with open(name + ".new", "w") as file:
            file.write("written")
        os.rename(name + ".new", name)
        return "wrote"
    if verb == "ask":
        call = {"toolCallId": "c", "title": "Edit", "kind": "edit"}
        options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
        send(id=100, method="session/request_permission", params={"sessionId": "s", "toolCall": call, "options": options})
        return sys.stdin.readline()
    if verb == "hide":
        hidden = "echo $$ > " + rest + ".new; mv " + rest + ".new " + rest + "; exec sleep 3600"
        words = ["/usr/bin/env", "-i", "/usr/bin/setsid", "/bin/sh", "-c", hidden]
        nothing = subprocess.DEVNULL
        if os.fork() == 0:
            subprocess.Popen(words, stdin=nothing, stdout=nothing, stderr=nothing)
            os._exit(0)
        while not os.path.exists(rest):
            pass
        return "hidden"
    if verb == "connect":
        socket.create_connection(("127.0.0.1", int(rest))).close()
        return "connected"
    return "said " + line

def do(text):
    if len(sys.argv) > 1 or text == "ask":
        return act(text)
    run = subprocess.run([sys.executable, __file__, text], capture_output=True, text=True)
    return run.stdout if run.returncode == 0 else run.stderr.strip().splitlines()[-1]

if len(sys.argv) > 1:
    print(do(sys.argv[1]), end="")
    sys.exit()

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        send(id=message["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
    elif method == "session/new":
        send(id=message["id"], result={"sessionId": "s"})
    elif method == "session/prompt":
        for text in "".join(part.get("text", "") for part in params["prompt"]).splitlines():
            content = {"type": "text", "text": do(text) + "\n"}
            update = {"sessionUpdate": "agent_message_chunk", "content": content}
            send(method="session/update", params={"sessionId": "s", "update": update})
        send(id=message["id"], result={"stopReason": "end_turn"})
"#;

/// A configuration with the agent, and what the agent wants to use.
struct TraceFixture {
    home: Home,
    /// Not below `/tmp`, which can be another folder for the agent.
    outside: TempDir,
    listener: TcpListener,
}

impl TraceFixture {
    fn new() -> Self {
        let home = Home::new();
        let user = home.work().parent().unwrap().to_owned();
        fs::create_dir_all(user.join("models")).unwrap();
        fs::write(user.join("models/small"), "a model").unwrap();
        fs::create_dir(home.work().join("project")).unwrap();
        home.write("agent.py", AGENT);
        let outside = tempfile::tempdir_in("/var/tmp").unwrap();
        let fixture = Self { home, outside, listener: TcpListener::bind("127.0.0.1:0").unwrap() };
        fixture.configure("");
        fixture
    }

    fn configure(&self, rules: &str) {
        let script = self.home.work().join("agent.py");
        let command = json!(["/usr/bin/python3", script]);
        self.home.write(
            "trilogue.toml",
            &format!("[store]\nurl = \"memory:\"\n[agents.coder]\nkind = \"agent-client\"\ncommand = {command}\ncwd = \"project\"\n{rules}"),
        );
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// What the agent needs its rules for.
    fn prompt(&self) -> String {
        format!("read ~/models/small\nwrite {}", self.file().display())
    }

    fn file(&self) -> PathBuf {
        self.outside.path().join("result")
    }

    fn trace(&self, prompt: &str, further: &[&str]) -> ProgramOutput {
        let arguments = ["agents", "trace", "coder", prompt, "--config", "trilogue.toml", "--yes"];
        self.home.run(&[&arguments[..], further].concat())
    }

    /// What the agent says to its prompt in its sandbox, with these rules.
    fn run(&self, rules: &str) -> String {
        self.configure(rules);
        let server =
            self.home.start(&["serve", "--config", "trilogue.toml", "--listen", "127.0.0.1:0"]);
        server.run(&["run", "coder", &self.prompt()]).expect(0).out
    }
}

#[test]
fn an_agent_works_in_its_sandbox_with_the_rules_of_its_trace() {
    let fixture = TraceFixture::new();
    let refused = fixture.run("sandbox = \"require:files\"\n");
    assert!(!refused.contains("a model") && !refused.contains("wrote"), "{refused}");
    assert!(!fixture.file().exists());

    let prompt = format!("{}\nconnect {}", fixture.prompt(), fixture.port());
    let printed = fixture.trace(&prompt, &[]).expect(0);
    assert!(printed.err.contains("WITHOUT a sandbox"), "{}", printed.err);
    assert!(printed.err.contains("a model") && printed.err.contains("connected"), "{printed:?}");
    assert!(printed.out.contains("\nread_paths = [\"~/models/small\"]\n"), "{}", printed.out);
    let folder = fixture.outside.path().canonicalize().unwrap();
    assert!(printed.out.contains(&format!("\nwrite_paths = [{folder:?}]\n")), "{}", printed.out);
    assert!(!printed.out.contains("network ="), "{}", printed.out);
    let peer = format!("\n#   127.0.0.1:{}\n", fixture.port());
    assert!(printed.out.contains(&peer), "{}", printed.out);
    fs::remove_file(fixture.file()).unwrap();

    let rules = printed.out.strip_prefix("[agents.coder]\n").unwrap();
    let answer = fixture.run(&format!("sandbox = \"require:files\"\n{rules}"));
    assert!(answer.contains("a model") && answer.contains("wrote"), "{answer}");
    assert!(fixture.file().exists());
}

#[test]
fn an_agent_that_needs_nothing_hears_that_its_sandbox_is_enough() {
    let fixture = TraceFixture::new();
    let state = fixture.home.state();
    let printed = fixture.trace("Hello", &["--json"]).expect(0);
    assert!(printed.err.contains("said Hello"), "{}", printed.err);
    let report: Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!(report["is_enough"], true, "{report}");
    assert_eq!(report["network"], "none", "{report}");
    for list in ["read_paths", "write_paths", "peers", "refused"] {
        assert_eq!(report[list], json!([]), "{report}");
    }
    // The temporary server leaves no token.
    let tokens = fs::read_dir(state.join("tokens")).map_or(0, Iterator::count);
    assert_eq!(tokens, 0);
    // The network that the settings already take away is not named again, and a need for it is.
    fixture.configure("network = \"none\"\n");
    let printed = fixture.trace("Hello", &[]).expect(0);
    assert_eq!(printed.out, "");
    let printed = fixture.trace(&format!("connect {}", fixture.port()), &[]).expect(0);
    assert!(printed.out.contains("network = \"open\""), "{}", printed.out);
}

#[test]
fn no_process_of_an_agent_survives_its_trace() {
    let fixture = TraceFixture::new();
    let file = fixture.outside.path().join("process");
    let printed = fixture.trace(&format!("hide {}", file.display()), &[]).expect(0);
    assert!(printed.err.contains("hidden"), "{}", printed.err);
    let process = fs::read_to_string(&file).unwrap();
    let command = fs::read(format!("/proc/{}/cmdline", process.trim())).unwrap_or_default();
    assert!(!command.starts_with(b"sleep"), "process {process} is left");
}

#[test]
fn a_folder_of_keys_is_not_proposed_as_a_whole() {
    let fixture = TraceFixture::new();
    let folder = fixture.home.work().parent().unwrap().join(".ssh");
    fs::create_dir(&folder).unwrap();
    for name in ["config", "known_hosts", "id_one", "id_two"] {
        fs::write(folder.join(name), "a text").unwrap();
    }
    let prompt = format!(
        "read ~/.ssh/config\nread ~/.ssh/known_hosts\nread ~/.ssh/id_one\nwrite {}/known_hosts",
        folder.display()
    );
    let printed = fixture.trace(&prompt, &["--json"]).expect(0);
    let report: Value = serde_json::from_str(&printed.out).unwrap();
    let paths = ["~/.ssh/config", "~/.ssh/id_one", "~/.ssh/known_hosts"];
    assert_eq!(report["read_paths"], json!(paths), "{report}");
    assert_eq!(report["write_paths"], json!([]), "{report}");
    assert_eq!(report["is_enough"], false, "{report}");
}

#[test]
fn what_no_rule_can_give_is_named_with_its_reason() {
    let fixture = TraceFixture::new();
    fs::create_dir_all(fixture.home.state()).unwrap();
    let secret = fixture.home.state().join("secret");
    fs::write(&secret, "a secret").unwrap();
    let printed = fixture.trace(&format!("read {}", secret.display()), &["--json"]).expect(0);
    let report: Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!(report["refused"][0]["path"], secret.canonicalize().unwrap().to_str().unwrap());
    assert_eq!(
        report["refused"][0]["reason"],
        "it belongs to the server, or has passwords of the system"
    );
    assert_eq!(report["read_paths"], json!([]));
}

#[test]
fn a_trace_that_cannot_begin_says_why() {
    let fixture = TraceFixture::new();
    let trace = |arguments: &[&str]| {
        let all = ["agents", "trace"].into_iter().chain(arguments.iter().copied());
        let all: Vec<_> = all.chain(["--config", "trilogue.toml"]).collect();
        fixture.home.run(&all)
    };
    trace(&["nobody"]).complains(4, "the configuration has no agent 'nobody'");
    trace(&["claude"]).complains(4, "trilogue agents add claude");
    trace(&["coder"]).complains(2, "pass --yes");
    fixture.home.write("trilogue.toml", "[agents.echo]\nkind = \"builtin\"\n");
    trace(&["echo"]).complains(2, "no process here to trace");

    fixture.configure("");
    let mut command = fixture.home.program(BINARY);
    command.env("PATH", fixture.home.work());
    command.args(["agents", "trace", "coder", "--config", "trilogue.toml", "--yes"]);
    let missing = finish(command, "");
    missing.complains(1, "the program 'strace' is not found");
}

#[test]
fn a_question_needs_a_person_or_a_rule() {
    let fixture = TraceFixture::new();
    let waiting = fixture.trace("ask", &[]);
    assert!(waiting.out.is_empty(), "{waiting:?}");
    waiting.complains(3, "with --allow");
    let allowed = fixture.trace("ask", &["--allow", "edit"]).expect(0);
    assert!(allowed.err.contains("selected"), "{}", allowed.err);
}

#[test]
fn a_run_that_takes_too_long_ends_with_the_rules_so_far() {
    let fixture = TraceFixture::new();
    let fifo = fixture.home.work().parent().unwrap().join("models/pipe");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    // Nothing is ever written into the pipe.
    let prompt = "read ~/models/small\nread ~/models/pipe";
    let ended = fixture.trace(prompt, &["--timeout", "5s"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.err.contains("the run did not end within 5s"), "{}", ended.err);
    assert!(ended.out.contains("~/models/small"), "{}", ended.out);
}
