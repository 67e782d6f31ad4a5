//! A third-party coding agent, hosted, with a model on this machine. Its permissions are granted through another interface.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use trilogue_testkit::editor::agent_text;
use trilogue_testkit::model::{self, Model};
use trilogue_testkit::official::opencode;
use trilogue_testkit::{Editor, Folder, Server, ServerOptions, until};

const LIMIT: Duration = Duration::from_secs(60);

/// The settings of the agent, which asks before it edits files and uses this model. Its own files are in the folder `own`. `further` are more settings of it.
pub(crate) fn opencode_settings(own: &Path, model: &Model, further: &str) -> Result<String> {
    let folder = |name: &str| own.join(name).display().to_string();
    let provider = json!({
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": model.url(), "apiKey": "none"},
        "models": {model::NAME: {"name": "Fake"}},
    });
    let config = json!({
        "model": format!("fake/{}", model::NAME), "small_model": format!("fake/{}", model::NAME),
        "provider": {"fake": provider}, "permission": {"edit": "ask", "bash": "ask"},
        "autoupdate": false, "share": "disabled",
    });
    let path = own.join("config/opencode");
    fs::create_dir_all(&path)?;
    fs::write(path.join("opencode.json"), config.to_string())?;
    let mut settings = format!(
        "[agents.opencode]\nkind = \"agent-client\"\ncommand = {}\nsandbox = \"auto\"\nwrite_paths = {}\n{further}\n[agents.opencode.env]\n",
        json!([opencode()?, "acp"]),
        json!([own])
    );
    let folders = [
        ("HOME", ""),
        ("XDG_CONFIG_HOME", "config"),
        ("XDG_DATA_HOME", "data"),
        ("XDG_CACHE_HOME", "cache"),
        ("XDG_STATE_HOME", "state"),
    ];
    for (name, value) in folders {
        settings.push_str(&format!("{name} = {}\n", json!(folder(value))));
    }
    for name in ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS"] {
        settings.push_str(&format!("OPENCODE_DISABLE_{name} = \"1\"\n"));
    }
    Ok(settings)
}

/// Waits for the pending question.
async fn question(server: &Server) -> Value {
    let client = server.client();
    let pending = until("a question", LIMIT, || {
        let look = client.get("/api/v1/interrupts?pending=true");
        async move { look.await.ok()?.json()["items"].get(0).cloned() }
    });
    pending.await.unwrap_or_else(|error| panic!("{error}\n{}", server.home().log_end()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coding_agent_asks_and_is_answered_elsewhere() {
    let (dir, own, cwd) = (Folder::new().unwrap(), Folder::new().unwrap(), Folder::new().unwrap());
    let model = Model::start().await.unwrap();
    let file = cwd.path().join("notes.txt");
    let write = json!({"filePath": file, "content": "from the model"});
    model.calls("write the notes", "write", write);
    let settings = opencode_settings(own.path(), &model, "").unwrap();
    let options = ServerOptions { settings, ..ServerOptions::default() };
    let server = Server::start(dir.path(), &options).await.unwrap();
    let command = server.home().command_line(&["connect", "opencode"]).await.unwrap();
    let mut editor = Editor::launch(&command, cwd.path()).await;
    let session = editor.session_in(cwd.path()).await;

    // The command line grants the permission.
    let turn = editor.start_prompt(&session, "Please write the notes.").await;
    let asked = question(&server).await;
    editor.request("session/request_permission").await;
    assert!(!file.exists(), "the file was written before leave was given");
    let id = asked["id"].as_str().unwrap();
    let url = format!("http://{}", server.home().address());
    let approve = ["approve", id, "--yes", "--url", &url, "--token", server.token()];
    let output = server.home().command(&approve).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    editor.end_turn(&turn).await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "from the model");
    let updates = editor.updates_of(&session);
    assert!(agent_text(&updates).contains("It is done."), "{updates:?}");
    let ended = |update: &Value| {
        update["sessionUpdate"] == "tool_call_update" && update["status"] == "completed"
    };
    assert!(updates.iter().any(ended), "the call did not end: {updates:?}");
    // The editor is notified that its question is settled.
    editor.wait_for_notification("$/cancel_request").await;

    // /api/v1 refuses the permission.
    fs::remove_file(&file).unwrap();
    let turn = editor.start_prompt(&session, "Once more: write the notes.").await;
    let asked = question(&server).await;
    let path = format!("/api/v1/interrupts/{}/answer", asked["id"].as_str().unwrap());
    let mut options = asked["options"].as_array().unwrap().iter();
    let reject = options.find(|option| option["effect"] == "reject").unwrap();
    let no = json!({"option": reject["id"]});
    server.client().post(&path, &no).await.unwrap().ok().unwrap();
    let result = editor.answer(&turn).await;
    assert!(result["result"]["stopReason"].is_string(), "{result}");
    assert!(!file.exists(), "the file was written without leave");
    assert!(editor.close().await.success());

    // A second editor gets the whole conversation, with the ids of the first.
    let mut editor = Editor::launch(&command, cwd.path()).await;
    editor.load_in(&session, cwd.path()).await;
    let prompts = |updates: &[Value]| {
        updates.iter().filter(|update| update["sessionUpdate"] == "user_message_chunk").count()
    };
    assert_eq!(prompts(&editor.updates_of(&session)), 2);
    assert_eq!(editor.prompt(&session, "Thanks.").await["stopReason"], "end_turn");
    assert!(!model.requests().is_empty());
}
