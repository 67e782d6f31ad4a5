//! Each command against a server.

use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cli_protocols::MAIL;
use crate::harness::{Home, demo, lasting_address, until};

#[test]
fn agents_lists_and_describes() {
    let (_home, server) = demo();
    let ended = server.run(&["agents"]).expect(0);
    for agent in trilogue::BUILTIN_AGENTS {
        assert!(ended.out.contains(agent), "{}", ended.out);
    }
    assert_eq!(server.run(&["agents", "-q"]).expect(0).out.lines().count(), 4);
    let list = server.run(&["agents", "--json"]).expect(0).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 4);
    let one = server.run(&["agents", "mailcomposer", "--json"]).expect(0).json();
    assert_eq!(one["name"], "mailcomposer");
    // The server's host name means the same server and the same token.
    let by_name = server.url().replace("127.0.0.1", "localhost");
    server.run(&["agents", "--url", &by_name]).expect(0);
    let ended = server.run(&["agents", "ecko"]).expect(4);
    assert!(ended.err.contains("ecko") && ended.err.contains("hint: "), "{}", ended.err);
}

#[test]
fn run_says_what_the_agent_says_and_keeps_the_thread() {
    let (_home, server) = demo();
    let ended = server.run(&["run", "echo", "Grüße", "--thread", "t1"]).expect(0);
    assert!(ended.out.contains("Grüße"), "{ended:?}");
    let ended = server.run_with(&["run", "echo", "-", "--thread", "t1"], "from a pipe\n").expect(0);
    assert!(ended.out.contains("from a pipe"), "{ended:?}");
    let ended = server.run_with(&["run", "echo", "--thread", "t1"], "left out\n").expect(0);
    assert!(ended.out.contains("left out"), "{ended:?}");
    let shown = server.run(&["threads", "show", "t1"]).expect(0).out;
    for text in ["Grüße", "from a pipe", "left out"] {
        assert!(shown.contains(text), "{shown}");
    }
    assert_eq!(server.run(&["threads", "-q"]).expect(0).out, "t1\n");
    server.run(&["run", "echo", "x", "--ephemeral"]).expect(0);
    assert_eq!(server.run(&["threads", "-q"]).expect(0).out, "t1\n");
    assert_eq!(server.run(&["runs", "-q", "--thread", "t1"]).expect(0).out.lines().count(), 3);
    server.run(&["run", "nobody", "x"]).expect(4);
    server.run(&["run", "echo", "x", "--config", "{"]).expect(2);
}

