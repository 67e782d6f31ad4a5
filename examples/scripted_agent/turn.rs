//! One turn: the instructions of a prompt, line by line.
//!
//! | line | what happens |
//! |---|---|
//! | `say:TEXT`, or any other line | a message |
//! | `chunks:N` | one message of N pieces |
//! | `two` | two messages in a row, each of two pieces |
//! | `think:TEXT`, `user:TEXT` | a thought, a piece of the user's message |
//! | `blocks`, `states`, `unknown`, `raw:JSON` | every content block; every other update; an unknown one; this one |
//! | `tool`, `tool-done`, `tool-open` | a tool call that ends, that has ended already, that never ends |
//! | `permission`, `permission:KIND:PATH` | asks for permission, and says what came |
//! | `ask-form`, `ask-consent`, `ask-url` | asks for a name; whether to begin; to visit an address; and says what came |
//! | `ask-call`, `ask-call-text` | the same about the prompt's call and in no session; its id as it came, or as a text |
//! | `read:PATH`, `write:PATH:TEXT`, `term:COMMAND` | works with the client's files and terminals |
//! | `ext` | says and asks something that is in no protocol |
//! | `slow`, `slow:MS`, `stubborn` | waits until it is cancelled; does not listen to that |
//! | `later:MS:TEXT`, `once:FILE:JSON` | says something after the turn: a title; this update, when the file is there |
//! | `noise`, `line:TEXT`, `oversize:BYTES` | writes what is no message; this line; a line of that length |
//! | `crash`, `crash:CODE`, `stderr:TEXT` | kills itself; exits; complains |
//! | `much:text:BYTES`, `much:tool:BYTES`, `much:ask:BYTES` | says, does and asks much |
//! | `put`, `respond`, `choose`, `may`, `take-back`, `leave`, `large`, `deaf`, `fail` | see [`trials`] |
//! | `stop:REASON`, `error:CODE:TEXT` | how the turn ends |
//! | `prompt`, `init`, `session`, `cwd`, `env:NAME`, `pid`, `count` | says what it was given, where it is, how much it said |

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trilogue_sdk::agent_client::peer::{CallFailure, Peer};
use trilogue_wire::jsonrpc::{Code, ErrorObject};

use crate::agent::Scripted;
use crate::session::{Later, Session};
use crate::{Ids, UserId, content, large, tools, trials};

/// How long `stubborn` goes on.
const STUBBORN: Duration = Duration::from_secs(600);

/// A turn at work.
pub(crate) struct Turn<'a> {
    agent: &'a Scripted,
    peer: &'a Peer,
    session: &'a Arc<Session>,
    params: &'a Value,
    cancelled: CancellationToken,
    /// The id of the message that is said.
    message: String,
    messages: usize,
    calls: usize,
    stop: String,
}

/// Plays a prompt, and says how it ended.
pub(crate) async fn play(
    agent: &Scripted,
    peer: &Peer,
    session: &Arc<Session>,
    params: &Value,
    cancelled: CancellationToken,
) -> Result<Value, ErrorObject> {
    let user = params["messageId"].as_str().map(str::to_owned);
    let user = match agent.arguments().user_id {
        UserId::Echo => user,
        UserId::Own => Some(uuid::Uuid::new_v4().to_string()),
        UserId::None => None,
    };
    for block in params["prompt"].as_array().into_iter().flatten() {
        let mut chunk = json!({ "sessionUpdate": "user_message_chunk", "content": block });
        if let Some(id) = &user {
            chunk["messageId"] = json!(id);
        }
        session.note(chunk);
    }
    let (message, stop) = (String::new(), "end_turn".to_owned());
    let mut turn =
        Turn { agent, peer, session, params, cancelled, message, messages: 0, calls: 0, stop };
    for line in lines(params) {
        if turn.cancelled.is_cancelled() {
            break;
        }
        turn.step(&line).await?;
    }
    let stop = if turn.cancelled.is_cancelled() { "cancelled" } else { &turn.stop };
    let mut result = json!({ "stopReason": stop });
    if let Some(id) = user {
        result["userMessageId"] = json!(id);
    }
    Ok(result)
}

/// The lines of the last text of a prompt: what stands before it is context.
fn lines(params: &Value) -> Vec<String> {
    let blocks = params["prompt"].as_array().into_iter().flatten();
    let last = blocks.filter_map(|block| block["text"].as_str()).next_back().unwrap_or_default();
    last.lines().map(str::to_owned).collect()
}

