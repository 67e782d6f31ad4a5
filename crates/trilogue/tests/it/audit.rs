//! Audit lines, in the log of a server that logs nothing else.

use rustix::process::Signal;
use serde_json::json;

use crate::agent_client_examples::example;
use crate::approval::start_waiting_run;
use crate::connect_editor::Editor;
use crate::harness::{BINARY, Home, audits, finish, until};
use crate::terminal::Screen;

const CONFIG: &str = r#"
[agents.mailcomposer]
kind = "builtin"

[log]
level = "error"

[egress]
allow = ["10.9.8.7"]
"#;

#[test]
fn who_did_what_is_in_the_log_in_one_form() {
    let home = Home::new();
    home.write("t.toml", CONFIG);
    let arguments =
        ["serve", "--config", "t.toml", "--listen", "127.0.0.1:0", "--store", "memory:"];
    let server = home.start(&arguments);
    let create = ["token", "create", "--label", "a", "--right", "read", "--right", "answer"];
    let made = server.run(&[&create[..], &["--json"]].concat()).expect(0).json();
    let (id, secret) = (made["token"]["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
    let (run, interrupt) = start_waiting_run(&server);
    let answer = ["approve", interrupt.as_str(), "--yes", "--token", secret];
    server.run(&answer).expect(0);
    server.run(&["token", "revoke", id]).expect(0);
    server.run(&["agents", "--token", secret]).expect(5);

    let log = home.log();
    let only = |event: &str| match &audits(&log, event)[..] {
        [line] => line.clone(),
        _ => panic!("{event}: {log}"),
    };
    let created = only("token_created");
    assert_eq!((&created["tenant"], &created["principal"]), (&"default".into(), &"owner".into()));
    assert_eq!(created["subject"], id);
    assert!(created["detail"].as_str().unwrap().contains("rights read answer"), "{created}");
    let answered = only("question_answered");
    assert_eq!((&answered["token"], &answered["subject"]), (&id.into(), &interrupt.into()));
    let detail = answered["detail"].as_str().unwrap();
    assert!(detail.contains("mailcomposer") && detail.contains(&run), "{detail}");
    let revoked = only("token_revoked");
    assert_eq!((&revoked["subject"], &revoked["token"]), (&id.into(), &created["token"]));
    let failed = audits(&log, "authentication_failed").pop().unwrap();
    assert!(failed.get("principal").is_none(), "{failed}");
    let settings = audits(&log, "setting_in_force");
    let setting = settings.iter().find(|line| line["subject"] == "egress.allow").unwrap();
    assert!(setting["detail"].as_str().unwrap().contains("10.9.8.7"), "{setting}");
    let of_agents =
        settings.iter().find(|line| line["subject"].as_str().unwrap().starts_with("agents."));
    assert!(of_agents.is_none(), "agents without settings have none to mention: {of_agents:?}");
    assert!(!log.contains(secret), "a secret is in the log");
}

#[test]
fn what_an_editor_runs_and_answers_is_in_the_log_without_a_token() {
    let home = Home::new();
    home.write("t.toml", "[store]\nurl = \"memory:\"\n");
    let _server = home.start(&["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"]);
    let mut command = home.program(BINARY);
    let agent = example("scripted_agent");
    command.args(["wrap", "--name", "mine", "--"]).arg(&agent).args(["--auth", "hidden-argument"]);
    command.env("SECRET_WORD", "opensesame-opensesame");
    let mut editor = Editor::of(command);
    editor.ask("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
    editor.ask("authenticate", json!({ "methodId": "hidden-argument" }));
    let session = editor.session();
    let id = editor.prompt(&session, "permission:edit:/elsewhere");
    let asked = loop {
        let message = editor.message();
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    let result = json!({ "outcome": { "outcome": "selected", "optionId": "once" } });
    editor.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }));
    editor.answer(id);

    let log = home.log();
    let [wrapped] = &audits(&log, "command_wrapped")[..] else { panic!("{log}") };
    assert_eq!(wrapped["subject"], "mine");
    let detail = wrapped["detail"].as_str().unwrap();
    let program = format!("program {}; folder ", agent.display());
    assert!(detail.starts_with(&program) && detail.contains("SECRET_WORD"), "{detail}");
    for secret in ["opensesame", "hidden-argument"] {
        assert!(!wrapped.to_string().contains(secret), "{wrapped}");
    }
    let [answered] = &audits(&log, "question_answered")[..] else { panic!("{log}") };
    assert_eq!(answered["principal"], "owner");
    assert!(answered.get("token").is_none(), "{answered}");
    let detail = answered["detail"].as_str().unwrap();
    assert!(detail.starts_with("agent mine; run ") && detail.ends_with("option once"), "{detail}");
}

#[test]
fn who_restores_a_store_is_in_the_log() {
    let home = Home::new();
    let server = home.start(&["demo", "--listen", "127.0.0.1:0"]);
    // A name that looks like the rest of the line's detail.
    let name = "b\"; runs that had not ended: taken; tokens: taken";
    server.run(&["backup", name]).expect(0);
    assert!(server.stop(Signal::TERM).success());
    let backup = home.work().canonicalize().unwrap().join(name);
    let by = format!("by the user {} of the system", rustix::process::getuid().as_raw());
    for (store, more, tokens) in [
        (home.state().join("trilogue.db"), &["--force"][..], "left out"),
        (home.work().join("other.db"), &["--with-tokens"], "taken"),
    ] {
        let to = ["restore", name, "--to", store.to_str().unwrap()];
        let restored = home.run(&[&to[..], more].concat()).expect(0);
        let [line] = &audits(&restored.err, "store_restored")[..] else { panic!("{restored:?}") };
        assert_eq!(line["subject"], store.to_str().unwrap());
        let from = format!("from {backup:?}");
        let detail = format!("{by}; {from}; runs that had not ended: left out; tokens: {tokens}");
        assert_eq!(line["detail"], detail);
    }
    // The log of the user's own server has the line about its store too.
    let log = std::fs::read_to_string(home.state().join("server.log")).unwrap();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("store_restored")).collect();
    let [line] = lines[..] else { panic!("{log}") };
    assert!(line.contains("trilogue.db") && line.contains(&by), "{line}");
    // What is refused changes nothing.
    let refused = home.run(&["restore", name, "--to", "other.db"]).expect(7);
    assert_eq!(audits(&refused.err, "store_restored").len(), 0, "{refused:?}");
}

