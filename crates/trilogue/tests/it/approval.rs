//! Runs that wait for an answer, and answers from another process.

use serde_json::json;

use crate::agent_client_examples::example;
use crate::cli_protocols::MAIL;
use crate::harness::{Home, Server, demo};

pub(crate) fn start_waiting_run(server: &Server) -> (String, String) {
    let ended = server.run(&["run", "mailcomposer", MAIL, "--json"]).expect(3);
    let events = ended.lines();
    let raised = events.iter().find(|event| event["type"] == "interrupt.raised").unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    (text(&raised["run_id"]), text(&raised["interrupt"]["id"]))
}

#[test]
fn a_run_that_waits_names_the_command_that_answers_it() {
    let (_home, server) = demo();
    let ended = server.run(&["run", "mailcomposer", MAIL]).expect(3);
    assert!(ended.err.contains("ada@example.com"), "what is decided is shown: {}", ended.err);
    let inbox = server.run(&["inbox", "-q"]).expect(0).out;
    let id = inbox.trim();
    assert!(ended.err.contains(&format!("trilogue approve {id}")), "{}", ended.err);
    // Without a person to ask, nothing is approved unless an option approves it.
    for input in ["", "y\n", "yes\n\n"] {
        let ended = server.run_with(&["approve", id], input).expect(2);
        assert!(ended.err.contains("ada@example.com"), "what is decided is shown: {ended:?}");
        assert!(ended.err.contains("hint: pass --yes"), "{ended:?}");
    }
    assert_eq!(server.run(&["inbox", "-q"]).expect(0).out.trim(), id);
    server.run(&["approve", id, "--yes"]).expect(0);
    assert_eq!(server.run(&["inbox", "-q"]).expect(0).out, "");
    server.run(&["approve", id]).complains(7, "was answered before");
    server.run(&["approve", id, "--yes"]).complains(7, "was answered before");
    server.run(&["approve", "nothing"]).expect(4);
}

#[test]
fn an_answer_from_another_process_lets_the_run_go_on() {
    let (_home, server) = demo();
    let (run, interrupt) = start_waiting_run(&server);
    let resolved = server.run(&["approve", &interrupt, "--yes", "--json"]).expect(0).json();
    assert_eq!(resolved["resolution"]["answer"]["value"], json!({"approved": true}));
    let events = server.run(&["tail", &run, "--follow", "--json"]).expect(0).lines();
    assert_eq!(events.last().unwrap()["outcome"]["status"], "completed");
}

#[test]
fn a_rejection_carries_its_reason() {
    let (_home, server) = demo();
    let (run, interrupt) = start_waiting_run(&server);
    server.run(&["approve", &interrupt, "--value", "{\"approved\": 3}"]).expect(2);
    // A reason alone neither approves nor rejects.
    let refused = server.run(&["approve", &interrupt, "--message", "no, never"]).expect(2);
    assert!(refused.err.contains("--reject"), "{refused:?}");
    server.run(&["approve", &interrupt, "--reject", "--message", "too early"]).expect(0);
    let ended = server.run(&["tail", &run, "--follow"]).expect(0);
    assert!(ended.out.contains("too early"), "{}", ended.out);
}

#[test]
fn the_mail_composer_remembers_the_turn_before() {
    let (_home, server) = demo();
    server.run(&["run", "mailcomposer", MAIL, "--thread", "m"]).expect(3);
    let inbox = server.run(&["inbox", "-q", "--thread", "m"]).expect(0).out;
    let ended = server.run(&["approve", inbox.trim(), "--yes"]).expect(0);
    let run = server.run(&["runs", "-q", "--thread", "m"]).expect(0).out;
    server.run(&["tail", run.trim(), "--follow"]).expect(0);
    let shown = server.run(&["threads", "show", "m"]).expect(0).out;
    assert!(shown.contains("Friday"), "{shown} {ended:?}");
}

#[test]
fn a_plain_yes_or_no_never_decides_about_later_calls() {
    let home = Home::new();
    let agent = example("scripted_agent");
    let config = format!(
        "[store]\nurl = \"memory:\"\n\n[agents.chooser]\nkind = \"agent-client\"\ncommand = [{:?}]\n",
        agent.to_str().unwrap()
    );
    let config = home.write("trilogue.toml", &config);
    let server =
        home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    for (offered, plain, option) in [
        ("allow_always,reject_once", "--yes", "allow_always"),
        ("allow_once,reject_always", "--reject", "reject_always"),
    ] {
        let line = format!("choose:{offered}");
        server.run(&["run", "chooser", &line, "--thread", option]).expect(3);
        let waiting = server.run(&["inbox", "-q", "--thread", option]).expect(0).out;
        let id = waiting.trim();
        let refused = server.run(&["approve", id, plain]).expect(2);
        assert!(refused.err.contains(&format!("--option {option}")), "{refused:?}");
        let still = server.run(&["inbox", "-q", "--thread", option]).expect(0).out;
        assert_eq!(still, waiting, "the question stays open");
        let answered = server.run(&["approve", id, "--option", option, "--json"]).expect(0).json();
        assert_eq!(answered["resolution"]["answer"]["option"], option, "{answered}");
    }
    // An option for this call only is preferred, wherever it stands.
    let line = "choose:allow_always,allow_once,reject_once";
    server.run(&["run", "chooser", line, "--thread", "both"]).expect(3);
    let waiting = server.run(&["inbox", "-q", "--thread", "both"]).expect(0).out;
    let answered = server.run(&["approve", waiting.trim(), "--yes", "--json"]).expect(0).json();
    assert_eq!(answered["resolution"]["answer"]["option"], "allow_once", "{answered}");
}
