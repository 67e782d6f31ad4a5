//! An agent of the Agent Client Protocol in one file, on a raw connection: message ids, content blocks with their annotations, sessions that are loaded again, and a permission.
//! An agent that needs less of the protocol is shorter with `trilogue_sdk::stdio`: see `stdio_echo.rs`.
//!
//! ```text
//! cargo run -p trilogue-examples --example agent_client_client -- --allow "Keep this" -- target/debug/examples/agent_client_agent
//! trilogue wrap -- target/debug/examples/agent_client_agent
//! ```
//!
//! It repeats the prompt block by block, then asks whether it may write that to a file, and reports the outcome in a second message.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;
use trilogue_sdk::agent_client::peer::RawJson;
use trilogue_sdk::agent_client::peer::{
    Backpressure, Handler, Notification, Options, Peer, Request,
};
use trilogue_sdk::agent_client::wire::{
    AgentCapabilities, AgentNotification, AgentRequest, Annotations, ClientCapabilities,
    ContentBlock, ContentChunk, Diff, Implementation, InitializeResponse, LoadSessionResponse,
    NewSessionResponse, NotificationParams, PROTOCOL_VERSION, PermissionOption,
    PermissionOptionKind, PromptCapabilities, PromptRequest, PromptResponse, RequestParams,
    RequestPermissionRequest, RequestPermissionResponse, ResourceContents, Role, Rules,
    SessionNotification, SessionUpdate, StopReason, TextContent, ToolCall, ToolCallContent,
    ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolKind, WriteTextFileRequest, read_checked,
};
use trilogue_sdk::agent_client::{ErrorCode, ErrorObject};

/// The state of an agent's connection.
#[derive(Clone, Debug, Default)]
struct Keeper {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    client: ClientCapabilities,
    sessions: HashMap<String, Session>,
}

/// A session: its updates, and the signal that ends its turn.
#[derive(Clone, Debug, Default)]
struct Session {
    cwd: String,
    said: Vec<SessionUpdate>,
    cancelled: CancellationToken,
}

/// A turn of a session.
struct Turn<'a> {
    agent: &'a Keeper,
    peer: &'a Peer,
    session: &'a str,
}

#[tokio::main]
async fn main() {
    let agent = Arc::new(Keeper::default());
    let peer = Peer::start(tokio::io::stdin(), tokio::io::stdout(), agent, Options::agent());
    peer.wait_for_end().await;
    peer.close();
    peer.wait_for_flush().await;
    // Exits directly: the blocking read of standard input cannot be cancelled, and the runtime would wait for it.
    std::process::exit(0);
}

// === impl Keeper ===

impl Handler for Keeper {
    /// Handles each request in a separate task, so that further messages are read meanwhile.
    fn on_request(&self, request: Request) -> Backpressure {
        let (agent, peer) = (self.clone(), request.peer().clone());
        let params = serde_json::from_str(request.params().as_str()).ok();
        match AgentRequest::read(request.method(), params, Rules::Lenient) {
            Ok(asked) => request.answer(async move { agent.respond(&peer, asked).await }),
            Err(refusal) => request.answer(async move { Err::<(), _>(refusal.error()) }),
        }
        Backpressure::Ready
    }

    fn on_notification(&self, said: Notification) -> Backpressure {
        let params = serde_json::from_str(said.params.as_str()).ok();
        if let Ok(AgentNotification::Cancel(cancel)) =
            AgentNotification::read(&said.method, params, Rules::Lenient)
            && let Some(session) = self.state().sessions.get(&cancel.session_id)
        {
            session.cancelled.cancel();
        }
        Backpressure::Ready
    }
}

