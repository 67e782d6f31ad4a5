//! The registry of agents, from a server on this machine.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Home, ProgramOutput};
use crate::known_agents::Programs;

/// A server that answers each request with a prepared status and body.
struct RegistryServer {
    url: String,
    answer: Arc<Mutex<(u16, Vec<u8>)>>,
}

// === impl RegistryServer ===

impl RegistryServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/registry.json", listener.local_addr().unwrap());
        let answer = Arc::new(Mutex::new((404, Vec::new())));
        let prepared = Arc::clone(&answer);
        thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(mut connection) = connection else { return };
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && connection.read_exact(&mut byte).is_ok() {
                    head.extend(byte);
                }
                let (status, body) =
                    prepared.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                // A client that has read enough closes the connection.
                let _ = connection
                    .write_all(head.as_bytes())
                    .and_then(|()| connection.write_all(&body));
            }
        });
        Self { url, answer }
    }

    fn answer(&self, status: u16, body: impl Into<Vec<u8>>) {
        *self.answer.lock().unwrap() = (status, body.into());
    }

    fn serve(&self, agents: &Value) {
        self.answer(200, json!({"version": "1.0.0", "agents": agents}).to_string());
    }
}

/// The user's configuration names the server.
fn configure(home: &Home, server: &RegistryServer) {
    let folder = home.work().parent().unwrap().join(".config/trilogue");
    fs::create_dir_all(&folder).unwrap();
    let text = format!("[agent_registry]\nurl = \"{}\"\n", server.url);
    fs::write(folder.join("trilogue.toml"), text).unwrap();
}

fn copies(home: &Home) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.state().join("agent-registry")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// A newer version of a known agent, known ones in another package and in an archive, and two that only the registry knows.
fn registry() -> Value {
    let icon = "https://x.example/a.svg";
    json!([
        {"id": "claude-acp", "name": "Claude", "version": "0.999.0", "description": "d", "icon": icon,
            "distribution": {"npx": {"package": "@agentclientprotocol/claude-agent-acp@0.999.0"}}},
        {"id": "opencode", "name": "OpenCode", "version": "99.0.0", "description": "d",
            "distribution": {"npx": {"package": "@somebody/else@99.0.0", "args": ["acp"]}}},
        {"id": "goose", "name": "goose", "version": "9.0.0", "description": "d",
            "distribution": {"binary": {
                "linux-x86_64": {"archive": "https://x.example/g.tgz", "cmd": "./goose", "sha256": "0a".repeat(32)},
                "linux-aarch64": {"archive": "https://x.example/g.tgz", "cmd": "./goose", "sha256": "0a".repeat(32)}}}},
        {"id": "new-agent", "name": "New \u{202e}Agent", "version": "3.2.1", "description": "It is new.",
            "distribution": {"uvx": {"package": "new-agent[acp]==3.2.1", "cmd": "na", "args": ["acp"], "env": {"NA_MODE": "x"}}}},
        {"id": "archived", "name": "Archived", "version": "1.0.0", "description": "d",
            "distribution": {"binary": {"plan9-mips": {"archive": "https://x.example/p.tgz", "cmd": "./p"}}}},
    ])
}

fn line<'a>(ran: &'a ProgramOutput, name: &str) -> &'a str {
    ran.out
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name))
        .unwrap_or_else(|| panic!("{ran:?}"))
}

