//! A Rust agent that uses the files and terminals of an editor, which launched `trilogue connect`.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::agent_client_examples::example;
use crate::connect_editor::Editor;
use crate::harness::{BINARY, Home, finish, until};

/// A server of another program, killed when dropped.
struct Serving(Child);

/// An editor's state: the files on the disk, unsaved changes, and terminals.
struct EditorState {
    cwd: std::path::PathBuf,
    /// The unsaved content of open files.
    unsaved: HashMap<String, String>,
    terminals: HashMap<String, (String, i32)>,
    released: usize,
    called: Vec<String>,
}

// === impl Serving ===

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// === impl EditorState ===

impl EditorState {
    fn at(cwd: &Path) -> Self {
        Self {
            cwd: cwd.to_owned(),
            unsaved: HashMap::new(),
            terminals: HashMap::new(),
            released: 0,
            called: Vec::new(),
        }
    }

    fn take(&mut self, method: &str, params: &Value) -> Value {
        self.called.push(method.to_owned());
        let text = |key: &str| params[key].as_str().unwrap_or_default().to_owned();
        match method {
            "fs/read_text_file" => {
                let path = text("path");
                let read = || std::fs::read_to_string(&path).unwrap();
                json!({ "content": self.unsaved.get(&path).cloned().unwrap_or_else(read) })
            }
            "fs/write_text_file" => {
                self.unsaved.remove(&text("path"));
                std::fs::write(text("path"), text("content")).unwrap();
                json!({})
            }
            "terminal/create" => {
                let arguments = params["args"].as_array().into_iter().flatten();
                let mut command = Command::new(text("command"));
                command.args(arguments.filter_map(Value::as_str)).current_dir(&self.cwd);
                let ended = finish(command, "");
                let id = format!("t{}", self.terminals.len());
                self.terminals.insert(id.clone(), (ended.out + &ended.err, ended.code));
                json!({ "terminalId": id })
            }
            "terminal/wait_for_exit" => {
                json!({ "exitCode": self.terminals[&text("terminalId")].1 })
            }
            "terminal/output" => {
                let (output, code) = &self.terminals[&text("terminalId")];
                json!({ "output": output, "truncated": false, "exitStatus": { "exitCode": code } })
            }
            "terminal/release" => {
                self.released += 1;
                json!({})
            }
            other => panic!("{other} was asked"),
        }
    }
}

fn serve(home: &Home) -> Serving {
    let mut command = home.program(example("linter"));
    command.args(["--listen", "127.0.0.1:0"]).stdout(Stdio::null()).stderr(Stdio::null());
    let serving = Serving(command.spawn().unwrap());
    // The arguments in the record name an address before the server listens.
    until(|| home.server_record()?["addresses"].get(0).cloned());
    serving
}

/// The agent's text in a turn with this prompt, while an editor answers its requests.
fn lint(editor: &mut Editor, desk: &mut EditorState, session: &str, path: &str) -> (Value, String) {
    let id = editor.prompt(session, path);
    let mut said = String::new();
    loop {
        let message = editor.message();
        match message["method"].as_str() {
            Some("session/update") => {
                let text = &message["params"]["update"]["content"]["text"];
                said.push_str(text.as_str().unwrap_or_default());
            }
            Some(method) => {
                assert_eq!(message["params"]["sessionId"], session, "{message}");
                let result = desk.take(method, &message["params"]);
                editor.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
            }
            None if message["id"] == id => return (message, said),
            None => panic!("{message}"),
        }
    }
}

#[test]
fn an_agent_in_rust_works_with_the_editors_own_files_and_terminals() {
    let home = Home::new();
    let _serving = serve(&home);
    let file = home.write("notes.md", "one  \ntwo\n");
    let path = file.to_str().unwrap();
    for git in [["init", "-q"], ["add", "notes.md"]] {
        let mut command = home.program("git");
        command.args(git);
        finish(command, "").expect(0);
    }
    let mut desk = EditorState::at(&home.work());
    // The agent works with the unsaved content.
    desk.unsaved.insert(path.to_owned(), "one  \nthree\t\n".to_owned());
    let mut editor = Editor::launch(&home, &["connect", "linter"]);
    let can = json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true });
    editor.ask("initialize", json!({ "protocolVersion": 1, "clientCapabilities": can }));
    let session = editor.session();
    let (answer, said) = lint(&mut editor, &mut desk, &session, path);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one\nthree\n");
    assert!(said.contains("notes.md | "), "{said}");
    assert_eq!(
        desk.called,
        [
            "fs/read_text_file",
            "fs/write_text_file",
            "terminal/create",
            "terminal/wait_for_exit",
            "terminal/output",
            "terminal/release"
        ]
    );
    assert_eq!(desk.released, 1);

    // Another editor on the same thread has files only; the agent requests from each editor what it offers.
    let mut other = Editor::launch(&home, &["connect", "linter"]);
    let can = json!({ "fs": { "readTextFile": true, "writeTextFile": true } });
    other.ask("initialize", json!({ "protocolVersion": 1, "clientCapabilities": can }));
    let second = other.session();
    let mut desk = EditorState::at(&home.work());
    std::fs::write(&file, "x \n").unwrap();
    let (answer, _) = lint(&mut other, &mut desk, &second, path);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    assert_eq!(desk.called, ["fs/read_text_file", "fs/write_text_file"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "x\n");
}

#[test]
fn without_an_editor_there_are_none() {
    let home = Home::new();
    let _serving = serve(&home);
    let mut run = home.program(BINARY);
    run.args(["run", "linter", "notes.md"]);
    let said = finish(run, "").expect(0);
    assert!(said.out.contains("There is no editor here"), "{said:?}");
    // An editor that offers nothing gets no requests.
    let (mut editor, session) = Editor::launch_with_session(&home, &["connect", "linter"]);
    let mut desk = EditorState::at(&home.work());
    let (answer, _) = lint(&mut editor, &mut desk, &session, "/notes.md");
    assert!(desk.called.is_empty(), "{answer}");
}