#[test]
fn json_gives_the_events_as_the_server_sent_them() {
    let (_home, server) = demo();
    let events = server.run(&["run", "echo", "hi", "--thread", "t", "--json"]).expect(0).lines();
    assert_eq!(events[0]["type"], "run.created");
    assert_eq!(events.last().unwrap()["type"], "run.ended");
    let numbers: Vec<_> =
        events.iter().map(|event| event["run_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    let run = events[0]["run_id"].as_str().unwrap();
    let tailed = server.run(&["tail", run, "--json"]).expect(0).lines();
    assert_eq!(tailed, events);
    let followed = server.run(&["tail", run, "--json", "--follow", "--from", "2"]).expect(0);
    assert_eq!(followed.lines(), events[1..]);
    let thread = server.run(&["tail", "t"]).expect(0).out;
    assert!(thread.contains("thread.created") && thread.contains("run.ended"), "{thread}");
    server.run(&["tail", "nothing"]).expect(4);
}

#[test]
fn threads_are_exported_copied_and_erased() {
    let (_home, server) = demo();
    server.run(&["run", "echo", "keep me", "--thread", "a"]).expect(0);
    let exported = server.run(&["threads", "export", "a"]).expect(0).out;
    assert!(exported.contains("keep me"), "{exported}");
    let copy = server.run(&["threads", "copy", "a", "--id", "b"]).expect(0);
    assert_eq!(copy.out, "b\n");
    server.run(&["threads", "copy", "a", "--id", "b"]).expect(7);
    server.run(&["threads", "erase", "a"]).complains(2, "--yes");
    server.run(&["threads", "erase", "a", "--yes"]).expect(0);
    server.run(&["threads", "show", "a"]).expect(4);
    let shown = server.run(&["threads", "show", "b"]).expect(0).out;
    assert!(shown.contains("keep me"), "{shown}");
    let thread = server.run(&["threads", "show", "b", "--json"]).expect(0).json();
    assert_eq!(thread["id"], "b");
}

#[test]
fn a_whole_conversation_is_shown_oldest_first() {
    let (_home, server) = demo();
    let lines: String = (1..=60).map(|number| format!("word-{number}.\n")).collect();
    // The first line is also the thread's title.
    let lines = format!("A beginning.\n{lines}");
    server.run_with(&["chat", "echo", "--thread", "long"], &lines).expect(0);
    // Each word appears twice: from the user, and from the agent.
    let said = |shown: &str| -> Vec<String> {
        let words = shown.split_whitespace().filter(|word| word.starts_with("word-"));
        words.map(str::to_owned).collect()
    };
    let expected: Vec<_> = (1..=60)
        .flat_map(|number| [format!("word-{number}."), format!("word-{number}.")])
        .collect();
    let shown = server.run(&["threads", "show", "long"]).expect(0);
    assert_eq!(said(&shown.out), expected, "122 messages are more than a page");
    assert!(!shown.err.contains("earlier"), "{}", shown.err);
    let shown = server.run(&["threads", "show", "long", "--limit", "3"]).expect(0);
    assert_eq!(said(&shown.out), expected[117..]);
    assert!(shown.err.contains("the newest 3"), "{}", shown.err);
    assert!(shown.err.contains("`trilogue threads export long"), "{}", shown.err);
    server.run(&["threads", "show", "long", "--limit", "0"]).expect(2);
}

#[test]
fn a_run_in_the_background_can_be_seen_and_cancelled() {
    let (_home, server) = demo();
    let ended = server.run(&["run", "mailcomposer", MAIL, "--no-wait", "--json"]).expect(0);
    let run = ended.json()["id"].as_str().unwrap().to_owned();
    until(|| {
        let shown = server.run(&["runs", "show", &run, "--json"]).expect(0).json();
        (shown["status"] == "interrupted").then_some(())
    });
    let ended = server.run(&["cancel", &run]).expect(0);
    assert_eq!(ended.out, format!("{run}: cancelled\n"));
    server.run(&["cancel", &run]).expect(7);
    let runs = server.run(&["runs", "list", "--status", "cancelled", "--json"]).expect(0).json();
    assert_eq!(runs["items"][0]["id"], json!(run));
    let ended = server.run(&["tail", &run]).expect(0);
    assert!(ended.out.contains("cancelled"), "{}", ended.out);
}

#[test]
fn tokens_are_made_used_limited_and_revoked() {
    let (_home, server) = demo();
    let made = server
        .run(&[
            "token",
            "create",
            "--label",
            "reader",
            "--right",
            "read",
            "--expires",
            "1h",
            "--json",
        ])
        .expect(0)
        .json();
    let secret = made["secret"].as_str().unwrap();
    let with = |arguments: &[&str]| server.run(&[arguments, &["--token", secret]].concat());
    with(&["agents"]).expect(0);
    with(&["run", "echo", "x"]).complains(5, "'run'");
    let listed = server.run(&["token", "list"]).expect(0).out;
    assert!(listed.contains("reader") && !listed.contains(secret), "{listed}");
    server.run(&["token", "revoke", made["token"]["id"].as_str().unwrap()]).expect(0);
    until(|| (with(&["agents"]).code == 5).then_some(()));
    server.run(&["agents", "--token", "wrong"]).expect(5);
    let printed = server.run(&["token", "create", "--label", "other"]).expect(0);
    assert_eq!(printed.out.lines().count(), 1, "{printed:?}");
    let first = std::fs::read_to_string(server.token_file()).unwrap();
    for secret in [printed.out.trim(), secret, first.trim()] {
        let random = secret.strip_prefix("tril_").unwrap();
        assert_eq!(random.len(), 43, "one form for every token");
    }
}

#[test]
fn a_token_file_that_others_can_read_is_replaced_with_a_warning() {
    let home = Home::new();
    let address = lasting_address();
    home.write("t.toml", "[agents.echo]\nkind = \"builtin\"\n");
    let arguments = ["serve", "--config", "t.toml", "--store", "sqlite:t.db", "--listen", &address];
    let server = home.start(&arguments);
    let file = server.token_file();
    let first = std::fs::read_to_string(&file).unwrap();
    server.stop(Signal::TERM);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let server = home.start(&arguments);
    assert_ne!(std::fs::read_to_string(&file).unwrap(), first);
    server.run(&["agents"]).expect(0);
    until(|| home.log().contains("a token file was not used").then_some(()));
    assert!(home.log().contains(file.to_str().unwrap()), "{}", home.log());
}

#[test]
fn status_shows_the_server_and_every_override() {
    let home = Home::new();
    let server = home.start(&["demo", "--listen", "127.0.0.1:0", "--no-auth"]);
    let status = server.run(&["status", "--json"]).expect(0).json();
    assert_eq!(status["durability"], "fsync");
    assert_eq!(status["dangerously"], json!(["server.no_auth"]));
    assert!(!server.token_file().exists());
    let shown = server.run(&["status"]).expect(0).out;
    assert!(shown.contains("override in force: server.no_auth"), "{shown}");
}

#[test]
fn status_names_a_weaker_durability() {
    let home = Home::new();
    home.write("t.toml", "[store]\ndurability = \"buffered\"\n[agents.echo]\nkind = \"builtin\"\n");
    let server = home.start(&["serve", "--config", "t.toml", "--listen", "127.0.0.1:0"]);
    let status = server.run(&["status", "--json"]).expect(0).json();
    assert_eq!(status["durability"], "buffered");
    assert_eq!(status["dangerously"], json!(["store.durability = \"buffered\""]));
    let shown = server.run(&["status"]).expect(0).out;
    assert!(shown.contains("override in force: store.durability = \"buffered\""), "{shown}");
}

#[test]
fn attachments_are_sent_and_artifacts_saved() {
    let (home, server) = demo();
    home.write("note.md", "attached words");
    let ended = server
        .run(&[
            "run",
            "echo",
            "look",
            "--attach",
            "note.md",
            "--attach",
            "https://example.com/a.png",
            "--thread",
            "t",
        ])
        .expect(0);
    assert!(ended.out.contains("look"), "{ended:?}");
    let events = server.run(&["tail", "t", "--json"]).expect(0).lines();
    let parts: Vec<&Value> = events.iter().filter(|it| it["type"] == "message.part").collect();
    assert!(parts.iter().any(|it| it["part"]["content"] == "attached words"), "{parts:?}");
    let address = "https://example.com/a.png";
    assert!(parts.iter().any(|it| it["part"]["content_url"] == address), "{parts:?}");
    std::fs::write(home.work().join("x.bin"), [0xff, 0xd8, 0x00]).unwrap();
    let echoed = ["run", "echo", "look", "--attach", "x.bin", "--attach", "note.md"];
    let echoed = [&echoed[..], &["--attach", address, "--json"]].concat();
    let events = server.run(&echoed).expect(0).lines();
    let run = events.last().unwrap()["run_id"].as_str().unwrap().to_owned();
    let shown = server.run(&["runs", "show", &run, "--json"]).expect(0).json();
    let parts = &shown["output"][0]["parts"];
    assert_eq!(parts[1]["content"], "/9gA");
    assert_eq!(parts[1]["content_encoding"], "base64");
    assert_eq!(parts[1]["content_type"], "application/octet-stream");
    assert_eq!(
        (&parts[2]["name"], &parts[2]["content"]),
        (&json!("note.md"), &json!("attached words"))
    );
    assert_eq!((&parts[3]["content_url"], &parts[3]["content"]), (&json!(address), &Value::Null));

    let question = ["run", "researcher", "How do bees find their way?"];
    let saving = [&question[..], &["--save", "out"]].concat();
    let ended = server.run(&saving).expect(0);
    assert!(ended.out.contains("\nartifact: "), "{}", ended.out);
    let saved: Vec<_> = std::fs::read_dir(home.work().join("out")).unwrap().collect();
    assert!(!saved.is_empty());
    let again = server.run(&saving).expect(1);
    assert!(again.err.contains("exists and was not replaced"), "{}", again.err);
    server.run(&[&saving[..], &["--force"]].concat()).expect(0);
}

#[test]
fn chat_keeps_one_thread() {
    let (_home, server) = demo();
    let ended = server.run_with(&["chat", "echo", "--thread", "c"], "one\n\ntwo\n/quit\nthree\n");
    let ended = ended.expect(0);
    assert!(ended.out.contains("one") && ended.out.contains("two"), "{ended:?}");
    assert!(!ended.out.contains("three"), "{ended:?}");
    assert_eq!(server.run(&["runs", "-q", "--thread", "c"]).expect(0).out.lines().count(), 2);
}

#[test]
fn a_damaged_thread_is_erased_by_its_id_and_by_an_abbreviation() {
    let home = Home::new();
    let store = home.work().join("s.db");
    let url = format!("sqlite:{}", store.display());
    let start = || home.start(&["demo", "--listen", "127.0.0.1:0", "--store", &url]);
    let server = start();
    for thread in ["lunch", "breakfast"] {
        server.run(&["run", "echo", "kept", "--thread", thread]).expect(0);
    }
    assert!(server.stop(Signal::TERM).success());
    let server = start();
    for thread in ["lunch", "breakfast"] {
        server.run(&["run", "echo", "lost", "--thread", thread]).expect(0);
    }
    server.stop(Signal::KILL);
    std::fs::remove_file(home.work().join("s.db-wal")).unwrap();
    let server = start();
    let listed = server.run(&["threads", "--json"]).expect(0).json();
    let damaged = listed["items"].as_array().unwrap();
    assert!(damaged.len() == 2 && damaged.iter().all(|it| it["damage"].is_string()), "{listed}");
    for (name, thread) in [("lunch", "lunch"), ("break", "breakfast")] {
        let erased = server.run(&["threads", "erase", name, "--yes"]).expect(0).err;
        assert!(erased.contains(thread), "{erased}");
        server.run(&["run", "echo", "again", "--thread", thread]).expect(0);
    }
}