#[test]
fn a_refresh_brings_newer_versions_and_further_agents() {
    let programs = Programs::new();
    programs.add_script("npx", "echo npx");
    let server = RegistryServer::start();
    configure(&programs.home, &server);
    // Without a refresh, the table in the program counts and nothing is downloaded.
    let offline = programs.run(&["agents", "known"]).expect(0);
    assert!(line(&offline, "claude").contains("0.101.0"), "{}", offline.out);
    assert!(offline.err.contains("this program's own table of 2026-"), "{}", offline.err);
    assert!(copies(&programs.home).is_empty());

    server.serve(&registry());
    let listed = programs.run(&["agents", "known", "--refresh"]).expect(0);
    assert!(line(&listed, "claude").contains("0.999.0"), "{}", listed.out);
    assert!(line(&listed, "goose").contains("9.0.0"), "{}", listed.out);
    let new = line(&listed, "new-agent");
    assert!(new.contains("uvx --from new-agent[acp]==3.2.1 na acp"), "{new}");
    assert!(new.contains("New \\u{202e}Agent"), "{new}");
    // What is known of a package says nothing about another.
    assert!(line(&listed, "opencode").contains("1.18.33"), "{}", listed.out);
    assert!(listed.err.contains(&server.url), "{}", listed.err);

    // Later commands use the copy, also while the registry is away.
    server.answer(503, "");
    let json = programs.run(&["agents", "known", "--json"]).expect(0).json();
    assert_eq!(json["claude"]["version"], "0.999.0");
    assert_eq!(json["claude"]["fetched"]["name"], "@agentclientprotocol/claude-agent-acp");
    assert_eq!(json["claude"]["registry_entry"]["icon"], "https://x.example/a.svg");
    assert_eq!(json["claude"]["source"]["kind"], "registry");
    assert_eq!(json["new-agent"]["fetched"]["start"], Value::Null);
    assert_eq!(json["new-agent"]["fetched"]["env"]["NA_MODE"], "x");
    let shown = programs.run(&["agents", "known", "goose"]).expect(0).out;
    assert!(shown.contains(&format!("SHA-256 of the archive: {}", "0a".repeat(32))), "{shown}");
    let shown = programs.run(&["agents", "known", "opencode"]).expect(0).out;
    assert!(shown.contains("the registry also names @somebody/else 99.0.0"), "{shown}");

    // A known agent is fetched in the registry's version.
    let added = programs.run(&["agents", "add", "claude"]).expect(0).out;
    assert!(added.contains("\"@agentclientprotocol/claude-agent-acp@0.999.0\""), "{added}");
    // One that only the registry knows starts by its user's configuration alone.
    programs.run(&["run", "new-agent", "hi"]).complains(4, "new-agent");
    programs.run(&["wrap", "new-agent"]).complains(4, "`trilogue agents add new-agent`");
    let added = programs.run(&["agents", "add", "new-agent"]).expect(0).out;
    assert!(added.contains("start_in = \"empty\"") && added.contains("NA_MODE = \"x\""), "{added}");
    // Nothing fetches one that is an archive only: its user installs it.
    let add = "trilogue agents add archived -- PROGRAM";
    for command in
        [&["run", "archived", "hi"][..], &["wrap", "archived"], &["agents", "add", "archived"]]
    {
        programs.run(command).complains(4, add);
    }
    let shown = programs.run(&["agents", "known", "archived"]).expect(0).out;
    assert!(shown.contains("archive: none for this machine, only for plan9-mips"), "{shown}");
    programs.run(&["agents", "add", "archived", "--", "./p"]).expect(0);
    programs.run(&["agents", "add", "new-agent2"]).complains(4, "not a known agent");
}

