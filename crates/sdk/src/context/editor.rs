//! The files and terminals of the editor that a run works for.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use trilogue_domain::Json;
use trilogue_wire::agent_client::{
    ClientCapabilities, ClientGate, CreateTerminalRequest, CreateTerminalResponse, EnvVariable,
    KillTerminalRequest, Read, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
    RequestParams, Rules, TerminalExitStatus, TerminalOutputRequest, TerminalOutputResponse,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest,
    WriteTextFileResponse, read_checked,
};
use trilogue_wire::jsonrpc::Code;

use crate::error::AgentError;
use crate::port::{CallRefusal, CallTarget, Host};

/// What stands where the session's id goes: whoever passes a call on puts it in.
const SESSION: &str = "";

/// The editor that a run works for, from [`Context::editor`](crate::Context::editor). Cheap to clone.
///
/// Paths are absolute, as the protocol has them. What the editor refuses is an [`AgentError`] with the code `editor_refused`, a file that is not there one with `file_not_found`; what the editor never offered is refused with `editor_lacks` and not sent.
#[derive(Clone)]
pub struct Editor {
    host: Arc<dyn Host>,
    capabilities: Arc<ClientCapabilities>,
}

/// A command for a terminal of the editor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    request: CreateTerminalRequest,
}

/// A terminal of the editor in which a command runs, from [`Editor::run`].
///
/// One that is dropped is released: its command is ended where it still runs.
pub struct EditorTerminal {
    editor: Editor,
    id: String,
    is_released: bool,
}

/// What a terminal shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TerminalOutput {
    /// The newest output, as much as the terminal keeps.
    pub text: String,
    /// Whether there was more before it.
    pub is_cut: bool,
    /// How the command ended, where it has.
    pub exit: Option<Exit>,
}

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exit {
    /// Its exit code, where it left by itself.
    pub code: Option<u32>,
    /// The signal that ended it.
    pub signal: Option<String>,
}

// === impl Editor ===

impl Editor {
    /// The editor at the other end of this port, where there is one with anything to offer.
    pub(super) fn of(host: Arc<dyn Host>) -> Option<Self> {
        let call_target =
            host.call_target().filter(|call_target| &*call_target.dialect == CallTarget::EDITOR)?;
        let read =
            read_checked::<ClientCapabilities>(call_target.capabilities.as_str(), Rules::Lenient);
        let editor = Self { host, capabilities: Arc::new(read.ok()?) };
        let gates = [ClientGate::ReadTextFile, ClientGate::WriteTextFile, ClientGate::Terminal];
        gates.iter().any(|gate| gate.is_open(&editor.capabilities)).then_some(editor)
    }

    /// Whether [`Editor::read_text_file`] can be used.
    #[must_use]
    pub fn can_read(&self) -> bool {
        ClientGate::ReadTextFile.is_open(&self.capabilities)
    }

    /// Whether [`Editor::write_text_file`] can be used.
    #[must_use]
    pub fn can_write(&self) -> bool {
        ClientGate::WriteTextFile.is_open(&self.capabilities)
    }

    /// Whether [`Editor::run`] can be used.
    #[must_use]
    pub fn has_terminals(&self) -> bool {
        ClientGate::Terminal.is_open(&self.capabilities)
    }

    /// Reads a text file as the editor has it, changes that are not saved included.
    ///
    /// # Errors
    /// See [`Editor`].
    pub async fn read_text_file(
        &self,
        path: impl AsRef<Path> + Send,
    ) -> Result<String, AgentError> {
        self.read(ReadTextFileRequest::new(SESSION, absolute(path.as_ref())?)).await
    }

    /// Reads at most `count` lines of a text file, from line `from` on; the first is 1.
    ///
    /// # Errors
    /// See [`Editor`].
    pub async fn read_lines(
        &self,
        path: impl AsRef<Path> + Send,
        from: u32,
        count: u32,
    ) -> Result<String, AgentError> {
        let request = ReadTextFileRequest::new(SESSION, absolute(path.as_ref())?);
        self.read(ReadTextFileRequest { line: Some(from), limit: Some(count), ..request }).await
    }

    async fn read(&self, request: ReadTextFileRequest) -> Result<String, AgentError> {
        self.need(ClientGate::ReadTextFile)?;
        let answer: ReadTextFileResponse = self.call(&request).await?;
        Ok(answer.content)
    }

    /// Writes a text file; makes it where there is none.
    ///
    /// # Errors
    /// See [`Editor`].
    pub async fn write_text_file(
        &self,
        path: impl AsRef<Path> + Send,
        content: impl Into<String> + Send,
    ) -> Result<(), AgentError> {
        self.need(ClientGate::WriteTextFile)?;
        let request = WriteTextFileRequest::new(SESSION, absolute(path.as_ref())?, content);
        self.call::<_, WriteTextFileResponse>(&request).await.map(drop)
    }

    /// Runs a command in a terminal that the user can see.
    ///
    /// # Errors
    /// See [`Editor`].
    pub async fn run(&self, run: Run) -> Result<EditorTerminal, AgentError> {
        self.need(ClientGate::Terminal)?;
        let made: CreateTerminalResponse = self.call(&run.request).await?;
        Ok(EditorTerminal { editor: self.clone(), id: made.terminal_id, is_released: false })
    }

