//! The words of a prompt, one method each.

use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    ContentBlock, CreateElicitationRequest, CreateTerminalRequest, ReadTextFileRequest,
    ReleaseTerminalRequest, RequestPermissionOutcome, RequestPermissionRequest,
    TerminalOutputRequest, WaitForTerminalExitRequest, WriteTextFileRequest,
};
use agent_client_protocol::{Client, JsonRpcRequest, Result};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::sessions::Sessions;
use crate::{notification, typed};

/// An image of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/// The usual stop reason.
const END: &str = "end_turn";

/// A turn.
pub struct Turn {
    sessions: Arc<Sessions>,
    client: ConnectionTo<Client>,
    id: String,
}

// === impl Turn ===

impl Turn {
    pub fn new(sessions: Arc<Sessions>, client: ConnectionTo<Client>, id: &str) -> Self {
        Self { sessions, client, id: id.to_owned() }
    }

    /// Follows the last text of the prompt; returns the stop reason.
    pub async fn run(&self, prompt: &[ContentBlock]) -> Result<&'static str> {
        let texts = prompt.iter().filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        });
        let text = texts.last().unwrap_or_default();
        let content = json!({"type": "text", "text": text});
        let asked =
            json!({"sessionUpdate": "user_message_chunk", "messageId": id(), "content": content});
        self.sessions.change(&self.id, |session| {
            session.cancelled = false;
            session.history.push(asked);
        })?;
        let stop = self.act(text, prompt).await;
        self.sessions.keep(&self.id)?;
        stop
    }

    async fn act(&self, text: &str, prompt: &[ContentBlock]) -> Result<&'static str> {
        let (word, rest) = text.split_once(':').unwrap_or((text, ""));
        match word {
            "say" => {
                let middle = rest.char_indices().nth(rest.chars().count().div_ceil(2));
                let (first, second) = rest.split_at(middle.map_or(rest.len(), |(at, _)| at));
                self.speak(&[first, second])
            }
            "two" => self.speak(&["one"]).and_then(|_| self.speak(&["two"])),
            "think" => {
                let content = json!({"type": "text", "text": rest});
                self.chunk("agent_thought_chunk", &id(), &content)?;
                self.speak(&["thought"])
            }
            "tool" => self.tool(),
            "permission" => self.permission().await,
            "ask-form" => self.form().await,
            "read" => self.read(rest).await,
            "write" => self.write(rest).await,
            "term" => self.term(rest).await,
            "slow" => self.slow().await,
            "blocks" => self.blocks(),
            "state" => self.state(),
            "got" => self.got(prompt),
            _ => self.speak(&[text]),
        }
    }

    fn tool(&self) -> Result<&'static str> {
        let call = id();
        self.update(json!({
            "sessionUpdate": "tool_call", "toolCallId": call, "title": "Edit a file", "kind": "edit",
            "status": "pending", "locations": [{"path": "/work/a.txt", "line": 1}],
            "rawInput": {"path": "/work/a.txt"},
        }))?;
        self.progress(&call, "in_progress", json!({}))?;
        let content = json!([
            {"type": "diff", "path": "/work/a.txt", "oldText": "old", "newText": "new"},
            {"type": "content", "content": {"type": "text", "text": "one line"}},
        ]);
        self.progress(&call, "completed", json!({"content": content, "rawOutput": {"lines": 1}}))?;
        self.speak(&["edited"])
    }

    async fn permission(&self) -> Result<&'static str> {
        let call = id();
        self.update(json!({
            "sessionUpdate": "tool_call", "toolCallId": call, "title": "Write a file",
            "kind": "edit", "status": "pending",
        }))?;
        let diff = json!({"type": "diff", "path": "/work/a.txt", "newText": "new"});
        let request = json!({
            "toolCall": {"toolCallId": call, "title": "Write a file", "kind": "edit", "content": [diff]},
            "options": [
                {"optionId": "always", "name": "Always", "kind": "allow_always"},
                {"optionId": "once", "name": "Once", "kind": "allow_once"},
                {"optionId": "no", "name": "No", "kind": "reject_once"},
            ],
        });
        let answer = self.ask::<RequestPermissionRequest>(request).await?;
        let chosen = match answer.outcome {
            RequestPermissionOutcome::Selected(selected) => Some(selected.option_id.0),
            _ => None,
        };
        let allowed = chosen.as_deref().filter(|option| *option != "no");
        self.progress(&call, if allowed.is_some() { "completed" } else { "failed" }, json!({}))?;
        match (allowed, &chosen) {
            (Some(option), _) => self.speak(&["allowed ", option]),
            (None, Some(_)) => self.speak(&["rejected"]),
            (None, None) => Ok("cancelled"),
        }
    }

    async fn form(&self) -> Result<&'static str> {
        if !self.sessions.has_forms() {
            return self.speak(&["no forms"]);
        }
        let name = json!({"type": "string", "title": "Name"});
        let wanted = json!({"type": "object", "properties": {"name": name}, "required": ["name"]});
        let request = json!({"mode": "form", "message": "Who are you?", "requestedSchema": wanted});
        let answer = self.ask::<CreateElicitationRequest>(request).await?;
        let answer = serde_json::to_value(answer)?;
        match (answer["action"].as_str(), answer["content"]["name"].as_str()) {
            (Some("accept"), Some(name)) => self.speak(&["hello ", name]),
            (action, _) => self.speak(&[action.unwrap_or("nothing")]),
        }
    }

    async fn read(&self, path: &str) -> Result<&'static str> {
        let answer = self.ask::<ReadTextFileRequest>(json!({"path": path})).await?;
        self.speak(&[&answer.content])
    }

    async fn write(&self, rest: &str) -> Result<&'static str> {
        let (path, content) = rest.split_once(':').unwrap_or((rest, ""));
        self.ask::<WriteTextFileRequest>(json!({"path": path, "content": content})).await?;
        self.speak(&["written"])
    }

    async fn term(&self, command: &str) -> Result<&'static str> {
        let request = json!({"command": "sh", "args": ["-c", command], "outputByteLimit": 65_536});
        let made = self.ask::<CreateTerminalRequest>(request).await?;
        let here = json!({"terminalId": made.terminal_id});
        let ended = self.ask::<WaitForTerminalExitRequest>(here.clone()).await?;
        let shown = self.ask::<TerminalOutputRequest>(here.clone()).await?;
        self.ask::<ReleaseTerminalRequest>(here).await?;
        let code = serde_json::to_value(ended)?["exitCode"].to_string();
        self.speak(&["exit ", &code, ": ", &shown.output])
    }

    async fn slow(&self) -> Result<&'static str> {
        let message = id();
        for _ in 0..3000 {
            if self.sessions.change(&self.id, |session| session.cancelled)? {
                return Ok("cancelled");
            }
            let content = json!({"type": "text", "text": "tick "});
            self.chunk("agent_message_chunk", &message, &content)?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(END)
    }

    fn blocks(&self) -> Result<&'static str> {
        let notes = json!({
            "audience": ["assistant"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z",
        });
        let blocks = [
            json!({"type": "text", "text": "noted", "annotations": notes}),
            json!({"type": "image", "data": PIXEL, "mimeType": "image/png", "uri": "file:///p.png"}),
            json!({"type": "audio", "data": "UklGRgAAAABXQVZF", "mimeType": "audio/wav"}),
            json!({"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt", "size": 3}),
            json!({"type": "resource", "resource": {"uri": "file:///b.txt", "text": "b"}}),
            json!({"type": "resource", "resource": {"uri": "file:///c.bin", "blob": "AAEC"}}),
        ];
        let message = id();
        for block in &blocks {
            self.chunk("agent_message_chunk", &message, block)?;
        }
        let content = blocks.map(|block| json!({"type": "content", "content": block}));
        self.update(json!({
            "sessionUpdate": "tool_call", "toolCallId": id(), "title": "Show", "kind": "read",
            "status": "completed", "content": content,
        }))?;
        Ok(END)
    }

    fn state(&self) -> Result<&'static str> {
        self.update(json!({"sessionUpdate": "plan", "entries": [
            {"content": "look", "priority": "high", "status": "completed"},
            {"content": "leap", "priority": "low", "status": "pending"},
        ]}))?;
        let command = json!({"name": "web", "description": "Search", "input": {"hint": "what"}});
        self.update(json!({
            "sessionUpdate": "available_commands_update", "availableCommands": [command],
        }))?;
        self.update(json!({"sessionUpdate": "session_info_update", "title": "A title"}))?;
        self.update(json!({"sessionUpdate": "usage_update", "used": 10, "size": 100}))?;
        self.speak(&["stated"])
    }

    fn got(&self, prompt: &[ContentBlock]) -> Result<&'static str> {
        let mut said = "got".to_owned();
        for block in prompt {
            let block = serde_json::to_value(block)?;
            said.push_str(&format!(" {}", block["type"].as_str().unwrap_or_default()));
        }
        self.speak(&[&said])
    }

    /// Sends one message in these chunks.
    fn speak(&self, pieces: &[&str]) -> Result<&'static str> {
        let message = id();
        for text in pieces {
            let content = json!({"type": "text", "text": text});
            self.chunk("agent_message_chunk", &message, &content)?;
        }
        Ok(END)
    }

    fn chunk(&self, kind: &str, message: &str, content: &Value) -> Result<()> {
        let update = json!({"sessionUpdate": kind, "messageId": message, "content": content});
        self.sessions.change(&self.id, |session| session.history.push(update.clone()))?;
        self.update(update)
    }

    fn progress(&self, call: &str, status: &str, more: Value) -> Result<()> {
        let mut update = json!({
            "sessionUpdate": "tool_call_update", "toolCallId": call, "status": status,
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            update[name] = value.clone();
        }
        self.update(update)
    }

    fn update(&self, update: Value) -> Result<()> {
        self.client.send_notification(notification(&self.id, update)?)
    }

    /// Sends a request to the client, in the SDK's types.
    async fn ask<R: JsonRpcRequest + DeserializeOwned>(
        &self,
        mut params: Value,
    ) -> Result<R::Response>
    where
        R::Response: Send,
    {
        params["sessionId"] = json!(self.id);
        self.client.send_request(typed::<R>(params)?).block_task().await
    }
}

/// Returns a new id.
fn id() -> String {
    Uuid::new_v4().to_string()
}
