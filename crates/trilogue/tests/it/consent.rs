//! Input that answers a question at the terminal, and input that does not: early keys, pasted text, a word for a later question.

use serde_json::{Value, json};

use crate::agent_client_cli::serve;
use crate::approval::start_waiting_run;
use crate::cli_protocols::{COMMUNICATION, CONNECT, MAIL, NATIVE};
use crate::harness::{Home, Server, demo, until};
use crate::terminal::{DECISION, REASON, Screen};

const CHOOSE: &str = "choose: ";

/// The number of open questions.
fn open(server: &Server) -> usize {
    server.run(&["inbox", "-q"]).expect(0).out.lines().count()
}

/// The answers to the questions of a thread.
fn answers(server: &Server, thread: &str) -> Vec<Value> {
    let events = server.run(&["tail", thread, "--json"]).expect(0).lines();
    let resolved = events.iter().filter(|event| event["type"] == "interrupt.resolved");
    resolved.map(|event| event["resolution"]["answer"]["value"].clone()).collect()
}

/// Rejects the mail at its prompt; before that, nothing must be decided.
fn reject(screen: &mut Screen, server: &Server) {
    screen.wait_for(DECISION);
    assert_eq!(open(server), 1, "decided already: {}", screen.seen());
    screen.press("no\r");
    screen.wait_for(REASON);
    assert_eq!(open(server), 1, "decided already: {}", screen.seen());
    screen.press("not today\r");
}

#[test]
fn keys_that_were_pressed_before_a_question_do_not_answer_it() {
    let (_home, server) = demo();
    let rejected = json!({"approved": false, "reason": "not today"});

    let mut screen =
        Screen::start(server.command(&["run", "mailcomposer", MAIL, "--thread", "run"]));
    screen.press("y\r\ryes please\r");
    reject(&mut screen, &server);
    screen.end_well();
    assert_eq!(answers(&server, "run"), std::slice::from_ref(&rejected));

    let mut screen = Screen::start(server.command(&["chat", "mailcomposer", "--thread", "chat"]));
    screen.wait_for("> ");
    screen.press(&format!("{MAIL}\ry\r\r"));
    reject(&mut screen, &server);
    screen.answer("> ", "/quit\r");
    screen.end_well();
    assert_eq!(answers(&server, "chat"), [rejected]);

    let (_, interrupt) = start_waiting_run(&server);
    let mut screen = Screen::start(server.command(&["approve", &interrupt]));
    screen.press("y\r\r");
    reject(&mut screen, &server);
    screen.end_well();
    assert_eq!(open(&server), 0);
}

#[test]
fn keys_that_were_pressed_before_a_permission_choose_nothing() {
    let home = Home::new();
    let server = serve(&home);
    let mut screen = Screen::start(server.command(&["run", "plain", "permission:edit:/tmp/a"]));
    // Down and Enter, in several encodings.
    screen.press("\u{1b}[B\r\u{1b}OB\r1\r\ry\r");
    screen.wait_for(CHOOSE);
    assert_eq!(open(&server), 1, "{}", screen.seen());
    // Keys without a meaning, Enter alone, and unassigned letters select nothing either.
    screen.press("\u{1b}[3~\r");
    screen.wait_for("choose first: with the arrows, first letters or a number from 1 to");
    screen.answer(CHOOSE, "zz\r");
    screen.wait_for("type a number from 1 to");
    assert_eq!(open(&server), 1, "{}", screen.seen());
    screen.answer(CHOOSE, "3\r");
    assert!(screen.end_well().contains("permission: no"));
}

