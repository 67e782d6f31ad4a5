//! One server and one store per user, however the server was started.

use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::connect_editor::{Editor, OnDemand};
use crate::harness::{BINARY, Home, demo, finish, lasting_address, until};
use crate::known_agents::Programs;
use crate::terminal::Screen;

#[test]
fn demo_and_the_server_of_editors_are_one_and_keep_one_store() {
    let home = Home::new();
    let server = home.demo();
    server.run(&["run", "echo", "kept", "--thread", "t"]).expect(0);
    let record = home.server_record().unwrap();
    let store = format!("sqlite:{}", home.state().join("trilogue.db").display());
    assert_eq!((&record["started_by"], &record["store"]), (&json!("demo"), &json!(store)));

    // It has no other nodes.
    assert!(server.run(&["nodes"]).expect(0).err.starts_with("one server holds the store"));
    let alone = server.run(&["nodes", "drain", "main"]);
    assert!(
        alone.code != 0 && alone.err.contains("no other server shares this store"),
        "{alone:?}"
    );

    // A second server's error names the first.
    let again = home.run(&["demo"]).expect(7);
    let named =
        format!("error: your server runs already: {} (process {}", server.url(), server.pid());
    assert!(again.err.starts_with(&named) && again.err.contains(&store), "{}", again.err);
    assert!(again.err.contains("trilogue stop"), "{}", again.err);

    let stopped = home.run(&["stop"]).expect(0).out;
    assert!(stopped.starts_with(&format!("stopped: {} (process", server.url())), "{stopped}");
    assert_eq!(home.server_record(), None);

    let _on_demand = OnDemand::unconfigured(&home);
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "echo"]);
    editor.turn(&session, "from an editor");
    let threads = home.run(&["threads", "-q"]).expect(0).out;
    assert!(threads.contains(&session) && threads.lines().count() == 2, "{threads}");
    assert_eq!(home.server_record().unwrap()["started_by"], "on_demand");
    home.run(&["demo"]).complains(7, "started by `trilogue connect` or `trilogue wrap`");
    drop(editor);
    let stopped = home.run(&["stop", "--now"]).expect(0);
    assert!(stopped.err.contains("an editor that is still connected"), "{stopped:?}");
    assert_eq!(home.run(&["stop"]).expect(0).err, "no server of this user runs\n");

    let _server = home.demo();
    assert_eq!(home.run(&["threads", "-q"]).expect(0).out.lines().count(), 2);
}

#[test]
fn demo_has_the_settings_of_the_users_server_and_the_built_in_agents_too() {
    let home = Home::new();
    let folder = home.work().parent().unwrap().join(".config/trilogue");
    std::fs::create_dir_all(&folder).unwrap();
    let config = "[store]\nurl = \"sqlite:mine.db\"\n[agents.mine]\nkind = \"builtin\"\nbuiltin = \"echo\"\n";
    std::fs::write(folder.join("trilogue.toml"), config).unwrap();
    let _server = home.demo();
    let agents = home.run(&["agents", "-q"]).expect(0).out;
    for name in ["mine", "echo", "greeter", "mailcomposer", "researcher"] {
        assert!(agents.lines().any(|line| line == name), "{agents}");
    }
    assert!(home.state().join("mine.db").is_file());
    // Paths on the command line are relative to the folder in which it was typed.
    let other = Home::new();
    let _server = other.start(&["demo", "--listen", "127.0.0.1:0", "--store", "sqlite:here.db"]);
    assert!(other.work().join("here.db").is_file());
}

#[test]
fn a_throwaway_server_leaves_nothing_and_is_not_found() {
    let (home, server) = demo();
    let temporary = home.start(&["demo", "--throwaway"]);
    assert_ne!(temporary.address, server.address);
    temporary.run(&["run", "echo", "gone"]).expect(0);
    let token = temporary.token_file();
    assert!(token.is_file());
    assert_eq!(home.run(&["threads", "-q"]).expect(0).out, "");
    assert!(temporary.stop(Signal::INT).success());
    assert!(!token.exists());
    assert!(server.token_file().is_file());
}

