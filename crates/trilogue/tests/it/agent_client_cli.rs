//! `run`, `chat`, `tail` and `threads` with programs of the Agent Client Protocol as agents.

use serde_json::Value;

use crate::agent_client_examples::example;
use crate::harness::{Home, Server};
use crate::terminal::Screen;

/// Starts a server with the scripted agent: `plain` accepts text and links, `rich` every kind of content.
pub(crate) fn serve(home: &Home) -> Server {
    let agent = example("scripted_agent");
    let command = |more: &str| {
        format!("kind = \"agent-client\"\ncommand = [{:?}{more}]\n", agent.to_str().unwrap())
    };
    let config = format!(
        "[store]\nurl = \"memory:\"\n[agents.plain]\n{}[agents.rich]\n{}",
        command(""),
        command(", \"--media\"")
    );
    let config = home.write("trilogue.toml", &config);
    home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"])
}

fn prompted(server: &Server, arguments: &[&str]) -> Value {
    let mut all = vec!["run"];
    all.extend(arguments);
    let said = server.run(&all).expect(0).out;
    let json = said.get(said.find('[').unwrap()..=said.rfind(']').unwrap()).unwrap();
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn two_messages_in_a_row_are_two_and_the_log_names_them() {
    let home = Home::new();
    let server = serve(&home);
    let run = ["run", "plain", "two", "--thread", "t", "--no-metadata"];
    let said = server.run(&run).expect(0).out;
    assert_eq!(said, "message one, to its end\n\nmessage two, to its end\n");

    let events = server.run(&["tail", "t", "--json"]).expect(0).lines();
    let deltas: Vec<&Value> = events.iter().filter(|it| it["type"] == "message.delta").collect();
    let ids: Vec<&str> = deltas.iter().filter_map(|it| it["message_id"].as_str()).collect();
    assert!(ids.len() == 4 && ids[0] == ids[1] && ids[1] != ids[2], "{ids:?}");

    let tail = server.run(&["tail", "t", "--from", ids[2]]).expect(0).out;
    assert!(tail.lines().next().unwrap().contains(ids[2]), "{tail}");
    assert!(!tail.contains(ids[0]) && tail.contains("message two"), "{tail}");
    let from = server.run(&["tail", "t", "--from", ids[2], "--json"]).expect(0).lines();
    assert_eq!(from[0]["type"], "message.started");
    server.run(&["tail", "t", "--from", "no-such-message"]).expect(4);
    let run = events.iter().find_map(|it| it["run_id"].as_str()).unwrap();
    server.run(&["tail", run, "--from", ids[2]]).expect(2);

    let copy = server.run(&["threads", "copy", "t", "--until", ids[0], "--id", "half"]).expect(0);
    assert_eq!(copy.out, "half\n");
    let shown = server.run(&["threads", "show", "half"]).expect(0).out;
    assert!(shown.contains("message one") && !shown.contains("message two"), "{shown}");
}

#[test]
fn a_tool_call_names_the_message_that_triggered_it() {
    let home = Home::new();
    let server = serve(&home);
    server.run(&["run", "plain", "say:I look\ntool", "--thread", "t"]).expect(0);
    let events = server.run(&["tail", "t", "--json"]).expect(0).lines();
    let said = events.iter().find(|it| it["type"] == "message.delta").unwrap();
    let tool = events.iter().find(|it| it["type"] == "tool.started").unwrap();
    assert_eq!(tool["message_id"], said["message_id"], "{tool}");
    let tail = server.run(&["tail", "t"]).expect(0).out;
    let line = tail.lines().find(|line| line.contains("tool.started")).unwrap();
    assert!(line.contains(&format!("(from {})", said["message_id"].as_str().unwrap())), "{line}");
}

#[test]
fn files_are_inside_the_prompt_or_links_as_the_agent_takes_them() {
    let home = Home::new();
    let server = serve(&home);
    let uri = |name: &str| {
        let path = home.work().canonicalize().unwrap().join(name);
        format!("file://{}", path.display())
    };
    home.write("notes.md", "some notes\n");
    let rich = prompted(&server, &["rich", "prompt", "--attach", "notes.md"]);
    let resource = rich.as_array().unwrap().iter().find(|it| it["type"] == "resource").unwrap();
    assert_eq!(
        resource["resource"],
        serde_json::json!({ "uri": uri("notes.md"), "mimeType": "text/markdown", "text": "some notes\n" })
    );
    let plain = prompted(&server, &["plain", "prompt", "--attach", "notes.md"]);
    let link = plain.as_array().unwrap().iter().find(|it| it["type"] == "resource_link").unwrap();
    assert_eq!(
        (&link["uri"], &link["name"]),
        (&Value::from(uri("notes.md")), &Value::from("notes.md"))
    );
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let there = format!("http://{}/a.pdf", listener.local_addr().unwrap());
    for agent in ["plain", "rich"] {
        let prompt = prompted(&server, &[agent, "prompt", "--attach", &there]);
        assert!(prompt.as_array().unwrap().iter().any(|it| it["uri"] == *there), "{prompt}");
    }
    listener.set_nonblocking(true).unwrap();
    let connection = listener.accept().map_err(|error| error.kind());
    assert!(matches!(connection, Err(std::io::ErrorKind::WouldBlock)), "{connection:?}");

    // A text attaches a file only if the user asks for that. Text from a pipe never attaches files.
    let text = "see @notes.md\nprompt";
    let argument = server.run(&["run", "plain", text]).expect(0).out;
    assert!(!argument.contains("resource_link"), "{argument}");
    let wanted = server.run(&["run", "plain", text, "--at-files"]).expect(0).out;
    assert!(wanted.contains("resource_link"), "{wanted}");
    for piped in [&["run", "plain", "-"][..], &["run", "plain"], &["chat", "plain"]] {
        let piped = server.run_with(piped, text).expect(0).out;
        assert!(!piped.contains("resource_link"), "{piped}");
    }
    server.run_with(&["run", "plain", "-", "--at-files"], text).complains(2, "--attach");
    server.run_with(&["run", "plain", "--at-files"], text).expect(2);

    std::fs::write(home.work().join("a.png"), [0xff, 0xd8, 0x00]).unwrap();
    let rich = prompted(&server, &["rich", "prompt", "--attach", "a.png"]);
    let image = rich.as_array().unwrap().iter().find(|it| it["type"] == "image").unwrap();
    assert_eq!((&image["data"], &image["uri"]), (&Value::from("/9gA"), &Value::from(uri("a.png"))));
    server.run(&["run", "plain", "prompt", "--attach", "a.png"]).complains(2, "image");
}

#[test]
fn an_attachment_that_the_agent_does_not_take_starts_no_run() {
    let home = Home::new();
    let server = serve(&home);
    std::fs::write(home.work().join("a.png"), [0xff, 0xd8, 0x00]).unwrap();
    std::fs::write(home.work().join("a.wav"), [0xff, 0x00]).unwrap();
    // On the first run, the agent has not declared yet what it accepts.
    let attach = |file| ["run", "plain", "prompt", "--thread", "t", "--attach", file];
    for (file, capability) in [("a.png", "image"), ("a.png", "image"), ("a.wav", "audio")] {
        let refused = server.run(&attach(file)).expect(2);
        assert!(refused.err.contains(&format!("lack '{capability}'")), "{refused:?}");
    }
    let detached = [&attach("a.png")[..], &["--no-wait"]].concat();
    server.run(&detached).complains(2, "lack 'image'");
    let chat = server.run_with(&["chat", "plain", "--attach", "a.png"], "prompt\n");
    assert!(chat.code == 2 && chat.err.contains("lack 'image'"), "{chat:?}");
    let url = format!("{}/communication", server.url());
    let other = ["run", "plain", "prompt", "--attach", "a.png", "--url", &url];
    assert_ne!(server.run(&other).code, 0);
    assert_eq!(server.run(&["runs", "-q"]).expect(0).out, "");
    assert_eq!(server.run(&["threads", "-q"]).expect(0).out, "");
    prompted(&server, &["rich", "prompt", "--attach", "a.png"]);
}

#[test]
fn what_is_not_for_the_user_is_left_out_unless_it_is_wanted() {
    let home = Home::new();
    let server = serve(&home);
    let hidden = r#"raw:{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"for the model","annotations":{"audience":["assistant"],"priority":0.5,"lastModified":"2025-01-12T15:00:58Z"}}}"#;
    let said = format!("say:for all\n{hidden}");
    let run = server.run(&["run", "plain", &said]).expect(0).out;
    assert!(run.contains("for all") && !run.contains("for the model"), "{run}");
    let all = server.run(&["run", "plain", &said, "--all"]).expect(0).out;
    assert!(all.contains("for the model"), "{all}");
    let json = server.run(&["run", "plain", &said, "--json"]).expect(0).out;
    assert!(json.contains("\"priority\":0.5") && json.contains("2025-01-12T15:00:58Z"), "{json}");
    let threads = server.run(&["threads", "--json"]).expect(0).json();
    let thread = threads["items"][0]["id"].as_str().unwrap();
    // The prompt has the text too, so this checks only the agent's answer.
    let answer = |out: &str| out.split_once("\nagent/plain: ").unwrap().1.to_owned();
    let shown = server.run(&["threads", "show", thread]).expect(0);
    assert_eq!(answer(&shown.out), "for all\n");
    assert!(shown.err.contains("not meant for the user and not shown: 1\n"), "{shown:?}");
    let all = server.run(&["threads", "show", thread, "--all"]).expect(0);
    assert!(answer(&all.out).contains("for the model"), "{all:?}");
    assert!(!all.err.contains("not shown"), "{all:?}");
}

#[test]
fn a_permission_shows_what_it_is_for() {
    let home = Home::new();
    let server = serve(&home);
    let evil = "permission:edit:/tmp/a\u{202e}b\u{1b}[2Jc";
    let asked = server.run(&["run", "plain", evil]).expect(3);
    assert!(asked.err.contains("kind: edit"), "{asked:?}");
    assert!(asked.err.contains("file: /tmp/a\\u{202e}b\\u{1b}[2Jc"), "{asked:?}");
    assert!(!asked.err.contains('\u{202e}'), "{asked:?}");
    let waiting = server.run(&["inbox", "-q"]).expect(0).out;
    server.run(&["approve", waiting.trim(), "--reject"]).expect(0);

    let mut screen = Screen::start(server.command(&["run", "plain", evil]));
    screen.wait_for("kind: edit");
    screen.wait_for("choose: ");
    assert!(!screen.seen().contains("a\u{202e}b"), "{}", screen.seen());
    // Trilogue names the effect of an option; its name comes from the agent.
    assert!(screen.seen().contains("rejects this call | "), "{}", screen.seen());
    screen.press("3\r");
    screen.end_well();
}

#[test]
fn what_nobody_would_hear_is_no_answer_and_each_kind_is_refused_and_accepted() {
    let home = Home::new();
    let server = serve(&home);
    for (question, reject, accept) in [
        ("permission:edit:/tmp/a", "permission: no", "permission: once"),
        ("ask-url", "\"action\":\"decline\"", "\"action\":\"accept\""),
        ("ask-consent", "\"action\":\"decline\"", "\"action\":\"accept\""),
    ] {
        for (option, told) in [("--reject", reject), ("--yes", accept)] {
            let thread = format!("{}{option}", question.replace([':', '/'], "-"));
            server.run(&["run", "plain", question, "--thread", &thread]).expect(3);
            let waiting = server.run(&["inbox", "-q"]).expect(0).out;
            let waiting = waiting.trim();
            for words in [
                &["approve", waiting, "--message", "no, never"][..],
                &["approve", waiting, option, "--message", "why"],
            ] {
                let refused = server.run(words).expect(2);
                assert!(refused.err.contains("hint: pass --"), "{question}: {refused:?}");
            }
            assert_eq!(server.run(&["inbox", "-q"]).expect(0).out.trim(), waiting, "{question}");
            server.run(&["approve", waiting, option]).expect(0);
            let run = server.run(&["runs", "-q", "--thread", &thread]).expect(0).out;
            let said = server.run(&["tail", run.trim(), "--follow"]).expect(0).out;
            assert!(said.contains(told), "{question} {option}: {said}");
        }
    }
    // A form with fields cannot be accepted without values, so it is declined.
    server.run(&["run", "plain", "ask-form", "--thread", "form"]).expect(3);
    let waiting = server.run(&["inbox", "-q"]).expect(0).out;
    let refused = server.run(&["approve", waiting.trim(), "--yes"]).expect(2);
    assert!(refused.err.contains("--reject"), "{refused:?}");
    server.run(&["approve", waiting.trim(), "--reject"]).expect(0);
    let run = server.run(&["runs", "-q", "--thread", "form"]).expect(0).out;
    let said = server.run(&["tail", run.trim(), "--follow"]).expect(0).out;
    assert!(said.contains("\"action\":\"decline\""), "{said}");
}

#[test]
fn a_conversation_goes_on_line_by_line_with_files() {
    let home = Home::new();
    let server = serve(&home);
    home.write("notes.md", "x");
    let said =
        server.run_with(&["chat", "plain", "--attach", "notes.md"], "prompt\nprompt\n").expect(0);
    let links = said.out.matches("resource_link").count();
    assert_eq!(links, 1, "{said:?}");

    // A line with a file's name attaches the file; a line with an unknown name does not.
    let mut screen = Screen::of_columns(server.command(&["chat", "plain"]), 2_000);
    screen.wait_for("> ");
    let mut links = 0;
    for (line, attached) in [("prompt: @notes.md", 1), ("prompt: @nothing.md", 0), ("prompt", 0)] {
        screen.press(&format!("{line}\r"));
        screen.wait_for("sessionId");
        screen.wait_for("> ");
        links += attached;
        let shown = screen.display();
        assert_eq!(shown.matches("resource_link").count(), links, "{line}: {shown}");
    }
    screen.press("/quit\r");
    screen.end_well();
}

#[test]
fn the_end_of_a_chat_by_ctrl_d_begins_a_new_line() {
    let home = Home::new();
    let server = serve(&home);
    let mut screen = Screen::of_columns(server.command(&["chat", "plain", "--thread", "t"]), 80);
    screen.answer("> ", "\u{4}");
    let (code, shown) = screen.end_display();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains(">\nhint: continue with"), "{shown}");
}

