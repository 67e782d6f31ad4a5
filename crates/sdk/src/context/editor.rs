//! The files and terminals of the editor that a run works for.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use trilogue_domain::Json;

use crate::error::AgentError;
use crate::port::{CallRefusal, CallTarget, Host};

/// The protocol's error number for a missing resource.
const RESOURCE_NOT_FOUND: i32 = -32002;
/// The session id of every call. The runner replaces it before it passes the call on.
const SESSION: &str = "";

/// The editor that a run works for, from [`Context::editor`](crate::Context::editor). Cheap to clone.
///
/// Paths are absolute, as the protocol requires. If the editor refuses a call, the [`AgentError`] has the code `editor_refused`; a missing file has `file_not_found`. A call that the editor does not support fails with `editor_lacks` and is not sent.
#[derive(Clone)]
pub struct Editor {
    host: Arc<dyn Host>,
    capabilities: Arc<Value>,
}

/// What an editor can offer in its capabilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Capability {
    ReadTextFile,
    WriteTextFile,
    Terminal,
}

/// A command for a terminal of the editor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    program: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    cwd: Option<String>,
    max_output_bytes: Option<u64>,
}

/// A terminal of the editor in which a command runs, from [`Editor::run`].
///
/// Dropping it releases the terminal, which ends a command that still runs.
pub struct EditorTerminal {
    editor: Editor,
    id: String,
    is_released: bool,
}

/// The output of a terminal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TerminalOutput {
    /// The newest output, up to the terminal's limit.
    pub text: String,
    /// Whether older output was cut off.
    pub is_cut: bool,
    /// How the command ended; `None` while it runs.
    pub exit: Option<Exit>,
}

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Exit {
    /// The exit code, if the command exited by itself.
    #[serde(rename = "exitCode")]
    pub code: Option<u32>,
    /// The signal that ended it.
    pub signal: Option<String>,
}

// === impl Editor ===

impl Editor {
    /// Returns the editor behind this port, or `None` if no editor is connected or it offers no capability.
    pub(super) fn of(host: Arc<dyn Host>) -> Option<Self> {
        let target = host.call_target().filter(|target| &*target.dialect == CallTarget::EDITOR)?;
        let editor = Self { host, capabilities: Arc::new(target.capabilities.to_value()) };
        let all = [Capability::ReadTextFile, Capability::WriteTextFile, Capability::Terminal];
        all.into_iter().any(|capability| editor.has(capability)).then_some(editor)
    }

    /// Returns `true` if [`Editor::read_text_file`] works.
    #[must_use]
    pub fn can_read(&self) -> bool {
        self.has(Capability::ReadTextFile)
    }

    /// Returns `true` if [`Editor::write_text_file`] works.
    #[must_use]
    pub fn can_write(&self) -> bool {
        self.has(Capability::WriteTextFile)
    }

    /// Returns `true` if [`Editor::run`] works.
    #[must_use]
    pub fn has_terminals(&self) -> bool {
        self.has(Capability::Terminal)
    }

    /// Reads a text file as the editor has it, including unsaved changes.
    pub async fn read_text_file(
        &self,
        path: impl AsRef<Path> + Send,
    ) -> Result<String, AgentError> {
        self.read(json!({ "sessionId": SESSION, "path": absolute(path.as_ref())? })).await
    }

    /// Reads at most `count` lines of a text file, starting at line `from`. The first line is 1.
    pub async fn read_lines(
        &self,
        path: impl AsRef<Path> + Send,
        from: u32,
        count: u32,
    ) -> Result<String, AgentError> {
        let path = absolute(path.as_ref())?;
        let params = json!({ "sessionId": SESSION, "path": path, "line": from, "limit": count });
        self.read(params).await
    }

    async fn read(&self, params: Value) -> Result<String, AgentError> {
        #[derive(Deserialize)]
        struct FileContent {
            content: String,
        }
        self.need(Capability::ReadTextFile)?;
        let FileContent { content } = self.call("fs/read_text_file", params).await?;
        Ok(content)
    }

    /// Writes a text file. Creates the file if it is missing.
    pub async fn write_text_file(
        &self,
        path: impl AsRef<Path> + Send,
        content: impl Into<String> + Send,
    ) -> Result<(), AgentError> {
        self.need(Capability::WriteTextFile)?;
        let (path, content) = (absolute(path.as_ref())?, content.into());
        let params = json!({ "sessionId": SESSION, "path": path, "content": content });
        self.call("fs/write_text_file", params).await.map(|_: Empty| ())
    }

