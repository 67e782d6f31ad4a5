//! What operators see of a hosted agent whose program does not work.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::agent_client_examples::example;
use crate::harness::{BINARY, Home, Server, demo, finish};
use crate::hosted::over_http;

fn write_program(home: &Home, name: &str, text: &str) -> String {
    let file = home.write(name, &format!("#!/bin/sh\n{text}\n"));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file.display().to_string()
}

/// Serves `bad`, whose program exits at once, `gone`, which has no program, and `echo`.
fn serve(home: &Home) -> Server {
    let bad = write_program(home, "bad", "echo no license found >&2; exit 3");
    let hosted = |command: &str| format!("kind = \"agent-client\"\ncommand = [{command:?}]\n");
    let config = format!(
        "[store]\nurl = \"memory:\"\n[agents.echo]\nkind = \"builtin\"\n[agents.bad]\n{}[agents.gone]\n{}",
        hosted(&bad),
        hosted("/nonexistent/agent"),
    );
    let config = home.write("trilogue.toml", &config);
    home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"])
}

fn agent(list: &Value, name: &str) -> Value {
    let items = list["items"].as_array().unwrap();
    items.iter().find(|item| item["name"] == name).unwrap_or_else(|| panic!("{list}")).clone()
}

#[test]
fn the_last_failure_of_an_agent_is_shown_until_it_works() {
    let home = Home::new();
    let server = serve(&home);
    let before = server.run(&["agents"]).expect(0);
    assert!(!before.out.contains("(failed)") && !before.err.contains("failed"), "{before:?}");

    assert_ne!(server.run(&["run", "bad", "hello"]).code, 0);
    assert_ne!(server.run(&["run", "gone", "hello"]).code, 0);
    let shown = server.run(&["agents"]).expect(0);
    let row = |name: &str| shown.out.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(row("bad").contains("(failed)") && row("gone").contains("(failed)"), "{shown:?}");
    assert!(!row("echo").contains("(failed)"), "{shown:?}");
    for text in ["bad failed at 2", "exited with status 3", "no license found", "gone failed at 2"]
    {
        assert!(shown.err.contains(text), "{text}: {shown:?}");
    }
    assert!(shown.err.contains("/nonexistent/agent"), "{shown:?}");
    assert_eq!(server.run(&["agents", "-q"]).expect(0).err, "");
    let one = server.run(&["agents", "bad"]).expect(0).out;
    assert!(one.contains("last failure: 2") && one.contains("no license found"), "{one}");

    let list = server.run(&["agents", "--json"]).expect(0).json();
    let failure = &agent(&list, "bad")["last_failure"];
    assert!(failure["reason"].as_str().unwrap().contains("no license found"), "{list}");
    assert!(failure["at"].as_str().unwrap().ends_with('Z'), "{list}");
    assert!(agent(&list, "echo").get("last_failure").is_none(), "{list}");

    // What a program wrote can be about another principal's run.
    let token = server.run(&["token", "create", "--label", "r", "--right", "read"]).expect(0).out;
    let mut limited = server.command(&["agents", "--json"]);
    limited.env("TRILOGUE_TOKEN", token.trim());
    let list = finish(limited, "").expect(0).json();
    assert!(agent(&list, "bad").get("last_failure").is_none(), "{list}");

    let checked = home.run(&["doctor"]).expect(1).out;
    for text in ["problem: agent bad: it failed at 2", "problem: agent gone: ", "no license found"]
    {
        assert!(checked.contains(text), "{text}: {checked}");
    }
    assert!(checked.contains("ok: agent echo: version "), "{checked}");

    let works = example("scripted_agent").display().to_string();
    write_program(&home, "bad", &format!("exec '{works}'"));
    server.run(&["run", "bad", "say:hello"]).expect(0);
    let list = server.run(&["agents", "--json"]).expect(0).json();
    assert!(agent(&list, "bad").get("last_failure").is_none(), "{list}");
    let checked = home.run(&["doctor"]).expect(1).out;
    assert!(!checked.contains("problem: agent bad"), "{checked}");
}

#[test]
fn doctor_reports_that_the_agents_cannot_be_listed() {
    let (home, server) = demo();
    let token = server.run(&["token", "create", "--label", "d", "--right", "server"]).expect(0).out;
    let mut doctor = home.program(BINARY);
    doctor.arg("doctor").env("TRILOGUE_TOKEN", token.trim());
    let checked = finish(doctor, "").expect(1).out;
    assert!(checked.contains("problem: agents: ") && checked.contains("read"), "{checked}");
    assert!(!checked.contains("agent echo"), "{checked}");
}

