use std::fmt;

use async_trait::async_trait;
use trilogue_wire::agent_client::{
    ClientCapabilities, CreateElicitationRequest, CreateElicitationResponse, CreateTerminalRequest,
    CreateTerminalResponse, ElicitationDecline, KillTerminalRequest, KillTerminalResponse,
    PermissionOptionKind, ReadTextFileRequest, ReadTextFileResponse, ReleaseTerminalRequest,
    ReleaseTerminalResponse, RequestPermissionRequest, RequestPermissionResponse,
    TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest,
    WaitForTerminalExitResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use trilogue_wire::jsonrpc::{Code, ErrorObject};
use trilogue_wire::native::Json;

use super::peer::RawJson;

/// Answers the agent's requests to its client. Each default answer is safe: it allows nothing and offers nothing.
///
/// Each request is answered in a separate task, so several can run at once. A request outside of [`ClientHandler::capabilities`] is refused and does not reach the handler. If the turn of a request is cancelled, the request is dropped and the agent is notified.
#[async_trait]
pub trait ClientHandler: Send + Sync + fmt::Debug + 'static {
    /// Returns the capabilities that `initialize` offers to the agent.
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities::new()
    }

    /// Decides whether the agent may use a tool. The default is [`reject`].
    async fn permission(&self, request: RequestPermissionRequest) -> RequestPermissionResponse {
        reject(&request)
    }

    /// Asks the user to fill a form or to visit a URL.
    async fn elicitation(&self, request: CreateElicitationRequest) -> CreateElicitationResponse {
        drop(request);
        CreateElicitationResponse::Decline(ElicitationDecline::new())
    }

    /// Called when the user has finished at a URL.
    fn elicitation_completed(&self, elicitation: &str) {
        let _ = elicitation;
    }

    /// Reads a text file. If the file does not exist, return [`file_not_found`].
    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
    ) -> Result<ReadTextFileResponse, ErrorObject> {
        drop(request);
        Err(not_offered("fs/read_text_file"))
    }

    /// Writes a text file. Creates the file if it is missing.
    async fn write_text_file(
        &self,
        request: WriteTextFileRequest,
    ) -> Result<WriteTextFileResponse, ErrorObject> {
        drop(request);
        Err(not_offered("fs/write_text_file"))
    }

    /// Runs a command in a terminal. Returns at once.
    async fn create_terminal(
        &self,
        request: CreateTerminalRequest,
    ) -> Result<CreateTerminalResponse, ErrorObject> {
        drop(request);
        Err(not_offered("terminal/create"))
    }

    /// Returns the output of a terminal.
    async fn terminal_output(
        &self,
        request: TerminalOutputRequest,
    ) -> Result<TerminalOutputResponse, ErrorObject> {
        drop(request);
        Err(not_offered("terminal/output"))
    }

    /// Waits until a command ends.
    async fn wait_for_terminal_exit(
        &self,
        request: WaitForTerminalExitRequest,
    ) -> Result<WaitForTerminalExitResponse, ErrorObject> {
        drop(request);
        Err(not_offered("terminal/wait_for_exit"))
    }

    /// Ends a command. Its terminal stays.
    async fn kill_terminal(
        &self,
        request: KillTerminalRequest,
    ) -> Result<KillTerminalResponse, ErrorObject> {
        drop(request);
        Err(not_offered("terminal/kill"))
    }

    /// Releases a terminal, which ends a command that still runs.
    async fn release_terminal(
        &self,
        request: ReleaseTerminalRequest,
    ) -> Result<ReleaseTerminalResponse, ErrorObject> {
        drop(request);
        Err(not_offered("terminal/release"))
    }

    /// Answers an extension request, which the protocol does not define.
    async fn extension(&self, method: &str, params: RawJson) -> Result<RawJson, ErrorObject> {
        drop(params);
        Err(not_offered(method))
    }

    /// Takes an extension notification, which the protocol does not define. The task that reads the connection calls it, so it must return at once.
    fn extension_notification(&self, method: &str, params: &RawJson) {
        let _ = (method, params);
    }
}

/// Allows nothing and offers nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RejectAll;

impl ClientHandler for RejectAll {}

/// Returns a rejection: for this once if the request has such an option, otherwise for always. If no option rejects, returns `cancelled`.
#[must_use]
pub fn reject(request: &RequestPermissionRequest) -> RequestPermissionResponse {
    choosing(request, [PermissionOptionKind::RejectOnce, PermissionOptionKind::RejectAlways])
}

/// Allows for this once. If the request has no such option, rejects.
#[must_use]
pub fn allow_once(request: &RequestPermissionRequest) -> RequestPermissionResponse {
    match request.option(PermissionOptionKind::AllowOnce) {
        Some(option) => RequestPermissionResponse::selected(&*option.option_id),
        None => reject(request),
    }
}

/// Chooses by the kind of an option, never by its position or name.
fn choosing(
    request: &RequestPermissionRequest,
    kinds: [PermissionOptionKind; 2],
) -> RequestPermissionResponse {
    match kinds.iter().find_map(|kind| request.option(*kind)) {
        Some(option) => RequestPermissionResponse::selected(&*option.option_id),
        None => RequestPermissionResponse::cancelled(),
    }
}

/// Returns the error for a missing file. Some agents search for this text, so it must not change.
#[must_use]
pub fn file_not_found(path: &str) -> ErrorObject {
    let data = serde_json::json!({ "uri": super::attachment::file_uri(path) });
    let message = format!("Resource not found: {path}");
    ErrorObject::new(Code::RESOURCE_NOT_FOUND, message).data(Json::from_value(&data))
}

fn not_offered(method: &str) -> ErrorObject {
    ErrorObject::method_not_found(method)
}