    /// Runs a command in a terminal that the user can see.
    pub async fn run(&self, run: Run) -> Result<EditorTerminal, AgentError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Created {
            terminal_id: String,
        }
        self.need(Capability::Terminal)?;
        let Created { terminal_id: id } = self.call("terminal/create", run.params()).await?;
        Ok(EditorTerminal { editor: self.clone(), id, is_released: false })
    }

    fn has(&self, capability: Capability) -> bool {
        self.capabilities.pointer(capability.pointer()) == Some(&Value::Bool(true))
    }

    fn need(&self, capability: Capability) -> Result<(), AgentError> {
        if self.has(capability) {
            return Ok(());
        }
        let name = capability.pointer().replace('/', ".");
        let message = format!("the editor does not offer clientCapabilities{name}");
        Err(AgentError::new("editor_lacks", message))
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: Value,
    ) -> Result<T, AgentError> {
        let params = Json::from_value(&params);
        let answer = self.host.call(method, params).await.map_err(refusal_error)?;
        // Some editors answer `null` although the protocol requires an object.
        let answer = if answer.as_str() == "null" { "{}" } else { answer.as_str() };
        serde_json::from_str(answer).map_err(|error| {
            AgentError::new("editor_refused", format!("the editor's answer is invalid: {error}"))
        })
    }
}

/// A response without members.
#[derive(Deserialize)]
struct Empty {}

// === impl Capability ===

impl Capability {
    fn pointer(self) -> &'static str {
        match self {
            Self::ReadTextFile => "/fs/readTextFile",
            Self::WriteTextFile => "/fs/writeTextFile",
            Self::Terminal => "/terminal",
        }
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

fn refusal_error(refusal: CallRefusal) -> AgentError {
    let CallRefusal { code, message, data } = refusal;
    let is_missing = code == RESOURCE_NOT_FOUND;
    let word = if is_missing { "file_not_found" } else { "editor_refused" };
    let data = data.map(|data| data.to_value());
    let data = json!({ "code": code, "message": message, "data": data });
    AgentError::new(word, message).with_data(Json::from_value(&data))
}

// === impl Run ===

impl Run {
    /// Runs a program without arguments.
    #[must_use]
    pub fn command(program: impl Into<String>) -> Self {
        let (arguments, variables) = (Vec::new(), Vec::new());
        let program = program.into();
        Self { program, arguments, variables, cwd: None, max_output_bytes: None }
    }

    /// Runs a line with `sh`.
    #[must_use]
    pub fn shell(line: impl Into<String>) -> Self {
        Self::command("sh").arg("-c").arg(line)
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<T: Into<String>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Sets the working directory: an absolute path. The default is the session's working directory.
    #[must_use]
    pub fn cwd(mut self, path: impl Into<String>) -> Self {
        self.cwd = Some(path.into());
        self
    }

    fn params(self) -> Value {
        let variables = self.variables.into_iter();
        let env: Vec<_> =
            variables.map(|(name, value)| json!({ "name": name, "value": value })).collect();
        let mut params = json!({
            "sessionId": SESSION,
            "command": self.program,
            "args": self.arguments,
            "env": env,
        });
        if let Some(cwd) = self.cwd {
            params["cwd"] = cwd.into();
        }
        if let Some(bytes) = self.max_output_bytes {
            params["outputByteLimit"] = bytes.into();
        }
        params
    }

    /// Keeps at most this many bytes of output. The oldest output is dropped first.
    #[must_use]
    pub fn max_output_bytes(mut self, bytes: u64) -> Self {
        self.max_output_bytes = Some(bytes);
        self
    }
}

// === impl EditorTerminal ===

impl EditorTerminal {
    /// Returns the terminal's id, by which a tool call can show it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the current output.
    pub async fn output(&self) -> Result<TerminalOutput, AgentError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct OutputAnswer {
            output: String,
            #[serde(default)]
            truncated: bool,
            exit_status: Option<Exit>,
        }
        let OutputAnswer { output, truncated, exit_status } = self.call("terminal/output").await?;
        Ok(TerminalOutput { text: output, is_cut: truncated, exit: exit_status })
    }

    /// Waits until the command ends.
    ///
    /// # Errors
    /// [`AgentError::run_stopped`] as soon as cancellation of the run is requested; otherwise see [`Editor`].
    pub async fn wait(&self) -> Result<Exit, AgentError> {
        tokio::select! {
            biased;
            () = self.editor.host.cancelled() => Err(AgentError::run_stopped()),
            exit = self.call("terminal/wait_for_exit") => exit,
        }
    }

    /// Ends the command. The terminal and its output stay.
    pub async fn kill(&self) -> Result<(), AgentError> {
        self.call("terminal/kill").await.map(|_: Empty| ())
    }

    /// Releases the terminal, which ends a command that still runs.
    pub async fn release(mut self) -> Result<(), AgentError> {
        self.is_released = true;
        self.call("terminal/release").await.map(|_: Empty| ())
    }

    async fn call<T: DeserializeOwned>(&self, method: &str) -> Result<T, AgentError> {
        self.editor.call(method, terminal_params(&self.id)).await
    }
}

fn terminal_params(id: &str) -> Value {
    json!({ "sessionId": SESSION, "terminalId": id })
}

impl Drop for EditorTerminal {
    fn drop(&mut self) {
        if self.is_released {
            return;
        }
        let Ok(here) = tokio::runtime::Handle::try_current() else { return };
        let (editor, id) = (self.editor.clone(), std::mem::take(&mut self.id));
        here.spawn(async move {
            // If the editor has gone, it has released its terminals.
            let _: Result<Empty, _> = editor.call("terminal/release", terminal_params(&id)).await;
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
    /// Returns `true` if the command exited by itself with code 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.code == Some(0) && self.signal.is_none()
    }
}
