//! The settings that a hosted agent's sessions start with, from the configuration and from flags, and the sign-in to the agent.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::agent_client_examples::example;
use crate::harness::{BINARY, Home, Server};
use crate::known_agents::Programs;

/// Starts a server with the scripted agent as `reviewer`, with these arguments and settings.
fn serve(home: &Home, arguments: &str, settings: &str) -> Server {
    let agent = example("scripted_agent");
    let config = format!(
        "[store]\nurl = \"memory:\"\n[agents.echo]\nkind = \"builtin\"\n[agents.reviewer]\nkind = \"agent-client\"\ncommand = [{:?}, \"--record\", {:?}{arguments}]\nwrite_paths = [{:?}]\n{settings}\n",
        agent.to_str().unwrap(),
        record(home).to_str().unwrap(),
        home.work(),
    );
    let config = home.write("trilogue.toml", &config);
    home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"])
}

fn record(home: &Home) -> PathBuf {
    home.work().join("record")
}

/// The params of all requests of this method that the agent received.
fn received_params(home: &Home, method: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(record(home)).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["method"] == method).map(|line| line["params"].clone()).collect()
}

#[test]
fn sessions_begin_with_the_mode_the_model_and_the_options_of_the_configuration() {
    let home = Home::new();
    let settings =
        "mode = [\"careful\", \"code\"]\nmodel = \"large\"\noptions = { verbose = true }\n";
    let server = serve(&home, ", \"--modes\", \"--config\"", settings);
    server.run(&["run", "reviewer", "say:hi"]).expect(0);
    assert_eq!(received_params(&home, "session/set_mode")[0]["modeId"], "code");
    let options = received_params(&home, "session/set_config_option");
    assert_eq!((&options[0]["configId"], &options[0]["value"]), (&"model".into(), &"large".into()));
    assert_eq!(
        (&options[1]["configId"], &options[1]["value"]),
        (&"verbose".into(), &Value::Bool(true))
    );
    // A run's own options take precedence.
    let ran = ["run", "reviewer", "say:hi", "--mode", "ask", "--model", "small"];
    server.run(&[&ran[..], &["--option", "verbose=false"]].concat()).expect(0);
    assert_eq!(received_params(&home, "session/set_mode").last().unwrap()["modeId"], "ask");
    let options = received_params(&home, "session/set_config_option");
    assert_eq!(options.last().unwrap()["value"], false);
    let refused = server.run(&["run", "reviewer", "say:hi", "--mode", "none"]);
    refused.complains(1, "the agent has: mode (ask, code)");
}

#[test]
fn a_session_that_cannot_have_its_mode_is_not_used() {
    let home = Home::new();
    let server = serve(&home, ", \"--modes\"", "mode = \"careful\"");
    let refused = server.run(&["run", "reviewer", "say:hi"]).expect(1);
    assert!(refused.err.contains("it offers no mode 'careful'"), "{}", refused.err);
    assert!(refused.err.contains("mode (ask, code)"), "{}", refused.err);
    assert!(received_params(&home, "session/prompt").is_empty());
}

#[test]
fn every_session_gets_the_servers_of_the_configuration() {
    let home = Home::new();
    let settings = "[agents.reviewer.mcp_servers.files]\ncommand = [\"mcp-files\", \"--here\"]\nenv = { TOKEN = \"secret-word\" }\ninherit = [\"HOME\"]\n";
    let server = serve(&home, "", settings);
    server.run(&["run", "reviewer", "say:hi"]).expect(0);
    let servers = received_params(&home, "session/new")[0]["mcpServers"].clone();
    assert_eq!(servers[0]["name"], "files");
    assert_eq!(servers[0]["command"], "mcp-files");
    assert_eq!(servers[0]["args"][0], "--here");
    assert_eq!(
        servers[0]["env"][0],
        serde_json::json!({ "name": "TOKEN", "value": "secret-word" })
    );
    assert_eq!(servers[0]["env"][1]["name"], "HOME");
    let checked = home.run(&["serve", "--config", "trilogue.toml", "--check"]).expect(0).out;
    assert!(!checked.contains("secret-word"), "{checked}");
}

