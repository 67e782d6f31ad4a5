//! The capabilities of both sides. An absent capability is not supported; an object means support, even an empty one.

use super::object::object;

object! {
    pub struct Supported;

    pub struct ClientCapabilities may {
        fs: Option<FileSystemCapabilities> = "fs";
        terminal: bool = "terminal";
        session: Option<ClientSessionCapabilities> = "session";
        auth: Option<AuthCapabilities> = "auth";
        elicitation: Option<ElicitationCapabilities> = "elicitation";
        /// Child sessions.
        subagents: Option<Supported> = "subagents";
        /// Plans by their id.
        plan: Option<Supported> = "plan";
    }

    pub struct FileSystemCapabilities may {
        read_text_file: bool = "readTextFile";
        write_text_file: bool = "writeTextFile";
    }

    pub struct ClientSessionCapabilities may {
        compaction: Option<Supported> = "compaction";
        config_options: Option<ConfigOptionsCapabilities> = "configOptions";
        notices: Option<Supported> = "notices";
        /// Unstable.
        prompt_suggestions: Option<Supported> = "promptSuggestions";
        /// Unstable.
        cursors: Option<Supported> = "cursors";
    }

    pub struct ConfigOptionsCapabilities may {
        boolean: Option<Supported> = "boolean";
    }

    pub struct AuthCapabilities may {
        terminal: bool = "terminal";
    }

    pub struct ElicitationCapabilities may {
        form: Option<Supported> = "form";
        url: Option<Supported> = "url";
    }

    pub struct AgentCapabilities may {
        load_session: bool = "loadSession";
        prompt: Option<PromptCapabilities> = "promptCapabilities";
        mcp: Option<McpCapabilities> = "mcpCapabilities";
        session: Option<SessionCapabilities> = "sessionCapabilities";
        auth: Option<AgentAuthCapabilities> = "auth";
    }

    /// Text and links to resources need no capability.
    pub struct PromptCapabilities may {
        image: bool = "image";
        audio: bool = "audio";
        embedded_context: bool = "embeddedContext";
    }

    /// Servers that the agent starts itself need no capability.
    pub struct McpCapabilities may {
        http: bool = "http";
        sse: bool = "sse";
    }

    pub struct SessionCapabilities may {
        list: Option<Supported> = "list";
        delete: Option<Supported> = "delete";
        additional_directories: Option<Supported> = "additionalDirectories";
        resume: Option<Supported> = "resume";
        close: Option<Supported> = "close";
        system_prompt: Option<SystemPromptCapabilities> = "systemPrompt";
        /// Unstable.
        fork: Option<Supported> = "fork";
        /// Unstable.
        status: Option<Supported> = "status";
        /// Unstable.
        title: Option<Supported> = "title";
        /// Unstable.
        archive: Option<Supported> = "archive";
        /// Unstable.
        options: Option<Supported> = "options";
    }

    /// An object means that the agent can append to its own instructions.
    pub struct SystemPromptCapabilities may {
        mode: Option<SystemPromptModes> = "mode";
    }

    pub struct SystemPromptModes may {
        /// The agent can also replace its own instructions.
        r#override: Option<Supported> = "override";
    }

    pub struct AgentAuthCapabilities may {
        logout: Option<Supported> = "logout";
    }
}