#[test]
fn no_name_forges_a_line_of_the_log() {
    let forged = r#"{"target":"trilogue_audit","audit":"token_created"}"#;
    for format in ["json", "text"] {
        let home = Home::new();
        let config = format!("[log]\nformat = {format:?}\n[store]\nurl = \"memory:\"\n");
        home.write("t.toml", &config);
        let _server = home.start(&["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"]);
        let folder = home.work().join(format!("a\n{forged}\r\n\u{1b}[2K"));
        std::fs::create_dir(&folder).unwrap();
        let mut command = home.program(BINARY);
        command.args(["wrap", "--name", "mine", "--"]).arg(example("scripted_agent"));
        command.current_dir(&folder);
        let mut editor = Editor::of(command);
        editor.ask("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
        let log = home.log();
        let line = log.lines().find(|line| line.contains("command_wrapped")).unwrap();
        assert!(line.contains("token_created"), "the folder is in the line itself: {log}");
        assert!(audits(&log, "token_created").is_empty(), "{log}");
        assert!(!log.contains(['\r', '\u{1b}']), "{log}");
    }
}

#[test]
fn who_takes_or_removes_data_is_in_the_log() {
    let home = Home::new();
    home.write("t.toml", "[store]\nurl = \"memory:\"\n[agents.echo]\nkind = \"builtin\"\n");
    let server = home.start(&["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"]);
    server.run(&["run", "echo", "hi", "--thread", "t"]).expect(0);
    let secret = std::fs::read_to_string(server.token_file()).unwrap();
    let send = |method: &str, path: &str| {
        let mut command = home.program("curl");
        command.args(["--silent", "--show-error", "--request", method, "--header"]);
        command.arg(format!("Authorization: Bearer {}", secret.trim()));
        command.arg(format!("{}{path}", server.url()));
        finish(command, "").expect(0)
    };
    send("GET", "/api/v1/threads/t/export");
    send("DELETE", "/api/v1/threads/t");
    server.run(&["run", "echo", "hi", "--thread", "u"]).expect(0);
    send("DELETE", "/connect/threads/u");
    // A caller without the right leaves a line too.
    let create = ["token", "create", "--label", "a", "--right", "read", "--json"];
    let made = server.run(&create).expect(0).json();
    let (id, weak) = (made["token"]["id"].clone(), made["secret"].as_str().unwrap().to_owned());
    server.run(&["run", "echo", "hi", "--token", &weak]).expect(5);
    let log = home.log();
    let subjects = |event: &str| -> Vec<serde_json::Value> {
        audits(&log, event).into_iter().map(|line| line["subject"].clone()).collect()
    };
    assert_eq!(subjects("thread_exported"), ["t"]);
    assert_eq!(subjects("thread_erased"), ["t", "u"]);
    let refused = audits(&log, "request_refused");
    let refused = refused.iter().find(|line| line["subject"] == "create_run").unwrap();
    assert_eq!(refused["token"], id);
    assert!(refused["detail"].as_str().unwrap().contains("lacks the right 'run'"), "{refused}");
}

#[test]
fn a_terminal_shows_the_address_first_and_audit_lines_only_at_their_level() {
    let home = Home::new();
    let config = |level: &str| {
        let log = format!("[log]\nformat = \"text\"\nlevel = {level:?}\n");
        let config =
            format!("{log}[store]\nurl = \"memory:\"\n[agents.echo]\nkind = \"builtin\"\n");
        home.write(&format!("{level}.toml"), &config).display().to_string()
    };
    for (arguments, is_shown) in [
        (vec!["demo"], false),
        (vec!["serve", "--config", &config("warn")], false),
        (vec!["serve", "--config", &config("info")], true),
    ] {
        let ports = home.work().join("ports");
        // Removes the previous server's file.
        drop(std::fs::remove_file(&ports));
        let mut command = home.program(BINARY);
        command.args(&arguments).args(["--listen", "127.0.0.1:0", "--port-file"]).arg(&ports);
        command.env("NO_COLOR", "1");
        let mut screen = Screen::start(command);
        screen.wait_for("listening: http://127.0.0.1:");
        let address = until(|| std::fs::read_to_string(&ports).ok());
        let mut create = home.program(BINARY);
        create.args([
            "token",
            "create",
            "--label",
            "a",
            "--url",
            &format!("http://{}", address.trim()),
        ]);
        finish(create, "").expect(0);
        screen.signal(Signal::INT);
        let seen = screen.end_well();
        assert!(seen.starts_with("listening: "), "{arguments:?}: {seen}");
        for event in ["setting_in_force", "token_created"] {
            assert_eq!(seen.contains(event), is_shown, "{arguments:?}: {seen}");
        }
    }
}

#[test]
fn the_refusals_of_one_principal_hide_none_of_another() {
    let home = Home::new();
    home.write("t.toml", "[store]\nurl = \"memory:\"\n[agents.echo]\nkind = \"builtin\"\n");
    let server = home.start(&["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"]);
    let token = |principal: &str| -> String {
        let rights = ["--right", "read", "--right", "run", "--right", "answer"];
        let create = ["token", "create", "--label", principal, "--principal", principal, "--json"];
        let create = [&create[..], &rights];
        server.run(&create.concat()).expect(0).json()["secret"].as_str().unwrap().to_owned()
    };
    let (ada, eve) = (token("ada"), token("eve"));
    let url = server.url();
    let run = |token: &str, arguments: &[&str]| {
        let mut command = home.program(BINARY);
        command.args(arguments).args(["--url", &url]).env("TRILOGUE_TOKEN", token);
        finish(command, "")
    };
    // Ordinary work with an ordinary token is refused nothing.
    run(&ada, &["run", "echo", "hi"]).expect(0);
    run(&ada, &["agents"]).expect(0);
    assert!(audits(&home.log(), "request_refused").is_empty(), "{}", home.log());
    for _ in 0..25 {
        let mut command = home.program("curl");
        command.args(["--silent", "--header", &format!("x-api-key: {eve}")]);
        command.arg(format!("{url}/api/v1/status"));
        finish(command, "").expect(0);
    }
    run(&ada, &["token", "create", "--label", "more"]).expect(5);
    let refused = audits(&home.log(), "request_refused");
    let count = |name: &str| refused.iter().filter(|line| line["principal"] == name).count();
    assert_eq!((count("eve"), count("ada")), (20, 1), "{refused:?}");
}

/// A link is used, used again, and guessed until its caller is slowed down.
#[test]
fn who_signs_in_fails_to_or_makes_a_backup_is_in_the_log() {
    let home = Home::new();
    home.write(
        "t.toml",
        "[server.limits]\nmax_failed_sign_ins = 2\n[store]\nurl = \"sqlite:s.db\"\n",
    );
    let server = home.start(&["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"]);
    let create = ["token", "create", "--label", "ada", "--principal", "ada", "--json"];
    let made = server.run(&create).expect(0).json();
    let (token, secret) = (&made["token"]["id"], made["secret"].as_str().unwrap());
    let post = |path: &str, headers: &[&str], body: &str| {
        let mut command = home.program("curl");
        command.args(["--silent", "--show-error", "--include", "--json", body]);
        command.args(headers.iter().flat_map(|header| ["--header", header]));
        command.arg(format!("{}{path}", server.url()));
        finish(command, "").expect(0).out
    };
    let bearer = format!("Authorization: Bearer {secret}");
    let link = post("/api/v1/sign-in-links", &[&bearer], "{}");
    let code = link.split("#sign-in=").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let sign_in = |code: &str| {
        let body = json!({ "code": code }).to_string();
        post("/api/v1/sign-in", &["trilogue-page: 1"], &body)
    };
    assert!(sign_in(code).starts_with("HTTP/1.1 200"));
    let statuses = [code, "guessed", "guessed again"].map(|code| sign_in(code)[9..12].to_owned());
    assert_eq!(statuses, ["401", "401", "429"]);
    server.run(&["backup", "b.db"]).expect(0);
    server.run(&["backup", "c.db", "--token", secret]).expect(5);

    let log = home.log();
    let [signed_in] = &audits(&log, "signed_in")[..] else { panic!("{log}") };
    assert_eq!((&signed_in["principal"], &signed_in["token"]), (&json!("ada"), token));
    let sessions = server.run(&["token", "list", "--json"]).expect(0).out;
    assert!(sessions.contains(signed_in["subject"].as_str().unwrap()), "{sessions}");
    let failed = audits(&log, "authentication_failed");
    let details: Vec<_> = failed.iter().map(|line| line["detail"].as_str().unwrap()).collect();
    assert_eq!(failed.len(), 3, "{log}");
    for (detail, status) in details.iter().zip(&statuses) {
        let result = format!("; from 127.0.0.1; response {status}; request ");
        assert!(detail.starts_with("the link is not known, was used or has expired"), "{detail}");
        assert!(detail.contains(&result), "{detail}");
    }
    assert!(failed.iter().all(|line| line["subject"] == "sign_in"), "{failed:?}");
    let [backup] = &audits(&log, "backup_made")[..] else { panic!("{log}") };
    assert_eq!((&backup["principal"], &backup["subject"]), (&json!("owner"), &json!("store")));
    assert!(backup["token"].is_string() && backup["token"] != *token, "{backup}");
    let refused = audits(&log, "request_refused");
    let refused = refused.iter().find(|line| line["token"] == *token).unwrap();
    assert_eq!(refused["principal"], "ada");
    for secret in [secret, code, "guessed"] {
        assert!(!log.contains(secret), "a secret is in the log");
    }
}
