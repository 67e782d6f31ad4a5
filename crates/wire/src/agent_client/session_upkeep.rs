//! Methods that change or copy a session from outside of its turns. Unstable.

use super::object::object;
use super::{InitialConfigOption, McpServer, SessionConfigOption, SessionModeState, SystemPrompt};
use crate::json::words::words;

object! {
    /// Copies a session into a new one.
    pub struct ForkSessionRequest {
        session_id: String = "sessionId";
        /// An absolute path.
        cwd: String = "cwd";
    } may {
        /// The end of the copied history. Absent for the whole history.
        cursor_id: Option<String> = "cursorId" as optional;
        mcp_servers: Vec<McpServer> = "mcpServers" as optional;
        /// Absolute paths.
        additional_directories: Vec<String> = "additionalDirectories" as optional;
        system_prompt: Option<SystemPrompt> = "systemPrompt" as optional;
        /// Initial values of options.
        config_options: Vec<InitialConfigOption> = "configOptions" as optional;
    }

    pub struct ForkSessionResponse {
        /// The new session.
        session_id: String = "sessionId";
    } may {
        modes: Option<SessionModeState> = "modes";
        config_options: Option<Vec<SessionConfigOption>> = "configOptions" as optional_fitting;
    }

    pub struct SessionStatusRequest {
        session_id: String = "sessionId";
    }

    pub struct SessionStatusResponse {
        status: SessionStatus = "status";
    }

    pub struct SetSessionTitleRequest {
        session_id: String = "sessionId";
        title: String = "title";
    }

    pub struct SetSessionTitleResponse {
        /// The stored title.
        title: String = "title";
    }

    /// Closes a session, and hides it from lists.
    pub struct ArchiveSessionRequest {
        session_id: String = "sessionId";
    }

    pub struct ArchiveSessionResponse;

    pub struct UnarchiveSessionRequest {
        session_id: String = "sessionId";
    }

    pub struct UnarchiveSessionResponse;

    /// Requests the modes and options with which a session would start.
    pub struct SessionOptionsRequest {
        /// An absolute path.
        cwd: String = "cwd";
    } may {
        /// Absolute paths.
        additional_directories: Vec<String> = "additionalDirectories" as optional;
        /// Absent for a new session.
        session_id: Option<String> = "sessionId" as optional;
    }

    pub struct SessionOptionsResponse may {
        modes: Option<SessionModeState> = "modes";
        config_options: Option<Vec<SessionConfigOption>> = "configOptions" as optional_fitting;
    }
}

words! {
    pub open enum SessionStatus {
        /// The agent has the session in memory.
        Open = "open";
        Saved = "saved";
    }
}
