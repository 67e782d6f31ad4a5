//! Tests each exit code that the page documents.

use rustix::process::Signal;

use crate::agent_client_cli::serve;
use crate::cli_protocols::MAIL;
use crate::harness::{Home, Server, demo, lasting_address, until};
use crate::terminal::Screen;

/// The codes in the table of the page.
fn documented() -> Vec<i32> {
    let page = include_str!("../../../../docs/cli.md");
    let table = page.split("## Exit codes").nth(1).unwrap().split("\n## ").next().unwrap();
    let cells = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    cells.filter_map(|cell| cell.parse().ok()).collect()
}

/// A run that waits on a terminal until it is cancelled.
fn slow_run(server: &Server, thread: &str) -> Screen {
    let screen = Screen::start(server.command(&["run", "plain", "slow", "--thread", thread]));
    until(|| {
        let runs = server.run(&["runs", "-q", "--thread", thread, "--status", "running"]);
        (!runs.out.is_empty()).then_some(())
    });
    screen
}

#[test]
fn every_exit_code_of_the_page_comes_as_it_says() {
    let home = Home::new();
    let server = serve(&home);
    let mut seen = Vec::new();
    let mut check = |code: i32, arguments: &[&str]| {
        let ended = server.run(arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {ended:?}");
        seen.push(code);
    };
    check(0, &["run", "plain", "say:hi"]);
    check(1, &["run", "plain", "error:-32603:broken"]);
    check(2, &["run", "plain", "say:hi", "--allow", "reed"]);
    check(3, &["run", "plain", "permission:edit:/tmp/a"]);
    check(4, &["run", "nobody", "say:hi"]);
    check(4, &["threads", "show", "no-such-thread"]);
    check(5, &["run", "plain", "say:hi", "--token", "wrong"]);
    // A denied call ends the turn only if the agent stops because of it.
    for stop in ["refusal", "cancelled"] {
        let prompt = format!("permission:edit:/tmp/a\nstop:{stop}");
        check(5, &["run", "plain", &prompt, "--deny", "edit"]);
    }
    check(0, &["run", "plain", "permission:edit:/tmp/a", "--deny", "edit"]);
    check(0, &["run", "plain", "permission:edit:/tmp/a\nstop:refusal", "--allow", "edit"]);
    let elsewhere = format!("http://{}", lasting_address());
    check(6, &["threads", "--url", &elsewhere]);
    let question = server.run(&["inbox", "-q"]).expect(0).out;
    check(0, &["approve", question.trim(), "--reject"]);
    check(7, &["approve", question.trim(), "--reject"]);

    let screen = slow_run(&server, "cancelled");
    let run = server.run(&["runs", "-q", "--thread", "cancelled"]).expect(0).out;
    server.run(&["cancel", run.trim()]).expect(0);
    assert_eq!(screen.end().0, Some(8));
    let screen = slow_run(&server, "interrupted");
    screen.signal(Signal::INT);
    assert_eq!(screen.end().0, Some(130));
    seen.extend([8, 130]);

    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, documented());
}

#[test]
fn a_person_who_denies_a_call_ends_the_turn_with_the_same_code() {
    let home = Home::new();
    let server = serve(&home);
    let prompt = "permission:edit:/tmp/a\nstop:cancelled";
    let mut screen = Screen::start(server.command(&["run", "plain", prompt]));
    screen.answer("choose: ", "n\r");
    let (code, seen) = screen.end();
    assert_eq!(code, Some(5), "{seen}");
    assert!(seen.contains("a call was denied"), "{seen}");
    // A form is not a call, so its rejection is an ordinary answer.
    let (_home, demo) = demo();
    let mut screen = Screen::start(demo.command(&["run", "mailcomposer", MAIL]));
    screen.answer("yes, no or later: ", "n\r");
    screen.answer("answer (Enter leaves it out): ", "\r");
    screen.end_well();
}
