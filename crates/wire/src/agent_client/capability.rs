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
    }

    pub struct FileSystemCapabilities may {
        read_text_file: bool = "readTextFile";
        write_text_file: bool = "writeTextFile";
    }

    pub struct ClientSessionCapabilities may {
        compaction: Option<Supported> = "compaction";
        config_options: Option<ConfigOptionsCapabilities> = "configOptions";
        notices: Option<Supported> = "notices";
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
    }

    pub struct AgentAuthCapabilities may {
        logout: Option<Supported> = "logout";
    }
}