#[test]
fn a_permission_is_chosen_with_arrows_letters_and_yes_or_no() {
    let home = Home::new();
    let server = serve(&home);
    let choose = |keys: &[&str], columns| {
        let arguments = ["run", "plain", "permission:edit:/tmp/a"];
        let mut screen = Screen::of_columns(server.command(&arguments), columns);
        screen.wait_for(CHOOSE);
        keys.iter().for_each(|keys| screen.press(keys));
        screen.end_well()
    };
    for columns in [80, 120] {
        let seen = choose(&["\u{1b}[B", "\u{1b}[B\r"], columns);
        assert!(seen.contains("permission: once"), "{seen}");
        assert!(seen.contains("› 2  allows this call | "), "the mark is seen: {seen}");
    }
    assert!(choose(&["y\r"], 80).contains("permission: once"));
    assert!(choose(&["n\r"], 80).contains("permission: no"));
    // Up from no selection selects the last entry, which leaves the question open; one further up is the last option.
    assert!(choose(&["\u{1b}OA\u{1b}[A\r"], 80).contains("permission: no"));
    // A terminal without control sequences gets none, and reads lines.
    let command = server.command(&["run", "plain", "permission:edit:/tmp/a"]);
    let mut screen = Screen::on(command, "dumb");
    screen.answer(CHOOSE, "y\r");
    let seen = screen.end_well();
    assert!(seen.contains("permission: once") && !seen.contains("\u{1b}[J"), "{seen}");
}

/// A prompt for a command whose middle, the text `HIDDEN`, is far from both ends.
fn long_command() -> String {
    let padding = "echo nothing to see; ".repeat(80);
    let command = format!("echo BEGIN; {padding}rm -rf HIDDEN\u{202e}; {padding}echo END");
    let call = json!({
        "toolCallId": "long", "title": "List files", "kind": "execute",
        "rawInput": { "command": command },
    });
    format!("may:allow_once,reject_once:{call}")
}

#[test]
fn a_long_command_is_not_approved_before_all_of_it_was_shown() {
    let home = Home::new();
    let server = serve(&home);
    let prompt = long_command();
    let hidden = |screen: &mut Screen| {
        screen.wait_for("tool: List files");
        screen.wait_for("echo BEGIN; echo");
        screen.wait_for("rows are hidden");
        screen.wait_for("echo END");
        assert!(!screen.seen().contains("HIDDEN"), "{}", screen.seen());
    };
    let cue = "hidden rows, later leaves the question open: ";
    let all = |screen: &mut Screen| {
        screen.answer(cue, "\r");
        screen.wait_for(r"HIDDEN\u{202e};");
        screen.wait_for("echo END");
    };
    let run = ["run", "plain", &prompt];
    let mut screen = Screen::of_columns(server.command(&run), 80);
    hidden(&mut screen);
    for answer in ["y\r", "yes\r", "1\r"] {
        screen.answer(cue, answer);
        screen.wait_for("first press Enter");
        assert_eq!(open(&server), 1, "{}", screen.seen());
    }
    all(&mut screen);
    screen.answer(CHOOSE, "y\r");
    assert!(screen.end_well().contains("permission: allow_once"));

    let mut screen = Screen::of_columns(server.command(&["chat", "plain", "--thread", "c"]), 80);
    screen.answer("> ", &format!("{prompt}\r"));
    screen.wait_for("rows are hidden");
    screen.answer(cue, "later\r");
    let (code, seen) = screen.end();
    assert_eq!(code, Some(3), "{seen}");
    assert_eq!(open(&server), 1);

    let mut top = server.command(&["top", "--every", "1s"]);
    top.env("NO_COLOR", "1");
    let mut screen = Screen::of_columns(top, 80);
    screen.answer("q leave", "a");
    hidden(&mut screen);
    screen.answer(cue, "\u{1b}");
    screen.answer("the question stays open", "q");
    screen.end_well();

    let mut screen = Screen::of_columns(server.command(&["approve"]), 80);
    hidden(&mut screen);
    all(&mut screen);
    screen.answer(CHOOSE, "n\r");
    screen.end_well();
    assert_eq!(open(&server), 0);

    // Without a terminal, the whole question is printed.
    let shown = server.run(&run).expect(3).err;
    assert!(
        shown.contains(r"rm -rf HIDDEN\u{202e}; echo") && shown.contains("echo END"),
        "{shown}"
    );
}

#[test]
fn a_question_that_fits_the_screen_needs_no_key_more() {
    let (_home, server) = demo();
    let (_, interrupt) = start_waiting_run(&server);
    let mut screen = Screen::of_columns(server.command(&["approve", &interrupt]), 80);
    screen.wait_for(DECISION);
    assert!(!screen.seen().contains("hidden"), "{}", screen.seen());
    screen.press("n\r");
    screen.answer(REASON, "\r");
    screen.end_well();
}

