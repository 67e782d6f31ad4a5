//! A client of the Agent Client Protocol that hides nothing: it validates every line that it receives against the official schema.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed expectation ends the test")]

use std::collections::VecDeque;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::error_text::check_message;
use crate::schema::{Conversation, Side};

/// The time limit for a response or a message.
const LIMIT: Duration = Duration::from_secs(60);

/// A client that reads only while a test waits for something.
#[derive(Debug)]
pub struct Editor {
    reader: Box<dyn Reader>,
    writer: Option<Box<dyn Writer>>,
    /// The agent's process, if this client launched it. Killed when dropped.
    child: Option<Child>,
    next: u64,
    conversation: Conversation,
    /// Messages that arrived while the test waited for another one.
    before: VecDeque<Value>,
    /// The params of the received updates, oldest first.
    pub updates: Vec<Value>,
    /// The received control lines.
    pub control: Vec<String>,
}

trait Reader: tokio::io::AsyncBufRead + Send + Unpin + std::fmt::Debug {}
impl<T: tokio::io::AsyncBufRead + Send + Unpin + std::fmt::Debug> Reader for T {}

trait Writer: AsyncWrite + Send + Unpin + std::fmt::Debug {}
impl<T: AsyncWrite + Send + Unpin + std::fmt::Debug> Writer for T {}

// === impl Editor ===

impl Editor {
    pub fn from_streams(
        reader: impl AsyncRead + Send + Unpin + std::fmt::Debug + 'static,
        writer: impl AsyncWrite + Send + Unpin + std::fmt::Debug + 'static,
    ) -> Self {
        Self {
            reader: Box::new(BufReader::new(reader)),
            writer: Some(Box::new(writer)),
            child: None,
            next: 0,
            conversation: Conversation::holding(Side::Agent),
            before: VecDeque::new(),
            updates: Vec::new(),
            control: Vec::new(),
        }
    }

    /// Launches an agent and initialises it. Its standard error goes to the test's.
    pub async fn launch(words: &[String], cwd: &Path) -> Self {
        let files = json!({"readTextFile": false, "writeTextFile": false});
        let capabilities = json!({"fs": files, "session": {"notices": {}, "compaction": {}}});
        Self::launch_with(words, cwd, capabilities).await
    }

    /// Launches an agent and initialises it with these capabilities.
    pub async fn launch_with(words: &[String], cwd: &Path, capabilities: Value) -> Self {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(cwd).kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut editor =
            Self::from_streams(child.stdout.take().unwrap(), child.stdin.take().unwrap());
        editor.child = Some(child);
        editor.initialize(capabilities).await;
        editor
    }

    /// Closes the agent's input and waits for its exit.
    pub async fn close(mut self) -> ExitStatus {
        drop(self.writer.take());
        while self.message().await.is_some() {}
        timeout(LIMIT, self.child.as_mut().unwrap().wait()).await.unwrap().unwrap()
    }

    /// Kills the running agent with `SIGKILL`; fails if it is not running.
    pub async fn kill(mut self) {
        let child = self.child.as_mut().unwrap();
        assert_eq!(child.try_wait().unwrap(), None, "the agent had ended");
        child.kill().await.unwrap();
    }

    pub async fn initialize(&mut self, capabilities: Value) -> Value {
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        self.ok("initialize", params).await
    }

    /// Opens a session and returns its id.
    pub async fn session(&mut self) -> String {
        self.session_in(Path::new("/work")).await
    }

