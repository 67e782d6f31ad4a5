//! An agent that is a separate program, served from a configuration.

use std::process::Command;

use serde_json::{Value, json};

use crate::agent_client_examples::example;
use crate::connect_editor::Editor;
use crate::harness::{BINARY, Home, Server, audits, finish};

/// Starts a server with the scripted agent, which may read everything, change files below `notes`, and run nothing.
fn serve(home: &Home) -> Server {
    let agent = example("scripted_agent");
    let config = format!(
        r#"
[store]
url = "memory:"

[agents.reviewer]
kind = "agent-client"
command = [{:?}, "--record", "heard"]
cwd = "project"

[[agents.reviewer.permissions]]
name = "looking is free"
kind = ["read", "search"]
decision = "allow"

[[agents.reviewer.permissions]]
name = "notes are its own"
kind = "edit"
path = "notes/**"
decision = "allow"

[[agents.reviewer.permissions]]
name = "nothing runs"
kind = "execute"
decision = "deny"
"#,
        agent.to_str().unwrap()
    );
    std::fs::create_dir_all(home.work().join("project/notes")).unwrap();
    let config = home.write("trilogue.toml", &config);
    home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"])
}

fn applied(server: &Server, thread: &str) -> Vec<String> {
    let events = server.run(&["tail", thread, "--json"]).expect(0).lines();
    let rules = events.iter().filter(|it| it["type"] == "interrupt.rule_applied");
    rules.map(|it| it["rule"].as_str().unwrap_or_else(|| panic!("{it}")).to_owned()).collect()
}

#[test]
fn the_rules_of_a_configuration_decide_before_anybody_is_asked() {
    let home = Home::new();
    let server = serve(&home);
    let project = home.work().canonicalize().unwrap().join("project");
    let inside = project.join("notes/a.md").display().to_string();
    let outside = project.join("notes/../secret").display().to_string();
    for (index, (question, outcome, rule)) in [
        ("permission:read:/etc/hosts".to_owned(), "once", "looking is free"),
        (format!("permission:edit:{inside}"), "once", "notes are its own"),
        ("permission:execute:/bin/rm".to_owned(), "no", "nothing runs"),
    ]
    .into_iter()
    .enumerate()
    {
        let thread = format!("t{index}");
        let said = server.run(&["run", "reviewer", &question, "--thread", &thread]).expect(0);
        assert!(said.out.contains(&format!("permission: {outcome}")), "{question}: {said:?}");
        assert_eq!(applied(&server, &thread), [rule], "{question}");
        let shown = server.run(&["tail", &thread]).expect(0).out;
        assert!(shown.contains(rule), "{shown}");
    }
    assert_eq!(server.run(&["inbox", "-q"]).expect(0).out, "");
    // If no rule matches, a person is asked, and an attached editor may answer.
    let asked = server.run(&[
        "run",
        "reviewer",
        &format!("permission:edit:{outside}"),
        "--thread",
        "other",
    ]);
    let asked = asked.expect(3);
    assert!(asked.err.contains("secret"), "{asked:?}");
    assert_eq!(applied(&server, "other"), [""; 0]);
    // A run that waits for an answer is not at work.
    let status = server.run(&["status", "--json"]).expect(0).json();
    assert_eq!(status["runtime"]["running"], 0, "{status}");
    let status = server.run(&["status"]).expect(0).out;
    assert!(status.contains("at work: 0 runs"), "{status}");
    let waiting = server.run(&["inbox", "-q"]).expect(0).out;
    server.run(&["approve", waiting.trim(), "--reject"]).expect(0);
    // The agent received only valid messages of the protocol.
    let held = trilogue_testkit::schema::hold_record(&project.join("heard")).unwrap();
    assert!(held >= 12, "{held}");
}

/// The response to a request of this path: a POST if there is a body.
pub(crate) fn over_http(server: &Server, path: &str, body: Option<&Value>) -> String {
    let token = std::fs::read_to_string(server.token_file()).unwrap();
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--fail-with-body", "-H", &format!("x-api-key: {}", token.trim())]);
    if let Some(body) = body {
        curl.args(["-H", "content-type: application/json", "-d", &body.to_string()]);
    }
    curl.arg(format!("{}{path}", server.url()));
    finish(curl, "").expect(0).out
}

