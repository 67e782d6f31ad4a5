//! Tables on terminals of several widths, and their short ids.

use serde_json::json;
use unicode_width::UnicodeWidthStr as _;

use crate::approval::start_waiting_run;
use crate::connect_editor::Editor;
use crate::harness::{Server, demo};
use crate::terminal::Screen;

/// A command's output on a terminal of this width.
fn seen(server: &Server, arguments: &[&str], columns: u16) -> Vec<String> {
    let mut command = server.command(arguments);
    command.env("NO_COLOR", "1");
    let screen = Screen::of_columns(command, columns);
    screen.end_well().lines().map(|line| line.trim_end().to_owned()).collect()
}

/// The last characters of a UUID, as tables show it.
fn short(id: &str) -> &str {
    &id[24..32]
}

#[test]
fn tables_fit_the_terminal_and_show_what_a_person_needs() {
    let (_home, server) = demo();
    let title = "Summarise the minutes of the last meeting and name everybody who promised anything, with dates and places";
    server.run(&["run", "echo", title]).expect(0);
    server.run(&["run", "echo", "短い題", "--thread", "kurz"]).expect(0);
    let (run, interrupt) = start_waiting_run(&server);
    let threads = server.run(&["threads", "-q"]).expect(0).out;
    let titled = threads.lines().last().unwrap();
    for columns in [80, 120, 40, 12] {
        for list in ["threads", "runs", "inbox", "agents", "token list"] {
            let lines = seen(&server, &list.split(' ').collect::<Vec<_>>(), columns);
            let table = lines.iter().filter(|line| !line.starts_with("hint: "));
            for line in table {
                assert!(line.width() <= columns.into(), "{list} {columns}: {lines:#?}");
            }
        }
    }
    for columns in [80, 120] {
        let lines = seen(&server, &["threads"], columns);
        assert!(lines[0].starts_with("THREAD") && !lines[0].contains("METADATA"), "{lines:#?}");
        assert_eq!(lines.len(), 4, "one line for each: {lines:#?}");
        assert!(lines[3].starts_with(short(titled)), "{lines:#?}");
        assert!(lines[3].contains("Summarise the minutes") && lines[3].contains('…'), "{lines:#?}");
        assert!(lines[2].starts_with("kurz ") && lines[2].contains("短い題"), "{lines:#?}");
        let runs = seen(&server, &["runs"], columns);
        assert!(runs[1].starts_with(short(&run)), "{runs:#?}");
        assert!(runs[1].contains("just now") || runs[1].contains(" s ago"), "{runs:#?}");
        let inbox = seen(&server, &["inbox"], columns);
        assert!(inbox[1].starts_with(short(&interrupt)), "{inbox:#?}");
        assert_eq!(inbox[2], "hint: answer it with `trilogue approve`");
    }
    // Programs get the complete output, and so do users who ask for it.
    let piped = server.run(&["runs"]).expect(0).out;
    assert!(piped.contains(&run) && piped.contains("Z "), "{piped}");
    let wide = seen(&server, &["runs", "--wide"], 80).join("\n");
    assert!(wide.contains(&run) && wide.contains("Z "), "{wide}");
    assert!(server.run(&["threads"]).expect(0).out.contains("METADATA"));
}

#[test]
fn an_empty_list_says_so() {
    let (_home, server) = demo();
    for (list, none) in
        [("threads", "no threads"), ("runs", "no runs"), ("inbox", "no question is open")]
    {
        assert_eq!(seen(&server, &[list], 80), [none]);
    }
}

#[test]
fn what_is_not_found_says_what_lists_it() {
    let (_home, server) = demo();
    for (command, list) in [
        (["threads", "show", "none"], "hint: list the threads with `trilogue threads`"),
        (["runs", "show", "none"], "hint: list the runs with `trilogue runs`"),
        (["approve", "none", "--yes"], "hint: list the open questions with `trilogue inbox`"),
    ] {
        server.run(&command).complains(4, list);
    }
    let waiting = ["runs", "--status", "waiting"];
    server.run(&waiting).complains(2, "error: unknown run status 'waiting'\nhint: a status is one");
}

