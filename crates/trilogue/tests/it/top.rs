//! The live screen.

use unicode_width::UnicodeWidthStr as _;

use crate::approval::start_waiting_run;
use crate::harness::{demo, until};
use crate::nodes::Nodes;
use crate::terminal::{DECISION, REASON, Screen};

/// The rows of the last complete picture, without control sequences.
fn picture(seen: &str) -> Vec<String> {
    let last = seen.rsplit("\u{1b}[H").find(|frame| frame.contains("\u{1b}[J"));
    let frame = last.unwrap_or_default().split("\u{1b}[J").next().unwrap_or_default();
    frame.split("\r\n").map(|row| row.replace("\u{1b}[K", "").trim_end().to_owned()).collect()
}

#[test]
fn the_screen_fits_and_answers_cancels_and_opens() {
    let (_home, server) = demo();
    server.run(&["run", "echo", &"Minutes of the meeting ".repeat(9), "--thread", "m"]).expect(0);
    let (run, question) = start_waiting_run(&server);
    for columns in [80, 120] {
        let mut command = server.command(&["top", "--every", "1s"]);
        command.env("NO_COLOR", "1");
        let mut screen = Screen::of_columns(command, columns);
        screen.wait_for("q leave");
        screen.wait_for("\u{1b}[J");
        let rows = picture(&screen.seen());
        assert!(rows.iter().all(|row| row.width() <= columns.into()), "{rows:#?}");
        assert!(rows.len() <= 24, "{rows:#?}");
        for text in [
            "1 question, 0 streams, ",
            "connections",
            "Questions (1)",
            "Runs (2)",
            "Threads (2)",
            "streams",
        ] {
            assert!(rows.iter().any(|row| row.contains(text)), "{text}: {rows:#?}");
        }
        assert!(!rows[0].contains('…'), "{}", rows[0]);
        let marked: Vec<_> = rows.iter().filter(|row| row.starts_with('›')).collect();
        assert!(marked.len() == 1 && marked[0].contains(&question[24..32]), "{rows:#?}");
        screen.press("q");
        let seen = screen.end_well();
        assert!(
            seen.ends_with("\u{1b}[?1049l\u{1b}[?2004l"),
            "the terminal is as before: {seen:?}"
        );
    }
    let mut screen = Screen::of_columns(server.command(&["top", "--every", "1s"]), 100);
    screen.wait_for("q leave");
    // Enter opens the marked question.
    screen.press("\r");
    screen.answer(DECISION, "y\r");
    screen.answer(REASON, "\r");
    screen.wait_for("answered");
    until(|| server.run(&["runs", "show", &run]).out.contains("completed").then_some(()));
    let (second, _) = start_waiting_run(&server);
    screen.wait_for("Questions (1)");
    // The list of runs begins with the running one; the mark stays on its run.
    screen.press("\t\u{1b}[Ac");
    screen.wait_for("Cancel the run");
    screen.press("n");
    screen.wait_for("nothing was cancelled");
    screen.press("c");
    screen.wait_for("Cancel the run");
    screen.press("y");
    screen.wait_for("cancelling");
    until(|| server.run(&["runs", "show", &second]).out.contains("cancelled").then_some(()));
    screen.wait_for("Questions (0)");
    screen.press("\t\r");
    screen.wait_for("Enter goes back");
    screen.press("\r");
    screen.wait_for("q leave");
    screen.press("\u{3}");
    screen.end_well();
}

#[test]
fn servers_that_share_a_store_have_a_list_and_threads_name_theirs() {
    let nodes = Nodes::start();
    nodes.first().run(&["run", "echo", "Hello", "--thread", "m"]).expect(0);
    let mut command = nodes.first().command(&["top", "--every", "1s"]);
    command.env("NO_COLOR", "1");
    let mut screen = Screen::of_columns(command, 100);
    screen.wait_for("Nodes (2)");
    for words in
        [["south", "alive", "researcher"], ["north", "this one", "0"], ["m", "north", "Hello"]]
    {
        // The next heartbeat brings the owner of a thread.
        let has_words = |row: &String| words.iter().all(|word| row.contains(word));
        until(|| picture(&screen.seen()).iter().any(has_words).then_some(()));
    }
    screen.press("q");
    screen.end_well();
}

#[test]
fn without_a_terminal_it_names_the_other_commands() {
    let (_home, server) = demo();
    server.run(&["top"]).complains(2, "hint: read the same with `trilogue status`");
}
