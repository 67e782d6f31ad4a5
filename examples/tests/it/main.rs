//! The agents of the guide behave as it says, and the guide shows exactly their code.
#![expect(clippy::unwrap_used, reason = "functions of tests fail by panicking")]

#[expect(dead_code, reason = "its `main` is for `cargo run`")]
#[path = "../../guide/asking.rs"]
mod asking;
#[expect(dead_code, reason = "its `main` is for `cargo run`")]
#[path = "../../guide/calling.rs"]
mod calling;
#[expect(dead_code, reason = "its `main` is for `cargo run`")]
#[path = "../../guide/editing.rs"]
mod editing;
mod programs;
#[expect(dead_code, reason = "its `main` is for `cargo run`")]
#[path = "../../guide/prompting.rs"]
mod prompting;
#[expect(dead_code, reason = "its `main` is for `cargo run`")]
#[path = "../../guide/remembering.rs"]
mod remembering;
#[expect(dead_code, reason = "its `main` is for `cargo run`")]
#[path = "../../guide/stopping.rs"]
mod stopping;
#[expect(dead_code, reason = "its `main` is for `cargo run`")]
#[path = "../../guide/streaming.rs"]
mod streaming;
#[expect(dead_code, reason = "its `main` is for `cargo run`")]
#[path = "../../guide/suspending.rs"]
mod suspending;
#[path = "../../guide/testing.rs"]
mod testing;
#[expect(dead_code, reason = "its `main` is for `cargo run`")]
#[path = "../../guide/trait_agent.rs"]
mod trait_agent;
#[expect(dead_code, reason = "its `main` is for `cargo run`")]
#[path = "../../guide/typed.rs"]
mod typed;

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use trilogue_sdk::port::ChildEnd;
use trilogue_sdk::prelude::*;
use trilogue_sdk::recorder::Recorder;
use trilogue_sdk::{PrincipalId, Resolution, RunInfo, run_turn, to_json};

async fn take(agent: &dyn Agent, recorder: &Arc<Recorder>, turn: Turn) -> Outcome {
    let config = Some(to_json(&json!({ "shout": true })).unwrap());
    let info = RunInfo { config, ..RunInfo::sample("sample").unwrap() };
    run_turn(agent, turn, info, recorder.clone()).await.unwrap()
}

fn nothing_said() -> Turn {
    Turn::Start { input: Input::Messages(Vec::new()) }
}

fn texts(recorder: &Recorder) -> Vec<String> {
    recorder.messages().iter().map(Message::text).collect()
}

#[tokio::test]
async fn streaming() {
    let recorder = Arc::new(Recorder::default());
    take(&streaming::Weather, &recorder, nothing_said()).await;
    assert_eq!(texts(&recorder), ["Tomorrow it will be 21 degrees."]);
    let parts = &recorder.messages()[0].parts;
    assert!(parts.iter().any(|part| part.name.as_deref() == Some("forecast.csv")));
}

#[tokio::test]
async fn repeating() {
    let recorder = Arc::new(Recorder::default());
    take(&trait_agent::Echo, &recorder, Turn::from("hello")).await;
    assert_eq!(texts(&recorder), ["hello"]);
}

#[tokio::test]
async fn asking() {
    for (option, reply) in [("allow", "Removed."), ("reject", "I left them alone.")] {
        let resolution = Resolution::Answered {
            by: PrincipalId::parse("alice").unwrap(),
            answer: Answer::Option(option.to_owned()),
            digest: String::new(),
            extra: None,
        };
        let recorder = Arc::new(Recorder::default().answering(resolution));
        take(&asking::Cleaner, &recorder, nothing_said()).await;
        assert_eq!(texts(&recorder), [reply]);
    }
}

#[tokio::test]
async fn calling() {
    let recorder = Recorder::default()
        .with_agent("writer", |call| Ok(ChildEnd::from_text(&format!("On {}.", call.input.text()))))
        .and_then(|it| it.with_agent("reviewer", |_| Ok(ChildEnd::from_text("Fine."))));
    let recorder = Arc::new(recorder.unwrap());
    take(&calling::Editor, &recorder, Turn::from("ferries")).await;
    assert_eq!(texts(&recorder), ["Fine."]);
    assert_eq!(recorder.messages()[0].parts[0].as_text(), Some("On ferries."));
    let tools = recorder.events().iter().filter(|body| body.name() == "tool.ended").count();
    assert_eq!(tools, 2);
}

#[tokio::test]
async fn suspending() {
    let recorder = Arc::new(Recorder::default());
    let input = Input::Value(to_json(&json!({ "item": "a boat" })).unwrap());
    let outcome = take(&suspending::Buyer, &recorder, Turn::Start { input }).await;
    let Outcome::Suspended { interrupt, saved } = outcome else {
        unreachable!("{outcome:?}");
    };
    let answer = Answer::Json(to_json(&json!({ "approved": true })).unwrap());
    let outcome =
        take(&suspending::Buyer, &recorder, Turn::Resume { interrupt, answer, saved }).await;
    assert_eq!(outcome, Outcome::Completed);
    let names: Vec<_> = recorder.events().iter().map(|body| body.name()).collect();
    assert_eq!(names, ["run.result"]);
}