#[test]
fn an_agent_that_takes_no_addresses_says_so() {
    let home = Home::new();
    let settings = "mcp_servers.docs = { url = \"https://example.com/mcp\" }";
    let server = serve(&home, "", settings);
    server.run(&["run", "reviewer", "say:hi"]).complains(1, "takes no MCP servers by address");
    drop(server);
    let wrong = home.write(
        "wrong.toml",
        "[agents.a]\nkind = \"agent-client\"\ncommand = [\"a\"]\nmcp_servers.x = {}\n",
    );
    home.run(&["serve", "--config", wrong.to_str().unwrap(), "--check"])
        .complains(2, "neither a command nor an address");
}

#[test]
fn a_run_works_in_the_folder_of_its_caller() {
    let home = Home::new();
    let server = serve(&home, "", "");
    let here = home.work().canonicalize().unwrap();
    let inner = here.join("inner");
    std::fs::create_dir(&inner).unwrap();
    let ran = server.run(&["run", "reviewer", "say:hi", "--thread", "t", "--cwd", "inner"]);
    ran.expect(0);
    assert_eq!(received_params(&home, "session/new")[0]["cwd"], inner.to_str().unwrap());
    // A thread keeps the folder in which it began.
    server.run(&["run", "reviewer", "say:hi", "--thread", "t"]).expect(0);
    assert_eq!(received_params(&home, "session/new").len(), 1);
    let mut command = server.command(&["run", "reviewer", "say:hi"]);
    command.current_dir(&inner);
    crate::harness::finish(command, "").expect(0);
    assert_eq!(received_params(&home, "session/new")[1]["cwd"], inner.to_str().unwrap());
    server
        .run(&["run", "echo", "hi", "--cwd", "inner"])
        .complains(2, "does not work in a folder of its caller");
    server
        .run(&["run", "reviewer", "hi", "--config", "{\"cwd\": \"here\"}"])
        .complains(1, "not an absolute path");
}

#[test]
fn rules_by_flag_decide_and_are_shown_like_configured_ones() {
    let home = Home::new();
    let settings = "[[agents.reviewer.permissions]]\nname = \"no deletion\"\nkind = \"delete\"\ndecision = \"deny\"\n";
    let server = serve(&home, "", settings);
    let applied = |thread: &str| -> Vec<String> {
        let events = server.run(&["tail", thread, "--json"]).expect(0).lines();
        let rules = events.iter().filter(|it| it["type"] == "interrupt.rule_applied");
        rules.map(|it| it["rule"].as_str().unwrap().to_owned()).collect()
    };
    for (number, (flags, kind, outcome, rule)) in [
        (&["--allow", "read,search"][..], "search", "once", "--allow read,search"),
        (&["--allow", "execute", "--deny", "execute"], "execute", "no", "--deny execute"),
        (&["--yes-to", "change_*"], "edit", "once", "--yes-to change_*"),
        (&["--allow", "delete"], "delete", "no", "no deletion"),
    ]
    .into_iter()
    .enumerate()
    {
        let thread = format!("t{number}");
        let prompt = format!("permission:{kind}:/a");
        let run = ["run", "reviewer", prompt.as_str(), "--thread", thread.as_str()];
        let ran = server.run(&[&run[..], flags].concat()).expect(0);
        assert!(ran.out.contains(&format!("permission: {outcome}")), "{flags:?}: {}", ran.out);
        assert_eq!(applied(&thread), [rule], "{flags:?}");
    }
    // All other permissions are asked.
    server.run(&["run", "reviewer", "permission:edit:/a", "--allow", "read"]).expect(3);
    server.run(&["run", "reviewer", "hi", "--allow", "reed"]).complains(2, "did you mean read?");
    let config = "{\"permissions\": [{\"decision\": \"perhaps\"}]}";
    server.run(&["run", "reviewer", "hi", "--config", config]).complains(1, "`permissions`");
}