#[test]
fn an_id_is_named_by_what_its_table_shows() {
    let (_home, server) = demo();
    let (run, interrupt) = start_waiting_run(&server);
    let thread = server.run(&["threads", "-q"]).expect(0).out.trim().to_owned();
    let shown = server.run(&["runs", "show", short(&run)]).expect(0).out;
    assert!(shown.contains(&format!("run: {run}\n")), "{shown}");
    for id in [short(&thread), &thread[..30], &short(&thread)[..4]] {
        let shown = server.run(&["threads", "show", id]).expect(0).out;
        assert!(shown.contains(&thread), "{shown}");
        assert_eq!(server.run(&["runs", "-q", "--thread", id]).expect(0).out.trim(), run);
        assert_eq!(server.run(&["inbox", "-q", "--thread", id]).expect(0).out.trim(), interrupt);
        let first = server.run(&["tail", id]).expect(0).out;
        assert!(first.contains("thread.created"), "{first}");
        let export = server.run(&["threads", "export", id]).expect(0).out;
        assert!(export.contains(&thread), "{export}");
    }
    let of_run = server.run(&["tail", short(&run)]).expect(0).out;
    assert!(of_run.contains("run.created") && !of_run.contains("thread.created"), "{of_run}");
    // A short id continues its conversation, and another name begins a new thread.
    server.run(&["approve", short(&interrupt), "--yes"]).expect(0);
    server.run(&["tail", short(&run), "--follow"]).expect(0);
    server.run(&["run", "echo", "x", "--thread", short(&thread)]).expect(0);
    server.run(&["run", "echo", "x", "--thread", "lunch"]).expect(0);
    assert_eq!(server.run(&["threads", "-q"]).expect(0).out, format!("lunch\n{thread}\n"));
    let token = server.run(&["token", "create", "--label", "phone", "--json"]).expect(0).json();
    let token = token["token"]["id"].as_str().unwrap();
    let revoked = server.run(&["token", "revoke", short(token)]).expect(0).err;
    assert!(revoked.contains(token), "{revoked}");
    let erased = server.run(&["threads", "erase", short(&thread), "--yes"]).expect(0).err;
    assert!(erased.contains(&thread), "{erased}");
    server.run(&["runs", "show", short(&run)]).complains(4, short(&run));
    // A shorter prefix matches nothing, so that a typing error cannot name a thread.
    server.run(&["threads", "show", "lun"]).complains(4, "lun");
}

#[test]
fn a_message_is_named_by_what_tail_shows() {
    let (_home, server) = demo();
    server.run(&["run", "echo", "first", "--thread", "t"]).expect(0);
    server.run(&["run", "echo", "second", "--thread", "t"]).expect(0);
    let events = server.run(&["tail", "t", "--json"]).expect(0).lines();
    let of_user = |event: &&serde_json::Value| event["role"] == "user";
    let messages: Vec<_> = events.iter().filter(of_user).collect();
    let id = messages[1]["message_id"].as_str().unwrap();
    let shown = seen(&server, &["tail", "t"], 120).join("\n");
    assert!(shown.contains(&format!("{}  second", short(id))) && !shown.contains(id), "{shown}");
    assert!(server.run(&["tail", "t"]).expect(0).out.contains(id));
    for id in [id, short(id)] {
        let from = server.run(&["tail", "t", "--from", id]).expect(0).out;
        assert!(from.contains("second") && !from.contains("first"), "{from}");
    }
    let first = short(messages[0]["message_id"].as_str().unwrap());
    server.run(&["threads", "copy", "t", "--until", first, "--id", "c"]).expect(0);
    let copy = server.run(&["threads", "show", "c"]).expect(0).out;
    assert!(copy.contains("first") && !copy.contains("second"), "{copy}");
    server.run(&["tail", "t", "--from", "nothing-like-it"]).expect(4);
}

#[test]
fn a_message_whose_short_id_is_a_number_is_no_position() {
    const ID: &str = "9b1deb4d-3b7d-4bad-9bdd-13735651cb6d";
    let (home, server) = demo();
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "echo"]);
    editor.turn(&session, "first");
    let prompt = json!([{ "type": "text", "text": "second" }]);
    let params = json!({ "sessionId": session, "messageId": ID, "prompt": prompt });
    assert_eq!(editor.ask("session/prompt", params)["result"]["userMessageId"], ID);
    let from = server.run(&["tail", &session, "--from", short(ID)]).expect(0).out;
    assert!(from.contains("second") && !from.contains("first"), "{from}");
    server.run(&["tail", &session, "--from", "13735652"]).expect(2);
}

#[test]
fn what_is_ambiguous_is_named() {
    let (_home, server) = demo();
    for thread in ["lunch-1", "lunch-2", "dinner"] {
        server.run(&["run", "echo", &format!("About {thread}"), "--thread", thread]).expect(0);
    }
    let refused = server.run(&["threads", "erase", "lunch", "--yes"]).expect(2).err;
    assert!(
        refused.contains(
            "several threads match 'lunch':\n  lunch-1  About lunch-1\n  lunch-2  About lunch-2\n"
        ),
        "{refused}"
    );
    assert!(refused.contains("hint: type more of the id"), "{refused}");
    assert!(server.run(&["tail", "dinn"]).expect(0).out.contains("About dinner"));
    // The exact id of an existing thread means that thread.
    server.run(&["run", "echo", "x", "--thread", "lunch"]).expect(0);
    let shown = server.run(&["threads", "show", "lunch"]).expect(0).out;
    assert!(shown.contains("thread: lunch\n"), "{shown}");
}

#[test]
fn the_only_question_needs_no_name() {
    let (_home, server) = demo();
    server.run(&["approve", "--yes"]).complains(4, "no question is open");
    let (run, _) = start_waiting_run(&server);
    server.run(&["approve", "--yes"]).expect(0);
    server.run(&["tail", &run, "--follow"]).expect(0);
    let (first, second) = (start_waiting_run(&server).1, start_waiting_run(&server).1);
    let refused = server.run(&["approve", "--yes"]).expect(2).err;
    assert!(refused.contains(&first) && refused.contains(&second), "{refused}");
    assert!(refused.contains("mailcomposer mail_send_approval"), "{refused}");
    assert_eq!(server.run(&["inbox", "-q"]).expect(0).out.lines().count(), 2);
}