#[tokio::test]
async fn remembering() {
    let recorder = Arc::new(Recorder::default());
    take(&remembering::Counter, &recorder, nothing_said()).await;
    take(&remembering::Counter, &recorder, nothing_said()).await;
    assert_eq!(texts(&recorder), ["Turn 1 after 0 messages!", "Turn 2 after 0 messages!"]);
}

#[tokio::test]
async fn editing() {
    let written = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = Arc::clone(&written);
    let can = json!({ "fs": { "readTextFile": true, "writeTextFile": true } });
    let editor = Recorder::default().with_editor(to_json(&can).unwrap(), move |method, params| {
        if method == "fs/write_text_file" {
            kept.lock().unwrap().push(params.to_value()["content"].clone());
        }
        Ok(to_json(&json!({ "content": "one  \ntwo\t" })).unwrap())
    });
    let turn = || Turn::Start { input: Input::from("/work/notes.md") };
    take(&editing::Linter, &Arc::new(editor), turn()).await;
    assert_eq!(*written.lock().unwrap(), ["one\ntwo\n"]);

    let without = Arc::new(Recorder::default());
    take(&editing::Linter, &without, turn()).await;
    assert_eq!(texts(&without), ["There is no editor here whose files I could work with."]);
}

#[tokio::test]
async fn prompting() {
    let agent = programs::program("agent_client_agent");
    let agent = trilogue_sdk::agent_client::Command::new(agent.to_str().unwrap());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = here.join("ten_line_echo.rs");
    let said = prompting::explain(agent, here.to_str().unwrap(), &file).await.unwrap();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("ten_line_echo.rs"), "{said:?}");
    assert_eq!(said[1], "I did not keep it.");
}

#[tokio::test]
async fn declaring_by_type() {
    let plan = async |city: &str, config: serde_json::Value| {
        let recorder = Arc::new(Recorder::default());
        let info =
            RunInfo { config: Some(to_json(&config).unwrap()), ..RunInfo::sample("planner")? };
        let input = Input::Value(to_json(&json!({ "city": city, "days": 5 })).unwrap());
        run_turn(&typed::Planner, Turn::Start { input }, info, recorder.clone()).await?;
        let names: Vec<_> = recorder.events().iter().map(|body| body.name()).collect();
        assert_eq!(names, ["state.output", "state.output", "run.result"]);
        Ok::<_, AgentError>(recorder.output().unwrap().to_value())
    };
    let indoors = json!({ "sights": ["The Louvre", "The Orsay Museum"] });
    assert_eq!(plan("Paris", json!({})).await, Ok(indoors));
    let outdoors = json!({ "sights": ["The Seine", "The Luxembourg Garden"] });
    assert_eq!(plan("Paris", json!({ "outdoors": true })).await, Ok(outdoors));
    let error = plan("Atlantis", json!({})).await.unwrap_err();
    assert_eq!(error.code(), "unknown_city");
    assert_eq!(error.data(), Some(&to_json(&json!({ "city": "Atlantis" })).unwrap()));

    let card = typed::Planner.card().build().unwrap();
    assert_eq!(card.errors[0].code, "unknown_city");
    let config = card.config_schema.unwrap().to_value();
    assert_eq!(config["properties"]["outdoors"]["default"], false);
}

#[tokio::test]
async fn stopping() {
    let recorder = Arc::new(Recorder::default());
    recorder.cancel();
    take(&stopping::Waiter, &recorder, nothing_said()).await;
    assert_eq!(texts(&recorder), ["Stopped."]);
}

/// Every Rust block of the guides is an exact part of one of the files that are compiled here.
#[test]
fn the_guides_show_what_is_compiled() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = std::fs::read_to_string(here.join("ten_line_echo.rs")).unwrap();
    for file in ["stdio_echo.rs", "websocket_echo.rs"] {
        sources.push_str(&std::fs::read_to_string(here.join(file)).unwrap());
    }
    for folder in ["guide", "callers"] {
        for file in std::fs::read_dir(here.join(folder)).unwrap() {
            sources.push_str(&std::fs::read_to_string(file.unwrap().path()).unwrap());
        }
    }
    for page in ["agents.md", "call-agents-from-rust.md"] {
        let guide = std::fs::read_to_string(here.join("../docs").join(page)).unwrap();
        let blocks: Vec<&str> = guide
            .split("```rust\n")
            .skip(1)
            .map(|rest| rest.split("```").next().unwrap_or_default())
            .collect();
        assert!(blocks.len() >= 6, "{page} has {} blocks", blocks.len());
        for block in blocks {
            assert!(sources.contains(block), "no source has this block of {page}:\n{block}");
        }
    }
}
