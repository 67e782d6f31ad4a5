//! `trilogue run` against another project's server of the Agent Communication Protocol.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::foreign::{
    Foreign, RUN, Reply, SESSION, awaiting, message, message_events, now, part, run, start_events,
};
use crate::harness::{BINARY, Home, finish, pid, until};
use crate::terminal::Screen;

/// The events of a run that sends this text and completes.
fn whole(text: &str) -> Vec<Value> {
    [start_events(), message_events(text), vec![now("completed")]].concat()
}

fn events_line() -> String {
    format!("GET /runs/{RUN}/events")
}

#[test]
fn an_answer_is_shown_and_the_protocol_found_out() {
    let (home, server) = (Home::new(), Foreign::start());
    server.on_run([Reply::stream(&whole("Grüße"))]);
    let ended = server.run(&home, &["run", "echo", "Hello"]).expect(0);
    assert_eq!((ended.out.as_str(), ended.err.as_str()), ("Grüße\n", ""));
    let sent = server.request_body("POST /runs");
    assert_eq!((&sent["agent_name"], &sent["mode"]), (&json!("echo"), &json!("stream")));
    assert_eq!(sent["input"][0]["parts"][0]["content"], "Hello");
    assert_eq!((&sent["session_id"], &sent["session"]), (&Value::Null, &Value::Null));
    // A trailing slash of the address is ignored.
    let slash = format!("{}/", server.url());
    let mut command = home.program(BINARY);
    command.args(["run", "echo", "Hello", "--url", &slash]);
    assert_eq!(finish(command, "").expect(0).out, "Grüße\n");
}

#[test]
fn each_part_is_printed_once_wherever_the_server_sends_it() {
    let (home, server) = (Home::new(), Foreign::start());
    let message = |texts: &[&str]| {
        let parts: Vec<_> = texts
            .iter()
            .map(|text| json!({ "content_type": "text/plain", "content": text }))
            .collect();
        json!({ "role": "agent/echo", "parts": parts })
    };
    let created = |texts: &[&str]| json!({ "type": "message.created", "message": message(texts) });
    let completed =
        |texts: &[&str]| json!({ "type": "message.completed", "message": message(texts) });
    let part = |text: &str| json!({ "type": "message.part", "part": { "content_type": "text/plain", "content": text } });
    for (events, printed) in [
        (vec![created(&["all at once"]), completed(&["all at once"])], "all at once\n"),
        (vec![created(&[]), completed(&["at the end"])], "at the end\n"),
        (vec![created(&["again"]), part("again"), completed(&["again"])], "again\n"),
        (vec![created(&[]), part("in "), part("pieces"), completed(&["in pieces"])], "in pieces\n"),
        (
            vec![created(&[]), part("begun"), completed(&["begun", " and ended"])],
            "begun and ended\n",
        ),
        (
            vec![created(&["one"]), completed(&["one"]), created(&[]), completed(&["one"])],
            "one\n\none\n",
        ),
    ] {
        let stream = [start_events(), events.clone(), vec![now("completed")]].concat();
        server.on_run([Reply::stream(&stream)]);
        let ended = server.run(&home, &["run", "echo", "x"]).expect(0);
        assert_eq!(ended.out, printed, "{events:?}");
    }
}

#[test]
fn a_server_gets_no_token_that_is_not_its_own() {
    let (home, server) = (Home::new(), Foreign::start());
    let ours = home.demo();
    assert!(ours.token_file().exists());
    server.on_run([Reply::stream(&whole("x"))]);
    server.run(&home, &["run", "echo", "x"]).expect(0);
    let told = |name: &str| {
        server.requests().iter().flat_map(|it| &it.headers).any(|(header, _)| header == name)
    };
    assert!(told("accept") && !told("authorization"), "{:?}", server.requests());
    // A token that the user passes for this server is sent to it.
    server.run(&home, &["run", "echo", "x", "--token", "theirs"]).expect(0);
    assert!(told("authorization"));
}

