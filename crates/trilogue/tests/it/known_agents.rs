//! Agents by name, and commands without a configuration: stand-in programs under the names of known agents.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::agent_client_examples::example;
use crate::connect_editor::{Editor, OnDemand};
use crate::harness::{BINARY, Home, ProgramOutput, finish};

/// A home with its own programs, which are found before the machine's.
pub(crate) struct Programs {
    pub(crate) home: Home,
}

// === impl Programs ===

impl Programs {
    pub(crate) fn new() -> Self {
        Self { home: Home::new() }
    }

    fn folder(&self) -> PathBuf {
        self.home.work().parent().unwrap().join("programs")
    }

    /// Adds the scripted agent with these arguments, under this name.
    pub(crate) fn add(&self, name: &str, arguments: &str) {
        let agent = example("scripted_agent");
        self.add_script(
            name,
            &format!("[ \"$1\" = acp ] && shift\nexec {} {arguments} \"$@\"", agent.display()),
        );
    }

    pub(crate) fn add_script(&self, name: &str, script: &str) {
        std::fs::create_dir_all(self.folder()).unwrap();
        let file = self.folder().join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o700)).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.program(BINARY);
        let path = command.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap();
        let path = format!("{}:{}", self.folder().display(), path.to_str().unwrap());
        command.env("PATH", path).args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> ProgramOutput {
        finish(self.command(arguments), "")
    }
}

#[test]
fn a_known_agent_runs_by_its_name_in_the_callers_folder() {
    let programs = Programs::new();
    let _demand = OnDemand::unconfigured(&programs.home);
    programs.add("goose", "");
    let ran = programs.run(&["run", "goose", "cwd\nenv:GOOSE_MODE"]).expect(0);
    let here = programs.home.work().canonicalize().unwrap();
    assert!(ran.out.contains(here.to_str().unwrap()), "{}", ran.out);
    assert!(ran.out.contains("approve"), "{}", ran.out);
    // A different folder makes a different agent; the user's variables are kept.
    let folder = here.join("inner");
    std::fs::create_dir(&folder).unwrap();
    let mut command = programs.command(&["run", "goose", "cwd\nenv:GOOSE_MODE", "--cwd", "inner"]);
    let ran = finish(
        {
            command.env("GOOSE_MODE", "chat");
            command
        },
        "",
    )
    .expect(0);
    assert!(ran.out.contains(folder.to_str().unwrap()), "{}", ran.out);
    assert!(ran.out.contains("chat"), "{}", ran.out);
    let listed = programs.run(&["agents", "-q"]).expect(0).out;
    assert_eq!(listed.lines().filter(|name| name.starts_with("goose-")).count(), 2, "{listed}");
    programs.run(&["run", "goose", "hi", "--cwd", "nowhere"]).complains(2, "--cwd nowhere");
}