#[test]
fn what_it_does_and_asks_reaches_a_client_of_runs() {
    let home = Home::new();
    let server = serve(&home);
    let descriptor = over_http(&server, "/connect/agents/reviewer/descriptor", None);
    let descriptor: Value = serde_json::from_str(&descriptor).unwrap();
    let can = &descriptor["specs"]["capabilities"];
    assert_eq!(can["interrupts"], true, "{descriptor}");
    assert_eq!(can["streaming"], json!({"values": true, "custom": true}));
    let kinds = descriptor["specs"]["interrupts"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds.map(|declared| &declared["interrupt_type"]).collect();
    assert_eq!(kinds, ["permission", "form", "url"]);
    let input = |said: &str| json!({"agent_id": "reviewer", "input": {"message": said}});
    let mut run = input("think:hard\ntool\nsay:done\nstop:refusal");
    run["stream_mode"] = json!(["values", "custom"]);
    let stream = over_http(&server, "/connect/runs/stream", Some(&run));
    for told in ["message.thought", "tool.started", "tool.ended", "turn_result", "refusal", "done"]
    {
        assert!(stream.contains(told), "{told}: {stream}");
    }
    // The question has a type that the agent declares.
    let output = over_http(
        &server,
        "/connect/runs/wait",
        Some(&input(&format!("permission:edit:{}/secret", home.work().display()))),
    );
    let output: Value = serde_json::from_str(&output).unwrap();
    let asked = &output["output"];
    assert_eq!(
        (&asked["type"], &asked["interrupt_type"]),
        (&json!("interrupt"), &json!("permission")),
        "{output}"
    );
}

#[test]
fn an_editor_sees_what_a_rule_decided_and_is_not_asked() {
    let home = Home::new();
    let server = serve(&home);
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "reviewer"]);
    let before = editor.turn(&session, "permission:execute:/bin/rm");
    assert!(!before.iter().any(|line| line.contains("request_permission")), "{before:?}");
    let failed = before.iter().any(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["params"]["update"]["status"] == "failed"
    });
    assert!(failed, "{before:?}");
    assert_eq!(applied(&server, &session), ["nothing runs"]);
}

#[test]
fn what_an_editor_answers_beyond_its_choice_comes_to_the_agent() {
    let home = Home::new();
    let _server = serve(&home);
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "reviewer"]);
    let id = editor.prompt(&session, "permission:edit:/elsewhere");
    let asked = loop {
        let message = editor.message();
        if message["method"] == "session/request_permission" {
            break message;
        }
    };
    let outcome = json!({ "outcome": "selected", "optionId": "once", "why": "it is safe" });
    let result = json!({ "outcome": outcome, "more": [1.5, null], "_meta": { "cwd": "/" } });
    editor.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }));
    let (answer, _) = editor.answer(id);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let heard = std::fs::read_to_string(home.work().join("project/heard")).unwrap();
    let mut lines = heard.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told = lines.find(|line| line["answered"] == "session/request_permission").unwrap();
    assert_eq!(told["result"], json!({ "outcome": outcome, "more": [1.5, null] }));
}

#[test]
fn an_editor_gets_the_standard_error_of_an_agent_that_refuses_and_what_the_agent_lacks() {
    const COMPLAINT: &str = "OPENAI_API_KEY is not set";
    let home = Home::new();
    let agent = example("scripted_agent");
    let config = format!(
        "[store]\nurl = \"memory:\"\n[agents.locked]\nkind = \"agent-client\"\ncommand = [{agent:?}, \"--refuse-open\", {COMPLAINT:?}]\n[agents.open]\nkind = \"agent-client\"\ncommand = [{agent:?}]\n"
    );
    let config = home.write("trilogue.toml", &config);
    let mut with_key = Command::new("sh");
    with_key.args(["-c", "OPENAI_API_KEY=sesame exec \"$0\" \"$@\"", BINARY]);
    let serve = ["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let _server = home.start_as(with_key, &serve);
    let explained = |error: &Value| {
        let expected = format!("Internal error; its standard error ends with: {COMPLAINT}");
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(-32603), &json!(expected)),
            "{error}"
        );
        let hint = error["data"]["hint"].as_str().unwrap_or_else(|| panic!("{error}"));
        assert!(hint.contains("OPENAI_API_KEY") && hint.contains("`inherit`"), "{hint}");
    };
    let mut editor = Editor::launch_initialized(&home, &["connect", "locked"]);
    let params = json!({ "cwd": home.work(), "mcpServers": [] });
    explained(&editor.ask("session/new", params)["error"]);
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "open"]);
    let error = json!({ "code": -32603, "message": "Internal error", "data": { "details": "no" } });
    let id = editor.prompt(&session, &format!("stderr:{COMPLAINT}\nfail:{error}"));
    let (refused, _) = editor.answer(id);
    explained(&refused["error"]);
    assert_eq!(refused["error"]["data"]["details"], "no");
    // An error without a need for an explanation is passed unchanged.
    let id = editor.prompt(&session, &format!("fail:{error}"));
    assert_eq!(editor.answer(id).0["error"], error);
}

