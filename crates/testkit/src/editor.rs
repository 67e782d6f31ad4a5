//! A client of the Agent Client Protocol that hides nothing: what it got is what came, and is held to the official schema.

use std::collections::HashMap;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::time::timeout;
use trilogue_domain::lock;

use crate::schema::{Conversation, Side};
use crate::wait::until;

const LIMIT: Duration = Duration::from_secs(60);

/// An agent that was launched, and the messages with it. Killed when dropped.
#[derive(Debug)]
pub struct Editor {
    child: Child,
    input: tokio::sync::Mutex<Option<ChildStdin>>,
    shared: Arc<Shared>,
    last_id: std::sync::atomic::AtomicU64,
}

#[derive(Debug)]
struct Shared {
    /// What the agent says is held to the schema.
    conversation: Mutex<Conversation>,
    broken: Mutex<Vec<String>>,
    messages: Mutex<Vec<Value>>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
}

// === impl Editor ===

impl Editor {
    /// Launches an agent and initialises it. Its complaints go to the test's.
    pub async fn launch(words: &[String], cwd: &Path) -> Result<Self> {
        let (program, arguments) = words.split_first().context("no command")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child =
            command.spawn().with_context(|| format!("{program} could not be started"))?;
        let input = child.stdin.take().context("no input")?;
        let output = child.stdout.take().context("no output")?;
        let shared = Arc::new(Shared::new());
        tokio::spawn(read(BufReader::new(output), Arc::clone(&shared)));
        let editor = Self {
            child,
            input: tokio::sync::Mutex::new(Some(input)),
            shared,
            last_id: std::sync::atomic::AtomicU64::new(0),
        };
        let capabilities = json!({
            "fs": {"readTextFile": false, "writeTextFile": false},
            "session": {"notices": {}, "compaction": {}},
        });
        let hello = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        editor.call("initialize", &hello).await?;
        Ok(editor)
    }

    pub async fn call(&self, method: &str, params: &Value) -> Result<Value> {
        let answer = self.begin(method, params).await?;
        let mut answer = timeout(LIMIT, answer)
            .await
            .with_context(|| format!("{method} was not answered"))?
            .with_context(|| format!("the agent ended before it answered {method}"))?;
        ensure!(answer["error"].is_null(), "{method} was refused: {}", answer["error"]);
        Ok(answer["result"].take())
    }

    pub async fn begin(&self, method: &str, params: &Value) -> Result<oneshot::Receiver<Value>> {
        let id = 1 + self.last_id.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (tell, answer) = oneshot::channel();
        lock(&self.shared.waiting).insert(id, tell);
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
        Ok(answer)
    }

    pub async fn notify(&self, method: &str, params: &Value) -> Result<()> {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await
    }

    pub async fn answer(&self, request: &Value, result: &Value) -> Result<()> {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await
    }

    async fn send(&self, message: &Value) -> Result<()> {
        lock(&self.shared.conversation).note(message);
        let mut input = self.input.lock().await;
        let input = input.as_mut().context("the input was closed")?;
        input.write_all(format!("{message}\n").as_bytes()).await?;
        Ok(input.flush().await?)
    }

    pub async fn new_session(&self, cwd: &Path) -> Result<String> {
        let made = self.call("session/new", &json!({"cwd": cwd, "mcpServers": []})).await?;
        Ok(made["sessionId"].as_str().context("the session has no id")?.to_owned())
    }

    pub async fn prompt(&self, session: &str, text: &str) -> Result<oneshot::Receiver<Value>> {
        let prompt = json!([{"type": "text", "text": text}]);
        self.begin("session/prompt", &json!({"sessionId": session, "prompt": prompt})).await
    }

    #[must_use]
    pub fn messages(&self) -> Vec<Value> {
        lock(&self.shared.messages).clone()
    }

    #[must_use]
    pub fn updates(&self, session: &str) -> Vec<Value> {
        let ours = self.messages().into_iter().filter(|message| {
            message["method"] == "session/update" && message["params"]["sessionId"] == session
        });
        ours.map(|mut message| message["params"]["update"].take()).collect()
    }

    pub async fn saw(&self, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        until(what, LIMIT, || {
            let found = self.messages().into_iter().find(&is);
            async { found }
        })
        .await
    }

    pub async fn close(mut self) -> Result<ExitStatus> {
        self.input.lock().await.take();
        let ended = timeout(LIMIT, self.child.wait()).await;
        ended.context("the agent did not end when its input did")?.map_err(Into::into)
    }

    /// Kills the agent without a word (`SIGKILL`).
    pub async fn kill(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the agent had ended with {status}");
        }
        Ok(self.child.kill().await?)
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let broken = lock(&self.shared.broken);
        assert!(broken.is_empty() || std::thread::panicking(), "{broken:#?}");
    }
}

// === impl Shared ===

impl Shared {
    fn new() -> Self {
        Self {
            conversation: Mutex::new(Conversation::holding(Side::Agent)),
            broken: Mutex::default(),
            messages: Mutex::default(),
            waiting: Mutex::default(),
        }
    }

    /// Holds what came to the schema. What breaks it fails the test when the editor is dropped.
    fn hold(&self, message: &Value) {
        let held = lock(&self.conversation).hold(message);
        if let Err(error) = held {
            let mut broken = lock(&self.broken);
            broken.push(format!("{error:#}: {message}"));
        }
    }
}

#[must_use]
pub fn said(updates: &[Value]) -> String {
    let chunks = updates.iter().filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|chunk| chunk["content"]["text"].as_str()).collect()
}

async fn read(mut output: BufReader<ChildStdout>, shared: Arc<Shared>) {
    let mut line = String::new();
    while matches!(output.read_line(&mut line).await, Ok(1..)) {
        // What is no message is kept too, for a test that looks for it.
        let message = serde_json::from_str(&line).unwrap_or_else(|_| json!({"noise": line}));
        if message.get("noise").is_none() {
            shared.hold(&message);
        }
        let answered = (message["method"].is_null()).then(|| message["id"].as_u64()).flatten();
        lock(&shared.messages).push(message.clone());
        let mut waiting = lock(&shared.waiting);
        if let Some(tell) = answered.and_then(|id| waiting.remove(&id)) {
            // Who asked may have gone on.
            let _ = tell.send(message);
        }
        drop(waiting);
        line.clear();
    }
    // Nobody is answered any more.
    lock(&shared.waiting).clear();
}
