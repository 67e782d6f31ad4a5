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

/// What an agent asks of its client. Every question has a safe answer where nobody overrides it: nothing is allowed, nothing is offered.
///
/// Questions are answered in tasks of their own, several at once. What is not in [`ClientHandler::capabilities`] is refused before it comes here. A question whose turn is cancelled is dropped, and the agent told so.
#[async_trait]
pub trait ClientHandler: Send + Sync + fmt::Debug + 'static {
    /// What the agent may ask for, as it is told at first.
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities::new()
    }

    /// Whether a tool may be used: [`rejecting`] where nobody says otherwise.
    async fn permission(&self, request: RequestPermissionRequest) -> RequestPermissionResponse {
        rejecting(&request)
    }

    /// A form to fill, or an address to visit.
    async fn elicitation(&self, request: CreateElicitationRequest) -> CreateElicitationResponse {
        drop(request);
        CreateElicitationResponse::Decline(ElicitationDecline::new())
    }

    /// The user is done at an address.
    fn elicitation_completed(&self, elicitation: &str) {
        let _ = elicitation;
    }

    /// Reads a text file. For one that is not there, see [`file_not_found`].
    async fn read_text_file(
        &self,
        request: ReadTextFileRequest,
    ) -> Result<ReadTextFileResponse, ErrorObject> {
        drop(request);
        Err(not_offered("fs/read_text_file"))
    }

    /// Writes a text file; makes it where there is none.
    async fn write_text_file(
        &self,
        request: WriteTextFileRequest,
    ) -> Result<WriteTextFileResponse, ErrorObject> {
        drop(request);
        Err(not_offered("fs/write_text_file"))
    }

    /// Runs a command in a terminal; answers at once.
    async fn create_terminal(
        &self,
        request: CreateTerminalRequest,
    ) -> Result<CreateTerminalResponse, ErrorObject> {
        drop(request);
        Err(not_offered("terminal/create"))
    }

    /// Tells what a terminal shows.
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

    /// Ends a command; its terminal stays.
    async fn kill_terminal(
        &self,
        request: KillTerminalRequest,
    ) -> Result<KillTerminalResponse, ErrorObject> {
        drop(request);
        Err(not_offered("terminal/kill"))
    }

    /// Lets a terminal go; ends its command where it still runs.
    async fn release_terminal(
        &self,
        request: ReleaseTerminalRequest,
    ) -> Result<ReleaseTerminalResponse, ErrorObject> {
        drop(request);
        Err(not_offered("terminal/release"))
    }

    /// Something that the protocol has no word for.
    async fn extension(&self, method: &str, params: RawJson) -> Result<RawJson, ErrorObject> {
        drop(params);
        Err(not_offered(method))
    }

    /// Something that the protocol has no word for and that wants no answer. Called by the task that reads, so it returns at once.
    fn extension_notification(&self, method: &str, params: &RawJson) {
        let _ = (method, params);
    }
}

/// Allows nothing and offers nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RejectAll;

impl ClientHandler for RejectAll {}

/// Rejects, this once where that can be chosen. Where nothing rejects, nothing is chosen.
#[must_use]
pub fn rejecting(request: &RequestPermissionRequest) -> RequestPermissionResponse {
    choosing(request, [PermissionOptionKind::RejectOnce, PermissionOptionKind::RejectAlways])
}

/// Allows this once. Where that cannot be chosen, nothing is allowed.
#[must_use]
pub fn allowing_once(request: &RequestPermissionRequest) -> RequestPermissionResponse {
    match request.option(PermissionOptionKind::AllowOnce) {
        Some(option) => RequestPermissionResponse::selected(&*option.option_id),
        None => rejecting(request),
    }
}

/// Chooses by what options do, never by where they stand or what they are called.
fn choosing(
    request: &RequestPermissionRequest,
    kinds: [PermissionOptionKind; 2],
) -> RequestPermissionResponse {
    match kinds.iter().find_map(|kind| request.option(*kind)) {
        Some(option) => RequestPermissionResponse::selected(&*option.option_id),
        None => RequestPermissionResponse::cancelled(),
    }
}

/// What a question about a file is answered with that is not there. Some agents look for the words, so they are these.
#[must_use]
pub fn file_not_found(path: &str) -> ErrorObject {
    let data = serde_json::json!({ "uri": super::attachment::file_uri(path) });
    let message = format!("Resource not found: {path}");
    ErrorObject::new(Code::RESOURCE_NOT_FOUND, message).data(Json::from_value(&data))
}

fn not_offered(method: &str) -> ErrorObject {
    ErrorObject::method_not_found(method)
}