#[test]
fn what_the_budget_of_processes_stops_and_refuses_is_counted() {
    let home = Home::new();
    let agent = example("scripted_agent");
    let agent =
        |name: &str| format!("[agents.{name}]\nkind = \"agent-client\"\ncommand = [{agent:?}]\n");
    let config = format!(
        "[store]\nurl = \"memory:\"\n[runtime]\nmax_agent_processes = 1\n{}{}",
        agent("one"),
        agent("two")
    );
    let config = home.write("trilogue.toml", &config);
    let server =
        home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    server.run(&["run", "one", "say:x", "--thread", "a"]).expect(0);
    // An idle process makes room; a busy one does not.
    server.run(&["run", "two", "permission:edit:/a", "--thread", "b"]).expect(3);
    let refused = server.run(&["run", "one", "say:y", "--thread", "a"]).expect(1);
    assert!(refused.err.contains("all 1 processes of agents are in use"), "{refused:?}");
    let metrics = over_http(&server, "/metrics", None);
    for counted in [
        "trilogue_agent_processes_stopped_total 1\n",
        "trilogue_agent_processes_refused_total 1\n",
        "trilogue_ready 1\n",
    ] {
        assert!(metrics.contains(counted), "{counted}: {metrics}");
    }
    assert_eq!(over_http(&server, "/readyz", None), "ok\n");
}

