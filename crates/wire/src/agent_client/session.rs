use super::object::object;
use super::{McpServer, SessionConfigOption, SessionModeState};

object! {
    /// Begins a session.
    pub struct NewSessionRequest {
        /// Where the agent works, as an absolute path.
        cwd: String = "cwd" as required;
        /// The tool servers that the agent uses.
        mcp_servers: Vec<McpServer> = "mcpServers" as list_there;
    } may {
        /// Where the agent may work too, as absolute paths.
        additional_directories: Vec<String> = "additionalDirectories" as optional;
    }
}

object! {
    /// The session has begun.
    pub struct NewSessionResponse {
        /// Its id, which the agent chooses.
        session_id: String = "sessionId" as required;
    } may {
        /// Its modes.
        modes: Option<SessionModeState> = "modes" as lenient;
        /// Its options.
        config_options: Option<Vec<SessionConfigOption>> = "configOptions" as optional_fitting;
    }
}

object! {
    /// Opens a session again, and tells everything that was said in it.
    pub struct LoadSessionRequest {
        /// The session.
        session_id: String = "sessionId" as required;
        /// Where the agent works, as an absolute path.
        cwd: String = "cwd" as required;
        /// The tool servers that the agent uses.
        mcp_servers: Vec<McpServer> = "mcpServers" as list_there;
    } may {
        /// Where the agent may work too, as absolute paths.
        additional_directories: Vec<String> = "additionalDirectories" as optional;
    }
}

object! {
    /// The session is open, and all of it was told.
    #[derive(Default)]
    pub struct LoadSessionResponse {
    } may {
        /// Its modes.
        modes: Option<SessionModeState> = "modes" as lenient;
        /// Its options.
        config_options: Option<Vec<SessionConfigOption>> = "configOptions" as optional_fitting;
    }
}

object! {
    /// Opens a session again, and tells nothing.
    pub struct ResumeSessionRequest {
        /// The session.
        session_id: String = "sessionId" as required;
        /// Where the agent works, as an absolute path.
        cwd: String = "cwd" as required;
    } may {
        /// The tool servers that the agent uses.
        mcp_servers: Vec<McpServer> = "mcpServers" as optional;
        /// Where the agent may work too, as absolute paths.
        additional_directories: Vec<String> = "additionalDirectories" as optional;
    }
}

object! {
    /// The session is open.
    #[derive(Default)]
    pub struct ResumeSessionResponse {
    } may {
        /// Its modes.
        modes: Option<SessionModeState> = "modes" as lenient;
        /// Its options.
        config_options: Option<Vec<SessionConfigOption>> = "configOptions" as optional_fitting;
    }
}

object! {
    /// Asks for the sessions that there are.
    #[derive(Default)]
    pub struct ListSessionsRequest {
    } may {
        /// Only those that work here.
        cwd: Option<String> = "cwd" as optional;
        /// Where the page before said that the next begins.
        cursor: Option<String> = "cursor" as optional;
    }
}

object! {
    /// A page of sessions.
    pub struct ListSessionsResponse {
        /// The sessions.
        sessions: Vec<SessionInfo> = "sessions" as fitting_there;
    } may {
        /// Where the next page begins; absent on the last.
        next_cursor: Option<String> = "nextCursor" as lenient;
    }
}

object! {
    /// What is known of a session.
    pub struct SessionInfo {
        /// Its id.
        session_id: String = "sessionId" as required;
        /// Where its agent works, as an absolute path.
        cwd: String = "cwd" as required;
    } may {
        /// Where its agent may work too, as absolute paths.
        additional_directories: Vec<String> = "additionalDirectories" as fitting;
        /// What it is called towards people.
        title: Option<String> = "title" as lenient;
        /// When something last happened in it, as ISO 8601.
        updated_at: Option<String> = "updatedAt" as lenient;
    }
}

object! {
    /// Removes a session.
    pub struct DeleteSessionRequest {
        /// The session.
        session_id: String = "sessionId" as required;
    } may {
    }
}

object! {
    /// The session is gone.
    #[derive(Default)]
    pub struct DeleteSessionResponse {
    } may {
    }
}

object! {
    /// Ends what a session does and frees what it holds. It can be opened again.
    pub struct CloseSessionRequest {
        /// The session.
        session_id: String = "sessionId" as required;
    } may {
    }
}

object! {
    /// The session is closed.
    #[derive(Default)]
    pub struct CloseSessionResponse {
    } may {
    }
}
