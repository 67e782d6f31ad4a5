//! A hosted agent's titles of its sessions, in listings.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent_client_examples::example;
use crate::connect_editor::Editor;
use crate::harness::{Home, Server};

fn serve(home: &Home) -> Server {
    let (agent, store) = (example("scripted_agent"), home.work().join("kept.db"));
    let store = format!("sqlite:{}", store.display());
    let config = format!(
        "[store]\nurl = {store:?}\n[agents.reviewer]\nkind = \"agent-client\"\ncommand = [{:?}]\n",
        agent.to_str().unwrap()
    );
    let config = home.write("trilogue.toml", &config);
    home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"])
}

fn call(title: &Value) -> String {
    format!("raw:{}", json!({ "sessionUpdate": "session_info_update", "title": title }))
}

/// The session in the list of a new editor.
fn listed(home: &Home, session: &str) -> Value {
    let mut editor = Editor::launch_initialized(home, &["connect", "reviewer"]);
    let answer = editor.ask("session/list", json!({}));
    let sessions = answer["result"]["sessions"].as_array().unwrap();
    sessions.iter().find(|it| it["sessionId"] == session).unwrap().clone()
}

#[test]
fn a_session_is_listed_as_its_agent_calls_it_after_a_crash_too() {
    let home = Home::new();
    let server = serve(&home);
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "reviewer"]);
    let new = listed(&home, &session);
    assert_eq!(new.get("title"), None, "{new}");
    editor.turn(&session, &call(&json!("A title")));
    let called = listed(&home, &session);
    assert_eq!(called["title"], "A title");
    assert_ne!(called["updatedAt"], new["updatedAt"]);
    let shown = server.run(&["threads"]).expect(0).out;
    assert!(shown.contains("TITLE") && shown.contains("A title"), "{shown}");
    let shown = server.run(&["threads", "show", &session]).expect(0).out;
    assert!(shown.contains("title: A title\n"), "{shown}");
    drop(editor);
    server.stop(Signal::KILL);
    let server = serve(&home);
    assert_eq!(listed(&home, &session)["title"], "A title");
    server.run(&["run", "reviewer", &call(&Value::Null), "--thread", &session]).expect(0);
    let again = listed(&home, &session)["title"].clone();
    assert!(again.as_str().unwrap().starts_with("raw:"), "the first message: {again}");
}

#[test]
fn a_title_is_the_first_line_of_the_first_message_and_never_made_of_the_servers_own_words() {
    let home = Home::new();
    let server = serve(&home);
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "reviewer"]);
    editor.turn(&session, "\n say:Mend the  build\nsay:and more");
    let first = "say:Mend the build";
    assert_eq!(listed(&home, &session)["title"], first);
    for title in [
        "Earlier in this conversation: User: say:Mend the build",
        "“Earlier in this conv…”",
        "The first messages of this conversation are left out here",
    ] {
        let told = editor.turn(&session, &call(&json!(title)));
        assert!(!told.iter().any(|line| line.contains("\"title\"")), "{told:?}");
        assert_eq!(listed(&home, &session)["title"], first);
    }
    let shown = server.run(&["threads", "show", &session]).expect(0).out;
    assert!(shown.contains(&format!("title: {first}\n")), "{shown}");
    editor.turn(&session, &call(&json!("Earlier")));
    assert_eq!(listed(&home, &session)["title"], "Earlier");
}

#[test]
fn editors_get_no_title_of_the_agent_after_a_client_has_set_one() {
    let home = Home::new();
    let _server = serve(&home);
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "reviewer"]);
    let has = |lines: &[String], title: &str| lines.iter().any(|line| line.contains(title));
    assert!(has(&editor.turn(&session, &call(&json!("Of the agent"))), "\"Of the agent\""));
    let title = json!({ "sessionId": session, "title": "Of the client" });
    editor.ask("session/set_title", title);
    let told = editor.turn(&session, &format!("{}\nsay:done", call(&json!("Later"))));
    assert!(!has(&told, "\"title\":\"Later\"") && has(&told, "done"), "{told:?}");
    let mut next = Editor::launch_initialized(&home, &["connect", "reviewer"]);
    let loaded = next.load(&session);
    let titles = loaded.iter().filter(|line| line.contains("session_info_update"));
    let titles: Vec<_> = titles.filter(|line| line.contains("\"title\"")).collect();
    assert!(titles.last().is_some_and(|line| line.contains("Of the client")), "{loaded:?}");
    assert!(!has(&loaded, "\"title\":\"Later\""), "{loaded:?}");
    assert_eq!(listed(&home, &session)["title"], "Of the client");
}