impl Keeper {
    async fn respond(&self, peer: &Peer, asked: AgentRequest) -> Result<RawJson, ErrorObject> {
        match asked {
            AgentRequest::Initialize(hello) => {
                self.state().client = hello.client_capabilities.unwrap_or_default();
                Ok(RawJson::of(&introduction()))
            }
            AgentRequest::NewSession(new) => {
                let id = uuid::Uuid::new_v4().to_string();
                let session = Session { cwd: new.cwd, ..Session::default() };
                self.state().sessions.insert(id.clone(), session);
                Ok(RawJson::of(&NewSessionResponse::new(id)))
            }
            AgentRequest::LoadSession(load) => {
                let said = self.session(&load.session_id)?.said;
                let turn = Turn { agent: self, peer, session: &load.session_id };
                for update in said {
                    turn.send(update).await;
                }
                Ok(RawJson::of(&LoadSessionResponse::new()))
            }
            AgentRequest::Prompt(prompt) => {
                let session = prompt.session_id.clone();
                self.session(&session)?;
                let turn = Turn { agent: self, peer, session: &session };
                Ok(RawJson::of(&turn.play(*prompt).await))
            }
            other => Err(ErrorObject::method_not_found(other.method())),
        }
    }

    fn session(&self, id: &str) -> Result<Session, ErrorObject> {
        let session = self.state().sessions.get(id).cloned();
        session.ok_or_else(|| ErrorObject::of(ErrorCode::RESOURCE_NOT_FOUND))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn introduction() -> InitializeResponse {
    let prompt =
        PromptCapabilities { image: true, embedded_context: true, ..PromptCapabilities::new() };
    let can =
        AgentCapabilities { load_session: true, prompt: Some(prompt), ..AgentCapabilities::new() };
    InitializeResponse {
        agent_capabilities: Some(can),
        agent_info: Some(Implementation::new("keeper", "1.0.0")),
        ..InitializeResponse::new(PROTOCOL_VERSION)
    }
}

// === impl Turn ===

impl Turn<'_> {
    async fn play(&self, prompt: PromptRequest) -> PromptResponse {
        let cancelled = CancellationToken::new();
        if let Some(session) = self.agent.state().sessions.get_mut(self.session) {
            session.cancelled = cancelled.clone();
        }
        // The client's id is recorded with the prompt, so it is acknowledged. A prompt without an id gets one. An empty id is not recorded.
        let is_recorded = prompt.message_id.as_deref() != Some("");
        let given = prompt.message_id.clone().filter(|_| is_recorded);
        let user = given.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        for block in &prompt.prompt {
            self.keep(SessionUpdate::UserMessageChunk(chunk(&user, block.clone())));
        }
        let answered = tokio::select! {
            biased;
            () = cancelled.cancelled() => None,
            () = self.answer(&prompt.prompt) => Some(()),
        };
        let stop = if answered.is_some() { StopReason::EndTurn } else { StopReason::Cancelled };
        let user_message_id = is_recorded.then_some(user);
        PromptResponse { user_message_id, ..PromptResponse::new(stop) }
    }

    async fn answer(&self, prompt: &[ContentBlock]) {
        // One message: its chunks have the same id.
        let first = uuid::Uuid::new_v4().to_string();
        let text: Vec<String> = prompt.iter().map(describe).collect();
        self.say(&first, ContentBlock::text("I was given ")).await;
        self.say(&first, ContentBlock::text(text.join(", "))).await;
        self.say(&first, ContentBlock::text(".")).await;
        self.say(&first, aside("Nobody but the model needs this.")).await;

        let outcome = self.write(&text.join("\n")).await;
        // A different id, so a new message, even directly after the first one.
        let second = uuid::Uuid::new_v4().to_string();
        self.say(&second, ContentBlock::text(outcome)).await;
    }

    /// Writes a file if the user allows it, as a tool call that the client can show.
    async fn write(&self, text: &str) -> &'static str {
        let cwd = self.agent.session(self.session).map(|session| session.cwd).unwrap_or_default();
        let path = format!("{}/kept.txt", cwd.trim_end_matches('/'));
        let id = uuid::Uuid::new_v4().to_string();
        let diff = ToolCallContent::Diff(Diff::new(&*path, text));
        let call = ToolCall {
            name: Some("keep".to_owned()),
            kind: Some(ToolKind::Edit),
            status: Some(ToolCallStatus::Pending),
            content: vec![diff],
            locations: vec![ToolCallLocation::new(&*path)],
            ..ToolCall::new(&*id, "Keep it in a file")
        };
        self.send_and_store(SessionUpdate::ToolCall(Box::new(call.clone()))).await;
        let allowed = self.request_permission(call).await;
        let done = allowed && self.write_file(&path, text).await;
        let status = if done { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
        let end = ToolCallUpdate { status: Some(status), ..ToolCallUpdate::new(id) };
        self.send_and_store(SessionUpdate::ToolCallUpdate(Box::new(end))).await;
        match (allowed, done) {
            (true, true) => "I kept it.",
            (true, false) => "I was allowed to keep it, and have no files.",
            (false, _) => "I did not keep it.",
        }
    }

    async fn request_permission(&self, call: ToolCall) -> bool {
        let options = vec![
            PermissionOption::new("yes", "Keep it", PermissionOptionKind::AllowOnce),
            PermissionOption::new("no", "Do not", PermissionOptionKind::RejectOnce),
        ];
        let request =
            RequestPermissionRequest::new(self.session, ToolCallUpdate::from(call), options);
        let answer = self.peer.call(RequestPermissionRequest::METHOD, &request).await;
        let answer = answer.ok().and_then(|answer| {
            read_checked::<RequestPermissionResponse>(answer.as_str(), Rules::Lenient).ok()
        });
        // Only an option that allows the call grants permission.
        let chosen = answer.as_ref().and_then(|answer| request.chosen(answer));
        chosen.is_some_and(|option| option.kind.allows())
    }

    async fn write_file(&self, path: &str, text: &str) -> bool {
        let offered = self.agent.state().client.fs.as_ref().is_some_and(|fs| fs.write_text_file);
        let request = WriteTextFileRequest::new(self.session, path, text);
        offered && self.peer.call(WriteTextFileRequest::METHOD, &request).await.is_ok()
    }

    async fn say(&self, message: &str, block: ContentBlock) {
        self.send_and_store(SessionUpdate::AgentMessageChunk(chunk(message, block))).await;
    }

    /// Sends an update to the client, and stores it for a replay.
    async fn send_and_store(&self, update: SessionUpdate) {
        self.keep(update.clone());
        self.send(update).await;
    }

    fn keep(&self, update: SessionUpdate) {
        if let Some(session) = self.agent.state().sessions.get_mut(self.session) {
            session.said.push(update);
        }
    }

    async fn send(&self, update: SessionUpdate) {
        let said = SessionNotification::new(self.session, update);
        // The client may have disconnected.
        drop(self.peer.notify(SessionNotification::METHOD, &said).await);
    }
}

fn chunk(message: &str, block: ContentBlock) -> Box<ContentChunk> {
    Box::new(ContentChunk::of(message, block))
}

/// Text that is not meant for the user.
fn aside(text: &str) -> ContentBlock {
    let annotations = Annotations {
        audience: Some(vec![Role::Assistant]),
        priority: serde_json::Number::from_f64(0.1),
        ..Annotations::new()
    };
    ContentBlock::Text(TextContent { annotations: Some(annotations), ..TextContent::new(text) })
}

/// A textual description of a block.
fn describe(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => format!("the words “{}”", text.text),
        ContentBlock::Image(image) => format!("an image ({})", image.mime_type),
        ContentBlock::Audio(audio) => format!("a sound ({})", audio.mime_type),
        ContentBlock::ResourceLink(link) => format!("a link to {}", link.uri),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::Text(text) => {
                format!("the file {} ({} bytes)", text.uri, text.text.len())
            }
            ResourceContents::Blob(blob) => format!("the file {} (no text)", blob.uri),
        },
        ContentBlock::Other(other) => format!("something called {}", other.kind),
    }
}