#[test]
fn an_agent_that_wants_a_sign_in_says_so_at_once() {
    let home = Home::new();
    let server = serve(&home, ", \"--auth\", \"key\", \"--auth\", \"other\"", "");
    let begun = std::time::Instant::now();
    let refused = server.run(&["run", "reviewer", "say:hi"]);
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    assert!(refused.err.contains("wants you to sign in"), "{}", refused.err);
    assert!(refused.err.contains("trilogue agents login reviewer"), "{}", refused.err);
    assert!(refused.err.contains("key, other"), "{}", refused.err);
    assert!(received_params(&home, "authenticate").is_empty());
    let listed = server.run(&["agents"]).expect(0).out;
    assert!(listed.contains("unavailable"), "{listed}");
    let shown = server.run(&["agents", "reviewer"]).expect(0).out;
    assert!(shown.contains("trilogue agents login reviewer"), "{shown}");
    server.run(&["agents", "login", "reviewer"]).complains(2, "choose one with --method");
    let signed = server.run(&["agents", "login", "reviewer", "--method", "key"]).expect(0);
    assert!(signed.err.contains("signed in"), "{}", signed.err);
    let ran = server.run(&["run", "reviewer", "say:hi"]).expect(0);
    assert!(ran.out.contains("hi"), "{}", ran.out);
    let shown = server.run(&["agents", "reviewer"]).expect(0).out;
    assert!(!shown.contains("unavailable"), "{shown}");
    server.run(&["agents", "login", "nobody"]).complains(4, "agent 'nobody' not found");
}

#[test]
fn what_an_agent_prints_before_it_exits_is_shown_by_its_output() {
    let home = Home::new();
    let config = "[agents.talker]\nkind = \"agent-client\"\ncommand = [\"sh\", \"-c\", \"echo usage: talker --acp; echo no terminal >&2; exit 3\"]\n";
    let config = home.write("trilogue.toml", config);
    let server =
        home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let ended = server.run(&["run", "talker", "hi"]).expect(1);
    let error = "; its standard error ends with: no terminal";
    let output = "; its standard output ends with: usage: talker --acp";
    assert!(ended.err.contains(error) && ended.err.contains(output), "{ended:?}");
    // A sign-in needs the agent's own list of methods.
    let login = ["agents", "login", "talker", "--method", "key"];
    for arguments in [&login[..3], &login] {
        let refused = server.run(arguments);
        // Which of the two is seen first depends on when the agent exits.
        let is_named =
            ["the agent ended before it answered", "the connection to the agent is lost"]
                .iter()
                .any(|reason| refused.err.contains(reason));
        assert!(refused.code == 1 && is_named, "{refused:?}");
    }
}

#[test]
fn a_sign_in_hint_names_the_agents_own_variables_beside_the_login() {
    let programs = Programs::new();
    programs.add("codex-acp", "--auth key --auth other");
    let config = "[agents.mine]\nkind = \"agent-client\"\ncommand = [\"codex-acp\"]\n";
    let config = programs.home.write("trilogue.toml", config);
    let command = programs.command(&[]);
    let path = command.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap();
    let path = format!("PATH={}", path.to_str().unwrap());
    // The agent gets none of these variables.
    let server = programs.home.start_as(
        Command::new("env"),
        &[
            &path,
            "OPENAI_API_KEY=k1-of-the-server",
            "GEMINI_API_KEY=k2-of-the-server",
            "XAI_API_KEY=k3-of-the-server",
            BINARY,
            "serve",
            "--config",
            config.to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
        ],
    );
    let refused = server.run(&["run", "mine", "say:hi"]).expect(1);
    assert!(refused.err.contains("trilogue agents login mine"), "{refused:?}");
    assert!(refused.err.contains("key, other"), "{refused:?}");
    assert!(refused.err.contains("the server has OPENAI_API_KEY,"), "{refused:?}");
    assert!(!refused.err.contains("GEMINI") && !refused.err.contains("XAI"), "{refused:?}");
}

#[test]
fn a_method_for_a_terminal_runs_in_the_callers_one() {
    let programs = Programs::new();
    let _demand = crate::connect_editor::OnDemand::unconfigured(&programs.home);
    let agent = example("scripted_agent");
    let signed = programs.home.work().join("signed");
    let script = format!(
        "shift\nif [ \"$1\" = --login ]; then echo welcome; touch {signed}; exit; fi\nif [ -e {signed} ]; then exec {agent}; fi\nexec {agent} --auth terminal:login",
        signed = signed.display(),
        agent = agent.display(),
    );
    programs.add_script("goose", &script);
    let refused = programs.run(&["run", "goose", "say:hi"]);
    assert!(refused.err.contains("trilogue agents login goose"), "{}", refused.err);
    let login = programs.run(&["agents", "login", "goose"]).expect(0);
    assert!(login.out.contains("welcome"), "{}", login.out);
    let ran = programs.run(&["run", "goose", "say:hi"]).expect(0);
    assert!(ran.out.contains("hi"), "{}", ran.out);
}