#[test]
fn an_agent_that_failed_too_often_is_unavailable() {
    let home = Home::new();
    let server = serve(&home);
    for _ in 0..5 {
        assert_ne!(server.run(&["run", "bad", "hello"]).code, 0);
    }
    let list = server.run(&["agents", "--json"]).expect(0).json();
    let why = agent(&list, "bad")["unavailable"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("failed too often"), "{list}");
    let metrics = over_http(&server, "/metrics", None);
    let line = "trilogue_agent_available{agent=\"bad\"";
    let line = metrics.lines().find(|it| it.starts_with(line)).unwrap_or_default();
    assert!(line.ends_with(" 0"), "{metrics}");
    server.run(&["run", "bad", "hello"]).complains(1, "no license found");
}

#[test]
fn doctor_reads_the_configuration_of_the_server_that_runs() {
    let home = Home::new();
    let config = "[store]\nurl = \"sqlite:elsewhere.db\"\n[agents.mine]\nkind = \"builtin\"\nbuiltin = \"echo\"\n";
    home.write("mine.toml", config);
    // The server names its file by its whole path.
    let server = home.start(&["serve", "--config", "mine.toml", "--listen", "127.0.0.1:0"]);
    let mut elsewhere = home.program(BINARY);
    elsewhere.arg("doctor").current_dir("/");
    let checked = finish(elsewhere, "").expect(0).out;
    let file = home.work().canonicalize().unwrap().join("mine.toml");
    let line = format!("ok: configuration: {} is valid", file.display());
    assert!(checked.contains(&line), "{checked}");
    let disk = checked.lines().find(|line| line.starts_with("ok: disk: ")).unwrap_or_default();
    assert!(disk.ends_with("elsewhere.db"), "{checked}");
    assert!(checked.contains("ok: agent mine: "), "{checked}");

    // An older server does not name its file.
    let record = home.state().join("server.json");
    let mut known: Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    assert!(known.as_object_mut().unwrap().remove("config").is_some(), "{known}");
    std::fs::write(&record, known.to_string()).unwrap();
    let checked = home.run(&["doctor"]).expect(0).out;
    assert!(
        checked.contains("warning: configuration: the running server does not name"),
        "{checked}"
    );
    let named = home.run(&["doctor", "--config", "mine.toml"]).expect(0).out;
    assert!(named.contains("ok: configuration: mine.toml is valid"), "{named}");
    drop(server);
}

#[test]
fn doctor_applies_the_options_of_the_server_that_runs() {
    let home = Home::new();
    home.write(
        "mine.toml",
        "[store]\nurl = \"memory:\"\n[notify]\nurl = \"http://127.0.0.1:9/\"\n",
    );
    let serve = ["serve", "--config", "mine.toml", "--listen", "127.0.0.1:0"];
    let server = home.start(&serve);
    let checked = home.run(&["doctor"]).expect(1).out;
    assert!(checked.contains("problem: notify.url: no notification is sent"), "{checked}");
    drop(server);

    let server = home.start(&[&serve[..], &["--allow-egress", "127.0.0.1"]].concat());
    let checked = home.run(&["doctor"]).expect(0).out;
    let line = "ok: command line: the running server has --listen, --allow-egress\n";
    assert!(checked.contains(line), "{checked}");
    assert!(checked.contains("ok: notify.url: the server may send to 127.0.0.1"), "{checked}");
    drop(server);
}

#[test]
fn doctor_starts_no_program_of_the_callers_checkout_or_of_the_servers() {
    let home = Home::new();
    home.write(
        "mine.toml",
        "[store]\nurl = \"memory:\"\n[agents.mine]\nkind = \"builtin\"\nbuiltin = \"echo\"\n",
    );
    let work = home.work().canonicalize().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().canonicalize().unwrap().join("other");
    let started = folder.path().join("started");
    for checkout in [&work, &other] {
        std::fs::create_dir_all(checkout.join(".git")).unwrap();
        std::fs::create_dir_all(checkout.join("bin")).unwrap();
        let program = checkout.join("bin/gemini");
        let text = format!("#!/bin/sh\necho \"$0\" >> '{}'\necho 9.9.9\n", started.display());
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let server = home.start(&["serve", "--config", "mine.toml", "--listen", "127.0.0.1:0"]);
    let mut doctor = home.program(BINARY);
    let bins = [&work, &other].map(|checkout| checkout.join("bin").display().to_string());
    let path = format!("{}:{}", bins.join(":"), std::env::var("PATH").unwrap());
    doctor.arg("doctor").current_dir(&other).env("PATH", path);
    let checked = finish(doctor, "").out;
    assert!(checked.contains("ok: agent mine: "), "{checked}");
    let started = std::fs::read_to_string(started).unwrap_or_default();
    assert_eq!(started, "", "{checked}");
    drop(server);
}
