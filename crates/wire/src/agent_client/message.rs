//! Requests and notifications: one enum for each side and kind.

use schemars::SchemaGenerator;
use serde_json::value::RawValue;

use super::{
    ArchiveSessionRequest, ArchiveSessionResponse, AuthenticateRequest, AuthenticateResponse,
    CancelNotification, CancelRequestNotification, CloseSessionRequest, CloseSessionResponse,
    CompleteElicitationNotification, CreateElicitationRequest, CreateElicitationResponse,
    CreateTerminalRequest, CreateTerminalResponse, DeleteSessionRequest, DeleteSessionResponse,
    ForkSessionRequest, ForkSessionResponse, InitializeRequest, InitializeResponse, Json,
    KillTerminalRequest, KillTerminalResponse, ListSessionsRequest, ListSessionsResponse,
    LoadSessionRequest, LoadSessionResponse, LogoutRequest, LogoutResponse, NewSessionRequest,
    NewSessionResponse, PromptRequest, PromptResponse, Read, ReadTextFileRequest,
    ReadTextFileResponse, ReleaseTerminalRequest, ReleaseTerminalResponse,
    RequestPermissionRequest, RequestPermissionResponse, ResumeSessionRequest,
    ResumeSessionResponse, Rules, SessionNotification, SessionOptionsRequest,
    SessionOptionsResponse, SessionStatusRequest, SessionStatusResponse,
    SetSessionConfigOptionRequest, SetSessionConfigOptionResponse, SetSessionModeRequest,
    SetSessionModeResponse, SetSessionTitleRequest, SetSessionTitleResponse, TerminalOutputRequest,
    TerminalOutputResponse, UnarchiveSessionRequest, UnarchiveSessionResponse, Violation,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse, WriteTextFileRequest,
    WriteTextFileResponse, method, read_params,
};
use crate::jsonrpc::{Code, ErrorObject, Payload};

pub trait RequestParams: Read + Payload {
    const METHOD: &'static str;
    type Response: Read + Payload;
}

pub trait NotificationParams: Read + Payload {
    const METHOD: &'static str;
}

/// A method that the protocol does not define, with unchanged params.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extension {
    pub method: String,
    pub params: Option<Json>,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The method does not exist for this side, or for this kind of call.
    #[error("the method '{}' is not answered here", .0.escape_debug())]
    NoSuchMethod(String),
    #[error("{0}")]
    Params(#[from] Violation),
}

