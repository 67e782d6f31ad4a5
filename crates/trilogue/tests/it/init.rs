//! `trilogue init`: the file that it writes, and its output for editors.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{BINARY, audits, finish};
use crate::known_agents::Programs;
use crate::terminal::Screen;

/// The file with every commented setting made active.
fn uncommented(text: &str) -> String {
    let is_setting = |line: &&str| {
        let key = line.split_once(" = ").map(|(key, _)| key).unwrap_or_default();
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_.".contains(c))
    };
    let lines = text.lines();
    let lines = lines.map(|line| line.strip_prefix("# ").filter(is_setting).unwrap_or(line));
    lines.map(|line| format!("{line}\n")).collect()
}

fn check(programs: &Programs, file: &Path) -> String {
    let file = file.display().to_string();
    let checked = programs.run(&["serve", "--config", &file, "--check"]).expect(0);
    assert!(checked.err.ends_with("the configuration is valid\n"), "{}", checked.err);
    checked.out
}

#[test]
fn the_file_starts_as_it_is_and_every_setting_in_it_is_valid() {
    let programs = Programs::new();
    let home = &programs.home;
    programs.add("goose", "");
    let said = programs.run(&["init"]).expect(0);
    let file = home.work().parent().unwrap().join(".config/trilogue/trilogue.toml");
    assert!(said.out.contains(&file.display().to_string()), "{}", said.out);
    assert!(said.out.contains("found on this machine: goose"), "{}", said.out);
    assert!(said.err.contains("`trilogue demo`"), "{}", said.err);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("[agents.goose]") && !text.contains("[agents.claude]"), "{text}");
    check(&programs, &file);

    programs.run(&["init"]).complains(7, "replace it with --force");
    fs::write(&file, "").unwrap();
    programs.run(&["init", "--force"]).expect(0);
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert_eq!(programs.run(&["init", "--print"]).expect(0).out, text);
    let named = home.work().join("other.toml").display().to_string();
    let said = programs.run(&["init", "--file", &named]).expect(0);
    assert!(said.err.contains(&format!("trilogue serve --config {named}")), "{}", said.err);
    assert_eq!(fs::read_to_string(&named).unwrap(), text);

    let server = home.start(&["serve", "--config", &named, "--listen", "127.0.0.1:0"]);
    assert_eq!(server.run(&["run", "echo", "Hello"]).expect(0).out, "Hello\n");
    // The audit lines are JSON, as of a server without these settings.
    server.run(&["token", "create", "--label", "ops"]).expect(0);
    assert_eq!(audits(&home.log(), "token_created").len(), 1, "{}", home.log());
    drop(server);

    let every = home.write("every.toml", &uncommented(&text));
    let settings = check(&programs, &every);
    for key in ["server.trusted_proxies", "runtime.keep_runs_for", "agents.goose.model"] {
        let row = settings.lines().find(|line| line.starts_with(&format!("{key} ")));
        assert!(row.is_some_and(|row| row.contains("every.toml:")), "{key}: {settings}");
    }
}

#[test]
fn what_an_editor_gets_connects_it() {
    let programs = Programs::new();
    let arguments = ["init", "--agent", "researcher", "--editor"];
    let print = |editor: &str| programs.run(&[&arguments[..], &[editor]].concat()).expect(0).out;
    let server = programs.home.demo();
    for editor in ["zed", "jetbrains"] {
        let entry: Value = serde_json::from_str(&print(editor)).unwrap();
        let entry = &entry["agent_servers"]["researcher"];
        assert_eq!(entry["type"].as_str(), (editor == "zed").then_some("custom"));
        let mut command = programs.home.program(entry["command"].as_str().unwrap());
        command.args(entry["args"].as_array().unwrap().iter().filter_map(Value::as_str));
        let hello =
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}"#;
        let answer = finish(command, &format!("{hello}\n")).expect(0).out;
        assert!(answer.contains(r#""loadSession":true"#), "{answer}");
    }
    drop(server);
    for editor in ["neovim", "avante", "emacs", "marimo"] {
        let text = print(editor);
        assert!(text.contains(BINARY) && text.contains("researcher"), "{text}");
        for (open, close) in ["()", "{}", "[]"].map(|pair| pair.split_at(1)) {
            assert_eq!(text.matches(open).count(), text.matches(close).count(), "{text}");
        }
    }
    let all = print("all");
    assert!(
        ["codecompanion", "avante", "agent-shell", "stdio-to-ws"].iter().all(|it| all.contains(it))
    );
    // None of these has written a file.
    assert!(!programs.home.work().parent().unwrap().join(".config").exists());
}

#[test]
fn a_person_sees_what_was_done_and_the_next_command() {
    let programs = Programs::new();
    let mut screen = Screen::of_columns(programs.command(&["init", "--agent", "echo"]), 80);
    screen.wait_to_see("hint: start your server: `trilogue demo`");
    let (code, display) = screen.end_display();
    assert_eq!(code, Some(0), "{display}");
    assert!(display.starts_with("written: /"), "{display}");
    assert!(display.contains("Zed: add to ~/.config/zed/settings.json"), "{display}");
}