#[test]
fn a_conversation_shows_what_the_user_asked_for_while_a_run_is_open_and_after_it_failed() {
    let home = Home::new();
    let server = serve(&home);
    let shown = |thread: &str| server.run(&["threads", "show", thread]).expect(0).out;
    let asked = |text: &str| format!("user: {text}\n");

    server.run(&["run", "plain", "say:hello", "--thread", "t"]).expect(0);
    let question = "permission:edit:/notes.md";
    server.run(&["run", "plain", question, "--thread", "t"]).expect(3);
    let open = shown("t");
    let (first, second) = (open.find(&asked("say:hello")), open.find(&asked(question)));
    assert!(first.is_some() && first < second, "{open}");
    let limited = server.run(&["threads", "show", "t", "--limit", "1"]).expect(0).out;
    assert!(limited.contains(&asked(question)), "{limited}");
    assert!(!limited.contains(&asked("say:hello")), "{limited}");

    let run = server.run(&["runs", "-q", "--thread", "t", "--status", "interrupted"]).expect(0).out;
    server.run(&["cancel", run.trim()]).expect(0);
    let cancelled = shown("t");
    assert!(cancelled.contains(&asked(question)), "{cancelled}");

    server.run(&["run", "plain", "crash", "--thread", "f"]).expect(1);
    let failed = shown("f");
    assert!(failed.contains(&asked("crash")), "{failed}");
}
