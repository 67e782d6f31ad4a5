//! `trilogue run` through Trilogue's own Agent Communication Protocol mount.

use rustix::process::Signal;
use serde_json::Value;

use crate::cli_protocols::COMMUNICATION;
use crate::harness::{Home, demo, lasting_address};

const SESSION: &str = "87cd7dc0-0000-4000-8000-000000000001";

#[test]
fn events_are_the_protocols_own_and_the_session_is_a_thread() {
    let (home, server) = demo();
    let arguments = ["run", "echo", "one", "--thread", SESSION, "--json"];
    let events = COMMUNICATION.run(&home, &server, &arguments).expect(0).lines();
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "run.created",
            "run.in-progress",
            "message.created",
            "message.part",
            "message.completed",
            "run.completed"
        ]
    );
    assert_eq!(events[0]["run"]["session_id"], SESSION);
    server.run(&["run", "echo", "two", "--thread", SESSION]).expect(0);
    let shown = server.run(&["threads", "show", SESSION]).expect(0).out;
    assert!(shown.contains("one") && shown.contains("two"), "{shown}");
}

#[test]
fn each_protocol_has_an_address_of_its_own() {
    let (home, server) = demo();
    COMMUNICATION.run(&home, &server, &["agents"]).complains(1, "served at another address");
}

#[test]
fn a_stream_goes_on_after_the_server_was_killed() {
    let home = Home::new();
    let address = lasting_address();
    let start = || home.start(&["demo", "--listen", &address]);
    let server = start();
    let mut screen = COMMUNICATION.ask(&home, &server);
    let inbox = server.run(&["inbox", "-q"]).expect(0).out;
    server.stop(Signal::KILL);
    let server = start();
    // Another command answers the question after the restart, and the terminal withdraws it.
    let other = ["approve", inbox.trim(), "--reject", "--message", "after the kill"];
    server.run(&other).expect(0);
    screen.wait_for("the question is closed");
    let seen = screen.end_well();
    assert!(seen.contains("after the kill"), "{seen}");
}

#[test]
fn a_server_of_ours_speaks_its_own_protocol_where_it_has_both_at_one_address() {
    let home = Home::new();
    let server = home.start(&["demo", "--listen", "127.0.0.1:0", "--mount", "communication=/"]);
    let kind = |arguments: &[&str]| -> Value {
        server.run(arguments).expect(0).lines().pop().unwrap()["type"].clone()
    };
    assert_eq!(kind(&["run", "echo", "x", "--json"]), "run.ended");
    let communication = ["run", "echo", "x", "--json", "--protocol", "communication"];
    assert_eq!(kind(&communication), "run.completed");
}
