//! The editor that a run works for.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use trilogue_sdk::context::Run;
use trilogue_sdk::port::CallRefusal;
use trilogue_sdk::recorder::Recorder;
use trilogue_sdk::{Context, Json, RunInfo, to_json};

type Calls = Arc<Mutex<Vec<(String, Value)>>>;

/// Returns a recorder with an editor that answers by method, and the list of its calls.
fn editor(can: &Value) -> (Arc<Recorder>, Calls) {
    let calls = Calls::default();
    let heard = Arc::clone(&calls);
    let answer = move |method: &str, params: Json| {
        let params = params.to_value();
        heard.lock().unwrap().push((method.to_owned(), params.clone()));
        let answer = match method {
            "fs/read_text_file" if params["path"] == "/gone" => {
                let data = Some(to_json(&json!({ "uri": "file:///gone" })).unwrap());
                return Err(CallRefusal {
                    code: -32002,
                    message: "Resource not found".to_owned(),
                    data,
                });
            }
            "fs/read_text_file" => json!({ "content": "words" }),
            "terminal/create" => json!({ "terminalId": "t" }),
            "terminal/output" => {
                json!({ "output": "built", "truncated": true, "exitStatus": { "exitCode": 0 } })
            }
            "terminal/wait_for_exit" => json!({ "exitCode": null, "signal": "SIGKILL" }),
            "terminal/release" => Value::Null,
            _ => json!({}),
        };
        Ok(to_json(&answer).unwrap())
    };
    (Arc::new(Recorder::default().with_editor(to_json(&can).unwrap(), answer)), calls)
}

fn context(recorder: &Arc<Recorder>) -> Context {
    Context::new(RunInfo::sample("x").unwrap(), recorder.clone())
}

#[tokio::test]
async fn files_and_terminals_of_the_editor_are_used_in_its_words() {
    let (recorder, calls) =
        editor(&json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true }));
    let editor = context(&recorder).editor().unwrap();
    assert_eq!(editor.read_text_file("/a").await.unwrap(), "words");
    editor.read_lines("/a", 3, 2).await.unwrap();
    editor.write_text_file("/a", "more").await.unwrap();
    let terminal =
        editor.run(Run::shell("make").env("A", "1").cwd("/w").max_output_bytes(9)).await.unwrap();
    let output = terminal.output().await.unwrap();
    assert_eq!((output.text.as_str(), output.is_cut), ("built", true));
    assert!(output.exit.unwrap().is_success());
    let exit = terminal.wait().await.unwrap();
    assert_eq!((exit.code, exit.signal.as_deref()), (None, Some("SIGKILL")));
    terminal.kill().await.unwrap();
    terminal.release().await.unwrap();
    let made = json!({ "sessionId": "", "command": "sh", "args": ["-c", "make"],
        "env": [{ "name": "A", "value": "1" }], "cwd": "/w", "outputByteLimit": 9 });
    let terminal = json!({ "sessionId": "", "terminalId": "t" });
    let expected = [
        ("fs/read_text_file", json!({ "sessionId": "", "path": "/a" })),
        ("fs/read_text_file", json!({ "sessionId": "", "path": "/a", "line": 3, "limit": 2 })),
        ("fs/write_text_file", json!({ "sessionId": "", "path": "/a", "content": "more" })),
        ("terminal/create", made),
        ("terminal/output", terminal.clone()),
        ("terminal/wait_for_exit", terminal.clone()),
        ("terminal/kill", terminal.clone()),
        ("terminal/release", terminal),
    ];
    let expected = expected.map(|(method, params)| (method.to_owned(), params));
    assert_eq!(*calls.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_terminal_that_is_dropped_is_released() {
    let (recorder, calls) = editor(&json!({ "terminal": true }));
    let editor = context(&recorder).editor().unwrap();
    drop(editor.run(Run::command("top")).await.unwrap());
    let last = || calls.lock().unwrap().last().map(|(method, _)| method.clone());
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(last().as_deref(), Some("terminal/release"));
}

#[tokio::test]
async fn what_the_editor_does_not_offer_is_not_asked_of_it() {
    let (recorder, calls) = editor(&json!({ "fs": { "readTextFile": true } }));
    let editor = context(&recorder).editor().unwrap();
    assert!(editor.can_read() && !editor.can_write() && !editor.has_terminals());
    let error = editor.write_text_file("/a", "").await.unwrap_err();
    assert_eq!(error.code(), "editor_lacks");
    assert!(error.message().contains("clientCapabilities.fs.writeTextFile"), "{error}");
    assert_eq!(editor.run(Run::command("ls")).await.unwrap_err().code(), "editor_lacks");
    assert_eq!(editor.read_text_file("relative").await.unwrap_err().code(), "invalid_input");
    assert!(calls.lock().unwrap().is_empty());

    let error = editor.read_text_file("/gone").await.unwrap_err();
    assert_eq!(error.code(), "file_not_found");
    assert_eq!(error.data().unwrap().to_value()["data"]["uri"], "file:///gone");
}

#[tokio::test]
async fn a_run_that_works_for_no_editor_has_none() {
    assert!(context(&Arc::new(Recorder::default())).editor().is_none());
    let (recorder, _) = editor(&json!({}));
    assert!(context(&recorder).editor().is_none());
}