#[test]
fn an_agent_is_started_once_for_an_editor_that_works_where_it_was_launched() {
    let home = Home::new();
    let record = home.work().join("heard");
    let agent = example("scripted_agent");
    let (agent, heard) = (agent.to_str().unwrap(), record.to_str().unwrap());
    let config = format!(
        "[store]\nurl = \"memory:\"\n[agents.reviewer]\nkind = \"agent-client\"\ncommand = [{agent:?}, \"--record\", {heard:?}]\nwrite_paths = [{:?}]\n",
        home.work()
    );
    let config = home.write("trilogue.toml", &config);
    let _server =
        home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let here = home.work().canonicalize().unwrap().join("project");
    std::fs::create_dir(&here).unwrap();
    let mut command = home.program(BINARY);
    command.args(["connect", "reviewer"]).current_dir(&here);
    let mut editor = Editor::of(command);
    editor.ask("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} }));
    let opened = editor.ask("session/new", json!({ "cwd": here, "mcpServers": [] }));
    let session = opened["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}"));
    let id = editor.prompt(session, "cwd");
    let (_, said) = editor.answer(id);
    assert!(said.iter().any(|line| line.contains(here.to_str().unwrap())), "{said:?}");
    let heard = std::fs::read_to_string(record).unwrap();
    let begun = heard.lines().filter(|line| line.contains(r#""method":"initialize""#));
    assert_eq!(begun.count(), 1, "{heard}");
}

#[test]
fn commands_of_an_agent_run_in_its_sandbox() {
    let home = Home::new();
    let agent = example("scripted_agent");
    let config = format!(
        "[store]\nurl = \"memory:\"\n[agents.runner]\nkind = \"agent-client\"\ncommand = [{:?}]\ncwd = \"project\"\nsandbox = \"require:files\"\nterminals = true\n",
        agent.to_str().unwrap()
    );
    std::fs::create_dir_all(home.work().join("project")).unwrap();
    let outside = home.write("outside", "nothing for agents");
    home.write("project/inside", "for agents");
    let config = home.write("trilogue.toml", &config);
    let server =
        home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    for (file, is_read) in [("inside", true), (outside.to_str().unwrap(), false)] {
        let line = format!("term:cat {file} 2>&1; touch made");
        let output = server.run(&["run", "runner", &line]).expect(0).out;
        assert_eq!(output.contains("for agents"), is_read, "{file}: {output}");
    }
    assert!(home.work().join("project/made").exists(), "a command changes the agent's folder");
    let status: Value =
        serde_json::from_str(&server.run(&["status", "--json"]).expect(0).out).unwrap();
    let layers = status["agents"]["list"][0]["sandbox"].as_array().unwrap();
    assert!(layers.iter().any(|layer| layer == "files"), "{status}");
    let log = home.log();
    let begun = log.lines().find(|line| line.contains("an agent works for a thread")).unwrap();
    assert!(begun.contains("files") && begun.contains("runner"), "{begun}");
}

#[test]
fn the_servers_own_files_in_the_folder_of_an_agent_keep_it_from_starting() {
    let home = Home::new();
    let agent = example("scripted_agent");
    let config = |mode: &str| {
        let agent = agent.to_str().unwrap();
        let text = format!(
            "[store]\nurl = \"memory:\"\n[agents.runner]\nkind = \"agent-client\"\ncommand = [{agent:?}]\nsandbox = \"{mode}\"\n"
        );
        home.write("trilogue.toml", &text)
    };
    // The agent works where the file of the settings is.
    for (mode, starts) in [("require:files", false), ("auto", true)] {
        let config = config(mode);
        let server =
            home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
        let ran = server.run(&["run", "runner", "say:hi"]);
        if starts {
            ran.expect(0);
        } else {
            ran.complains(1, "set `cwd` of the agent to another folder");
        }
    }
}

#[test]
fn a_link_in_the_folder_of_an_agent_gives_it_nothing() {
    let home = Home::new();
    let agent = example("scripted_agent");
    let secrets = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::write(secrets.path().join("key"), "a key").unwrap();
    for folder in ["project", "project/cache"] {
        std::fs::create_dir_all(home.work().join(folder)).unwrap();
    }
    let cache = home.work().join("project/cache");
    let config = format!(
        "[store]\nurl = \"memory:\"\n[agents.runner]\nkind = \"agent-client\"\ncommand = [{:?}]\ncwd = \"project\"\nsandbox = \"require:files\"\nterminals = true\nwrite_paths = [{cache:?}]\n",
        agent.to_str().unwrap()
    );
    let config = home.write("trilogue.toml", &config);
    let start =
        || home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let made = start().run(&["run", "runner", "term:touch cache/made && echo done"]).expect(0).out;
    assert!(made.contains("done"), "{made}");
    // As an agent can without namespaces.
    std::fs::remove_dir_all(&cache).unwrap();
    std::os::unix::fs::symlink(secrets.path(), &cache).unwrap();
    let output = start().run(&["run", "runner", "term:cat cache/key 2>&1; ls cache"]).expect(0).out;
    assert!(!output.contains("a key"), "{output}");
}

#[test]
fn an_agent_that_its_sandbox_stops_says_what_to_do() {
    let home = Home::new();
    let agent = example("scripted_agent");
    // Not below `/tmp`, which can be another folder for the agent.
    let other = tempfile::tempdir_in("/var/tmp").unwrap();
    let record = other.path().join("record");
    let config = format!(
        "[store]\nurl = \"memory:\"\n[agents.runner]\nkind = \"agent-client\"\ncommand = [\"/bin/sh\", \"-c\", \"echo > {} && exec {}\"]\ncwd = \"project\"\n",
        record.display(),
        agent.display()
    );
    std::fs::create_dir_all(home.work().join("project")).unwrap();
    let config = home.write("trilogue.toml", &config);
    let server =
        home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    server.run(&["run", "runner", "say:hi"]).complains(1, "or `write_paths` of the agent");
    assert!(!record.exists());
}

/// Starts a server with an agent that may run commands, without a sandbox: the server itself refuses it what these tests try.
fn serve_commands(home: &Home) -> Server {
    let agent = example("scripted_agent");
    let state = home.state().parent().unwrap().display().to_string();
    let config = format!(
        "[store]\nurl = \"memory:\"\n[agents.runner]\nkind = \"agent-client\"\ncommand = [{:?}]\ncwd = \"project\"\nsandbox = \"off\"\nterminals = true\nenv = {{ XDG_STATE_HOME = {state:?} }}\n[agents.echo]\nkind = \"builtin\"\nbuiltin = \"echo\"\n",
        agent.to_str().unwrap()
    );
    std::fs::create_dir_all(home.work().join("project")).unwrap();
    let config = home.write("trilogue.toml", &config);
    home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"])
}

#[test]
fn an_agent_does_not_reach_the_local_socket_of_its_server() {
    let home = Home::new();
    let server = serve_commands(&home);
    let meet = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}"#;
    let input = home.write("meet", &format!("{meet}\n"));
    let connect =
        |before: &str| format!("{before} {BINARY} connect echo < {} 2>&1", input.display());
    for before in ["", "setsid -w"] {
        let script = format!("term:{}", connect(before));
        let told = server.run(&["run", "runner", &script]).expect(0).out;
        assert!(told.contains("cannot act for the server's user"), "{told}");
        assert!(!told.contains("agentInfo"), "{told}");
    }
    let refused = audits(&home.log(), "agent_refused");
    // The program retries.
    assert!(refused.len() >= 2, "{}", home.log());
    for line in refused {
        assert_eq!(
            (&line["subject"], &line["principal"]),
            (&json!("local_connection"), &json!("owner"))
        );
        assert!(line.get("token").is_none(), "{line}");
        assert!(line["detail"].as_str().unwrap().starts_with("process "), "{line}");
    }
    // Other programs of the user can connect while the agent runs.
    let mut command = home.program("sh");
    command.args(["-c", &connect("")]);
    let met = finish(command, "").expect(0).out;
    assert!(met.contains("protocolVersion"), "{met}");
}

#[test]
#[cfg(target_os = "linux")]
fn an_agent_does_not_answer_with_a_token_that_it_has_found() {
    let home = Home::new();
    let server = serve_commands(&home);
    server.run(&["run", "runner", "permission:edit:/a", "--thread", "asks"]).expect(3);
    let waiting = server.run(&["inbox", "-q"]).expect(0).out;
    let path = format!("/api/v1/interrupts/{}/answer", waiting.trim());
    let port = server.address.rsplit(':').next().unwrap();
    let script = format!(
        r#"body='{{"option":"once"}}'
exec 3<>/dev/tcp/127.0.0.1/{port}
printf 'POST {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %s\r\n\r\n%s' "$(cat {})" "${{#body}}" "$body" >&3
cat <&3
"#,
        server.address,
        server.token_file().display(),
    );
    let script = home.write("answer.sh", &script);
    for before in ["", "setsid -w", "env -i"] {
        let line = format!("term:{before} /bin/bash {} 2>&1", script.display());
        let told = server.run(&["run", "runner", &line]).expect(0).out;
        assert!(told.contains("403") && told.contains("cannot answer questions"), "{told}");
    }
    assert_eq!(server.run(&["inbox", "-q"]).expect(0).out, waiting);
    let refused = audits(&home.log(), "agent_refused");
    assert_eq!(refused.len(), 3, "{}", home.log());
    let tokens = server.run(&["token", "list", "--json"]).expect(0).json();
    for line in refused {
        assert_eq!(
            (&line["subject"], &line["principal"]),
            (&json!("answer_interrupt"), &json!("owner"))
        );
        assert_eq!(line["token"], tokens["items"][0]["id"], "{tokens}");
        assert!(line["detail"].as_str().unwrap().starts_with("peer 127.0.0.1:"), "{line}");
    }
    // The same script works when its user starts it.
    let mut command = home.program("/bin/bash");
    command.arg(&script);
    let told = finish(command, "").expect(0).out;
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    assert_eq!(server.run(&["inbox", "-q"]).expect(0).out, "");
}

#[test]
#[cfg(target_os = "linux")]
fn an_agent_decides_nothing_in_its_users_name() {
    let home = Home::new();
    let server = serve_commands(&home);
    server.run(&["run", "echo", "hi", "--thread", "kept"]).expect(0);
    let port = server.address.rsplit(':').next().unwrap();
    let allow =
        r#"{"agent":"runner","input":"say:x","config":{"permissions":[{"decision":"allow"}]}}"#;
    let unattended = r#"{"agent":"runner","input":"say:x","config":{"mode":"bypassPermissions"}}"#;
    let connect = r#"{"agent_id":"runner","input":{"messages":[{"role":"user","content":"say:x"}]},"config":{"configurable":{"permissions":[{"decision":"allow"}]}}}"#;
    let communication = r#"{"agent_name":"runner","mode":"sync","input":[{"role":"user","parts":[{"content_type":"text/plain","content":"say:x"}]}],"config":{"permissions":[{"decision":"allow"}]}}"#;
    let settings = r#"{"metadata":{"trilogue.config":{"permissions":[{"decision":"allow"}]}}}"#;
    let rollback = r#"{"agent":"runner","input":"say:x","thread_id":"kept","strategy":"rollback"}"#;
    let requests = [
        ("POST", "/api/v1/tokens", r#"{"label":"mine"}"#, "create_token"),
        ("POST", "/api/v1/sign-in-links", "", "create_sign_in_link"),
        ("POST", "/api/v1/backup", "", "back_up"),
        ("DELETE", "/api/v1/threads/kept", "", "erase_thread"),
        ("DELETE", "/connect/threads/kept", "", "connect_delete_thread"),
        ("POST", "/api/v1/nodes/here/drain", "", "drain_node"),
        ("DELETE", "/api/v1/runs/kept", "", "delete_run"),
        ("DELETE", "/connect/runs/kept", "", "connect_delete_run"),
        ("DELETE", "/connect/agents/runner/configurations/x", "", "connect_delete_configuration"),
        ("PATCH", "/connect/agents/runner/configurations/x", "{}", "connect_patch_configuration"),
        ("PATCH", "/api/v1/threads/kept", settings, "patch_thread"),
        ("POST", "/api/v1/threads", settings, "create_thread"),
        ("POST", "/connect/threads", settings, "connect_create_thread"),
        ("POST", "/api/v1/runs", rollback, "create_run"),
        ("POST", "/api/v1/runs", allow, "create_run"),
        ("POST", "/api/v1/runs", unattended, "create_run"),
        ("POST", "/connect/runs", connect, "connect_create_run"),
        ("POST", "/communication/runs", communication, "communication_create_run"),
    ];
    for (method, path, body, operation) in requests {
        let body_file = home.write("body", body);
        let script = format!(
            r#"body="$(cat {})"
exec 3<>/dev/tcp/127.0.0.1/{port}
printf '{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %s\r\n\r\n%s' "$(cat {})" "${{#body}}" "$body" >&3
cat <&3
"#,
            body_file.display(),
            server.address,
            server.token_file().display(),
        );
        let script = home.write("request.sh", &script);
        let line = format!("term:/bin/bash {} 2>&1", script.display());
        let told = server.run(&["run", "runner", &line]).expect(0).out;
        assert!(told.contains("403"), "{operation}: {told}");
        let refused = audits(&home.log(), "agent_refused");
        let line = refused.iter().find(|line| line["subject"] == operation);
        assert!(line.is_some(), "{operation}: {}", home.log());
    }
    server.run(&["threads", "show", "kept"]).expect(0);
    let tokens = server.run(&["token", "list", "--json"]).expect(0).json();
    assert_eq!(tokens["items"].as_array().unwrap().len(), 1, "{tokens}");
}

#[test]
fn git_learns_nothing_of_the_servers_environment() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    let repository = home.work().join("repo");
    std::fs::create_dir(&repository).unwrap();
    for arguments in [&["init", "--quiet"][..], &["commit", "--quiet", "--allow-empty", "-m", "a"]]
    {
        let mut git = home.program("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@example.com"]).args(arguments);
        git.current_dir(&repository);
        finish(git, "").expect(0);
    }
    // The first git on the path writes down what it gets, and becomes the real one.
    let (tools, seen) = (home.work().join("tools"), home.work().join("seen"));
    std::fs::create_dir(&tools).unwrap();
    let path = std::env::var("PATH").unwrap();
    let script = format!("#!/bin/sh\nenv >> {}\nPATH='{path}' exec git \"$@\"\n", seen.display());
    std::fs::write(tools.join("git"), script).unwrap();
    std::fs::set_permissions(tools.join("git"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let agent = example("scripted_agent");
    let config = format!(
        "[store]\nurl = \"memory:\"\n[agents.runner]\nkind = \"agent-client\"\ncommand = [{:?}]\ncwd = \"w/{{thread}}\"\nworktree = \"repo\"\n",
        agent.to_str().unwrap()
    );
    home.write("trilogue.toml", &config);
    let mut command = Command::new("env");
    command.arg(format!("PATH={}:{path}", tools.display()));
    command.args(["SECRET_WORD=opensesame", BINARY]);
    let arguments = ["serve", "--config", "trilogue.toml", "--listen", "127.0.0.1:0"];
    let server = home.start_as(command, &arguments);
    server.run(&["run", "runner", "say:x"]).expect(0);
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(seen.contains("GIT_TERMINAL_PROMPT=0"), "{seen}");
    for unknown in ["SECRET_WORD", "XDG_STATE_HOME", "TRILOGUE_"] {
        assert!(!seen.contains(unknown), "{unknown}: {seen}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn no_other_program_of_its_user_reads_the_environment_of_a_server() {
    use std::os::unix::fs::chown;
    // The administrator can read everything, so the test uses another user if it runs as administrator.
    const NOBODY: u32 = 65_534;
    let is_root = rustix::process::geteuid().is_root();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let program = |program: &str| {
        let mut command = if is_root { Command::new("setpriv") } else { Command::new(program) };
        if is_root {
            let user = format!("--reuid={NOBODY}");
            command.args([&user, "--clear-groups", program]);
        }
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", place).env("SECRET_WORD", "opensesame").current_dir("/");
        command
    };
    if is_root {
        chown(place, Some(NOBODY), None).unwrap();
    }
    let ports = place.join("ports");
    let mut server = program(BINARY);
    server.args(["demo", "--listen", "127.0.0.1:0", "--port-file"]).arg(&ports);
    let mut server = server.stdout(std::process::Stdio::null()).spawn().unwrap();
    crate::harness::until(|| ports.exists().then_some(()));
    let environment = format!("/proc/{}/environ", server.id());
    let read = program("cat").arg(&environment).output().unwrap();
    // Another process of this user can be read.
    let own = program("cat").arg("/proc/self/environ").output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(!read.status.success() && read.stdout.is_empty(), "{read:?}");
    assert!(String::from_utf8_lossy(&read.stderr).contains("Permission denied"), "{read:?}");
    assert!(String::from_utf8_lossy(&own.stdout).contains("opensesame"), "{own:?}");
}

#[test]
fn a_stop_does_not_wait_for_a_person_who_may_never_come() {
    let home = Home::new();
    let server = serve_commands(&home);
    server.run(&["run", "runner", "permission:edit:/a", "--thread", "asks"]).expect(3);
    let begun = std::time::Instant::now();
    assert!(server.stop(rustix::process::Signal::TERM).success());
    // The deadline of a stop is 30 seconds.
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    let server = serve_commands(&home);
    assert_eq!(server.run(&["inbox", "-q"]).expect(0).out, "");
}

/// An agent continues a thread on which another agent has thought and used tools; a prompt cannot carry those.
#[test]
fn what_a_prompt_cannot_carry_is_named_once_in_its_run() {
    let home = Home::new();
    let config = format!(
        "[store]\nurl = \"memory:\"\n\n[agents.researcher]\nkind = \"builtin\"\n\n\
         [agents.reviewer]\nkind = \"agent-client\"\ncommand = [{:?}, \"--media\"]\n",
        example("scripted_agent").to_str().unwrap()
    );
    let config = home.write("trilogue.toml", &config);
    let server =
        home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let lost = || -> Vec<Value> {
        let events = server.run(&["tail", "t", "--json"]).expect(0).lines();
        let lost = events.into_iter().filter(|event| event["kind"] == "fidelity.lost");
        lost.map(|event| event["data"].clone()).collect()
    };
    server.run(&["run", "researcher", "Ferries", "--thread", "t"]).expect(0);
    assert_eq!(lost(), [Value::Null; 0]);
    let said = server.run(&["run", "reviewer", "say:done", "--thread", "t"]).expect(0);
    assert_eq!(said.out, "done\n");
    let lost = lost();
    assert!(!lost.is_empty());
    let mut concepts: Vec<_> = lost.iter().map(|it| it["concept"].as_str().unwrap()).collect();
    concepts.dedup();
    assert_eq!(concepts.len(), lost.len(), "{lost:?}");
    for it in &lost {
        assert_eq!((&it["direction"], &it["protocol"]), (&json!("to_agent"), &json!("client")));
        assert!(it["because"].as_str().is_some_and(|why| !why.is_empty()), "{it}");
    }
}
