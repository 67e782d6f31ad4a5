//! A request can narrow the rights of its caller, and never widens them.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::agent_client_examples::example;
use crate::connect_editor::Editor;
use crate::copy::empty_database;
use crate::harness::{Home, Server, audits, finish};

/// Starts a server with a scripted agent that has two modes and works in a folder of its caller. One mode is known to ask for no permission.
fn serve(home: &Home, settings: &str) -> Server {
    serve_on(home, settings, "memory:")
}

/// As [`serve`], on this store.
fn serve_on(home: &Home, settings: &str, store: &str) -> Server {
    let agent = example("scripted_agent");
    let config = format!(
        "[store]\nurl = \"{store}\"\n[agents.reviewer]\nkind = \"agent-client\"\ncommand = [{:?}, \"--modes\", \"--record\", {:?}]\nwrite_paths = [{:?}]\nunattended = [\"code\"]\n{settings}\n",
        agent.to_str().unwrap(),
        home.work().join("record").to_str().unwrap(),
        home.work(),
    );
    let config = home.write("trilogue.toml", &config);
    home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"])
}

/// The secret of a new token with these rights.
fn token(server: &Server, rights: &[&str]) -> String {
    token_of(server, "owner", rights).0
}

/// The secret and the id of a new token of this principal.
fn token_of(server: &Server, principal: &str, rights: &[&str]) -> (String, String) {
    let rights = rights.iter().flat_map(|right| ["--right", right]);
    let create = ["token", "create", "--label", "t", "--principal", principal, "--json"];
    let create: Vec<_> = create.into_iter().chain(rights).collect();
    let made = server.run(&create).expect(0).json();
    let text = |at| made.pointer(at).and_then(Value::as_str).unwrap().to_owned();
    (text("/secret"), text("/token/id"))
}

/// The responses to a run with this configuration, over each protocol.
fn run_everywhere(home: &Home, server: &Server, token: &str, config: &Value) -> Vec<String> {
    let message = "permission:edit:/a";
    let parts = json!([{ "content_type": "text/plain", "content": message }]);
    let requests = [
        ("/api/v1/runs", json!({ "agent": "reviewer", "input": message, "config": config })),
        (
            "/communication/runs",
            json!({ "agent_name": "reviewer", "mode": "sync", "input": [{ "role": "user", "parts": parts }], "config": config }),
        ),
        (
            "/connect/runs/wait",
            json!({ "agent_id": "reviewer", "input": { "messages": [{ "role": "user", "content": message }] }, "config": { "configurable": config } }),
        ),
    ];
    requests.iter().map(|(path, body)| post(home, server, token, path, body)).collect()
}

/// The body of a response.
fn post(home: &Home, server: &Server, token: &str, path: &str, body: &Value) -> String {
    send(home, server, token, "POST", path, body)
}

