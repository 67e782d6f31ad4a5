use super::object::object;
use super::{ContentBlock, InitialConfigOption, McpServer, SessionConfigOption, SessionModeState};
use crate::json::words::words;

object! {
    pub struct NewSessionRequest {
        /// An absolute path.
        cwd: String = "cwd";
        mcp_servers: Vec<McpServer> = "mcpServers" as list_there;
    } may {
        /// Absolute paths.
        additional_directories: Vec<String> = "additionalDirectories" as optional;
        system_prompt: Option<SystemPrompt> = "systemPrompt" as optional;
        /// Unstable. Initial values of options.
        config_options: Vec<InitialConfigOption> = "configOptions" as optional;
    }

    pub struct NewSessionResponse {
        /// The agent chooses the id.
        session_id: String = "sessionId";
    } may {
        modes: Option<SessionModeState> = "modes";
        config_options: Option<Vec<SessionConfigOption>> = "configOptions" as optional_fitting;
    }

    /// Opens a session and replays its history.
    pub struct LoadSessionRequest {
        session_id: String = "sessionId";
        /// An absolute path.
        cwd: String = "cwd";
        mcp_servers: Vec<McpServer> = "mcpServers" as list_there;
    } may {
        /// Absolute paths.
        additional_directories: Vec<String> = "additionalDirectories" as optional;
        system_prompt: Option<SystemPrompt> = "systemPrompt" as optional;
        /// Unstable. Initial values of options.
        config_options: Vec<InitialConfigOption> = "configOptions" as optional;
    }

    pub struct LoadSessionResponse may {
        modes: Option<SessionModeState> = "modes";
        config_options: Option<Vec<SessionConfigOption>> = "configOptions" as optional_fitting;
    }

    /// Opens a session without a replay.
    pub struct ResumeSessionRequest {
        session_id: String = "sessionId";
        /// An absolute path.
        cwd: String = "cwd";
    } may {
        mcp_servers: Vec<McpServer> = "mcpServers" as optional;
        /// Absolute paths.
        additional_directories: Vec<String> = "additionalDirectories" as optional;
        system_prompt: Option<SystemPrompt> = "systemPrompt" as optional;
        /// Unstable. Initial values of options.
        config_options: Vec<InitialConfigOption> = "configOptions" as optional;
    }

    pub struct ResumeSessionResponse may {
        modes: Option<SessionModeState> = "modes";
        config_options: Option<Vec<SessionConfigOption>> = "configOptions" as optional_fitting;
    }

    pub struct ListSessionsRequest may {
        /// Only sessions in this directory.
        cwd: Option<String> = "cwd" as optional;
        /// The `next_cursor` of the previous page.
        cursor: Option<String> = "cursor" as optional;
        /// Unstable. Absent means [`ArchiveFilter::Exclude`].
        archived: Option<ArchiveFilter> = "archived" as optional;
    }

    pub struct ListSessionsResponse {
        sessions: Vec<SessionInfo> = "sessions" as fitting_there;
    } may {
        /// Absent on the last page.
        next_cursor: Option<String> = "nextCursor";
    }

    pub struct SessionInfo {
        session_id: String = "sessionId";
        /// An absolute path.
        cwd: String = "cwd";
    } may {
        /// Absolute paths.
        additional_directories: Vec<String> = "additionalDirectories" as fitting;
        /// For people.
        title: Option<String> = "title";
        /// ISO 8601.
        updated_at: Option<String> = "updatedAt";
        /// Unstable.
        archived: Option<bool> = "archived";
    }

    pub struct DeleteSessionRequest {
        session_id: String = "sessionId";
    }

    pub struct DeleteSessionResponse;

    /// Ends a session's work and frees its resources. It can be opened again.
    pub struct CloseSessionRequest {
        session_id: String = "sessionId";
    }

    pub struct CloseSessionResponse;

    /// Instructions of the client for the agent's session.
    pub struct SystemPrompt {
        mode: SystemPromptMode = "mode";
        /// At least one block. Only text is allowed.
        content: Vec<ContentBlock> = "content";
    }
}

words! {
    pub open enum SystemPromptMode {
        /// The content is added to the agent's own instructions.
        Append = "append";
        /// The content replaces the agent's own instructions.
        Override = "override";
    }
}

words! {
    pub open enum ArchiveFilter {
        Exclude = "exclude";
        Include = "include";
        Only = "only";
    }
}