#[test]
fn json_gives_the_events_as_the_server_sent_them() {
    let (home, server) = (Home::new(), Foreign::start());
    let events = whole("hi");
    server.on_run([Reply::stream(&events)]);
    let ended = server.run(&home, &["run", "echo", "x", "--json"]).expect(0);
    assert_eq!(ended.lines(), events);
    server.on_run([Reply::json(202, &run("created", &Value::Null))]);
    let ended = server.run(&home, &["run", "echo", "x", "--no-wait", "--json"]).expect(0);
    assert_eq!(ended.json(), run("created", &Value::Null));
    let ended = server.run(&home, &["run", "echo", "x", "--no-wait"]).expect(0);
    assert_eq!(ended.out, format!("{RUN}\n"));
    assert_eq!(
        serde_json::from_str::<Value>(&server.requests().pop().unwrap().body).unwrap()["mode"],
        "async"
    );
}

#[test]
fn a_thread_is_a_session_and_must_be_a_uuid() {
    let (home, server) = (Home::new(), Foreign::start());
    server.on_run([Reply::stream(&whole("x"))]);
    let simple = SESSION.replace('-', "").to_uppercase();
    server.run(&home, &["run", "echo", "x", "--thread", &simple]).expect(0);
    assert_eq!(server.request_body("POST /runs")["session_id"], SESSION);
    let ended = server.run(&home, &["run", "echo", "x", "--thread", "mail"]).expect(2);
    assert!(ended.err.contains("--thread mail") && ended.err.contains("UUID"), "{}", ended.err);
    server.run(&home, &["run", "echo", "x", "--ephemeral"]).complains(2, "--ephemeral");
    assert_eq!(server.lines(), ["POST /runs"]);
}

#[test]
fn chat_keeps_one_session() {
    let (home, server) = (Home::new(), Foreign::start());
    let manifest = json!({ "name": "echo", "description": "", "metadata": {},
        "input_content_types": ["*/*"], "output_content_types": ["*/*"] });
    server.on("GET /agents/echo", [Reply::json(200, &manifest)]);
    server.on_run([Reply::stream(&whole("one")), Reply::stream(&whole("two"))]);
    let ended = finish(server.command(&home, &["chat", "echo"]), "1\n\n2\n/quit\n3\n").expect(0);
    assert_eq!(ended.out, "one\ntwo\n");
    let thread = ended.err.trim().strip_prefix("thread: ").unwrap().to_owned();
    let runs = server.requests().into_iter().filter(|request| request.line == "POST /runs");
    let sessions: Vec<Value> = runs
        .map(|run| serde_json::from_str::<Value>(&run.body).unwrap()["session_id"].clone())
        .collect();
    assert_eq!(sessions, [json!(thread), json!(thread)]);
    finish(server.command(&home, &["chat", "nobody"]), "1\n").expect(4);
    finish(server.command(&home, &["chat", "echo", "--thread", "t"]), "1\n").expect(2);
}