// === impl Turn ===

impl Turn<'_> {
    async fn step(&mut self, line: &str) -> Result<(), ErrorObject> {
        let (word, rest) = line.split_once(':').unwrap_or((line, ""));
        match word {
            "chunks" => self.chunks(rest.parse().unwrap_or(1)).await,
            "two" => {
                for text in ["one", "two"] {
                    self.next_message();
                    self.piece(json!({ "type": "text", "text": format!("message {text}, ") }))
                        .await;
                    self.piece(json!({ "type": "text", "text": "to its end" })).await;
                }
            }
            "think" => self.chunk("agent_thought_chunk", text(rest)).await,
            "user" => self.chunk("user_message_chunk", text(rest)).await,
            "blocks" => {
                self.next_message();
                for block in content::blocks() {
                    self.piece(block).await;
                }
            }
            "states" => {
                for update in content::states() {
                    self.session.update(self.peer, update).await;
                }
            }
            "unknown" => self.raw(content::unknown()).await,
            "raw" => self.raw(rest).await,
            "tool" | "tool-done" | "tool-open" => self.tool(word).await,
            "permission" => self.permission(rest).await?,
            "ask-form" | "ask-consent" | "ask-url" | "ask-call" | "ask-call-text" => {
                self.ask(word).await?;
            }
            "read" | "write" | "term" => self.client(word, rest).await?,
            "ext" => self.extension().await,
            "slow" => self.slow(rest).await,
            "stubborn" => tokio::time::sleep(STUBBORN).await,
            "later" | "once" => self.later(word, rest),
            "noise" | "line" | "oversize" => self.noise(word, rest).await,
            "crash" => self.crash(rest).await,
            "stderr" => tools::complain(rest),
            "much" => self.much(rest).await?,
            "put" => trials::put(self.peer, self.session.id(), rest).await,
            "respond" => {
                trials::put(self.peer, self.session.id(), rest).await;
                self.slow("").await;
            }
            "choose" | "may" | "take-back" | "leave" => {
                let told = trials::ask(self.peer, self.session.id(), word, rest).await;
                self.say(&told).await;
            }
            "deaf" => {
                trials::deafen(self.peer, rest.parse().unwrap_or(1)).await;
                self.say("heard nothing").await;
                tokio::time::sleep(STUBBORN).await;
            }
            "large" => self.update(trials::large(rest)).await,
            "fail" => return Err(trials::error(rest)),
            "stop" => rest.clone_into(&mut self.stop),
            "error" => return Err(error(rest)),
            "prompt" | "init" | "session" | "cwd" | "env" | "pid" | "count" => {
                let told = self.told(word, rest);
                self.say(&told).await;
            }
            "say" => self.say(rest).await,
            _ => self.say(line).await,
        }
        Ok(())
    }

    /// What the agent was given, and what it is.
    fn told(&self, word: &str, name: &str) -> String {
        match word {
            "prompt" => self.params.to_string(),
            "init" => self.agent.client().to_string(),
            "session" => self.session.opening().to_string(),
            "cwd" => std::env::current_dir()
                .map_or_else(|it| it.to_string(), |it| it.display().to_string()),
            "env" => std::env::var(name).unwrap_or_else(|_| "(not set)".to_owned()),
            "pid" => std::process::id().to_string(),
            _ => self.session.length().to_string(),
        }
    }

    fn next_message(&mut self) {
        self.messages += 1;
        self.message = match self.agent.arguments().ids {
            Ids::Counter => format!("m{}", self.messages),
            Ids::Uuid | Ids::None | Ids::Null => uuid::Uuid::new_v4().to_string(),
        };
    }

    async fn say(&mut self, said: &str) {
        self.next_message();
        self.piece(text(said)).await;
    }

    async fn chunks(&mut self, count: usize) {
        self.next_message();
        for number in 0..count {
            self.piece(text(&format!("c{number} "))).await;
        }
    }

    async fn piece(&mut self, content: Value) {
        self.chunk("agent_message_chunk", content).await;
    }

    async fn chunk(&mut self, kind: &str, content: Value) {
        let mut update = json!({ "sessionUpdate": kind, "content": content });
        match (self.agent.arguments().ids, kind) {
            (Ids::None, _) => {}
            (Ids::Null, _) => update["messageId"] = Value::Null,
            (_, "agent_message_chunk") => update["messageId"] = json!(self.message),
            _ => update["messageId"] = json!(uuid::Uuid::new_v4().to_string()),
        }
        self.session.update(self.peer, update).await;
    }

    /// Sends an update as it is written.
    async fn raw(&self, update: &str) {
        let session = json!(self.session.id());
        let line = format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"update":{update},"sessionId":{session}}}}}"#
        );
        self.write(line.as_bytes()).await;
        self.write(b"\n").await;
    }

    async fn write(&self, bytes: &[u8]) {
        // Without a client there is nobody to be told.
        drop(self.peer.send_raw(bytes).await);
    }

    fn next_call(&mut self) -> String {
        self.calls += 1;
        format!("call-{}-{}", self.session.length(), self.calls)
    }

    async fn update(&self, update: Value) {
        self.session.update(self.peer, update).await;
    }

    async fn tool(&mut self, word: &str) {
        let call = self.next_call();
        let status = if word == "tool-done" { "completed" } else { "pending" };
        self.update(json!({
            "sessionUpdate": "tool_call", "toolCallId": call, "title": "Read a file", "name": "read_file",
            "kind": "read", "status": status, "rawInput": { "path": "/a" }, "locations": [{ "path": "/a", "line": 1 }],
        }))
        .await;
        if word != "tool" {
            return;
        }
        self.update(json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "status": "in_progress" })).await;
        let content = json!([{ "type": "content", "content": text("what it read") }]);
        self.update(json!({
            "sessionUpdate": "tool_call_update", "toolCallId": call, "status": "completed",
            "content": content, "rawOutput": { "lines": 1 },
        }))
        .await;
    }

    async fn permission(&mut self, rest: &str) -> Result<(), ErrorObject> {
        let (kind, path) = rest.split_once(':').unwrap_or(("edit", "/a"));
        let call = self.next_call();
        let diff = json!([{ "type": "diff", "path": path, "newText": "x" }]);
        self.update(json!({ "sessionUpdate": "tool_call", "toolCallId": call, "title": "Change a file", "kind": kind, "status": "pending" })).await;
        let params = json!({
            "sessionId": self.session.id(),
            "toolCall": { "toolCallId": call, "title": "Change a file", "name": "change_file", "kind": kind, "content": diff, "locations": [{ "path": path }] },
            "options": [
                { "optionId": "always", "name": "Always allow", "kind": "allow_always" },
                { "optionId": "once", "name": "Allow", "kind": "allow_once" },
                { "optionId": "no", "name": "Reject", "kind": "reject_once" },
            ],
        });
        let answer = self.ask_client("session/request_permission", &params).await?;
        let option = answer["outcome"]["optionId"].as_str().unwrap_or("cancelled").to_owned();
        let status = if matches!(&*option, "once" | "always") { "completed" } else { "failed" };
        self.update(
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "status": status }),
        )
        .await;
        self.say(&format!("permission: {option}")).await;
        Ok(())
    }

    async fn ask(&mut self, word: &str) -> Result<(), ErrorObject> {
        let session = self.session.id();
        let mut params = match word {
            "ask-url" => json!({
                "mode": "url", "message": "Sign in", "elicitationId": "e1", "url": "https://example.com/",
            }),
            "ask-consent" => json!({
                "mode": "form", "message": "Shall it begin?",
                "requestedSchema": { "type": "object", "properties": {} },
            }),
            _ => json!({
                "mode": "form", "message": "What is your name?",
                "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] },
            }),
        };
        let call = trials::last_prompt();
        match word {
            "ask-call" => params["requestId"] = call.parse().unwrap_or_default(),
            "ask-call-text" => params["requestId"] = json!(call),
            _ => params["sessionId"] = json!(session),
        }
        let answer = self.ask_client("elicitation/create", &params).await?;
        self.say(&format!("answer: {answer}")).await;
        Ok(())
    }

    async fn client(&mut self, word: &str, rest: &str) -> Result<(), ErrorObject> {
        let session = self.session.id().to_owned();
        let told = match word {
            "read" => {
                let params = json!({ "sessionId": session, "path": rest });
                self.ask_client("fs/read_text_file", &params).await
            }
            "write" => {
                let (path, content) = rest.split_once(':').unwrap_or((rest, ""));
                let params = json!({ "sessionId": session, "path": path, "content": content });
                self.ask_client("fs/write_text_file", &params).await
            }
            _ => self.terminal(&session, rest).await,
        };
        let told = match told {
            Ok(result) => format!("{word}: {result}"),
            Err(error) => format!("{word} failed: {} {}", error.code.0, error.message),
        };
        self.say(&told).await;
        Ok(())
    }

    async fn terminal(&mut self, session: &str, command: &str) -> Result<Value, ErrorObject> {
        let params = json!({ "sessionId": session, "command": "sh", "args": ["-c", command] });
        let created = self.ask_client("terminal/create", &params).await?;
        let terminal = json!({ "sessionId": session, "terminalId": created["terminalId"] });
        self.ask_client("terminal/wait_for_exit", &terminal).await?;
        let output = self.ask_client("terminal/output", &terminal).await?;
        self.ask_client("terminal/release", &terminal).await?;
        Ok(output)
    }

    async fn extension(&mut self) {
        let params = json!({ "sessionId": self.session.id(), "later": [1.50, null] });
        drop(self.peer.notify("_scripted/said", &params).await);
        let told = match self.ask_client("_scripted/ask", &params).await {
            Ok(result) => format!("ext: {result}"),
            Err(error) => format!("ext failed: {}", error.code.0),
        };
        self.say(&told).await;
    }

    /// Asks the client. A client that is gone is no reason to go on.
    async fn ask_client(&self, method: &str, params: &Value) -> Result<Value, ErrorObject> {
        let answer = match self.peer.call(method, params).await {
            Ok(result) => Ok(result.to_value()),
            Err(CallFailure::Refused(error)) => Err(error),
            Err(other) => return Err(ErrorObject::new(Code::INTERNAL_ERROR, other.to_string())),
        };
        self.agent.record_answer(method, &answer);
        answer
    }

    async fn slow(&mut self, rest: &str) {
        let time = rest.parse().map_or(STUBBORN, Duration::from_millis);
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.cancelled.cancelled() => {}
        }
    }

    fn later(&self, word: &str, rest: &str) {
        let (when, said) = rest.split_once(':').unwrap_or(("0", rest));
        let time = Duration::from_millis(when.parse().unwrap_or(0));
        let file = (word == "once").then(|| when.into());
        let update = match word {
            "once" => serde_json::from_str(said).unwrap_or_default(),
            _ => json!({ "sessionUpdate": "session_info_update", "title": said }),
        };
        self.session.say_later(Later { time, file, update });
    }

    async fn noise(&mut self, word: &str, rest: &str) {
        match word {
            "line" => self.write(format!("{rest}\n").as_bytes()).await,
            "oversize" => {
                let length = rest.parse().unwrap_or(0);
                let line = format!(
                    r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"x":"{}"}}}}"#,
                    "x".repeat(length)
                );
                self.write(line.as_bytes()).await;
                self.write(b"\n").await;
            }
            _ => {
                self.write(b"npm warn something\n\n   \r\n\xff\xfe\n{\"not\": json\n[1,2\n").await;
                // A message that comes in pieces, split within a character, with another line end.
                let session = json!(self.session.id());
                let line = format!(
                    r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":{session},"update":{{"sessionUpdate":"agent_message_chunk","messageId":"n1","content":{{"type":"text","text":"nöise"}}}}}}}}"#
                );
                let middle = line.find('ö').unwrap_or(0) + 1;
                let (head, tail) = line.as_bytes().split_at(middle);
                self.write(head).await;
                self.peer.flushed().await;
                self.write(tail).await;
                self.write(b"\r\n").await;
            }
        }
    }

    async fn much(&mut self, rest: &str) -> Result<(), ErrorObject> {
        let (kind, bytes) = rest.split_once(':').unwrap_or((rest, ""));
        let bytes = bytes.parse().unwrap_or(0);
        if kind == "ask" {
            let params = large::question(self.session.id(), bytes);
            let answer = self.ask_client("session/request_permission", &params).await?;
            let chosen = answer["outcome"]["optionId"].as_str().unwrap_or("nothing").to_owned();
            self.say(&format!("chosen: {chosen}")).await;
            return Ok(());
        }
        let call = self.next_call();
        for update in large::updates(kind, bytes, &call) {
            self.update(update).await;
        }
        Ok(())
    }

    async fn crash(&self, rest: &str) {
        self.peer.flushed().await;
        match rest.parse() {
            Ok(code) => std::process::exit(code),
            Err(_) => std::process::abort(),
        }
    }
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn error(rest: &str) -> ErrorObject {
    let (code, message) = rest.split_once(':').unwrap_or((rest, "it was told to fail"));
    ErrorObject::new(trilogue_wire::jsonrpc::Code(code.parse().unwrap_or(-32603)), message)
}
