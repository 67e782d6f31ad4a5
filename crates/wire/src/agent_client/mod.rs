//! The Agent Client Protocol, version 1, as data.
//!
//! # Invariants
//! - Input is read by [`read()`] and its relatives with the tolerance that the protocol's schema requires. An invalid value of an optional
//!   member counts as absent, and invalid items are left out if the schema allows it. Every other invalid value is a
//!   [`Violation`] with its path.
//! - Output follows the schema. Empty members are left out, and `null` is written only if it has a meaning.
//! - Unknown members are written back unchanged, after the declared ones. Unknown variants are kept as an [`Opaque`].

mod object;
mod tagged;

mod annotations;
mod auth;
mod cancel;
mod capability;
mod check;
mod command;
mod compaction;
mod config_option;
mod content;
mod cursor;
mod elicitation;
mod elicitation_schema;
mod file;
mod initialize;
mod map;
mod mcp_server;
mod message;
mod meta;
mod method;
mod mode;
mod notice;
mod opaque;
mod patch;
mod permission;
mod plan;
mod prompt;
mod schema;
mod served;
mod session;
mod session_upkeep;
pub mod splice;
mod subagent;
mod suggestion;
mod terminal;
pub mod text_edges;
mod tool_call;
mod update;
mod usage;

pub use crate::json::{
    Extra, Json, Read, Rules, Violation, read, read_checked, read_json, read_params, read_result,
};
pub use crate::jsonrpc::Id;
pub use annotations::{Annotations, Role};
pub use auth::{
    AuthMethod, AuthMethodAgent, AuthMethodTerminal, AuthenticateRequest, AuthenticateResponse,
    LogoutRequest, LogoutResponse,
};
pub use cancel::{CancelNotification, CancelRequestNotification};
pub use capability::{
    AgentAuthCapabilities, AgentCapabilities, AuthCapabilities, ClientCapabilities,
    ClientSessionCapabilities, ConfigOptionsCapabilities, ElicitationCapabilities,
    FileSystemCapabilities, McpCapabilities, PromptCapabilities, SessionCapabilities, Supported,
    SystemPromptCapabilities, SystemPromptModes,
};
pub use check::{check_mcp_servers, check_prompt, check_system_prompt, is_absolute};
pub use command::{AvailableCommand, AvailableCommandsUpdate, CommandInput};
pub use compaction::{CompactionStatus, CompactionSummaryChunk, CompactionUpdate};
pub use config_option::{
    ConfigOptionUpdate, InitialConfigOption, SessionConfigBoolean, SessionConfigOption,
    SessionConfigOptionCategory, SessionConfigSelect, SessionConfigSelectGroup,
    SessionConfigSelectOption, SessionConfigSelectOptions, SessionConfigValue,
    SetSessionConfigOptionRequest, SetSessionConfigOptionResponse,
};
pub use content::{
    AudioContent, BlobResourceContents, ContentBlock, EmbeddedResource, ImageContent,
    ResourceContents, ResourceLink, TextContent, TextResourceContents,
};
pub use cursor::{
    CursorAnchor, CursorCapabilities, CursorCompactionAnchor, CursorMessageAnchor, CursorPosition,
    CursorToolCallAnchor, CursorUpdate,
};
pub use elicitation::{
    CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    ElicitationAccept, ElicitationCancel, ElicitationDecline, ElicitationForm, ElicitationUrl,
    ElicitationValue,
};
pub use elicitation_schema::{
    BooleanPropertySchema, ElicitationPropertySchema, ElicitationSchema, ElicitationSchemaType,
    EnumOption, IntegerPropertySchema, MultiSelectItems, MultiSelectPropertySchema,
    NumberPropertySchema, StringFormat, StringMultiSelectItems, StringPropertySchema,
    TitledMultiSelectItems,
};
pub use file::{
    ReadTextFileRequest, ReadTextFileResponse, WriteTextFileRequest, WriteTextFileResponse,
};
pub use initialize::{Implementation, InitializeRequest, InitializeResponse, PROTOCOL_VERSION};
pub use map::Map;
pub use mcp_server::{HttpHeader, McpServer, McpServerHttp, McpServerSse, McpServerStdio};
pub use message::{
    AgentNotification, AgentRequest, ClientNotification, ClientRequest, Extension,
    NotificationParams, Refusal, RequestParams,
};
pub use meta::{Meta, without_parameters};
pub use method::{AgentGate, ClientGate, Gate, Kind, Method, Side};
pub use mode::{
    CurrentModeUpdate, SessionMode, SessionModeState, SetSessionModeRequest, SetSessionModeResponse,
};
pub use notice::{Notice, NoticeSeverity};
pub use opaque::Opaque;
pub use patch::Patch;
pub use permission::{
    CancelledPermission, PermissionOption, PermissionOptionKind, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SelectedPermission,
};
pub use plan::{
    Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, PlanItems, PlanMarkdown, PlanRemoved,
    PlanUpdate, PlanUpdateContent,
};
pub use prompt::{PromptRequest, PromptResponse, StopReason};
pub use schema::{message_id_schema, served_document};
pub use served::{
    AGENT_CAPABILITIES, CLIENT_CAPABILITIES, Capability, CapabilitySource, METHODS, Stability,
    UPDATES, UpdateGate, UpdateKind, method, retain_served, update_kind,
};
pub use session::{
    ArchiveFilter, CloseSessionRequest, CloseSessionResponse, DeleteSessionRequest,
    DeleteSessionResponse, ListSessionsRequest, ListSessionsResponse, LoadSessionRequest,
    LoadSessionResponse, NewSessionRequest, NewSessionResponse, ResumeSessionRequest,
    ResumeSessionResponse, SessionInfo, SystemPrompt, SystemPromptMode,
};
pub use session_upkeep::{
    ArchiveSessionRequest, ArchiveSessionResponse, ForkSessionRequest, ForkSessionResponse,
    SessionOptionsRequest, SessionOptionsResponse, SessionStatus, SessionStatusRequest,
    SessionStatusResponse, SetSessionTitleRequest, SetSessionTitleResponse,
    UnarchiveSessionRequest, UnarchiveSessionResponse,
};
pub use subagent::{
    IdleState, SessionMessage, SessionMessageChunk, StateUpdate, SubagentSessionCapabilities,
    SubagentStopReason, SubagentUpdate, WorkState,
};
pub use suggestion::{PromptSuggestion, PromptSuggestionsUpdate};
pub use terminal::{
    CreateTerminalRequest, CreateTerminalResponse, EnvVariable, KillTerminalRequest,
    KillTerminalResponse, ReleaseTerminalRequest, ReleaseTerminalResponse, TerminalExitStatus,
    TerminalOutputRequest, TerminalOutputResponse, WaitForTerminalExitRequest,
    WaitForTerminalExitResponse,
};
pub use tool_call::{
    Diff, ToolCall, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolContent,
    ToolKind, ToolSession, ToolTerminal,
};
pub use update::{ContentChunk, SessionInfoUpdate, SessionNotification, SessionUpdate};
pub use usage::{Cost, UsageUpdate};
