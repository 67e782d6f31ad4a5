//! A client of the Agent Client Protocol in one file: it launches an agent, sends one prompt, and shows the updates.
//!
//! ```text
//! agent_client_client [--allow] [--all] [--attach FILE] [--load] TEXT -- COMMAND [ARGUMENT]…
//! ```
//!
//! Message ids separate the messages. Permissions are rejected unless `--allow` is given; then the agent may also write files below the working folder.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use clap::Parser;
use trilogue_sdk::agent_client::wire::{
    ClientCapabilities, FileSystemCapabilities, RequestPermissionRequest,
    RequestPermissionResponse, Role, ToolCallContent, ToolKind, WriteTextFileRequest,
    WriteTextFileResponse,
};
use trilogue_sdk::agent_client::{
    Attachment, Client, ClientHandler, Command, ContentBlock, Error, ErrorCode, ErrorObject,
    Options, Prompt, Session, SessionOptions, SessionUpdate, Speaker, TurnEnd, Update, allow_once,
    reject,
};
use trilogue_sdk::async_trait;

/// Prompts an agent once.
#[derive(Parser, Debug)]
struct Arguments {
    /// What to say.
    text: String,
    /// Allow what the agent asks for, and let it write files below the working folder.
    #[arg(long)]
    allow: bool,
    /// Show what is not meant for the user, too.
    #[arg(long)]
    all: bool,
    /// Add a file.
    #[arg(long, value_name = "FILE")]
    attach: Option<PathBuf>,
    /// Load the session again afterwards, and show what the agent tells of it.
    #[arg(long)]
    load: bool,
    /// The agent.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The permissions of the agent.
#[derive(Debug)]
struct Host {
    folder: PathBuf,
    allow: bool,
    decisions: Decisions,
}

/// Decisions that are not shown yet: the agent asks while its updates are still on their way to the screen.
type Decisions = Arc<Mutex<String>>;

/// Shows updates.
struct Screen {
    all: bool,
    decisions: Decisions,
    /// The number of the last shown message.
    message: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match prompt(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            show(&format!("error: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

async fn prompt(arguments: &Arguments) -> Result<(), Error> {
    let folder = std::env::current_dir().unwrap_or_default();
    let here = folder.to_string_lossy().into_owned();
    let (program, rest) = arguments.command.split_first().unwrap_or((&here, &[]));
    let command = Command::new(program).args(rest);
    let decisions = Decisions::default();
    let host = Host { folder, allow: arguments.allow, decisions: Arc::clone(&decisions) };
    let client = Client::launch(command, host, Options::default()).await?;
    let session = client.new_session(SessionOptions::new(&*here)).await?;

    let mut prompt = Prompt::from(&*arguments.text);
    if let Some(path) = &arguments.attach {
        prompt = prompt.attach(Attachment::read(path).await?);
    }
    let mut screen = Screen { all: arguments.all, decisions, message: 0 };
    let mut turn = session.prompt(prompt).await?;
    while let Some(update) = turn.next().await? {
        screen.update(&update);
    }
    screen.end(&turn.finish().await?);
    if arguments.load {
        load(&client, &session, &here, &mut screen).await?;
    }
    client.close().await;
    Ok(())
}

/// Loads the session like another client would. The prompt that this client sent is recognised by its id and not shown again.
async fn load(
    client: &Client,
    session: &Session,
    cwd: &str,
    screen: &mut Screen,
) -> Result<(), Error> {
    let opening = SessionOptions::new(cwd).user_messages(session.user_messages());
    let mut loading = client.load_session(session.id(), opening).await?;
    show("\nloaded again:");
    screen.message = 0;
    while let Some(update) = loading.next().await? {
        match update.message.as_ref().and_then(|piece| Some((piece, piece.known_as.as_deref()?))) {
            Some((piece, id)) if piece.is_first => show(&format!("\n(the message {id} is known)")),
            Some(_) => {}
            None => screen.update(&update),
        }
    }
    loading.finish().await?;
    show("\n");
    Ok(())
}

// === impl Host ===

#[async_trait]
impl ClientHandler for Host {
    fn capabilities(&self) -> ClientCapabilities {
        let fs =
            FileSystemCapabilities { write_text_file: self.allow, ..FileSystemCapabilities::new() };
        ClientCapabilities { fs: Some(fs), ..ClientCapabilities::new() }
    }

    async fn permission(&self, request: RequestPermissionRequest) -> RequestPermissionResponse {
        let call = &request.tool_call;
        let title = call.title.as_deref().unwrap_or("something");
        let kind = call.kind.unwrap_or(ToolKind::Other).as_str();
        let mut text = format!("\npermission for {title} ({kind})");
        for item in call.content.iter().flatten() {
            if let ToolCallContent::Diff(diff) = item {
                text += &format!("\n  {}: {} bytes", diff.path, diff.new_text.len());
            }
        }
        let answer = if self.allow { allow_once(&request) } else { reject(&request) };
        let chosen = request.chosen(&answer).map_or("nothing", |option| &*option.name);
        text += &format!("\n  answered: {chosen}");
        if let Ok(mut decisions) = self.decisions.lock() {
            decisions.push_str(&text);
        }
        answer
    }

    async fn write_text_file(
        &self,
        request: WriteTextFileRequest,
    ) -> Result<WriteTextFileResponse, ErrorObject> {
        let path = Path::new(&request.path);
        let is_below = path.parent() == Some(&self.folder);
        if !is_below {
            return Err(ErrorObject::new(ErrorCode::INVALID_PARAMS, "that is another folder"));
        }
        let written = tokio::fs::write(path, request.content).await;
        written.map_err(|error| ErrorObject::new(ErrorCode::INTERNAL_ERROR, error.to_string()))?;
        Ok(WriteTextFileResponse::new())
    }
}

// === impl Screen ===

impl Screen {
    fn update(&mut self, update: &Update) {
        match (&update.message, &update.body) {
            (Some(piece), body) => {
                let Some(block) = body.chunk().map(|chunk| &chunk.content) else { return };
                let is_for_user = block.annotations().is_none_or(|them| them.is_for(Role::User));
                if !is_for_user && !self.all {
                    return;
                }
                if self.message != piece.number {
                    self.show_decisions();
                    self.message = piece.number;
                    let who = match piece.speaker {
                        Speaker::User => "user",
                        Speaker::Agent => "agent",
                        Speaker::Thought => "thought",
                    };
                    let id = piece.id.as_deref().unwrap_or("without id");
                    show(&format!("\n[{who} {id}] "));
                }
                match block {
                    ContentBlock::Text(text) => show(&text.text),
                    other => show(&format!("<{}>", other.kind())),
                }
            }
            (None, SessionUpdate::ToolCall(call)) => show(&format!("\ntool: {}", call.title)),
            (None, SessionUpdate::ToolCallUpdate(call)) => {
                self.show_decisions();
                if let Some(status) = call.status {
                    show(&format!("\ntool: {}", status.as_str()));
                }
            }
            (None, other) => show(&format!("\n({})", other.kind())),
        }
    }

    /// Shows new decisions, between two messages and never within one.
    fn show_decisions(&self) {
        if let Ok(mut decisions) = self.decisions.lock() {
            show(&std::mem::take(&mut *decisions));
        }
    }

    fn end(&self, ended: &TurnEnd) {
        self.show_decisions();
        show(&format!("\n{}", ended.stop_reason.as_str()));
        match &ended.user_message_id {
            Some(id) => show(&format!("; the agent knows the prompt as {id}\n")),
            None => show("; the agent does not know the prompt by an id\n"),
        }
    }
}

/// Shows untrusted text: control characters in it do not reach the terminal.
#[expect(clippy::print_stdout, reason = "this is a program for the terminal")]
fn show(text: &str) {
    let safe: String = text.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
    print!("{safe}");
}
