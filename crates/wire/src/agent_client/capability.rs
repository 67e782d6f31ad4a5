//! What the two sides can do. What is absent cannot be done; an object that is there, even an empty one, can.

use super::object::object;

object! {
    /// Something that can be done, with nothing more to say about it.
    #[derive(Default)]
    pub struct Supported {
    } may {
    }
}

object! {
    /// What a client can do.
    #[derive(Default)]
    pub struct ClientCapabilities {
    } may {
        /// With files.
        fs: Option<FileSystemCapabilities> = "fs" as lenient;
        /// All of `terminal/*`.
        terminal: bool = "terminal" as lenient;
        /// With sessions.
        session: Option<ClientSessionCapabilities> = "session" as lenient;
        /// For authenticating.
        auth: Option<AuthCapabilities> = "auth" as lenient;
        /// With questions.
        elicitation: Option<ElicitationCapabilities> = "elicitation" as lenient;
    }
}

object! {
    /// What a client can do with files.
    #[derive(Default)]
    pub struct FileSystemCapabilities {
    } may {
        /// `fs/read_text_file`.
        read_text_file: bool = "readTextFile" as lenient;
        /// `fs/write_text_file`.
        write_text_file: bool = "writeTextFile" as lenient;
    }
}

object! {
    /// What a client can do with sessions.
    #[derive(Default)]
    pub struct ClientSessionCapabilities {
    } may {
        /// Updates about compaction.
        compaction: Option<Supported> = "compaction" as lenient;
        /// With options.
        config_options: Option<ConfigOptionsCapabilities> = "configOptions" as lenient;
        /// Notices.
        notices: Option<Supported> = "notices" as lenient;
    }
}

object! {
    /// What a client can do with options.
    #[derive(Default)]
    pub struct ConfigOptionsCapabilities {
    } may {
        /// Options that are on or off.
        boolean: Option<Supported> = "boolean" as lenient;
    }
}

object! {
    /// What a client can do for authenticating.
    #[derive(Default)]
    pub struct AuthCapabilities {
    } may {
        /// Running the agent in a terminal.
        terminal: bool = "terminal" as lenient;
    }
}

object! {
    /// What a client can do with questions.
    #[derive(Default)]
    pub struct ElicitationCapabilities {
    } may {
        /// Forms.
        form: Option<Supported> = "form" as lenient;
        /// Addresses.
        url: Option<Supported> = "url" as lenient;
    }
}

object! {
    /// What an agent can do.
    #[derive(Default)]
    pub struct AgentCapabilities {
    } may {
        /// `session/load`.
        load_session: bool = "loadSession" as lenient;
        /// With prompts.
        prompt: Option<PromptCapabilities> = "promptCapabilities" as lenient;
        /// With tool servers.
        mcp: Option<McpCapabilities> = "mcpCapabilities" as lenient;
        /// With sessions.
        session: Option<SessionCapabilities> = "sessionCapabilities" as lenient;
        /// For authenticating.
        auth: Option<AgentAuthCapabilities> = "auth" as lenient;
    }
}

object! {
    /// What an agent can do with prompts, beside text and links to resources.
    #[derive(Default)]
    pub struct PromptCapabilities {
    } may {
        /// Images.
        image: bool = "image" as lenient;
        /// Sounds.
        audio: bool = "audio" as lenient;
        /// Resources in the message.
        embedded_context: bool = "embeddedContext" as lenient;
    }
}

object! {
    /// What an agent can do with tool servers, beside starting them.
    #[derive(Default)]
    pub struct McpCapabilities {
    } may {
        /// Over HTTP.
        http: bool = "http" as lenient;
        /// Over server-sent events.
        sse: bool = "sse" as lenient;
    }
}

object! {
    /// What an agent can do with sessions.
    #[derive(Default)]
    pub struct SessionCapabilities {
    } may {
        /// `session/list`.
        list: Option<Supported> = "list" as lenient;
        /// `session/delete`.
        delete: Option<Supported> = "delete" as lenient;
        /// Working in more than one place.
        additional_directories: Option<Supported> = "additionalDirectories" as lenient;
        /// `session/resume`.
        resume: Option<Supported> = "resume" as lenient;
        /// `session/close`.
        close: Option<Supported> = "close" as lenient;
    }
}

object! {
    /// What an agent can do for authenticating.
    #[derive(Default)]
    pub struct AgentAuthCapabilities {
    } may {
        /// `logout`.
        logout: Option<Supported> = "logout" as lenient;
    }
}
