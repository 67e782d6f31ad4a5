//! A person's view of a run, compared with screens that are stored as text in `tests/screens`.
//! `TRILOGUE_BLESS=1` writes new ones.

use std::path::Path;

use serde_json::json;

use crate::agent_client_cli::serve;
use crate::harness::{Home, demo};
use crate::known_agents::Programs;
use crate::terminal::Screen;

/// All kinds of a hosted agent's updates, as instructions of the scripted agent.
const EVERYTHING: &str = r##"raw:{"sessionUpdate":"plan","entries":[{"content":"Look around in the folder","priority":"high","status":"in_progress"},{"content":"Mend what is broken","priority":"high","status":"pending"}]}
think:The user wants a summary of everything that is in the folder, so I read the files first and decide then which of them matter most.
raw:{"sessionUpdate":"tool_call","toolCallId":"r","title":"Read README.md","kind":"read","status":"in_progress","rawInput":{"path":"README.md","lines":[1,2000]}}
raw:{"sessionUpdate":"tool_call_update","toolCallId":"r","status":"completed","rawOutput":"# A file with a title and more lines than fit into a row of this terminal, however wide it may be for a reader"}
raw:{"sessionUpdate":"tool_call","toolCallId":"x","title":"Run cargo test","kind":"execute","status":"in_progress","rawInput":{"command":"cargo test"}}
raw:{"sessionUpdate":"tool_call_update","toolCallId":"x","status":"failed","rawOutput":"error: could not compile"}
raw:{"sessionUpdate":"plan","entries":[{"content":"Look around in the folder","priority":"high","status":"completed"},{"content":"Mend what is broken","priority":"high","status":"completed"}]}
raw:{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"# What I found\n\nThe folder holds **three** crates, each with a `Cargo.toml`; the *largest* of them is the server, whose source has"}}
raw:{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":" 漢字とひらがなの長い文章が端末の幅に合わせて折り返されるかどうかを確かめるための一文。\n\n1. Build it\n   - with `cargo build --locked --workspace --all-targets`, which takes a few minutes on two cores\n2. Run it\n\n```sh\ncargo run -- demo    # spaces  stay\n```\n\n| crate | lines | what it is for |\n|---|---|---|\n| server | 26748 | answers requests of three protocols and keeps what was said |\n| sdk | 4000 | for agents |\n\n> A quotation that is long enough to be wrapped at eighty columns, and is marked on each of its rows.\n\nSee [the page](https://example.com/page) \u001b]52;c;AA\u0007and &#27;[2J \u202e."}}
raw:{"sessionUpdate":"notice","severity":"warning","title":"The budget is nearly used up"}
"##;

/// The results of tools: changes of files, the output of a command, text, and content that cannot be shown.
fn tools() -> String {
    let call = |id: &str, title: &str, kind: &str, more: serde_json::Value| {
        let mut call = json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": title, "kind": kind, "status": "in_progress"});
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("raw:{call}\n")
    };
    let update = |id: &str, status: &str, content: serde_json::Value| {
        let update = json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": status, "content": content});
        format!("raw:{update}\n")
    };
    let text = |text: &str| json!([{"type": "content", "content": {"type": "text", "text": text}}]);
    let lines = |from: usize, to: usize| {
        (from..=to).map(|line| format!("let line_{line} = {line};\n")).collect::<String>()
    };
    let old = format!("{}let answer = 41;\n{}", lines(1, 6), lines(7, 12));
    let new =
        format!("{}// \u{1b}[2J\u{202e}hidden\nlet answer = 42;\n{}", lines(1, 6), lines(7, 12));
    let change =
        json!([{"type": "diff", "path": "/work/src/main.rs", "oldText": old, "newText": new}]);
    let created = json!([{"type": "diff", "path": "/work/notes.md", "newText": lines(1, 12)}]);
    let output: String = (1..=12).map(|test| format!("test number_{test} ... ok\n")).collect();
    let mixed = json!([
        {"type": "terminal", "terminalId": "term-1"},
        {"type": "content", "content": {"type": "image", "mimeType": "image/png", "data": ""}},
    ]);
    [
        call("e", "Edit main.rs", "edit", json!({"content": change})),
        // A status without content keeps the earlier results.
        "raw:{\"sessionUpdate\":\"tool_call_update\",\"toolCallId\":\"e\",\"status\":\"completed\"}\n".to_owned(),
        call("x", "Run cargo test", "execute", json!({})),
        update("x", "in_progress", text("test number_1 ... ok\n")),
        update("x", "completed", text(&format!("```console\n{output}```"))),
        call("n", "Create notes.md", "edit", json!({})),
        update("n", "completed", created),
        call("s", "Search", "search", json!({})),
        update("s", "completed", text("2 files: \u{1b}]52;c;AA\u{7}a, b")),
        call("t", "Start a server", "execute", json!({})),
        update("t", "failed", mixed),
    ]
    .concat()
}

/// Compares a screen with the stored one.
pub(crate) fn check(name: &str, columns: usize, display: &str) {
    let path = format!("{}/tests/screens/{name}-{columns}.txt", env!("CARGO_MANIFEST_DIR"));
    let path = Path::new(&path);
    if std::env::var_os("TRILOGUE_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, display).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(display, kept, "run the test with TRILOGUE_BLESS=1 if {name}-{columns} is right");
}

/// The display with a fixed spinner and without seconds.
fn still(display: &str) -> String {
    let still = |line: &str| match line.split_once(' ') {
        Some((sign, words)) if sign.chars().all(|c| ('\u{2800}'..='\u{28ff}').contains(&c)) => {
            let words = words.split(" · ").next().unwrap();
            format!("⠿ {words}")
        }
        _ => line.to_owned(),
    };
    let lines: Vec<String> = display.lines().map(still).collect();
    format!("{}\n", lines.join("\n"))
}

#[test]
fn a_researcher_on_the_screen() {
    let (_home, server) = demo();
    for columns in [80, 120] {
        let thread = format!("t{columns}");
        let run = server.command(&["run", "researcher", "honey bees", "--thread", &thread]);
        let (code, display) = Screen::sized(run, columns, 50).end_display();
        assert_eq!(code, Some(0), "{display}");
        let saved = |line: &&str| line.starts_with("image saved: ") && line.contains("/images/");
        assert_eq!(display.lines().filter(saved).count(), 1, "{display}");
        let rest = display.lines().filter(|line| !saved(line)).map(|line| format!("{line}\n"));
        check("researcher", columns, &rest.collect::<String>());
        let mut kitty = server.command(&["run", "researcher", "honey bees"]);
        kitty.env("TRILOGUE_IMAGES", "kitty");
        let seen = Screen::start(kitty).end_well();
        assert!(seen.contains("\u{1b}_Ga=T,f=100,q=2,m=0;iVBORw0KGgo"), "{seen}");
        assert!(!seen.contains("image saved"), "{seen}");
    }
}

#[test]
fn an_image_goes_through_tmux_if_that_passes_it_on() {
    let programs = Programs::new();
    let server = programs.home.demo();
    for (setting, is_drawn) in [("on", true), ("off", false)] {
        programs.add_script("tmux", &format!("echo {setting}"));
        let mut run = programs.command(&["run", "researcher", "honey bees"]);
        run.env("TRILOGUE_URL", server.url()).env("TMUX", "x").env("KITTY_WINDOW_ID", "1");
        let seen = Screen::of_columns(run, 80).end_well();
        assert_eq!(seen.contains("\u{1b}Ptmux;\u{1b}\u{1b}_Ga=T,U=1,"), is_drawn, "{seen}");
        assert_eq!(seen.contains("image saved: "), !is_drawn, "{seen}");
    }
}

#[test]
fn everything_that_a_hosted_agent_says_on_the_screen() {
    let home = Home::new();
    let server = serve(&home);
    for columns in [40, 80, 120] {
        let thread = format!("t{columns}");
        let run = server.command(&["run", "plain", EVERYTHING, "--thread", &thread]);
        // Far more lines than the screen has rows.
        let (code, display) = Screen::sized(run, columns, 12).end_display();
        assert_eq!(code, Some(0), "{display}");
        check("hosted", columns, &display);
    }
}

#[test]
fn what_tools_produce_is_below_their_rows() {
    let home = Home::new();
    let server = serve(&home);
    let tools = tools();
    for columns in [40, 80, 120] {
        let thread = format!("t{columns}");
        let run = server.command(&["run", "plain", &tools, "--thread", &thread]);
        let (code, display) = Screen::sized(run, columns, 60).end_display();
        assert_eq!(code, Some(0), "{display}");
        check("tools", columns, &display);
    }
    let coloured = Screen::of_columns(server.command(&["run", "plain", &tools]), 80).end_well();
    let green = "\u{1b}[32m| + let answer = 42;";
    assert!(
        coloured.contains(green) && coloured.contains("\u{1b}[31m| - let answer"),
        "{coloured}"
    );
    let run = server.command(&["run", "plain", &tools, "--full", "--thread", "t"]);
    let (_, display) = Screen::sized(run, 80, 60).end_display();
    check("tools-full", 80, &display);
    let plain = server.run(&["run", "plain", &tools]).expect(0);
    check("tools-plain", 80, &format!("{}{}", plain.out, plain.err));
    let (code, display) =
        Screen::sized(server.command(&["threads", "show", "t"]), 80, 60).end_display();
    assert_eq!(code, Some(0), "{display}");
    assert!(display.contains("  changes /work/src/main.rs\n"), "{display}");
}

#[test]
fn a_conversation_is_shown_as_it_was_drawn_with_questions_and_answers() {
    let home = Home::new();
    let server = serve(&home);
    server.run(&["run", "plain", EVERYTHING, "--thread", "t"]).expect(0);
    server.run(&["run", "plain", "permission:edit:/tmp/a", "--thread", "t"]).expect(3);
    let waiting = server.run(&["inbox", "-q"]).expect(0).out;
    server.run(&["approve", waiting.trim(), "--reject"]).expect(0);
    let run = server.run(&["runs", "-q", "--thread", "t"]).expect(0).out;
    server.run(&["tail", run.lines().next().unwrap(), "--follow"]).expect(0);
    let dated = |shown: &str| {
        let lines = shown.lines().filter(|line| !line.starts_with("created: "));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    let show = ["threads", "show", "t"];
    let (code, display) = Screen::sized(server.command(&show), 80, 24).end_display();
    assert_eq!(code, Some(0), "{display}");
    check("show", 80, &dated(&display));
    check("show-pipe", 80, &dated(&server.run(&show).expect(0).out));
    let record = server.run(&["threads", "show", "t", "--json"]).expect(0).json();
    assert_eq!((&record["id"], record["messages"].as_array().unwrap().len()), (&"t".into(), 4));
    let is_answer = |event: &&serde_json::Value| event["type"] == "interrupt.resolved";
    assert_eq!(record["events"].as_array().unwrap().iter().filter(is_answer).count(), 1);
}

#[test]
fn a_run_that_goes_on_on_the_screen() {
    let home = Home::new();
    let server = serve(&home);
    let plan = EVERYTHING.lines().next().unwrap();
    let said = format!(
        "{plan}\nthink:First words of a thought.\nraw:{}\nslow",
        r#"{"sessionUpdate":"tool_call","toolCallId":"r","title":"Read README.md","kind":"read","status":"in_progress"}"#
    );
    let mut screen =
        Screen::sized(server.command(&["run", "plain", &said, "--thread", "t"]), 80, 24);
    screen.wait_to_see("running Read README.md");
    check("running", 80, &still(&screen.display()));
    screen.signal(rustix::process::Signal::INT);
    screen.wait_to_see("press Ctrl-C again");
    let (code, display) = screen.end_display();
    assert_eq!(code, Some(130), "{display}");
    check("cancelled", 80, &still(&display));
}