#[test]
fn a_registry_that_is_refused_leaves_the_last_copy() {
    let programs = Programs::new();
    let server = RegistryServer::start();
    configure(&programs.home, &server);
    server.answer(503, "");
    let ran = programs.run(&["agents", "known", "--refresh"]);
    assert!(ran.err.contains("hint: this program's own table of "), "{}", ran.err);
    server.serve(&registry());
    programs.run(&["agents", "known", "--refresh"]).expect(0);
    let [copy] = copies(&programs.home).try_into().unwrap();
    let kept = fs::read(&copy).unwrap();
    let one = |member: &str, value: Value| {
        let mut agent = json!({"id": "a", "name": "A", "version": "1.0.0", "description": "d", "distribution": {}});
        agent[member] = value;
        json!({"version": "1.0.0", "agents": [agent]}).to_string()
    };
    let traversal = json!({"binary": {"linux-x86_64": {"archive": "https://x.example/a.tgz", "cmd": "../../bin/sh"}}});
    for (status, body, said) in [
        (200, "{\"version\":".to_owned(), "it is not JSON"),
        (200, "[]".to_owned(), "it is not a JSON object"),
        (200, json!({"version": "1.0.0"}).to_string(), "missing field `agents`"),
        (200, json!({"version": "2.0.0", "agents": []}).to_string(), "it has the format '2.0.0'"),
        (200, one("name", json!("\u{1b}]0;owned\u{7}")), "has control characters"),
        (200, one("version", json!(1)), "agents[0] (a): invalid type: integer `1`"),
        (
            200,
            one("distribution", json!({"npx": {}})),
            "agents[0] (a).distribution.npx: missing field `package`",
        ),
        (200, one("distribution", traversal), "leaves the folder of the archive"),
        (
            200,
            one("distribution", json!({"npx": {"package": "file:../x"}})),
            "is not the name of a package",
        ),
        (200, format!("\"{}\"", "x".repeat(5 * 1024 * 1024)), "larger than 4194304 bytes"),
        (200, "[".repeat(100_000), "it is not JSON"),
        (302, String::new(), "it answers with the status 302"),
        (503, String::new(), "it answers with the status 503"),
    ] {
        server.answer(status, body);
        let ran = programs.run(&["agents", "known", "--refresh"]);
        assert!(ran.code != 0 && ran.err.contains(said), "{said}: {ran:?}");
        assert!(ran.err.contains(&server.url) && ran.err.contains("hint: "), "{ran:?}");
        // A newer format has a hint of its own.
        let is_used = ran.err.contains(&format!("{}, read at ", server.url));
        assert!(is_used || said.contains("format"), "{ran:?}");
        assert!(!ran.err.contains('\u{1b}') && !ran.err.contains('\u{7}'), "{ran:?}");
        assert_eq!(fs::read(&copy).unwrap(), kept, "{said}");
    }
    let listed = programs.run(&["agents", "known"]).expect(0);
    assert!(line(&listed, "claude").contains("0.999.0"), "{}", listed.out);
    assert_eq!(copies(&programs.home).as_slice(), std::slice::from_ref(&copy));

    // A damaged copy is named, and the table in the program counts.
    for damage in [
        &b"{"[..],
        b"{\"format\":99,\"url\":\"\",\"fetched_at\":\"2026-11-29T09:00:00Z\",\"registry\":{}}",
    ] {
        fs::write(&copy, damage).unwrap();
        let listed = programs.run(&["agents", "known"]).expect(0);
        assert!(line(&listed, "claude").contains("0.101.0"), "{}", listed.out);
        assert!(listed.err.contains("is damaged"), "{}", listed.err);
        let checked = programs.run(&["doctor"]).out;
        assert!(checked.contains("warning: agent registry: the copy of the registry"), "{checked}");
    }
}

#[test]
fn an_outdated_agent_is_found_by_doctor() {
    let programs = Programs::new();
    programs.add_script("claude-agent-acp", "echo 0.998.1");
    programs.add_script("npx", "exit 1");
    let server = RegistryServer::start();
    configure(&programs.home, &server);
    server.serve(&registry());
    programs.run(&["agents", "known", "--refresh"]).expect(0);
    let file = programs.home.work().parent().unwrap().join(".config/trilogue/trilogue.toml");
    let mut config = fs::read_to_string(&file).unwrap();
    config.push_str("[agents.mine]\nkind = \"agent-client\"\ncommand = [\"npx\", \"-y\", \"@agentclientprotocol/claude-agent-acp@0.76.0\"]\n");
    fs::write(&file, config).unwrap();
    let checked = programs.run(&["doctor"]).expect(0).out;
    let pinned = "warning: agents.mine.command: version 0.76.0 is outdated: the newest is 0.999.0";
    assert!(checked.contains(pinned), "{checked}");
    assert!(checked.contains("version 0.998.1 is outdated: the newest is 0.999.0"), "{checked}");
    assert!(
        checked.contains(&format!(
            "ok: agent registry: newest versions of agents are from {}",
            server.url
        )),
        "{checked}"
    );
}