    pub async fn session_in(&mut self, cwd: &Path) -> String {
        let opened = self.ok("session/new", json!({"cwd": cwd, "mcpServers": []})).await;
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    pub async fn load(&mut self, session: &str) -> Value {
        self.load_in(session, Path::new("/w")).await
    }

    pub async fn load_in(&mut self, session: &str, cwd: &Path) -> Value {
        let params = json!({"sessionId": session, "cwd": cwd, "mcpServers": []});
        self.ok("session/load", params).await
    }

    /// Sends a line unchanged.
    pub async fn raw(&mut self, line: &[u8]) {
        let writer = self.writer.as_mut().unwrap();
        writer.write_all(line).await.unwrap();
        writer.flush().await.unwrap();
    }

    pub async fn send(&mut self, message: &Value) {
        self.conversation.note(message);
        self.raw(format!("{message}\n").as_bytes()).await;
    }

    /// Sends a request and returns its id.
    pub async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = json!(self.next);
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    pub async fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    pub async fn reply(&mut self, request: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    /// Answers a permission request with one of its options.
    pub async fn choose(&mut self, question: &Value, option: &str) {
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": option}});
        self.reply(question, outcome).await;
    }

    /// Waits for the whole response to a request.
    pub async fn answer(&mut self, id: &Value) -> Value {
        self.until(|message| message.get("method").is_none() && message["id"] == *id).await
    }

    /// Waits for the end of a turn, which must succeed.
    pub async fn end_turn(&mut self, id: &Value) {
        let answer = self.answer(id).await;
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    }

    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        self.answer(&id).await
    }

    /// Waits for the result of a request.
    pub async fn ok(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.call(method, params).await;
        assert!(answer.get("result").is_some(), "{method}: {answer}");
        answer["result"].take()
    }

    /// Waits for the error code of a request.
    pub async fn code(&mut self, method: &str, params: Value) -> i64 {
        let answer = self.call(method, params).await;
        answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{method}: {answer}"))
    }

    pub async fn start_prompt(&mut self, session: &str, text: &str) -> Value {
        let prompt = json!([{"type": "text", "text": text}]);
        self.ask("session/prompt", json!({"sessionId": session, "prompt": prompt})).await
    }

    /// Sends a prompt, and waits for the end of the turn.
    pub async fn prompt(&mut self, session: &str, text: &str) -> Value {
        let id = self.start_prompt(session, text).await;
        let mut answer = self.answer(&id).await;
        assert!(answer.get("result").is_some(), "{text}: {answer}");
        answer["result"].take()
    }

    /// Waits for the next request of the agent with this method.
    pub async fn request(&mut self, method: &str) -> Value {
        self.until(|message| message["method"] == method && message.get("id").is_some()).await
    }

    /// Waits for the next notification with this method. Updates do not count.
    pub async fn wait_for_notification(&mut self, method: &str) -> Value {
        self.until(|message| message["method"] == method && message.get("id").is_none()).await
    }

    /// Waits until `count` updates have arrived.
    pub async fn wait_for_updates(&mut self, count: usize) {
        while self.updates.len() < count {
            let message = self.message().await.unwrap();
            self.before.push_back(message);
        }
    }

    /// The updates of one session.
    pub fn updates_of(&self, session: &str) -> Vec<Value> {
        let ours = self.updates.iter().filter(|params| params["sessionId"] == session);
        ours.map(|params| params["update"].clone()).collect()
    }

    /// The texts of the received chunks of this kind, by message.
    pub fn texts_by_message(&self, kind: &str) -> Vec<(Value, String)> {
        let mut said: Vec<(Value, String)> = Vec::new();
        for update in self.updates.iter().map(|params| &params["update"]) {
            if update["sessionUpdate"] != kind {
                continue;
            }
            let text = update["content"]["text"].as_str().unwrap_or_default();
            match said.last_mut() {
                Some((id, whole)) if *id == update["messageId"] => whole.push_str(text),
                _ => said.push((update["messageId"].clone(), text.to_owned())),
            }
        }
        said
    }

    pub fn words(&self, kind: &str) -> Vec<String> {
        self.texts_by_message(kind).into_iter().map(|(_, text)| text).collect()
    }

    pub async fn until_control(&mut self, fits: impl Fn(&str) -> bool) {
        while !self.control.iter().any(|line| fits(line)) {
            let line = self.line().await.unwrap();
            assert!(line.starts_with('#'), "{line}");
            self.control.push(line);
        }
    }

    /// Waits for the first message that fits, and keeps the messages before it.
    pub async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(place) = self.before.iter().position(&fits) {
            return self.before.remove(place).unwrap();
        }
        loop {
            let message = self.message().await.unwrap_or_else(|| panic!("the stream has ended"));
            if fits(&message) {
                return message;
            }
            self.before.push_back(message);
        }
    }

    /// Whether a message that fits has already arrived and was kept.
    pub fn has_before(&self, fits: impl Fn(&Value) -> bool) -> bool {
        self.before.iter().any(fits)
    }

    /// Waits for the next message; `None` at the end of the stream. Keeps updates in [`Editor::updates`] too.
    pub async fn message(&mut self) -> Option<Value> {
        loop {
            let line = self.line().await?;
            if line.starts_with('#') {
                self.control.push(line);
                continue;
            }
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
            let held = self.conversation.hold(&message);
            held.unwrap_or_else(|error| panic!("{error:#}: {message}"));
            check_message(&message["error"]);
            if message["method"] == "session/update" {
                self.updates.push(message["params"].clone());
            }
            return Some(message);
        }
    }

    /// Waits for the next line; `None` at the end of the stream.
    pub async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = timeout(LIMIT, self.reader.read_line(&mut line)).await;
        let count = read.unwrap_or_else(|_| panic!("nothing came; before: {:?}", self.before));
        if count.unwrap_or(0) == 0 {
            return None;
        }
        assert!(line.ends_with('\n') && line.len() > 1, "no line: {line:?}");
        line.pop();
        Some(line)
    }
}

/// Joins the texts of an agent's message chunks.
pub fn agent_text(updates: &[Value]) -> String {
    let chunks = updates.iter().filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks.filter_map(|chunk| chunk["content"]["text"].as_str()).collect()
}
