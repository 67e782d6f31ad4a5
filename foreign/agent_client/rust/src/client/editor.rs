//! A client: launches an agent, serves it files and terminals, answers its questions, records its messages.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, CreateElicitationRequest, CreateTerminalRequest, InitializeRequest,
    InitializeResponse, KillTerminalRequest, NewSessionRequest, NewSessionResponse, PromptRequest,
    ReadTextFileRequest, ReleaseTerminalRequest, RequestPermissionRequest, SessionNotification,
    TerminalOutputRequest, WaitForTerminalExitRequest, WriteTextFileRequest,
};
use agent_client_protocol::{
    Agent, Client, Error, JsonRpcRequest, UntypedMessage, on_receive_notification,
    on_receive_request,
};
use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use crate::transport::transport;

/// The time limit for a message of the agent.
const SEE_LIMIT: Duration = Duration::from_secs(20);
/// The delay between a cancel and the answer to an open question.
const LATE: Duration = Duration::from_millis(300);

/// The agent under test, and its expected features.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its command line, or its address.
    pub command: Vec<String>,
    pub cwd: String,
    pub name: Option<String>,
    pub prompt: String,
    /// Whether the agent must do everything that Trilogue promises, not only what the protocol requires.
    pub is_trilogue: bool,
    /// Whether it records the ids of prompts.
    pub has_ids: bool,
    /// Whether it knows every word of our example agents.
    pub has_vocabulary: bool,
}

/// How questions are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    /// Gives the narrowest permission, and fills in forms.
    Allow,
    /// Refuses permission, and declines forms.
    Refuse,
    /// Cancels the turn, and answers the question a little later.
    Cancel,
}

/// A launched and initialised agent.
#[derive(Clone, Debug)]
pub struct Editor {
    pub target: Target,
    pub hello: InitializeResponse,
    connection: ConnectionTo<Agent>,
    seen: Arc<Seen>,
}

/// Messages from an agent.
#[derive(Debug, Default)]
struct Seen {
    /// All messages, in order.
    messages: Mutex<Vec<Value>>,
    asked: Mutex<Vec<Value>>,
    terminals: Mutex<BTreeMap<String, Terminal>>,
    /// The number of updates that the SDK could parse.
    typed: AtomicUsize,
}

/// A command that the agent requested: its exit code and its output once it has ended.
#[derive(Debug)]
struct Terminal {
    ended: watch::Receiver<Option<(Option<i32>, String)>>,
    task: tokio::task::JoinHandle<()>,
}

/// The raw result of a prompt, and the raw updates of its turn.
#[derive(Debug)]
pub struct Turn {
    pub result: Value,
    pub updates: Vec<Value>,
}

// === impl Target ===