#[test]
fn a_registry_on_the_way_in_clear_text_is_refused() {
    let home = Home::new();
    home.write("t.toml", "[agent_registry]\nurl = \"http://registry.example/registry.json\"\n");
    let refresh = ["agents", "known", "--refresh", "--config", "t.toml"];
    home.run(&refresh).complains(2, "`agent_registry.url` is not an https address");
    home.run(&["serve", "--config", "t.toml", "--check"]).complains(2, "agent_registry.url");
}

#[test]
fn an_unknown_name_is_compared_with_the_ids_of_the_registry_too() {
    let programs = Programs::new();
    let server = RegistryServer::start();
    configure(&programs.home, &server);
    server.serve(&registry());
    programs.run(&["agents", "known", "--refresh"]).expect(0);
    for command in [
        &["agents", "known", "new-agnet"][..],
        &["agents", "known", "--refresh", "new-agnet"],
        &["agents", "add", "new-agnet"],
        &["wrap", "new-agnet"],
        &["run", "new-agnet", "hi"],
    ] {
        programs.run(command).complains(4, "did you mean");
        programs.run(command).complains(4, "new-agent");
    }
    programs.run(&["agents", "add", "cluade"]).complains(4, "did you mean claude");
}

/// Each reading of the copy would see another one.
#[test]
fn a_command_reads_the_catalog_once() {
    let programs = Programs::new();
    programs.add_script("npx", "echo npx");
    let server = RegistryServer::start();
    configure(&programs.home, &server);
    server.serve(&registry());
    programs.run(&["agents", "known", "--refresh"]).expect(0);
    let [copy] = copies(&programs.home).try_into().unwrap();
    let kept = fs::read(&copy).unwrap();
    for command in [
        &["agents", "known"][..],
        &["agents", "known", "claude"],
        &["agents", "known", "nothing"],
        &["agents", "add", "new-agent", "--as", "one"],
        &["agents", "add", "claude", "--as", "two"],
        &["agents", "add", "nothing"],
        &["wrap", "nothing"],
        &["run", "nothing", "hi"],
        &["run", "new-agent", "hi"],
    ] {
        // A pipe has its content for one reader.
        fs::remove_file(&copy).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &copy, rustix::fs::Mode::RWXU).unwrap();
        let (path, content) = (copy.clone(), kept.clone());
        let writer = thread::spawn(move || fs::write(path, content));
        let ran = programs.run(command);
        writer.join().unwrap().unwrap();
        assert!(!ran.err.contains("is damaged"), "{command:?}: {ran:?}");
        fs::remove_file(&copy).unwrap();
        fs::write(&copy, &kept).unwrap();
    }
}

/// The settings are those of the same file in both cases.
#[test]
fn a_refresh_uses_the_registry_of_the_settings() {
    let programs = Programs::new();
    let (users, named) = (RegistryServer::start(), RegistryServer::start());
    configure(&programs.home, &users);
    users.serve(&json!([]));
    named.serve(&registry());
    let text = format!("[agent_registry]\nurl = \"{}\"\n", named.url);
    programs.home.write("t.toml", &text);
    for refresh in [&["--refresh"][..], &[]] {
        let mut arguments = vec!["agents", "known", "--config", "t.toml"];
        arguments.extend(refresh);
        let listed = programs.run(&arguments).expect(0);
        assert!(line(&listed, "claude").contains("0.999.0"), "{}", listed.out);
        assert!(listed.err.contains(&named.url), "{}", listed.err);
    }
    // The user's own registry has not been downloaded.
    let listed = programs.run(&["agents", "known"]).expect(0);
    assert!(line(&listed, "claude").contains("0.101.0"), "{}", listed.out);
    let listed = programs.run(&["agents", "known", "--refresh"]).expect(0);
    assert!(listed.err.contains(&users.url), "{}", listed.err);
    // What is added comes from the registry of the file that it is added to.
    let added = programs.run(&["agents", "add", "new-agent", "--config", "t.toml"]).expect(0).out;
    assert!(added.contains("new-agent[acp]==3.2.1"), "{added}");
}