    fn need(&self, gate: ClientGate) -> Result<(), AgentError> {
        if gate.is_open(&self.capabilities) {
            return Ok(());
        }
        let needed = gate.capability();
        Err(AgentError::new("editor_lacks", format!("the editor does not offer {needed}")))
    }

    async fn call<P, T>(&self, params: &P) -> Result<T, AgentError>
    where
        P: RequestParams<Response = T> + Sync,
        T: Read,
    {
        let mut json = Vec::new();
        params.write(&mut json);
        let params = Json::parse(json).map_err(|_| AgentError::failed("the call is no JSON"))?;
        let answer = self.host.call(P::METHOD, params).await.map_err(refused)?;
        let answer = if answer.as_str() == "null" { "{}" } else { answer.as_str() };
        read_checked(answer, Rules::Lenient).map_err(|why| {
            AgentError::new("editor_refused", format!("the editor's answer cannot be read: {why}"))
        })
    }
}

impl fmt::Debug for Editor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Editor").field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}

fn absolute(path: &Path) -> Result<String, AgentError> {
    let text = path.to_str().filter(|_| path.is_absolute());
    text.map(str::to_owned).ok_or_else(|| {
        AgentError::invalid_input(format!("the path {} is not absolute text", path.display()))
    })
}

fn refused(refusal: CallRefusal) -> AgentError {
    let CallRefusal { code, message, data } = refusal;
    let is_missing = code == Code::RESOURCE_NOT_FOUND.0;
    let word = if is_missing { "file_not_found" } else { "editor_refused" };
    let data = data.map(|data| data.to_value());
    let data = json!({ "code": code, "message": message, "data": data });
    AgentError::new(word, message).with_data(Json::from_value(&data))
}

// === impl Run ===

impl Run {
    /// A program without arguments.
    #[must_use]
    pub fn command(program: impl Into<String>) -> Self {
        Self { request: CreateTerminalRequest::new(SESSION, program) }
    }

    /// A line for `sh`.
    #[must_use]
    pub fn shell(line: impl Into<String>) -> Self {
        Self::command("sh").arg("-c").arg(line)
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.request.args.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<T: Into<String>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.request.args.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.env.push(EnvVariable::new(name, value));
        self
    }

    /// Runs it there: an absolute path. Without one, where the session works.
    #[must_use]
    pub fn cwd(mut self, path: impl Into<String>) -> Self {
        self.request.cwd = Some(path.into());
        self
    }

    /// Keeps at most this much of its output, in bytes; the oldest goes first.
    #[must_use]
    pub fn keeping(mut self, bytes: u64) -> Self {
        self.request.output_byte_limit = Some(bytes);
        self
    }
}

// === impl EditorTerminal ===

impl EditorTerminal {
    /// Its id: what a tool call shows it by.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What it shows now.
    ///
    /// # Errors
    /// See [`Editor`].
    pub async fn output(&self) -> Result<TerminalOutput, AgentError> {
        let request = TerminalOutputRequest::new(SESSION, &*self.id);
        let answer: TerminalOutputResponse = self.editor.call(&request).await?;
        let exit = answer
            .exit_status
            .map(|TerminalExitStatus { exit_code, signal, .. }| Exit { code: exit_code, signal });
        Ok(TerminalOutput { text: answer.output, is_cut: answer.truncated, exit })
    }

    /// Waits until the command ends.
    ///
    /// # Errors
    /// [`AgentError::stopped`] as soon as the run is asked to stop; else see [`Editor`].
    pub async fn wait(&self) -> Result<Exit, AgentError> {
        let request = WaitForTerminalExitRequest::new(SESSION, &*self.id);
        let WaitForTerminalExitResponse { exit_code: code, signal, .. } = tokio::select! {
            biased;
            () = self.editor.host.cancelled() => return Err(AgentError::stopped()),
            answer = self.editor.call(&request) => answer?,
        };
        Ok(Exit { code, signal })
    }

    /// Ends the command. The terminal stays, with what it shows.
    ///
    /// # Errors
    /// See [`Editor`].
    pub async fn kill(&self) -> Result<(), AgentError> {
        let request = KillTerminalRequest::new(SESSION, &*self.id);
        self.editor.call(&request).await.map(drop)
    }

    /// Lets the terminal go; ends its command where it still runs.
    ///
    /// # Errors
    /// See [`Editor`].
    pub async fn release(mut self) -> Result<(), AgentError> {
        self.is_released = true;
        let request = ReleaseTerminalRequest::new(SESSION, &*self.id);
        self.editor.call(&request).await.map(drop)
    }
}

impl Drop for EditorTerminal {
    fn drop(&mut self) {
        if self.is_released {
            return;
        }
        let Ok(here) = tokio::runtime::Handle::try_current() else { return };
        let (editor, id) = (self.editor.clone(), std::mem::take(&mut self.id));
        here.spawn(async move {
            // An editor that is gone has let its terminals go.
            drop(editor.call(&ReleaseTerminalRequest::new(SESSION, id)).await);
        });
    }
}

impl fmt::Debug for EditorTerminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EditorTerminal").field("id", &self.id).finish_non_exhaustive()
    }
}

// === impl Exit ===

impl Exit {
    /// Whether the command left by itself with the code 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.code == Some(0) && self.signal.is_none()
    }
}
