//! A client of the Agent Client Protocol, as an editor is one: it holds every line that it gets to the official schema.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use trilogue_domain::{AgentName, Principal, PrincipalId, Result, Rights, TenantId};
use trilogue_gateway::{ClientProtocol, Wrap, WrapCommand};
use trilogue_runtime::Runtime;
use trilogue_testkit::schema::{Conversation, Side};

use crate::agent::Puppet;
use crate::rig::{LIMIT, Rig};

pub(crate) struct Door {
    folder: TempDir,
}

/// Makes puppets of commands.
#[derive(Debug)]
struct Puppeteer(Runtime);

#[async_trait]
impl Wrap for Puppeteer {
    async fn wrap(&self, command: WrapCommand) -> Result<AgentName> {
        let name = AgentName::parse(command.name.as_deref().unwrap_or("wrapped"))?;
        self.0.register(Arc::new(Puppet::named(name.as_str())))?;
        Ok(name)
    }
}

impl Door {
    /// A socket of this server, in the name of alice.
    pub(crate) fn of(rig: &Rig) -> Self {
        Self::in_name_of(rig, "alpha", "alice")
    }

    pub(crate) fn in_name_of(rig: &Rig, tenant: &str, principal: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("server.sock")).unwrap();
        let principal = Principal {
            tenant: TenantId::parse(tenant).unwrap(),
            id: PrincipalId::parse(principal).unwrap(),
            rights: Rights::all(),
            own: false,
        };
        let wrap = Arc::new(Puppeteer(rig.runtime.clone()));
        let protocol = ClientProtocol::new(rig.client.clone(), wrap);
        rig.server.listen_local(listener, &protocol, principal).unwrap();
        Self { folder }
    }

    pub(crate) async fn stream(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join("server.sock")).await.unwrap()
    }

    pub(crate) async fn hello(&self, hello: &Value) -> (Value, Editor) {
        let mut stream = self.stream().await;
        stream.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
        let mut editor = Editor::of(stream);
        let line = editor.line().await.unwrap();
        (serde_json::from_str(&line).unwrap(), editor)
    }

    pub(crate) async fn editor(&self, agent: &str) -> Editor {
        let hello = json!({"trilogue": 1, "attach": {"agent": agent}});
        let (welcome, editor) = self.hello(&hello).await;
        assert_eq!(welcome["agent"], agent, "{welcome}");
        editor
    }

    pub(crate) async fn plain(&self, agent: &str) -> Editor {
        self.with(agent, json!({})).await
    }

    pub(crate) async fn with(&self, agent: &str, capabilities: Value) -> Editor {
        let mut editor = self.editor(agent).await;
        editor.initialize(capabilities).await;
        editor
    }
}

pub(crate) struct Editor {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    next: u64,
    conversation: Conversation,
    before: VecDeque<Value>,
    pub(crate) updates: Vec<Value>,
    pub(crate) control: Vec<String>,
}

impl Editor {
    fn of(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self {
            reader: BufReader::new(reader),
            writer,
            next: 0,
            conversation: Conversation::holding(Side::Agent),
            before: VecDeque::new(),
            updates: Vec::new(),
            control: Vec::new(),
        }
    }

    pub(crate) async fn initialize(&mut self, capabilities: Value) -> Value {
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        self.ok("initialize", params).await
    }

    pub(crate) async fn session(&mut self) -> String {
        let opened = self.ok("session/new", json!({"cwd": "/work", "mcpServers": []})).await;
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn raw(&mut self, line: &[u8]) {
        self.writer.write_all(line).await.unwrap();
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.conversation.note(message);
        self.raw(format!("{message}\n").as_bytes()).await;
    }

    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = json!(self.next);
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        id
    }

    pub(crate) async fn tell(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    pub(crate) async fn reply(&mut self, request: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    pub(crate) async fn answer(&mut self, id: &Value) -> Value {
        self.until(|message| message.get("method").is_none() && message["id"] == *id).await
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        self.answer(&id).await
    }

    pub(crate) async fn ok(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.call(method, params).await;
        assert!(answer.get("result").is_some(), "{method}: {answer}");
        answer["result"].take()
    }

    pub(crate) async fn code(&mut self, method: &str, params: Value) -> i64 {
        let answer = self.call(method, params).await;
        answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{method}: {answer}"))
    }

    pub(crate) async fn start_prompt(&mut self, session: &str, text: &str) -> Value {
        let prompt = json!([{"type": "text", "text": text}]);
        self.ask("session/prompt", json!({"sessionId": session, "prompt": prompt})).await
    }

    pub(crate) async fn prompt(&mut self, session: &str, text: &str) -> Value {
        let id = self.start_prompt(session, text).await;
        let mut answer = self.answer(&id).await;
        assert!(answer.get("result").is_some(), "{text}: {answer}");
        answer["result"].take()
    }

    pub(crate) async fn request(&mut self, method: &str) -> Value {
        self.until(|message| message["method"] == method && message.get("id").is_some()).await
    }

    /// The next notification of this method, which is no update.
    pub(crate) async fn notified(&mut self, method: &str) -> Value {
        self.until(|message| message["method"] == method && message.get("id").is_none()).await
    }

    pub(crate) async fn updated(&mut self, count: usize) {
        while self.updates.len() < count {
            let message = self.message().await.unwrap();
            self.before.push_back(message);
        }
    }

    /// The texts of the pieces of this kind that came, by message.
    pub(crate) fn said(&self, kind: &str) -> Vec<(Value, String)> {
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

    pub(crate) fn words(&self, kind: &str) -> Vec<String> {
        self.said(kind).into_iter().map(|(_, text)| text).collect()
    }

    pub(crate) async fn until_control(&mut self, fits: impl Fn(&str) -> bool) {
        while !self.control.iter().any(|line| fits(line)) {
            let line = self.line().await.unwrap();
            assert!(line.starts_with('#'), "{line}");
            self.control.push(line);
        }
    }

    /// The first message that fits; what comes before it is kept.
    pub(crate) async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
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

    pub(crate) fn has_before(&self, fits: impl Fn(&Value) -> bool) -> bool {
        self.before.iter().any(fits)
    }

    pub(crate) async fn message(&mut self) -> Option<Value> {
        loop {
            let line = self.line().await?;
            if line.starts_with('#') {
                self.control.push(line);
                continue;
            }
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
            let held = self.conversation.hold(&message);
            held.unwrap_or_else(|error| panic!("{error:#}: {message}"));
            if message["method"] == "session/update" {
                self.updates.push(message["params"].clone());
                return Some(message);
            }
            return Some(message);
        }
    }

    pub(crate) async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = tokio::time::timeout(LIMIT, self.reader.read_line(&mut line));
        let count =
            read.await.unwrap_or_else(|_| panic!("nothing came; before: {:?}", self.before));
        if count.unwrap_or(0) == 0 {
            return None;
        }
        assert!(line.ends_with('\n') && line.len() > 1, "no line: {line:?}");
        line.pop();
        Some(line)
    }
}
