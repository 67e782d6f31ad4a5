//! `trilogue run`, `chat` and `agents` through Trilogue's own Agent Connect Protocol mount.

use crate::cli_protocols::CONNECT;
use crate::harness::demo;

const THREAD: &str = "87cd7dc0-0000-4000-8000-000000000002";

#[test]
fn events_are_the_protocols_own_and_a_thread_is_a_thread() {
    let (home, server) = demo();
    let arguments = ["run", "echo", "one", "--thread", THREAD, "--json"];
    let events = CONNECT.run(&home, &server, &arguments).expect(0).lines();
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["status"]), (&"values".into(), &"success".into()));
    assert_eq!(last["values"]["message"], "one");
    let ends = events.iter().filter(|event| event["status"] != "pending").count();
    assert_eq!(ends, 1, "{events:#?}");
    server.run(&["run", "echo", "two", "--thread", THREAD]).expect(0);
    CONNECT.run(&home, &server, &["run", "echo", "three", "--thread", THREAD]).expect(0);
    let shown = server.run(&["threads", "show", THREAD]).expect(0).out;
    assert!(["one", "two", "three"].iter().all(|text| shown.contains(text)), "{shown}");
    let started = CONNECT.run(&home, &server, &["run", "echo", "later", "--no-wait"]).expect(0).out;
    let found = server.run(&["runs", "show", started.trim()]).expect(0);
    assert!(found.out.contains("echo"), "{}", found.out);
}

#[test]
fn agents_are_listed_and_described() {
    let (home, server) = demo();
    let listed = CONNECT.run(&home, &server, &["agents"]).expect(0).out;
    assert!(listed.contains("org.agntcy.mailcomposer") && listed.contains("echo"), "{listed}");
    let ids = CONNECT.run(&home, &server, &["agents", "-q"]).expect(0).out;
    let id = ids.lines().next().unwrap();
    CONNECT.run(&home, &server, &["run", id, "by its id"]).expect(0);
    let shown = CONNECT.run(&home, &server, &["agents", "org.agntcy.mailcomposer"]).expect(0).out;
    assert!(shown.contains("asks: mail_send_approval"), "{shown}");
    let shown = CONNECT.run(&home, &server, &["agents", "mailcomposer", "--json"]).expect(0).json();
    assert_eq!(shown["metadata"]["ref"]["name"], "org.agntcy.mailcomposer");
    CONNECT.run(&home, &server, &["agents", "nobody"]).expect(4);
}

#[test]
fn input_and_config_are_checked_against_the_schemas() {
    let (home, server) = demo();
    for wrong in [r#"{"style":"rude"}"#, r#"{"configurable":{"style":"rude"}}"#] {
        let ended = CONNECT.run(&home, &server, &["run", "mailcomposer", "x", "--config", wrong]);
        ended.complains(2, "style");
    }
    CONNECT.run(&home, &server, &["run", "mailcomposer", "--input", r#"{"message":7}"#]).expect(2);
    let formal = ["run", "mailcomposer", "Hello", "--config", r#"{"style":"formal"}"#];
    CONNECT.run(&home, &server, &formal).expect(0);
}