#[test]
fn a_thread_of_a_known_agent_goes_on() {
    let programs = Programs::new();
    let _demand = OnDemand::unconfigured(&programs.home);
    programs.add("goose", "--load");
    programs.run(&["run", "goose", "say:first", "--thread", "t"]).expect(0);
    let ran = programs.run(&["chat", "goose", "--thread", "t"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = programs.run(&["run", "goose", "say:second", "--thread", "t"]).expect(0);
    assert!(ran.out.contains("second"), "{}", ran.out);
}

#[test]
fn any_command_runs_without_a_configuration() {
    let programs = Programs::new();
    let _demand = OnDemand::unconfigured(&programs.home);
    programs.add("my-agent", "");
    let ran = programs.run(&["run", "--command", "my-agent --modes", "say:as a text"]).expect(0);
    assert!(ran.out.contains("as a text"), "{}", ran.out);
    let ran = programs.run(&["run", "say:word by word", "--", "my-agent", "--modes"]).expect(0);
    assert!(ran.out.contains("word by word"), "{}", ran.out);
    programs
        .run(&["run", "--command", "my-agent 'open", "hi"])
        .complains(2, "a quote is not closed");
    programs
        .run(&["run", "echo", "hi", "--command", "my-agent"])
        .complains(2, "exclude each other");
    programs.run(&["run"]).complains(2, "the agent is missing");
    programs
        .run(&["run", "--command", "my-agent", "hi", "--url", "http://192.0.2.1"])
        .complains(2, "this user's server");
}

#[test]
fn an_agent_of_the_server_comes_before_a_known_one() {
    let programs = Programs::new();
    let agent = example("scripted_agent");
    let settings = format!(
        "[agents.goose]\nkind = \"agent-client\"\ncommand = [\"{}\"]\nenv = {{ GOOSE_MODE = \"configured\" }}\n",
        agent.display()
    );
    let demand = OnDemand::of(&programs.home, &settings);
    programs.add("goose", "");
    let mut editor = Editor::launch_initialized(&programs.home, &["connect", "echo"]);
    editor.session();
    assert!(demand.record().is_some());
    let ran = programs.run(&["run", "goose", "env:GOOSE_MODE"]).expect(0);
    assert!(ran.out.contains("configured"), "{}", ran.out);
}

/// The configuration of an agent with the name of a known one, which denies changes of files.
fn configured_goose() -> String {
    let agent = example("scripted_agent");
    format!(
        "[agents.goose]\nkind = \"agent-client\"\ncommand = [\"{}\"]\nenv = {{ GOOSE_MODE = \"configured\" }}\n[[agents.goose.permissions]]\nkind = [\"edit\"]\ndecision = \"deny\"\n",
        agent.display()
    )
}

#[test]
fn a_configured_agent_keeps_its_rules_although_its_server_does_not_run() {
    const PROMPT: &str = "env:GOOSE_MODE\npermission:edit:/tmp/a";
    for run in ["run", "chat"] {
        let programs = Programs::new();
        let demand = OnDemand::of(&programs.home, &configured_goose());
        programs.add("goose", "");
        assert!(demand.record().is_none());
        let ran = match run {
            "run" => programs.run(&["run", "goose", PROMPT]).expect(0),
            _ => finish(programs.command(&["chat", "goose"]), "env:GOOSE_MODE\n").expect(0),
        };
        assert!(ran.out.contains("configured"), "{ran:?}");
        assert!(run != "run" || ran.out.contains("permission: no"), "{ran:?}");
    }
    // An editor and a sign-in use the configured agent too.
    let programs = Programs::new();
    let demand = OnDemand::of(&programs.home, &configured_goose());
    programs.add("goose", "");
    let mut editor = Editor::of(programs.command(&["wrap", "goose"]));
    let params = serde_json::json!({ "protocolVersion": 1, "clientCapabilities": {} });
    editor.ask("initialize", params);
    let session = editor.session();
    let before = editor.turn(&session, "env:GOOSE_MODE");
    assert!(before.iter().any(|line| line.contains("configured")), "{before:?}");
    programs.run(&["wrap", "goose", "--name", "other"]).complains(2, "leave --name out");
    assert!(demand.record().is_some());
}

#[test]
fn a_configured_agent_that_the_running_server_does_not_have_is_not_replaced() {
    let programs = Programs::new();
    let _demand = OnDemand::of(&programs.home, "");
    programs.add("goose", "");
    let _editor = Editor::launch_initialized(&programs.home, &["connect", "echo"]);
    let _later = OnDemand::of(&programs.home, &configured_goose());
    programs.run(&["run", "goose", "hi"]).complains(7, "`trilogue stop`");
    // An unreadable configuration could have rules for the agent.
    let file = programs.home.work().parent().unwrap().join(".config/trilogue/trilogue.toml");
    std::fs::write(file, "[agents.goose\n").unwrap();
    programs.run(&["run", "goose", "hi"]).complains(2, "trilogue.toml");
}

#[test]
fn a_new_thread_with_a_name_works_in_the_callers_folder() {
    let programs = Programs::new();
    let _demand = OnDemand::of(&programs.home, &configured_goose());
    let here = programs.home.work().canonicalize().unwrap();
    let here = here.to_str().unwrap();
    let ran = programs.run(&["run", "goose", "cwd", "--thread", "new"]).expect(0);
    assert!(ran.out.contains(here), "{ran:?}");
    let chat = programs.command(&["chat", "goose", "--thread", "talk"]);
    let ran = finish(chat, "cwd\n").expect(0);
    assert!(ran.out.contains(here), "{ran:?}");
    // An existing thread keeps its folder.
    let folder = programs.home.work().join("inner");
    std::fs::create_dir(&folder).unwrap();
    let mut again = programs.command(&["run", "goose", "cwd", "--thread", "new"]);
    again.current_dir(&folder);
    let ran = finish(again, "").expect(0);
    assert!(ran.out.contains(here) && !ran.out.contains("inner"), "{ran:?}");
}

#[test]
fn an_editor_wraps_a_known_agent_by_its_name() {
    let programs = Programs::new();
    let _demand = OnDemand::unconfigured(&programs.home);
    programs.add("goose", "");
    let mut editor = Editor::of(programs.command(&["wrap", "goose"]));
    let params = serde_json::json!({ "protocolVersion": 1, "clientCapabilities": {} });
    editor.ask("initialize", params);
    let session = editor.session();
    let before = editor.turn(&session, "env:GOOSE_MODE");
    assert!(before.iter().any(|line| line.contains("approve")), "{before:?}");
    programs.run(&["wrap", "gose"]).complains(4, "did you mean goose?");
}

#[test]
fn an_agent_that_is_not_installed_says_how_to_install_it() {
    let home = Home::new();
    let mut command = home.program(BINARY);
    command.args(["run", "goose", "hi"]).env("PATH", home.work());
    let ended = finish(command, "").expect(4);
    assert!(ended.err.contains("'goose' is not installed"), "{}", ended.err);
    assert!(ended.err.contains("hint: install it"), "{}", ended.err);
    let mut slip = home.program(BINARY);
    slip.args(["run", "claud", "hi"]);
    finish(slip, "").complains(4, "did you mean 'claude'?");
}

#[test]
fn the_known_agents_are_listed() {
    let programs = Programs::new();
    programs.add("goose", "");
    let listed = programs.run(&["agents", "known"]).expect(0).out;
    let goose = listed.lines().find(|line| line.starts_with("goose ")).unwrap();
    assert!(goose.contains("installed") && goose.contains("goose acp"), "{goose}");
    let shown = programs.run(&["agents", "known", "codex"]).expect(0).out;
    assert!(shown.contains("read-only") && shown.contains("CODEX_API_KEY"), "{shown}");
    let known = programs.run(&["agents", "known", "--json"]).expect(0).json();
    assert_eq!(known["claude"]["command"][0], "claude-agent-acp");
}

#[test]
fn an_added_agent_is_served() {
    let programs = Programs::new();
    let demand = OnDemand::of(&programs.home, "");
    programs.add("goose", "");
    let file = programs.home.work().parent().unwrap().join(".config/trilogue/trilogue.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    let added = programs.run(&["agents", "add", "goose"]).expect(0);
    assert!(added.out.contains("GOOSE_MODE = \"approve\""), "{}", added.out);
    programs.run(&["agents", "add", "goose"]).complains(7, "already");
    programs.run(&["agents", "add", "goose", "--as", "my.goose"]).expect(0);
    programs.run(&["agents", "add", "other", "--", "goose", "--modes"]).expect(0);
    let after = std::fs::read_to_string(&file).unwrap();
    assert!(after.starts_with(&before), "{after}");
    let mut command = programs.command(&["connect", "goose"]);
    let mut editor = Editor::of({
        command.arg("--give-up-after").arg("30s");
        command
    });
    let params = serde_json::json!({ "protocolVersion": 1, "clientCapabilities": {} });
    editor.ask("initialize", params);
    let session = editor.session();
    let before = editor.turn(&session, "env:GOOSE_MODE");
    assert!(before.iter().any(|line| line.contains("approve")), "{before:?}");
    let listed = programs.run(&["agents", "-q", "--url", &demand.url()]).expect(0).out;
    for name in ["goose", "my.goose", "other", "echo"] {
        assert!(listed.lines().any(|line| line == name), "{listed}");
    }
}

#[test]
fn a_new_configuration_keeps_the_built_in_agents() {
    let programs = Programs::new();
    programs.add("goose", "");
    let file = programs.home.work().join("new/trilogue.toml");
    let file = file.to_str().unwrap();
    programs.run(&["agents", "add", "goose", "--config", file]).expect(0);
    let checked = programs.run(&["serve", "--config", file, "--check"]).expect(0);
    assert!(checked.out.contains("agents.goose.command"), "{}", checked.out);
    assert!(checked.out.contains("agents.echo.kind"), "{}", checked.out);
    programs.home.write("broken.toml", "[agents.x\n");
    let refused = programs.run(&["agents", "add", "goose", "--config", "broken.toml"]).expect(2);
    assert!(refused.err.contains("broken.toml"), "{}", refused.err);
}