impl Target {
    /// Launches the agent, calls the function with it, and closes it.
    pub async fn open<T>(
        &self,
        manner: Manner,
        work: impl AsyncFnOnce(Editor) -> Result<T>,
    ) -> Result<T> {
        let seen = Arc::<Seen>::default();
        let share = || Arc::clone(&seen);
        let (tap, updates, permission, form) = (share(), share(), share(), share());
        let (create, output, wait, kill, release) = (share(), share(), share(), share(), share());
        let agent = transport(&self.command, move |line| {
            if let Ok(message) = serde_json::from_str(line) {
                lock(&tap.messages).push(message);
            }
        })?;
        let target = self.clone();
        Client
            .v1()
            .name("official-rust")
            .on_receive_notification(
                async move |_: SessionNotification, _| {
                    updates.typed.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                },
                on_receive_notification!(),
            )
            .on_receive_request(
                async move |request: RequestPermissionRequest, responder, agent| {
                    let params = serde_json::to_value(&request)?;
                    lock(&permission.asked).push(params.clone());
                    let connection = agent.clone();
                    agent.spawn(async move {
                        let outcome = match manner {
                            Manner::Allow => choose(&params, &["allow_once", "allow_always"]),
                            Manner::Refuse => choose(&params, &["reject_once", "reject_always"]),
                            Manner::Cancel => {
                                cancel_first(&connection, &request.session_id.0).await?;
                                json!({"outcome": "cancelled"})
                            }
                        };
                        responder.respond_with_result(typed(json!({"outcome": outcome})))
                    })
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: CreateElicitationRequest, responder, agent| {
                    let params = serde_json::to_value(&request)?;
                    lock(&form.asked).push(params.clone());
                    let connection = agent.clone();
                    agent.spawn(async move {
                        let answer = match manner {
                            Manner::Allow => filled(&params["requestedSchema"]),
                            Manner::Refuse => json!({"action": "decline"}),
                            Manner::Cancel => {
                                let id = params["sessionId"].as_str().unwrap_or_default();
                                cancel_first(&connection, id).await?;
                                json!({"action": "cancel"})
                            }
                        };
                        responder.respond_with_result(typed(answer))
                    })
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async |request: ReadTextFileRequest, responder, _| {
                    let read = read_file(&request.path, request.line, request.limit);
                    responder
                        .respond_with_result(read.and_then(|text| typed(json!({"content": text}))))
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async |request: WriteTextFileRequest, responder, _| {
                    let written = std::fs::write(&request.path, &request.content);
                    let result = written.map_err(Error::into_internal_error);
                    responder.respond_with_result(result.and_then(|()| typed(json!({}))))
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: CreateTerminalRequest, responder, _| {
                    let id = Uuid::new_v4().to_string();
                    let terminal = Terminal::start(&request.command, &request.args);
                    lock(&create.terminals).insert(id.clone(), terminal);
                    responder.respond_with_result(typed(json!({"terminalId": id})))
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: TerminalOutputRequest, responder, _| {
                    let ended = output.terminal(&request.terminal_id.0)?.borrow().clone();
                    let text = ended.map(|(_, text)| text).unwrap_or_default();
                    responder
                        .respond_with_result(typed(json!({"output": text, "truncated": false})))
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: WaitForTerminalExitRequest, responder, agent| {
                    let mut ended = wait.terminal(&request.terminal_id.0)?;
                    agent.spawn(async move {
                        let ended = ended.wait_for(Option::is_some).await;
                        let code = ended.ok().and_then(|ended| ended.as_ref()?.0);
                        responder.respond_with_result(typed(json!({"exitCode": code})))
                    })
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: KillTerminalRequest, responder, _| {
                    if let Some(terminal) = lock(&kill.terminals).get(&*request.terminal_id.0) {
                        terminal.task.abort();
                    }
                    responder.respond_with_result(typed(json!({})))
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: ReleaseTerminalRequest, responder, _| {
                    if let Some(gone) = lock(&release.terminals).remove(&*request.terminal_id.0) {
                        gone.task.abort();
                    }
                    responder.respond_with_result(typed(json!({})))
                },
                on_receive_request!(),
            )
            .connect_with(agent, async |connection: ConnectionTo<Agent>| {
                let hello = connection.send_request(hello()?).block_task().await?;
                let editor = Editor { target, hello, connection, seen };
                Ok(work(editor).await)
            })
            .await?
    }
}

// === impl Editor ===

impl Editor {
    /// Sends a request in the SDK's types.
    pub async fn call<R: JsonRpcRequest + DeserializeOwned>(
        &self,
        params: Value,
    ) -> Result<R::Response, Error> {
        self.connection.send_request(typed::<R>(params)?).block_task().await
    }

    /// Sends a raw request that the SDK cannot send or does not show.
    pub async fn raw(&self, method: &str, params: Value) -> Result<Value, Error> {
        self.connection.send_request(UntypedMessage::new(method, params)?).block_task().await
    }

    pub async fn new_session(&self) -> Result<NewSessionResponse, Error> {
        self.call::<NewSessionRequest>(json!({"cwd": self.target.cwd, "mcpServers": []})).await
    }

    /// One turn in the SDK's types.
    pub async fn prompt(&self, session: &str, prompt: Value) -> Result<Turn, Error> {
        let begun = lock(&self.seen.messages).len();
        let params = json!({"sessionId": session, "prompt": blocks(prompt)});
        self.call::<PromptRequest>(params).await?;
        let raw = lock(&self.seen.messages)[begun..]
            .iter()
            .rev()
            .map(|message| message["result"].clone())
            .find(|result| result["stopReason"].is_string());
        Ok(Turn { result: raw.unwrap_or_default(), updates: self.updates(session, begun) })
    }

    /// One turn with an id, which the SDK's types lack.
    pub async fn prompt_as(&self, session: &str, prompt: &str, id: &str) -> Result<Turn, Error> {
        let begun = lock(&self.seen.messages).len();
        let prompt = blocks(json!(prompt));
        let params = json!({"sessionId": session, "prompt": prompt, "messageId": id});
        let result = self.raw("session/prompt", params).await?;
        Ok(Turn { result, updates: self.updates(session, begun) })
    }

    pub fn cancel(&self, session: &str) -> Result<(), Error> {
        let params = json!({"sessionId": session});
        self.connection.send_notification(typed::<CancelNotification>(params)?)
    }

    /// The updates of a session after the first `begun` messages.
    pub fn updates(&self, session: &str, begun: usize) -> Vec<Value> {
        let messages = lock(&self.seen.messages);
        let ours = messages[begun..].iter().filter(|message| {
            message["method"] == "session/update" && message["params"]["sessionId"] == session
        });
        ours.map(|message| message["params"]["update"].clone()).collect()
    }

    pub fn asked(&self) -> Vec<Value> {
        lock(&self.seen.asked).clone()
    }

    /// The number of updates that the SDK could parse.
    pub fn understood(&self) -> usize {
        self.seen.typed.load(Ordering::Relaxed)
    }

    /// The number of terminals that were not released.
    pub fn terminals(&self) -> usize {
        lock(&self.seen.terminals).len()
    }

    /// Waits for an update that fulfils this condition.
    pub async fn saw(&self, session: &str, what: &str, is: impl Fn(&Value) -> bool) -> Result<()> {
        let begun = Instant::now();
        while !self.updates(session, 0).iter().any(&is) {
            ensure!(begun.elapsed() < SEE_LIMIT, "{what} did not come");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

// === impl Seen ===

impl Seen {
    fn terminal(&self, id: &str) -> Result<watch::Receiver<Option<(Option<i32>, String)>>, Error> {
        let terminals = lock(&self.terminals);
        let found = terminals.get(id).context("no such terminal")?;
        Ok(found.ended.clone())
    }
}

// === impl Terminal ===

impl Terminal {
    fn start(program: &str, args: &[String]) -> Self {
        let mut command = tokio::process::Command::new(program);
        command.args(args).stdin(std::process::Stdio::null()).kill_on_drop(true);
        let (tell, ended) = watch::channel(None);
        let task = tokio::spawn(async move {
            let ended = match command.output().await {
                Ok(done) => {
                    (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
                }
                Err(error) => (None, error.to_string()),
            };
            tell.send_replace(Some(ended));
        });
        Self { ended, task }
    }
}

// === impl Turn ===

impl Turn {
    pub fn stop_reason(&self) -> &str {
        self.result["stopReason"].as_str().unwrap_or_default()
    }

    /// The text of all messages.
    pub fn said(&self) -> String {
        messages(&self.updates, "agent_message_chunk").into_iter().map(|(_, text)| text).collect()
    }
}

/// The chunks of this kind as messages: the id and the text of each, in order.
pub fn messages(updates: &[Value], kind: &str) -> Vec<(Value, String)> {
    let mut found: Vec<(Value, String)> = Vec::new();
    for update in updates.iter().filter(|update| update["sessionUpdate"] == kind) {
        let id = &update["messageId"];
        let text = update["content"]["text"].as_str().unwrap_or("[block]");
        match found.last_mut() {
            Some((last, all)) if last == id => all.push_str(text),
            _ => found.push((id.clone(), text.to_owned())),
        }
    }
    found
}

fn blocks(prompt: Value) -> Value {
    if prompt.is_string() { json!([{"type": "text", "text": prompt}]) } else { prompt }
}

fn hello() -> Result<InitializeRequest, Error> {
    typed(json!({
        "protocolVersion": 1,
        "clientInfo": {"name": "official-rust", "version": "1"},
        "clientCapabilities": {
            "fs": {"readTextFile": true, "writeTextFile": true},
            "terminal": true,
            "elicitation": {"form": {}},
            "session": {"configOptions": {"boolean": {}}, "notices": {}, "compaction": {}},
        },
    }))
}

async fn cancel_first(agent: &ConnectionTo<Agent>, session: &str) -> Result<(), Error> {
    agent.send_notification(typed::<CancelNotification>(json!({"sessionId": session}))?)?;
    tokio::time::sleep(LATE).await;
    Ok(())
}

/// The first option of one of these kinds, as an outcome.
fn choose(params: &Value, kinds: &[&str]) -> Value {
    let options = params["options"].as_array().map_or(&[][..], Vec::as_slice);
    let find = |kind: &&str| options.iter().find(|option| option["kind"] == **kind);
    match kinds.iter().find_map(find) {
        Some(option) => json!({"outcome": "selected", "optionId": option["optionId"]}),
        None => json!({"outcome": "cancelled"}),
    }
}

/// A completed form: yes to every question, and a name in every text.
fn filled(schema: &Value) -> Value {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let values = fields.map(|(name, field)| {
        let value = match field["type"].as_str() {
            Some("boolean") => json!(true),
            Some("string") => json!("Ada"),
            Some("array") => json!([]),
            _ => json!(1),
        };
        (name.clone(), value)
    });
    json!({"action": "accept", "content": values.collect::<serde_json::Map<_, _>>()})
}

fn read_file(path: &Path, line: Option<u32>, limit: Option<u32>) -> Result<String, Error> {
    let text = std::fs::read_to_string(path).map_err(|_| {
        let message = format!("Resource not found: {}", path.display());
        Error::new(-32002, message).data(json!({"uri": path}))
    })?;
    if line.is_none() && limit.is_none() {
        return Ok(text);
    }
    let skip = line.unwrap_or(1).saturating_sub(1) as usize;
    let take = limit.map_or(usize::MAX, |limit| limit as usize);
    Ok(text.split('\n').skip(skip).take(take).collect::<Vec<_>>().join("\n"))
}

/// The SDK's type of a message.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    serde_json::from_value(value).map_err(Error::into_internal_error)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