#[test]
fn what_demo_prints_works_when_pasted() {
    let (home, server) = demo();
    let shown = until(|| Some(home.log()).filter(|log| log.contains("Press Ctrl-C")));
    let shown: Vec<_> = shown.lines().skip_while(|line| !line.starts_with("listening: ")).collect();
    let last = "Press Ctrl-C to stop. Threads stay in ~/state/trilogue/trilogue.db.";
    assert_eq!(shown.iter().position(|line| *line == last), Some(9), "{shown:#?}");
    let shown = shown[..10].join("\n");
    let readme = include_str!("../../../../README.md");
    let port = server.address.rsplit_once(':').unwrap().1;
    let as_usual = shown.replace(port, "7878").replace("~/state", "~/.local/state");
    assert!(readme.contains(&as_usual), "the README shows something else:\n{as_usual}");
    // The output if the program is on the search path, and the state folder is the default.
    let usual = as_usual.replace("7878", "17878");
    for line in usual.lines() {
        assert!(line.len() <= 80, "{line}");
    }
    let commands = shown.replace("\\\n", "");
    let mut answers = 0;
    for command in commands.lines().filter(|line| line.contains("Hello")) {
        let mut shell = home.program("sh");
        shell.args(["-c", command]);
        let ended = finish(shell, "").expect(0);
        assert!(ended.out.contains("Hello"), "{command}: {ended:?}");
        answers += 1;
    }
    assert_eq!(answers, 2, "{shown}");
    let snippet = shown.lines().find(|line| line.contains("\"custom\"")).unwrap();
    let snippet: Value = serde_json::from_str(&format!("{{{snippet}}}")).unwrap();
    let echo = &snippet["echo"];
    assert_eq!((&echo["type"], &echo["args"]), (&json!("custom"), &json!(["connect", "echo"])));
    drop(server);
}

#[test]
fn logs_are_shown_and_followed() {
    let (home, server) = demo();
    let last = home.run(&["logs", "-n", "1"]).expect(0).out;
    assert_eq!(last.lines().count(), 1, "{last}");
    // On a terminal, words wrap, times have whole seconds, and ids are short.
    server.run(&["run", "echo", "Hello"]).expect(0);
    let run = server.run(&["runs", "-q"]).expect(0).out;
    let mut logs = home.program(BINARY);
    logs.arg("logs");
    let (code, display) = Screen::sized(logs, 80, 60).end_display();
    assert_eq!(code, Some(0), "{display}");
    let ended = display.lines().find(|line| line.contains("run ended")).unwrap();
    assert!(ended.contains(&format!("run={}", &run[24..32])) && !ended.contains('.'), "{display}");
    assert!(!display.contains(run.trim()), "{display}");
    let mut follow = home.program(BINARY);
    let followed = home.work().join("followed");
    follow.args(["logs", "--follow"]).stdout(std::fs::File::create(&followed).unwrap());
    let mut follow = follow.spawn().unwrap();
    server.run(&["token", "create", "--label", "a"]).expect(0);
    until(|| std::fs::read_to_string(&followed).ok().filter(|log| log.contains("token_created")));
    follow.kill().unwrap();
    follow.wait().unwrap();
    drop(server);
    // A server with a configuration file logs where it was started.
    home.write("t.toml", "[store]\nurl = \"memory:\"\n[agents.echo]\nkind = \"builtin\"\n");
    let _serve = home.start(&["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"]);
    home.run(&["logs"]).complains(4, "started by `trilogue serve`, store memory:) logs to its own");
    let elsewhere = ["--url", "http://example.com"];
    home.run(&[&["logs"], &elsewhere[..]].concat()).complains(2, "http://example.com");
    home.run(&[&["stop"], &elsewhere[..]].concat()).complains(2, "http://example.com");
}

#[test]
fn status_names_the_server_who_is_connected_and_what_waits() {
    let (home, server) = demo();
    let mut editor = Editor::launch(&home, &["connect", "mailcomposer"]);
    let client = json!({ "name": "zed", "title": "Zed\u{202e}", "version": "1.2" });
    editor.ask("initialize", json!({ "protocolVersion": 1, "clientInfo": client }));
    let session = editor.session();
    editor.prompt(&session, "Write to ada@example.com: we meet on Friday");
    while editor.message()["method"] != "session/request_permission" {}
    let shown = home.run(&["status"]).expect(0);
    let line = |name: &str| {
        let found = shown.out.lines().find(|line| line.starts_with(name));
        found.unwrap_or_else(|| panic!("{name}: {}", shown.out)).to_owned()
    };
    let pid = server.pid();
    let named = format!("server: {} (process {pid}, version ", server.url());
    assert!(line("server: ").starts_with(&named), "{shown:?}");
    assert!(line("server: ").contains("by `trilogue demo`"), "{shown:?}");
    assert!(line("store: ").contains("trilogue.db (1 thread, 1 run, "), "{shown:?}");
    assert!(line("log: ").ends_with("state/trilogue/server.log"), "{shown:?}");
    assert_eq!(line("agents: "), "agents: echo, greeter, mailcomposer, researcher");
    let cwd = home.work().display().to_string();
    assert_eq!(
        line("editors: "),
        format!("editors: Zed\\u{{202e}} 1.2 with mailcomposer in {cwd}, controls 1 session")
    );
    assert_eq!(line("waiting: "), "waiting: 1 question");
    assert!(shown.err.contains("trilogue inbox"), "{shown:?}");
    let status = home.run(&["status", "--json"]).expect(0).json();
    assert_eq!(
        (&status["pid"], &status["clients"][0]["name"]),
        (&json!(pid), &json!("Zed\u{202e}"))
    );
    drop(editor);
    until(|| home.run(&["status"]).expect(0).out.contains("editors: none").then_some(()));
}