#[test]
fn settings_values_and_attachments_are_sent_as_the_protocol_has_them() {
    let (home, server) = (Home::new(), Foreign::start());
    server.on_run([Reply::stream(&whole("x"))]);
    home.write("note.md", "words");
    std::fs::write(home.work().join("x.png"), [0xff, 0xd8]).unwrap();
    let address = "https://example.com/a.pdf";
    let attaching = ["--attach", "note.md", "--attach", "x.png", "--attach", address];
    let arguments =
        [&["run", "echo", "look"][..], &attaching, &["--config", r#"{"a":1}"#]].concat();
    server.run(&home, &arguments).expect(0);
    let sent = server.request_body("POST /runs");
    assert_eq!(sent["config"], json!({ "a": 1 }));
    assert_eq!(sent["input"].as_array().unwrap().len(), 1);
    let expected = [
        json!({ "name": null, "content_type": "text/plain", "content": "look", "content_encoding": "plain", "content_url": null, "metadata": null }),
        json!({ "name": "note.md", "content_type": "text/markdown", "content": "words", "content_encoding": "plain", "content_url": null, "metadata": null }),
        json!({ "name": "x.png", "content_type": "image/png", "content": "/9g=", "content_encoding": "base64", "content_url": null, "metadata": null }),
        json!({ "name": null, "content_type": "application/pdf", "content": null, "content_encoding": "plain", "content_url": address, "metadata": null }),
    ];
    assert_eq!(sent["input"][0]["parts"], json!(expected));

    server.run(&home, &["run", "echo", "--input", r#"{"q": 1}"#]).expect(0);
    let sent: Value = serde_json::from_str(&server.requests().pop().unwrap().body).unwrap();
    assert_eq!(sent["input"][0]["parts"][0]["content_type"], "application/json");
    assert_eq!(sent["input"][0]["parts"][0]["content"], r#"{"q": 1}"#);
}

#[test]
fn a_broken_stream_goes_on_where_the_server_has_no_ids() {
    let (home, server) = (Home::new(), Foreign::start());
    let words = |text: &str| part(&json!({ "content": text }));
    let all = [
        start_events(),
        vec![message("created"), words("one "), words("two "), words("three")],
        vec![message("completed"), now("completed")],
    ]
    .concat();
    server.on_run([Reply::stream(&all[..4]).torn()]);
    let lists = [&all[..4], &all[..5], &all[..5], &all[..]];
    server.on(&events_line(), lists.map(Reply::list));
    let ended = server.run(&home, &["run", "echo", "x"]).expect(0);
    assert_eq!(ended.out, "one two three\n");
    assert_eq!(ended.err.matches("the stream broke").count(), 1, "{}", ended.err);
    let polled = vec![events_line(); 4];
    assert_eq!(server.lines(), [&["POST /runs".to_owned()][..], &polled].concat());
}

#[test]
fn how_a_run_ends_is_how_the_command_ends() {
    let (home, server) = (Home::new(), Foreign::start());
    let ends = |status: &str, error: &Value| {
        let run = run(status, &json!({ "error": error }));
        let ended = json!({ "type": format!("run.{status}"), "run": run });
        server.on_run([Reply::stream(
            &[start_events(), message_events("so far"), vec![ended]].concat(),
        )]);
        server.run(&home, &["run", "echo", "x"])
    };
    let error = json!({ "code": "invalid_input", "message": "no \u{1b}[2Jsuch", "data": null });
    let failed = ends("failed", &error).expect(1);
    assert_eq!(failed.out, "so far\n");
    assert!(failed.err.contains("the run failed: no such (invalid_input)"), "{}", failed.err);
    ends("cancelled", &Value::Null).expect(8);
    ends("completed", &Value::Null).expect(0);

    let error = json!({ "type": "error", "error": { "code": "server_error", "message": "gone", "data": null } });
    server.on_run([Reply::stream(&[start_events(), vec![error]].concat())]);
    server.run(&home, &["run", "echo", "x"]).complains(1, "gone");
    for (status, code, exit) in [
        (404, "not_found", 4),
        (422, "invalid_input", 2),
        (401, "server_error", 5),
        (403, "server_error", 7),
        (500, "server_error", 1),
    ] {
        server.on_run([Reply::refusal(status, code, "Agent echo \u{7}not found")]);
        server.run(&home, &["run", "echo", "x"]).complains(exit, "Agent echo not found");
    }
}

#[test]
fn citations_steps_and_updates_are_shown_by_the_rules() {
    let (home, server) = (Home::new(), Foreign::start());
    let cited = json!({
        "content": "According to a recent study, it is so.",
        "metadata": { "kind": "citation", "url": "https://s", "title": "Study", "description": null,
            "start_index": 15, "end_index": 27 },
    });
    let step = json!({ "metadata": { "kind": "trajectory", "message": null, "tool_name": "search",
        "tool_input": { "q": 1 }, "tool_output": null } });
    let update = json!({ "type": "generic", "generic": { "progress": 5 } });
    let events = [
        start_events(),
        vec![message("created"), part(&step), part(&cited), update, message("completed")],
        vec![now("completed")],
    ]
    .concat();
    server.on_run([Reply::stream(&events)]);
    let ended = server.run(&home, &["run", "echo", "x"]).expect(0);
    assert_eq!(ended.out, "According to a recent study[1], it is so.\n\n[1] Study https://s\n");
    assert_eq!(ended.err, "step: search {\"q\":1}\nupdate: {\"progress\":5}\n");
    let ended = server.run(&home, &["run", "echo", "x", "--no-metadata"]).expect(0);
    assert_eq!(ended.out, "According to a recent study, it is so.\n");
    assert_eq!(ended.err, "");
}

#[test]
fn artifacts_are_saved_and_nothing_is_fetched_from_elsewhere() {
    let (home, server) = (Home::new(), Foreign::start());
    let stored = format!("/sessions/s/blobs/{}", "0b".repeat(32));
    let here = format!("{}{stored}", server.url());
    let beside = server.url().replace("127.0.0.1", "localhost");
    let events = [
        start_events(),
        vec![message("created")],
        [
            json!({ "name": "a.txt", "content": "inline" }),
            json!({ "name": "b.bin", "content": "/9g=", "content_encoding": "base64" }),
            json!({ "name": "large", "content_url": here }),
            json!({ "name": "elsewhere", "content_url": format!("{beside}{stored}") }),
            json!({ "name": "listing", "content_url": format!("{}/runs", server.url()) }),
        ]
        .iter()
        .map(part)
        .collect(),
        vec![message("completed"), now("completed")],
    ]
    .concat();
    server.on_run([Reply::stream(&events)]);
    server.on(&format!("GET {stored}"), [Reply::bytes(b"large content")]);
    let ended = server.run(&home, &["run", "echo", "x", "--save", "out"]).expect(0);
    let saved = |name: &str| std::fs::read(home.work().join("out").join(name)).unwrap();
    assert_eq!(saved("a.txt"), b"inline");
    assert_eq!(saved("b.bin"), [0xff, 0xd8]);
    assert_eq!(saved("large"), b"large content");
    for name in ["elsewhere", "listing"] {
        let line = format!("not saved: {name} is not content that this server stores");
        assert!(ended.err.contains(&line), "{}", ended.err);
    }
    assert_eq!(server.lines(), ["POST /runs".to_owned(), format!("GET {stored}")]);
}

#[test]
fn a_question_nobody_can_answer_here_is_shown() {
    let (home, server) = (Home::new(), Foreign::start());
    let question = awaiting(&json!([{ "content": "What is \u{1b}[2Jyour name?" }]));
    let events = [start_events(), message_events("Hello."), vec![question]].concat();
    server.on_run([Reply::stream(&events)]);
    let ended = server.run(&home, &["run", "awaiter", "x"]).expect(3);
    assert_eq!(ended.out, "Hello.\n");
    assert!(ended.err.contains(r"| What is \u{1b}[2Jyour name?"), "{}", ended.err);
    assert!(ended.err.contains(&format!("waiting: the run {RUN}")), "{}", ended.err);
    let ended = server.run(&home, &["run", "awaiter", "x", "--json"]).expect(3);
    assert_eq!(ended.lines(), events);
}

#[test]
fn a_question_is_asked_answered_and_gone_on_with() {
    let (home, server) = (Home::new(), Foreign::start());
    let asked = awaiting(&json!([{ "content": "Your name?" }]));
    let first = [start_events(), vec![message("created"), asked]].concat();
    // The open message stays open across the question.
    let rest = [
        vec![now("in-progress"), part(&json!({ "content": "Hello Bob" }))],
        vec![message("completed"), now("completed")],
    ]
    .concat();
    server.on_run([Reply::stream(&first)]);
    let resumed = format!("POST /runs/{RUN}");
    server.on(&resumed, [Reply::refusal(422, "invalid_input", "not that"), Reply::stream(&rest)]);
    let mut screen = Screen::start(server.command(&home, &["run", "awaiter", "x"]));
    screen.wait_for("| Your name?");
    screen.answer("answer: ", "nobody\r");
    screen.wait_for("the answer does not fit: not that");
    screen.answer("answer: ", "Bob\r");
    let seen = screen.end_well();
    assert!(seen.contains("Hello Bob"), "{seen}");
    let sent: Value = serde_json::from_str(&server.requests().pop().unwrap().body).unwrap();
    assert_eq!(sent["mode"], "stream");
    assert_eq!(sent["await_resume"]["type"], "message");
    assert_eq!(sent["await_resume"]["message"]["parts"][0]["content"], "Bob");
}

#[test]
fn an_answer_that_came_too_late_is_told_and_the_run_goes_on() {
    let (home, server) = (Home::new(), Foreign::start());
    let first = [start_events(), vec![awaiting(&json!([{ "content": "Your name?" }]))]].concat();
    let rest =
        [vec![now("in-progress")], message_events("Hello Ada"), vec![now("completed")]].concat();
    server.on_run([Reply::stream(&first)]);
    server.on(&format!("POST /runs/{RUN}"), [Reply::refusal(403, "server_error", "answered")]);
    server.on(&events_line(), [Reply::list(&first), Reply::list(&[first, rest].concat())]);
    let mut screen = Screen::start(server.command(&home, &["run", "awaiter", "x"]));
    screen.answer("answer: ", "Bob\r");
    let seen = screen.end_well();
    let (_, after) = seen.split_once("your answer was not taken").unwrap();
    assert!(after.contains("answered") && after.contains("Hello Ada"), "{seen}");
    assert!(!after.contains("the stream broke"), "{seen}");
}

#[test]
fn ctrl_c_cancels_the_run() {
    let (home, server) = (Home::new(), Foreign::start());
    let events = [start_events(), message_events("so far")].concat();
    let cancel = format!("POST /runs/{RUN}/cancel");
    server.on(&cancel, [Reply::json(202, &run("cancelling", &Value::Null))]);
    let all = [&events[..], &[now("cancelled")]].concat();
    // A server that continues the stream, and one whose stream stays silent.
    for (stream, signal, twice, said) in [
        (Reply::stream(&events).torn(), Signal::INT, false, "the run was cancelled"),
        (Reply::stream(&events).torn(), Signal::TERM, false, "the run was cancelled"),
        (Reply::stream(&events).open(), Signal::INT, true, "press Ctrl-C again"),
    ] {
        server.on_run([stream]);
        server.on(&events_line(), [Reply::list(&events)]);
        let mut command = server.command(&home, &["run", "echo", "x"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "so far\n");
        let cancels = || server.lines().iter().filter(|line| **line == cancel).count();
        let before = cancels();
        kill_process(pid(&child), signal).unwrap();
        until(|| (cancels() > before).then_some(()));
        if twice {
            kill_process(pid(&child), signal).unwrap();
        } else {
            server.on(&events_line(), [Reply::list(&all)]);
        }
        let ended = child.wait_with_output().unwrap();
        let err = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(130), "{err}");
        assert!(err.contains(said), "{err}");
    }
}

#[test]
fn the_protocol_can_be_said() {
    let (home, server) = (Home::new(), Foreign::start());
    server.on_run([Reply::stream(&whole("x"))]);
    let communication = ["run", "echo", "x", "--protocol", "communication"];
    server.run(&home, &communication).expect(0);
    assert_eq!(server.requests().len(), 1, "nothing had to be found out");
    server.run(&home, &["run", "echo", "x", "--protocol", "native"]).expect(1);
    // The first request to a Trilogue server: whether the agent works in this folder.
    const NATIVE: &str = "GET /api/v1/agents/echo";
    assert_eq!(server.requests()[1].line, NATIVE);
    // A server of an unknown protocol is treated like a Trilogue server.
    server.on("GET /ping", [Reply::json(200, &json!("pong"))]);
    server.run(&home, &["run", "echo", "x"]).expect(1);
    assert_eq!(server.requests().pop().unwrap().line, NATIVE);
}