#[test]
fn a_decision_needs_the_enter_key() {
    let (_home, server) = demo();
    let (run, interrupt) = start_waiting_run(&server);
    let mut screen = Screen::start(server.command(&["approve", &interrupt]));
    screen.answer(DECISION, "y");
    // The echo shows that the key has arrived; the test then deletes it.
    screen.wait_for("y");
    assert_eq!(open(&server), 1);
    screen.press("\u{7f}n\r");
    screen.answer(REASON, "two words\u{17}lines\r");
    screen.end_well();
    assert_eq!(answers(&server, &run), [json!({"approved": false, "reason": "two lines"})]);
}

#[test]
fn pasted_text_decides_nothing() {
    let (_home, server) = demo();
    let (run, interrupt) = start_waiting_run(&server);
    let mut screen = Screen::start(server.command(&["approve", &interrupt]));
    screen.wait_for("\u{1b}[?2004h");
    for pasted in [
        // Pasted text from a terminal that marks it, and from one that does not.
        "\u{1b}[200~yes\ry\rtrilogue approve it --yes\r\u{1b}[201~",
        "\u{1b}[200~yes\u{1b}[201~",
        "y\ry\rtrilogue approve it --yes\r",
    ] {
        screen.answer(DECISION, pasted);
        screen.wait_for("pasted text is not accepted");
        assert_eq!(open(&server), 1, "{}", screen.seen());
    }
    screen.answer(DECISION, "n\r");
    // A reason may be pasted, and still needs Enter.
    screen.answer(REASON, "\u{1b}[200~from a note\r\u{1b}[201~");
    screen.wait_for("from a note");
    assert_eq!(open(&server), 1, "{}", screen.seen());
    screen.press("\r");
    screen.end_well();
    assert_eq!(answers(&server, &run), [json!({"approved": false, "reason": "from a note"})]);
}

#[test]
fn a_question_can_be_left_for_later() {
    let (_home, server) = demo();
    for keys in ["later\r", "\u{1b}", "\u{4}"] {
        let mut screen = Screen::start(server.command(&["run", "mailcomposer", MAIL]));
        screen.answer(DECISION, keys);
        let (code, seen) = screen.end();
        assert_eq!(code, Some(3), "{seen}");
        let open = server.run(&["inbox", "-q"]).expect(0).out;
        let interrupt = open.trim();
        let short = &interrupt[24..32];
        assert!(seen.contains(&format!("trilogue approve {short}`")), "{seen}");
        let mut screen = Screen::start(server.command(&["approve", interrupt]));
        screen.answer(DECISION, keys);
        let (code, seen) = screen.end();
        assert_eq!(code, Some(3), "{seen}");
        assert!(seen.contains("stays open"), "{seen}");
        assert!(seen.contains(&format!("trilogue approve {short}`")), "{seen}");
        // The same in the middle of a form: a partial form decides nothing.
        let mut screen = Screen::start(server.command(&["approve", interrupt]));
        screen.answer(DECISION, "y\r");
        screen.answer(REASON, "\u{1b}");
        assert_eq!(screen.end().0, Some(3));
        assert_eq!(server.run(&["inbox", "-q"]).expect(0).out.trim(), interrupt);
        server.run(&["approve", interrupt, "--reject"]).expect(0);
    }
    let mut screen = Screen::start(server.command(&["chat", "mailcomposer"]));
    screen.answer("> ", &format!("{MAIL}\r"));
    screen.answer(DECISION, "later\r");
    let (code, seen) = screen.end();
    assert_eq!(code, Some(3), "{seen}");
    assert_eq!(open(&server), 1);
}