macro_rules! requests {
    (
        $(#[$attr:meta])*
        pub enum $name:ident {
            $( $(#[$doc:meta])* $variant:ident($params:ty) -> $response:ty = $word:literal; )*
        }
    ) => {
        calls! {
            $(#[$attr])*
            pub enum $name {
                $( $(#[$doc])* $variant($params) = $word; )*
            }
        }

        impl $name {
            fn response_schemas(generator: &mut SchemaGenerator) {
                $( generator.subschema_for::<$response>(); )*
            }
        }

        $(
            impl RequestParams for $params {
                const METHOD: &'static str = $word;
                type Response = $response;
            }
        )*
    };
}

/// Adds the schemas of all messages, with those of the objects in them.
pub(super) fn object_schemas(generator: &mut SchemaGenerator) {
    AgentRequest::object_schemas(generator);
    ClientRequest::object_schemas(generator);
    AgentNotification::object_schemas(generator);
    ClientNotification::object_schemas(generator);
    AgentRequest::response_schemas(generator);
    ClientRequest::response_schemas(generator);
}

macro_rules! calls {
    (
        $(#[$attr:meta])*
        pub enum $name:ident {
            $( $(#[$doc:meta])* $variant:ident($params:ty) = $word:literal; )*
        }
    ) => {
        $(#[$attr])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum $name {
            $( $(#[$doc])* $variant(Box<$params>), )*
            Extension(Box<Extension>),
        }

        impl $name {
            pub const METHODS: &[&str] = &[$($word),*];

            pub fn read(
                method: &str,
                params: Option<&RawValue>,
                rules: Rules,
            ) -> Result<Self, Refusal> {
                match method {
                    $( $word => Ok(Self::$variant(Box::new(read_params(params, rules)?))), )*
                    _ => Extension::read(method, params).map(Box::new).map(Self::Extension),
                }
            }

            pub fn method(&self) -> &str {
                match self {
                    $( Self::$variant(_) => $word, )*
                    Self::Extension(extension) => &extension.method,
                }
            }

            fn object_schemas(generator: &mut SchemaGenerator) {
                $( generator.subschema_for::<$params>(); )*
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                match self {
                    $( Self::$variant(params) => params.serialize(to), )*
                    Self::Extension(extension) => extension.params.serialize(to),
                }
            }
        }

        impl Payload for $name {
            fn is_absent(&self) -> bool {
                matches!(self, Self::Extension(extension) if extension.params.is_none())
            }
        }
    };
}

requests! {
    pub enum AgentRequest {
        Initialize(InitializeRequest) -> InitializeResponse = "initialize";
        Authenticate(AuthenticateRequest) -> AuthenticateResponse = "authenticate";
        Logout(LogoutRequest) -> LogoutResponse = "logout";
        NewSession(NewSessionRequest) -> NewSessionResponse = "session/new";
        /// Opens a session and replays its history.
        LoadSession(LoadSessionRequest) -> LoadSessionResponse = "session/load";
        /// Opens a session without a replay.
        ResumeSession(ResumeSessionRequest) -> ResumeSessionResponse = "session/resume";
        ListSessions(ListSessionsRequest) -> ListSessionsResponse = "session/list";
        DeleteSession(DeleteSessionRequest) -> DeleteSessionResponse = "session/delete";
        CloseSession(CloseSessionRequest) -> CloseSessionResponse = "session/close";
        SetSessionMode(SetSessionModeRequest) -> SetSessionModeResponse = "session/set_mode";
        SetSessionConfigOption(SetSessionConfigOptionRequest) -> SetSessionConfigOptionResponse
            = "session/set_config_option";
        Prompt(PromptRequest) -> PromptResponse = "session/prompt";
        /// Unstable.
        ForkSession(ForkSessionRequest) -> ForkSessionResponse = "session/fork";
        /// Unstable.
        SessionStatus(SessionStatusRequest) -> SessionStatusResponse = "session/status";
        /// Unstable.
        SetSessionTitle(SetSessionTitleRequest) -> SetSessionTitleResponse = "session/set_title";
        /// Unstable.
        ArchiveSession(ArchiveSessionRequest) -> ArchiveSessionResponse = "session/archive";
        /// Unstable.
        UnarchiveSession(UnarchiveSessionRequest) -> UnarchiveSessionResponse
            = "session/unarchive";
        /// Unstable.
        SessionOptions(SessionOptionsRequest) -> SessionOptionsResponse = "session/options";
    }
}

requests! {
    pub enum ClientRequest {
        RequestPermission(RequestPermissionRequest) -> RequestPermissionResponse
            = "session/request_permission";
        ReadTextFile(ReadTextFileRequest) -> ReadTextFileResponse = "fs/read_text_file";
        WriteTextFile(WriteTextFileRequest) -> WriteTextFileResponse = "fs/write_text_file";
        CreateTerminal(CreateTerminalRequest) -> CreateTerminalResponse = "terminal/create";
        TerminalOutput(TerminalOutputRequest) -> TerminalOutputResponse = "terminal/output";
        WaitForTerminalExit(WaitForTerminalExitRequest) -> WaitForTerminalExitResponse
            = "terminal/wait_for_exit";
        KillTerminal(KillTerminalRequest) -> KillTerminalResponse = "terminal/kill";
        ReleaseTerminal(ReleaseTerminalRequest) -> ReleaseTerminalResponse = "terminal/release";
        CreateElicitation(CreateElicitationRequest) -> CreateElicitationResponse
            = "elicitation/create";
    }
}

calls! {
    pub enum AgentNotification {
        Cancel(CancelNotification) = "session/cancel";
        CancelRequest(CancelRequestNotification) = "$/cancel_request";
    }
}

calls! {
    pub enum ClientNotification {
        SessionUpdate(SessionNotification) = "session/update";
        CompleteElicitation(CompleteElicitationNotification) = "elicitation/complete";
        CancelRequest(CancelRequestNotification) = "$/cancel_request";
    }
}

// === impl NotificationParams ===

impl NotificationParams for CancelNotification {
    const METHOD: &'static str = "session/cancel";
}

impl NotificationParams for CancelRequestNotification {
    const METHOD: &'static str = "$/cancel_request";
}

impl NotificationParams for SessionNotification {
    const METHOD: &'static str = "session/update";
}

impl NotificationParams for CompleteElicitationNotification {
    const METHOD: &'static str = "elicitation/complete";
}

// === impl Extension ===

impl Extension {
    fn read(name: &str, params: Option<&RawValue>) -> Result<Self, Refusal> {
        if method(name).is_some() {
            return Err(Refusal::NoSuchMethod(name.to_owned()));
        }
        let params = params.and_then(|params| Json::parse(params.get()).ok());
        Ok(Self { method: name.to_owned(), params })
    }
}

// === impl Refusal ===

impl Refusal {
    /// Returns the error response to a request. A notification gets no response.
    pub fn error(&self) -> ErrorObject {
        match self {
            Self::NoSuchMethod(method) => ErrorObject::method_not_found(method),
            Self::Params(violation) => violation.error(),
        }
    }
}

// === impl Violation ===

impl Violation {
    pub fn error(&self) -> ErrorObject {
        let data = serde_json::json!({ "path": self.path, "reason": self.message });
        let message = format!("{}: {self}", Code::INVALID_PARAMS.text());
        ErrorObject::new(Code::INVALID_PARAMS, message).data(Json::from_value(&data))
    }
}