/// The same, with this method; without a body where it is null.
fn send(
    home: &Home,
    server: &Server,
    token: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> String {
    let mut command = home.program("curl");
    command.args(["--silent", "--show-error", "--request", method, "--header"]);
    command.arg(format!("Authorization: Bearer {token}"));
    if !body.is_null() {
        command.args(["--json", &body.to_string()]);
    }
    command.arg(format!("{}{path}", server.url()));
    finish(command, "").expect(0).out
}

/// The first events of this kind in a thread.
fn events(server: &Server, thread: &str, kind: &str) -> Vec<Value> {
    let events = server.run(&["tail", thread, "--json"]).expect(0).lines();
    events.into_iter().filter(|event| event["type"] == kind).collect()
}

/// The token with the right `answer` is revoked while the run waits for its turn; another one of the same principal stays.
#[test]
fn a_delayed_run_allows_its_own_calls_only_while_its_creator_may_answer() {
    let home = Home::new();
    let server = serve(&home, "");
    let (answers, lost) = token_of(&server, "bob", &["read", "run", "answer"]);
    token_of(&server, "bob", &["read", "run"]);
    let (carols, _) = token_of(&server, "carol", &["read", "run", "answer"]);
    let allow = json!({ "permissions": [{ "decision": "allow" }] });
    let start = |token: &str, input: &str, config: &Value| -> String {
        let body = json!({ "agent": "reviewer", "input": input, "thread_id": "busy", "create_thread": true, "config": config, "mode": "async" });
        let made = post(&home, &server, token, "/api/v1/runs", &body);
        let made: Value = serde_json::from_str(&made).unwrap();
        made["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    };
    let busy = start(&answers, "slow:600000", &json!({}));
    let bobs = start(&answers, "permission:edit:/a", &allow);
    let carols = start(&carols, "permission:edit:/b", &allow);
    server.run(&["token", "revoke", &lost]).expect(0);
    server.run(&["cancel", &busy]).expect(0);
    let followed = |run: &str| server.run(&["tail", run, "--follow", "--json"]).lines();
    let events = followed(&bobs);
    let last = events.last().unwrap();
    assert_eq!(last["outcome"]["error"]["code"], "forbidden", "{last}");
    assert!(last.to_string().contains("lacks the right 'answer'"), "{last}");
    assert!(events.iter().all(|event| event["type"] != "interrupt.rule_applied"), "{events:?}");
    let events = followed(&carols);
    assert!(events.iter().any(|event| event["type"] == "interrupt.rule_applied"), "{events:?}");
    assert_eq!(events.last().unwrap()["outcome"]["status"], "completed", "{events:?}");
}

#[test]
fn a_run_allows_its_own_calls_only_with_the_right_to_answer() {
    let home = Home::new();
    let server = serve(&home, "");
    let (runs, answers) =
        (token(&server, &["read", "run"]), token(&server, &["read", "run", "answer"]));
    let rule = "{\"permissions\": [{\"decision\": \"allow\"}]}";
    for flags in [
        ["--allow", "edit"],
        ["--yes-to", "change_*"],
        ["--config", rule],
        ["--mode", "bypassPermissions"],
        ["--mode", "code"],
        // The agent's own name for that mode; the server does not know it.
        ["--mode", "Code"],
        ["--option", "yolo=true"],
        ["--option", "approval_policy=never"],
    ] {
        let run = ["run", "reviewer", "permission:edit:/a", "--token", &runs];
        let ended = server.run(&[&run[..], &flags].concat()).expect(5);
        assert!(ended.err.contains("lacks the right 'answer'"), "{flags:?}: {ended:?}");
    }
    for config in [
        json!({ "permissions": [{ "decision": "allow" }] }),
        json!({ "mode": "bypassPermissions" }),
        json!({ "mode_id": "code" }),
    ] {
        for told in run_everywhere(&home, &server, &runs, &config) {
            assert!(told.contains("lacks the right 'answer'"), "{config}: {told}");
        }
    }
    let refused = audits(&home.log(), "request_refused");
    assert!(refused.iter().any(|line| line["subject"] == "create_run"), "{}", home.log());
    assert!(refused.iter().all(|line| line["token"].is_string()), "{refused:?}");
    // A request may narrow the rights.
    let denied = ["run", "reviewer", "permission:edit:/a", "--thread", "narrow", "--deny", "edit"];
    let denied = server.run(&[&denied[..], &["--token", &runs]].concat()).expect(0);
    assert!(denied.out.contains("permission: no"), "{}", denied.out);
    let allowed = ["run", "reviewer", "permission:edit:/a", "--thread", "wide", "--allow", "edit"];
    let allowed = server.run(&[&allowed[..], &["--token", &answers]].concat()).expect(0);
    assert!(allowed.out.contains("permission: once"), "{}", allowed.out);
    server.run(&["run", "reviewer", "say:hi", "--mode", "code", "--token", &answers]).expect(0);

    // Each decision names its rule and the rule's owner, in the thread and in the log.
    let log = home.log();
    let lines = audits(&log, "rule_applied");
    for (thread, rule, decided) in
        [("narrow", "--deny edit", "denied"), ("wide", "--allow edit", "allowed")]
    {
        let [event] = &events(&server, thread, "interrupt.rule_applied")[..] else { panic!() };
        assert_eq!((&event["rule"], &event["origin"]), (&json!(rule), &json!("run")));
        let line = lines.iter().find(|line| line["subject"] == rule).unwrap();
        assert_eq!(line["principal"], "owner");
        let detail = line["detail"].as_str().unwrap();
        assert!(
            detail.starts_with(&format!("{decided}; origin run; agent reviewer; run ")),
            "{detail}"
        );
        assert!(detail.ends_with(&format!("thread {thread}")), "{detail}");
    }
    // The first event of a run names the caller that requested it.
    let tokens = server.run(&["token", "list", "--json"]).expect(0).json();
    let [created] = &events(&server, "narrow", "run.created")[..] else { panic!() };
    let audit = &created["audit"];
    assert_eq!((&audit["principal"], &audit["thread_id"]), (&json!("owner"), &json!("narrow")));
    assert_eq!((&audit["source"], &audit["can_answer"]), (&json!("network"), &json!(false)));
    let known = tokens["items"].as_array().unwrap();
    assert!(known.iter().any(|token| token["id"] == audit["token_id"]), "{tokens} {audit}");
    let [created] = &events(&server, "wide", "run.created")[..] else { panic!() };
    assert_eq!(created["audit"]["can_answer"], true);
}

#[test]
fn rules_of_the_settings_decide_for_every_caller_and_say_so() {
    let home = Home::new();
    let settings = "[[agents.reviewer.permissions]]\nname = \"edits\"\nkind = \"edit\"\ndecision = \"allow\"\n";
    let server = serve(&home, settings);
    let runs = token(&server, &["read", "run"]);
    let run = ["run", "reviewer", "permission:edit:/a", "--thread", "t", "--token", &runs];
    let ran = server.run(&run).expect(0);
    assert!(ran.out.contains("permission: once"), "{}", ran.out);
    let [event] = &events(&server, "t", "interrupt.rule_applied")[..] else { panic!() };
    assert_eq!(event["origin"], "settings");
    let [line] = &audits(&home.log(), "rule_applied")[..] else { panic!("{}", home.log()) };
    assert!(line["detail"].as_str().unwrap().contains("origin settings"), "{line}");
}

#[test]
fn a_request_over_the_network_works_below_the_roots_of_its_agent() {
    let home = Home::new();
    let work = home.work().canonicalize().unwrap();
    let server = serve(&home, "");
    let outside = tempfile::tempdir().unwrap();
    let outside = outside.path().canonicalize().unwrap();
    std::fs::create_dir(work.join("inner")).unwrap();
    symlink(&outside, work.join("link")).unwrap();
    symlink("inner", work.join("alias")).unwrap();
    let state = home.state().canonicalize().unwrap();
    let secret = std::fs::read_to_string(server.token_file()).unwrap();
    let at = |folder: &std::path::Path| json!({ "cwd": folder }).to_string();
    let opened = || -> Vec<String> {
        let record = std::fs::read_to_string(work.join("record")).unwrap_or_default();
        let lines = record.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let new = lines.filter(|line| line["method"] == "session/new");
        new.map(|line| line["params"]["cwd"].as_str().unwrap().to_owned()).collect()
    };
    for folder in [
        std::path::Path::new("/etc"),
        std::path::Path::new("/"),
        &outside,
        &outside.join("missing"),
        &work.join("link"),
        &work.join("link/deeper"),
        &work.join("inner/../../.."),
        &work.join("missing/../../.."),
        &state,
        &state.join("tokens"),
    ] {
        for told in run_everywhere(&home, &server, secret.trim(), &json!({ "cwd": folder })) {
            assert!(told.contains("agents.reviewer.roots"), "{folder:?}: {told}");
        }
    }
    assert_eq!(opened(), [""; 0], "no session was opened in any of them");
    for (folder, real) in [(work.join("inner"), "inner"), (work.join("alias"), "inner")] {
        server.run(&["run", "reviewer", "say:hi", "--config", &at(&folder)]).expect(0);
        assert_eq!(opened().last().unwrap(), work.join(real).to_str().unwrap());
    }
    // A program of the server's user opens a folder over the local socket, for its own principal.
    let mut command = server.command(&["run", "reviewer", "say:hi"]);
    command.current_dir(&outside);
    finish(command, "").expect(0);
    assert_eq!(opened().last().unwrap(), outside.to_str().unwrap());
    let other = ["token", "create", "--label", "o", "--principal", "other", "--json"];
    let other = server.run(&[&other[..], &["--right", "read", "--right", "run"]].concat());
    let other = other.expect(0).json()["secret"].as_str().unwrap().to_owned();
    let run = ["run", "reviewer", "say:hi", "--config", &at(&outside), "--token", &other];
    server.run(&run).complains(5, "agents.reviewer.roots");
    // The state folder is never allowed.
    let mut command = server.command(&["run", "reviewer", "say:hi", "--cwd", "."]);
    command.current_dir(&state);
    assert!(finish(command, "").err.contains("agents.reviewer.roots"));
    drop(server);

    let settings = format!("roots = [\"inner\", {outside:?}]");
    let server = serve(&home, &settings);
    let secret = std::fs::read_to_string(server.token_file()).unwrap();
    for told in run_everywhere(&home, &server, secret.trim(), &json!({ "cwd": work })) {
        assert!(told.contains("agents.reviewer.roots"), "{told}");
    }
    server.run(&["run", "reviewer", "say:hi", "--config", &at(&outside)]).expect(0);
    drop(server);

    // Roots around the state folder do not open it.
    let above = work.parent().unwrap();
    let server = serve(&home, &format!("roots = [{above:?}]"));
    let secret = std::fs::read_to_string(server.token_file()).unwrap();
    for folder in [&state, &state.join("tokens")] {
        for told in run_everywhere(&home, &server, secret.trim(), &json!({ "cwd": folder })) {
            assert!(told.contains("agents.reviewer.roots"), "{folder:?}: {told}");
        }
    }
    server.run(&["run", "reviewer", "say:hi", "--config", &at(above)]).expect(0);
}

#[test]
fn an_agent_gets_no_file_of_its_server() {
    let home = Home::new();
    let secret = home.write("nats", "nats://127.0.0.1:4222");
    let settings = format!("files = \"write\"\n[cluster]\nnats_file = {secret:?}\n");
    let server = serve_on(&home, &settings, "sqlite:t.db");
    server.run(&["run", "reviewer", "say:precious", "--thread", "t"]).expect(0);
    let work = home.work().canonicalize().unwrap();
    let files = ["t.db", "t.db-wal", "t.db.commits", "trilogue.toml", "nats"];
    let before = |name: &str| std::fs::read(work.join(name)).unwrap();
    let kept = ["trilogue.toml", "nats"].map(before);
    let named = work.display();
    let lines = |word: &str, end: &str| -> Vec<String> {
        files.iter().map(|file| format!("{word}:{named}/{file}{end}")).collect()
    };
    let script = [lines("write", ":x"), lines("read", "")].concat().join("\n");
    let caller = token(&server, &["read", "run"]);
    let config = json!({ "cwd": work }).to_string();
    let run = ["run", "reviewer", &script, "--config", &config, "--token", &caller];
    let told = server.run(&run).expect(0).out;
    for word in ["write", "read"] {
        let refused = told.matches(&format!("{word} failed: -32602")).count();
        assert_eq!(refused, files.len(), "{told}");
    }
    assert_eq!(["trilogue.toml", "nats"].map(before), kept);
    let shown = server.run(&["threads", "show", "t"]).expect(0).out;
    assert!(shown.contains("precious"), "{shown}");
    // Everything else in the folder is the agent's.
    let own = format!("write:{named}/own.txt:mine");
    server.run(&["run", "reviewer", &own, "--config", &config, "--token", &caller]).expect(0);
    assert_eq!(std::fs::read_to_string(work.join("own.txt")).unwrap(), "mine");
}

#[test]
fn a_queued_run_starts_only_in_a_folder_that_is_still_allowed() {
    let home = Home::new();
    let work = home.work().canonicalize().unwrap();
    std::fs::create_dir(work.join("inner")).unwrap();
    let start = |roots: &str| serve_on(&home, roots, "sqlite:queued.db");
    let later = |server: &Server, seconds: u64| -> String {
        let secret = std::fs::read_to_string(server.token_file()).unwrap();
        let config = json!({ "configurable": { "cwd": work.join("inner") } });
        let message = json!([{ "role": "user", "content": "say:hi" }]);
        let body = json!({ "agent_id": "reviewer", "after_seconds": seconds, "on_completion": "keep", "input": { "messages": message }, "config": config });
        let made = post(&home, server, secret.trim(), "/connect/runs", &body);
        let made: Value = serde_json::from_str(&made).unwrap();
        made["run_id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned()
    };
    let ended = |server: &Server, run: &str| {
        let events = server.run(&["tail", run, "--follow", "--json"]).lines();
        events.last().unwrap()["outcome"].clone()
    };
    let server = start("");
    let allowed = later(&server, 0);
    assert_eq!(ended(&server, &allowed)["status"], "completed");
    // The run comes to a server with other roots, as by a restored store.
    let run = later(&server, 3);
    assert!(server.stop(rustix::process::Signal::TERM).success());
    let server = start("roots = [\"elsewhere\"]");
    let outcome = ended(&server, &run);
    assert_eq!(outcome["error"]["code"], "forbidden", "{outcome}");
    assert!(outcome.to_string().contains("agents.reviewer.roots"), "{outcome}");
    assert!(server.stop(rustix::process::Signal::TERM).success());

    // What a program of one principal opens on this machine is not accepted for a run of another.
    let outside = tempfile::tempdir().unwrap();
    let server = start(&format!("roots = [{:?}]", outside.path()));
    let (other, _) = token_of(&server, "other", &["read", "run"]);
    let body = json!({ "agent_id": "reviewer", "after_seconds": 8, "on_completion": "keep",
        "input": { "messages": [{ "role": "user", "content": "say:hi" }] },
        "config": { "configurable": { "cwd": outside.path() } } });
    let made: Value =
        serde_json::from_str(&post(&home, &server, &other, "/connect/runs", &body)).unwrap();
    let run = made["run_id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    assert!(server.stop(rustix::process::Signal::TERM).success());
    let server = start("roots = [\"elsewhere\"]");
    let mut opened = server.command(&["run", "reviewer", "say:hi", "--thread", "opened"]);
    opened.current_dir(outside.path());
    finish(opened, "").expect(0);
    let outcome = ended(&server, &run);
    assert_eq!(outcome["error"]["code"], "forbidden", "{outcome}");
}

/// Sessions in three folders, of which a link replaces two while no server runs, one that a program opened elsewhere on this machine, and one whose further folder a link replaces.
#[test]
fn a_session_opens_again_only_in_a_folder_that_is_still_allowed() {
    let home = Home::new();
    let work = home.work().canonicalize().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let run = |server: &Server, thread: &str, config: &Value| -> Value {
        let secret = std::fs::read_to_string(server.token_file()).unwrap();
        let body = json!({ "agent": "reviewer", "input": "say:hi", "thread_id": thread, "create_thread": true, "config": config, "mode": "wait" });
        let ended = post(&home, server, secret.trim(), "/api/v1/runs", &body);
        serde_json::from_str(&ended).unwrap_or_else(|_| panic!("{ended}"))
    };
    let opened =
        || std::fs::read_to_string(work.join("record")).unwrap().matches("\"cwd\"").count();
    let run_outside = |server: &Server| {
        let mut command = server.command(&["run", "reviewer", "say:hi", "--thread", "outside"]);
        command.current_dir(outside.path());
        finish(command, "").expect(0);
    };
    let server = serve_on(&home, "", "sqlite:again.db");
    for folder in ["swapped", "state", "kept"] {
        std::fs::create_dir(work.join(folder)).unwrap();
        let ended = run(&server, folder, &json!({ "cwd": work.join(folder) }));
        assert_eq!(ended["status"], "completed", "{ended}");
    }
    run_outside(&server);
    // An editor on this machine opens one with a further folder.
    std::fs::create_dir(work.join("further")).unwrap();
    let mut editor = Editor::launch_initialized(&home, &["connect", "reviewer"]);
    let folders = json!({ "cwd": work.join("kept"), "mcpServers": [], "additionalDirectories": [work.join("further")] });
    let session = editor.ask("session/new", folders)["result"]["sessionId"].clone();
    let session = session.as_str().unwrap().to_owned();
    editor.turn(&session, "say:hi");
    drop(editor);
    let ended = run(&server, &session, &json!({}));
    assert_eq!(ended["status"], "completed", "{ended}");
    server.run(&["backup", "b.db"]).expect(0);
    assert!(server.stop(rustix::process::Signal::TERM).success());
    for (link, target) in
        [("swapped", outside.path()), ("state", &*home.state()), ("further", outside.path())]
    {
        std::fs::remove_dir(work.join(link)).unwrap();
        symlink(target, work.join(link)).unwrap();
    }
    home.run(&["restore", "b.db", "--to", "restored.db"]).expect(0);
    let database = empty_database();
    let again = format!("sqlite:{}", work.join("again.db").display());
    home.run(&["copy", &again, &database, "--with-runs"]).expect(0);
    for (store, refused) in [
        ("sqlite:again.db", &["swapped", "state", &session][..]),
        // A file can say of any folder that a program on this machine has opened it.
        ("sqlite:restored.db", &["swapped", "state", "outside", &session]),
        (&database, &["swapped", "state", "outside", &session]),
    ] {
        let server = serve_on(&home, "", store);
        let before = opened();
        for &thread in refused {
            let ended = run(&server, thread, &json!({}));
            assert_eq!(ended["outcome"]["error"]["code"], "forbidden", "{store} {thread}: {ended}");
            assert!(ended.to_string().contains("agents.reviewer.roots"), "{ended}");
        }
        assert_eq!(opened(), before, "no session was opened in any of them");
        let ended = run(&server, "kept", &json!({}));
        assert_eq!(ended["status"], "completed", "{store}: {ended}");
        if refused.contains(&"outside") {
            run_outside(&server);
        }
        let ended = run(&server, "outside", &json!({}));
        assert_eq!(ended["status"], "completed", "{store}: {ended}");
        assert!(server.stop(rustix::process::Signal::TERM).success());
    }
    let server = serve_on(&home, "roots = [\"elsewhere\"]", "sqlite:again.db");
    let ended = run(&server, "kept", &json!({}));
    assert_eq!(ended["outcome"]["error"]["code"], "forbidden", "{ended}");
}

/// Another principal can choose the id of a thread that a restore took away.
#[test]
fn a_thread_made_after_a_restore_has_a_folder_that_no_thread_had() {
    let home = Home::new();
    let start = || serve_on(&home, "cwd = \"folders/{thread}\"", "sqlite:keys.db");
    let server = start();
    server.run(&["backup", "b.db"]).expect(0);
    let work_in_thread = |server: &Server| -> Vec<std::path::PathBuf> {
        server.run(&["run", "reviewer", "say:hi", "--thread", "again"]).expect(0);
        let folders = std::fs::read_dir(home.work().join("folders")).unwrap();
        folders.map(|entry| entry.unwrap().path()).collect()
    };
    assert_eq!(work_in_thread(&server).len(), 1);
    assert!(server.stop(rustix::process::Signal::TERM).success());
    for expected in [2, 3] {
        home.run(&["restore", "b.db", "--to", "keys.db", "--force"]).expect(0);
        let server = start();
        assert_eq!(work_in_thread(&server).len(), expected);
        assert!(server.stop(rustix::process::Signal::TERM).success());
    }
}

#[test]
fn settings_of_an_editor_cannot_be_written_over_the_network() {
    let home = Home::new();
    let server = serve(&home, "");
    let runs = token(&server, &["read", "run", "answer"]);
    let post = |path: &str, body: &Value| post(&home, &server, &runs, path, body);
    post("/api/v1/threads", &json!({ "id": "own" }));
    for member in ["trilogue.config", "trilogue.cwd", "trilogue.additional_directories"] {
        let metadata = json!({ member: { "permissions": [{ "decision": "allow" }] } });
        let told = post("/api/v1/threads", &json!({ "metadata": metadata }));
        assert!(told.contains("forbidden") && told.contains(member), "{told}");
        let change = json!({ "metadata": metadata });
        let told = send(&home, &server, &runs, "PATCH", "/api/v1/threads/own", &change);
        assert!(told.contains("forbidden") && told.contains(member), "{told}");
        let told = post("/connect/threads", &json!({ "metadata": metadata }));
        assert!(told.contains(member), "{told}");
        let run = json!({ "agent": "reviewer", "input": "hi", "create_thread": true, "thread_metadata": metadata });
        let told = post("/api/v1/runs", &run);
        assert!(told.contains("forbidden") && told.contains(member), "{told}");
    }
    // The right `server` allows it, and an audit line says who did it.
    let log = home.log();
    assert_eq!(audits(&log, "editor_settings_written").len(), 0, "{log}");
    let (operator, id) = token_of(&server, "owner", &["read", "run", "server"]);
    let change = json!({ "metadata": { "trilogue.config": { "mode": "ask" } } });
    let told = send(&home, &server, &operator, "PATCH", "/api/v1/threads/own", &change);
    assert!(!told.contains("forbidden"), "{told}");
    let log = home.log();
    let [written] = &audits(&log, "editor_settings_written")[..] else { panic!("{log}") };
    assert_eq!(written["subject"], "own");
    assert_eq!((&written["principal"], &written["token"]), (&json!("owner"), &json!(id)));
}

#[test]
fn a_saved_configuration_holds_only_what_its_writer_may_give() {
    let home = Home::new();
    let server = serve(&home, "");
    let secret = |principal: &str, rights: &[&str]| {
        let rights = rights.iter().flat_map(|right| ["--right", right]);
        let create = ["token", "create", "--label", "t", "--principal", principal, "--json"];
        let create: Vec<_> = create.into_iter().chain(rights).collect();
        let made = server.run(&create).expect(0).json();
        made["secret"].as_str().unwrap().to_owned()
    };
    // What the agent can be configured with is known when it has started.
    server.run(&["run", "reviewer", "say:hi"]).expect(0);
    let other = secret("other", &["read", "run"]);
    let owner = secret("owner", &["read", "run", "answer"]);
    let all = "/connect/agents/reviewer/configurations";
    let config = |config: &Value| json!({ "config": { "configurable": config } });
    let saved = post(&home, &server, &owner, all, &config(&json!({ "mode": "ask" })));
    let saved: Value = serde_json::from_str(&saved).unwrap();
    let path_of = |saved: &Value| format!("{all}/{}", saved["configuration_id"].as_str().unwrap());
    let path = path_of(&saved);
    let own = post(&home, &server, &other, all, &config(&json!({ "mode": "ask" })));
    let own = path_of(&serde_json::from_str(&own).unwrap());
    for wide in [
        json!({ "permissions": [{ "decision": "allow" }] }),
        json!({ "mode": "bypassPermissions" }),
        json!({ "cwd": "/etc" }),
    ] {
        let made = post(&home, &server, &other, all, &config(&wide));
        let is_refused = |told: &str| told.contains("'answer'") || told.contains(".roots`");
        assert!(is_refused(&made), "{wide}: {made}");
        let changed = send(&home, &server, &other, "PATCH", &own, &config(&wide));
        assert!(is_refused(&changed), "{wide}: {changed}");
    }
    let kept = send(&home, &server, &owner, "GET", &path, &Value::Null);
    assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), saved);
    // Without the right `answer` it narrows, but only its own.
    let deny = json!({ "permissions": [{ "decision": "deny" }] });
    let changed = send(&home, &server, &other, "PATCH", &own, &config(&deny));
    assert!(changed.contains("deny"), "{changed}");
    for method in ["PATCH", "DELETE"] {
        let refused = send(&home, &server, &other, method, &path, &config(&deny));
        assert!(refused.contains("'admin'"), "{method}: {refused}");
    }
    let allow = json!({ "permissions": [{ "decision": "allow" }] });
    let changed = send(&home, &server, &owner, "PATCH", &path, &config(&allow));
    assert!(changed.contains("allow"), "{changed}");
    let run = json!({ "configuration_id": saved["configuration_id"], "input": { "messages": [{ "role": "user", "content": "say:x" }] } });
    let refused = post(&home, &server, &other, "/connect/runs", &run);
    assert!(refused.contains("lacks the right 'answer'"), "{refused}");
    send(&home, &server, &owner, "DELETE", &path, &Value::Null);

    let log = home.log();
    for change in ["created", "changed", "removed"] {
        let lines = audits(&log, &format!("configuration_{change}"));
        let found = lines.iter().any(|line| {
            line["subject"] == saved["configuration_id"] && line["principal"] == "owner"
        });
        assert!(found, "{change}: {log}");
    }
}

#[test]
fn what_is_removed_and_written_for_an_editor_is_in_the_log() {
    let home = Home::new();
    let server = serve(&home, "");
    let secret = std::fs::read_to_string(server.token_file()).unwrap();
    let secret = secret.trim();
    let run = |thread: &str, more: &Value| {
        let mut body = json!({ "agent": "reviewer", "input": "say:x", "thread_id": thread, "create_thread": true, "mode": "async" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let told = post(&home, &server, secret, "/api/v1/runs", &body);
        let told: Value = serde_json::from_str(&told).unwrap();
        told["id"].as_str().unwrap_or_else(|| panic!("{told}")).to_owned()
    };
    let delete = |path: &str| send(&home, &server, secret, "DELETE", path, &Value::Null);
    let native = run("a", &json!({ "mode": "wait" }));
    assert_eq!(delete(&format!("/api/v1/runs/{native}")), "");
    let connect = run("b", &json!({ "mode": "wait" }));
    assert_eq!(delete(&format!("/connect/runs/{connect}")), "");
    let replaced = run("c", &json!({ "input": "permission:edit:/a" }));
    run("c", &json!({ "strategy": "rollback", "mode": "wait" }));
    let settings = json!({ "metadata": { "trilogue.config": { "mode": "ask" } } });
    send(&home, &server, secret, "PATCH", "/api/v1/threads/a", &settings);
    let log = home.log();
    let removed = audits(&log, "run_removed");
    for (run, how) in [(&native, "deleted"), (&connect, "deleted"), (&replaced, "rolled back for")]
    {
        let line = removed.iter().find(|line| line["subject"] == **run);
        let line = line.unwrap_or_else(|| panic!("{run}: {log}"));
        assert_eq!(line["principal"], "owner");
        assert!(line["token"].is_string(), "{line}");
        assert!(line["detail"].as_str().unwrap().contains(how), "{line}");
    }
    let [written] = &audits(&log, "editor_settings_written")[..] else { panic!("{log}") };
    assert_eq!(written["subject"], "a");
}