#[test]
fn choices_are_shown_and_answered_by_value_title_or_number() {
    let home = Home::new();
    let server = serve(&home);
    let chosen = |said: &str, tone: &str| {
        let content = format!(r#""content":{{"tone":"{tone}"}}"#);
        assert!(said.contains(&content), "{tone}: {said}");
    };
    for (keys, tone) in [("2\r", "warm"), ("very dry\r", "dry"), ("warm\r", "warm")] {
        let mut screen = Screen::start(server.command(&["run", "plain", "ask-choice"]));
        screen.wait_for(r"| Tone\u{200b} of voice");
        screen.wait_for("1  | Very dry (dry)");
        screen.wait_for("2  | Warm (warm)");
        screen.answer(CHOOSE, keys);
        chosen(&screen.end_well(), tone);
    }
    for (option, tone) in [("dry", "dry"), ("Warm", "warm"), ("1", "dry")] {
        server.run(&["run", "plain", "ask-choice", "--thread", option]).expect(3);
        let waiting = server.run(&["inbox", "-q"]).expect(0).out;
        let waiting = waiting.trim();
        server.run(&["approve", waiting, "--option", "3"]).complains(2, "from 1 to 2");
        server.run(&["approve", waiting, "--option", option]).expect(0);
        let run = server.run(&["runs", "-q", "--thread", option]).expect(0).out;
        chosen(&server.run(&["tail", run.trim(), "--follow"]).expect(0).out, tone);
    }
    // A form without fields only asks for consent.
    for (keys, action) in [("y\r", "accept"), ("n\r", "decline")] {
        let mut screen = Screen::start(server.command(&["run", "plain", "ask-consent"]));
        screen.answer(DECISION, keys);
        let seen = screen.end_well();
        assert!(seen.contains(&format!(r#""action":"{action}""#)), "{seen}");
    }
    until(|| (open(&server) == 0).then_some(()));
}

#[test]
fn a_question_that_is_answered_elsewhere_lets_go_of_the_terminal() {
    let (home, server) = demo();
    for face in [NATIVE, COMMUNICATION, CONNECT] {
        let mut screen = face.ask(&home, &server);
        screen.wait_for(DECISION);
        // A partial answer is not an answer.
        screen.press("n");
        let question = server.run(&["inbox", "-q"]).expect(0).out;
        server.run(&["approve", question.trim(), "--yes"]).expect(0);
        screen.wait_for("the question is closed");
        let seen = screen.end_well();
        assert!(!seen.contains("waiting: "), "{face:?}: {seen}");
        assert_eq!(open(&server), 0);
    }
    let (run, interrupt) = start_waiting_run(&server);
    let mut screen = Screen::start(server.command(&["approve", &interrupt]));
    screen.wait_for(DECISION);
    server.run(&["approve", &interrupt, "--reject"]).expect(0);
    let (code, seen) = screen.end();
    assert_eq!(code, Some(7), "{seen}");
    assert!(seen.contains("answered the question elsewhere"), "{seen}");
    assert_eq!(answers(&server, &run), [json!({"approved": false})]);
    // Cancelling a run also withdraws its question.
    let mut screen = NATIVE.ask(&home, &server);
    screen.wait_for(DECISION);
    let run = server.run(&["runs", "--status", "interrupted", "-q"]).expect(0).out;
    server.run(&["cancel", run.trim()]).expect(0);
    screen.wait_for("the run has been cancelled");
    let (code, seen) = screen.end();
    assert_eq!(code, Some(8), "{seen}");
}

#[test]
fn an_untouched_form_is_no_answer() {
    let home = Home::new();
    let server = serve(&home);
    // Each field is required or has a default: neither counts before the person enters a value.
    let form = json!({ "type": "object", "properties": {
        "copies": { "type": "integer", "default": 2 },
        "loud": { "type": "boolean", "default": true },
        "tone": { "type": "string", "enum": ["dry", "warm"], "default": "warm" },
    }});
    let prompt = format!("form:{form}");
    let ask = |server: &Server| {
        let mut screen = Screen::start(server.command(&["run", "plain", &prompt]));
        screen.answer("(Enter takes 2): ", "\r");
        screen.answer(DECISION, "\r");
        screen.answer(CHOOSE, "\r");
        screen.wait_for("nothing was entered");
        screen.wait_for("send it like this? yes or later: ");
        assert_eq!(open(server), 1, "{}", screen.seen());
        screen
    };
    let mut screen = ask(&server);
    // Enter alone does not send it either.
    screen.press("\r");
    screen.wait_for("type yes or later");
    screen.answer("send it like this? yes or later: ", "\u{1b}");
    let (code, seen) = screen.end();
    assert_eq!(code, Some(3), "{seen}");
    let question = server.run(&["inbox", "-q"]).expect(0).out;
    server.run(&["approve", question.trim(), "--reject"]).expect(0);
    let mut screen = ask(&server);
    screen.press("yes\r");
    let seen = screen.end_well();
    assert!(seen.contains("\"copies\":2"), "{seen}");
}