#[test]
fn an_address_in_use_names_the_program() {
    let home = Home::new();
    home.write("t.toml", "[store]\nurl = \"memory:\"\n[agents.echo]\nkind = \"builtin\"\n");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let serve = ["serve", "--config", "t.toml", "--listen", &address];
    let named = format!("the address {address} is in use by process {} (", std::process::id());
    home.run(&serve).complains(7, &named);
    let server = home.demo();
    let serve = ["serve", "--config", "t.toml", "--listen", &server.address];
    let named =
        format!("the address {} is in use by your server, {}", server.address, server.url());
    home.run(&serve).complains(7, &named);
}

#[test]
fn a_refused_token_names_its_origin_and_https_on_a_plain_port_says_so() {
    let (home, server) = demo();
    let given = home.run(&["agents", "--token", "wrong"]).expect(5).err;
    assert!(given.contains("hint: the token came from --token"), "{given}");
    let mut command = home.program(BINARY);
    command.arg("agents").env("TRILOGUE_TOKEN", "wrong");
    let inherited = finish(command, "").expect(5).err;
    let source = "hint: the token came from TRILOGUE_TOKEN, which has precedence over the one";
    assert!(inherited.contains(source), "{inherited}");
    let https = server.url().replace("http://", "https://");
    let plain = home.run(&["agents", "--url", &https]).expect(6).err;
    assert!(plain.contains("speaks plain HTTP"), "{plain}");
    assert!(plain.contains(&format!("hint: use {}", server.url())), "{plain}");
}

#[test]
fn doctor_says_what_is_wrong_and_what_to_do() {
    let home = Home::new();
    let without = home.run(&["doctor"]).expect(0).out;
    assert!(
        without.contains("warning: server: no server of this user runs\n  hint: "),
        "{without}"
    );
    let server = home.demo();
    let well = home.run(&["doctor"]).expect(0).out;
    let named = format!("ok: server: {} (process {}", server.url(), server.pid());
    assert!(well.contains(&named) && !well.contains("problem: "), "{well}");
    for subject in ["configuration", "permissions", "agent echo", "disk", "strays", "clock"] {
        assert!(well.contains(&format!("ok: {subject}: ")), "{subject}: {well}");
    }
    server.stop(Signal::KILL);

    let folder = home.work().parent().unwrap().join(".config/trilogue");
    std::fs::create_dir_all(&folder).unwrap();
    let nobody = lasting_address();
    let config = format!(
        "[agents.gone]\nkind = \"agent-client\"\ncommand = [\"no-such-agent\", \"--acp\"]\n\
         [agents.far]\nkind = \"agent-communication\"\nurl = \"http://{nobody}\"\n\
         [agents.shell]\nkind = \"agent-client\"\ncommand = \"sh\"\n"
    );
    std::fs::write(folder.join("trilogue.toml"), &config).unwrap();
    let token = home.state().join("tokens").join(server_token(&home));
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    let ended = home.run(&["doctor"]).expect(1);
    assert!(ended.err.contains("2 problems were found"), "{ended:?}");
    for line in [
        "problem: agents.gone.command: the program 'no-such-agent' is not found\n  hint: install it",
        &format!("warning: agents.far.url: {nobody} cannot be reached: "),
        "ok: agents.shell.command: sh is /",
        &format!("hint: take that right away: chmod go-rwx '{}'", token.display()),
    ] {
        assert!(ended.out.contains(line), "{line}: {}", ended.out);
    }
    let all = home.run(&["doctor", "--json"]).expect(1).json();
    assert!(all.as_array().unwrap().iter().any(|it| it["severity"] == "problem"), "{all}");
    // The check of a configuration finds the same.
    home.write("t.toml", &config);
    let checked = home.run(&["serve", "--config", "t.toml", "--check"]).expect(0).err;
    assert!(
        checked.contains("problem: agents.gone.command: ") && !checked.contains("ok: "),
        "{checked}"
    );
}

#[test]
fn doctor_compares_the_versions_of_installed_agents() {
    let programs = Programs::new();
    programs.add_script("goose", "[ \"$1\" = --version ] && echo ' 1.2.3'");
    programs.add_script("qwen", "echo qwen v1000.0.1");
    programs.add_script("opencode", "cat; echo nothing");
    let found = programs.run(&["doctor"]).expect(0).out;
    let line = |start: &str| found.lines().find(|line| line.starts_with(start)).unwrap_or_default();
    assert!(
        line("warning: goose (").ends_with("is older than 1.8.0, which it needs at least"),
        "{found}"
    );
    assert!(line("ok: qwen (").ends_with("/qwen): version 1000.0.1"), "{found}");
    assert!(line("ok: opencode (").contains("it does not say its version"), "{found}");
    assert!(!found.contains("claude ("), "{found}");
}

fn server_token(home: &Home) -> String {
    let mut tokens = std::fs::read_dir(home.state().join("tokens")).unwrap();
    tokens.next().unwrap().unwrap().file_name().into_string().unwrap()
}
