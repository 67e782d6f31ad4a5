use super::{AgentCapabilities, ClientCapabilities, Stability};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Method {
    pub name: &'static str,
    pub to: Side,
    pub kind: Kind,
    pub gate: Gate,
    pub stability: Stability,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    Agent,
    Client,
    Both,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    Request,
    Notification,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Gate {
    Open,
    /// An authentication method that is not a terminal method.
    AuthMethods,
    /// Modes, in the response that opened the session.
    Modes,
    /// Options, in the response that opened the session.
    ConfigOptions,
    Agent(AgentGate),
    Client(ClientGate),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AgentGate {
    Logout,
    LoadSession,
    Resume,
    List,
    Delete,
    Close,
    Fork,
    Status,
    Title,
    Archive,
    Options,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ClientGate {
    ReadTextFile,
    WriteTextFile,
    Terminal,
    /// `elicitation.form` or `elicitation.url`, according to the mode.
    Elicitation,
    ElicitationUrl,
}

// === impl Gate ===

impl Gate {
    /// Returns `true` if the capabilities of both sides allow the method. The session checks the gates of its own state.
    pub fn is_open(self, agent: &AgentCapabilities, client: &ClientCapabilities) -> bool {
        match self {
            Self::Open | Self::AuthMethods | Self::Modes | Self::ConfigOptions => true,
            Self::Agent(gate) => gate.is_open(agent),
            Self::Client(gate) => gate.is_open(client),
        }
    }

    pub const fn capability(self) -> Option<&'static str> {
        match self {
            Self::Open | Self::AuthMethods | Self::Modes | Self::ConfigOptions => None,
            Self::Agent(gate) => Some(gate.capability()),
            Self::Client(gate) => Some(gate.capability()),
        }
    }
}

// === impl AgentGate ===

impl AgentGate {
    pub fn is_open(self, agent: &AgentCapabilities) -> bool {
        let session = agent.session.as_ref();
        match self {
            Self::Logout => agent.auth.as_ref().is_some_and(|auth| auth.logout.is_some()),
            Self::LoadSession => agent.load_session,
            Self::Resume => session.is_some_and(|session| session.resume.is_some()),
            Self::List => session.is_some_and(|session| session.list.is_some()),
            Self::Delete => session.is_some_and(|session| session.delete.is_some()),
            Self::Close => session.is_some_and(|session| session.close.is_some()),
            Self::Fork => session.is_some_and(|session| session.fork.is_some()),
            Self::Status => session.is_some_and(|session| session.status.is_some()),
            Self::Title => session.is_some_and(|session| session.title.is_some()),
            Self::Archive => session.is_some_and(|session| session.archive.is_some()),
            Self::Options => session.is_some_and(|session| session.options.is_some()),
        }
    }

    pub const fn capability(self) -> &'static str {
        match self {
            Self::Logout => "agentCapabilities.auth.logout",
            Self::LoadSession => "agentCapabilities.loadSession",
            Self::Resume => "agentCapabilities.sessionCapabilities.resume",
            Self::List => "agentCapabilities.sessionCapabilities.list",
            Self::Delete => "agentCapabilities.sessionCapabilities.delete",
            Self::Close => "agentCapabilities.sessionCapabilities.close",
            Self::Fork => "agentCapabilities.sessionCapabilities.fork",
            Self::Status => "agentCapabilities.sessionCapabilities.status",
            Self::Title => "agentCapabilities.sessionCapabilities.title",
            Self::Archive => "agentCapabilities.sessionCapabilities.archive",
            Self::Options => "agentCapabilities.sessionCapabilities.options",
        }
    }
}

// === impl ClientGate ===

impl ClientGate {
    pub fn is_open(self, client: &ClientCapabilities) -> bool {
        let (fs, elicitation) = (client.fs.as_ref(), client.elicitation.as_ref());
        let has_url = elicitation.is_some_and(|elicitation| elicitation.url.is_some());
        match self {
            Self::ReadTextFile => fs.is_some_and(|fs| fs.read_text_file),
            Self::WriteTextFile => fs.is_some_and(|fs| fs.write_text_file),
            Self::Terminal => client.terminal,
            Self::Elicitation => {
                has_url || elicitation.is_some_and(|elicitation| elicitation.form.is_some())
            }
            Self::ElicitationUrl => has_url,
        }
    }

    pub const fn capability(self) -> &'static str {
        match self {
            Self::ReadTextFile => "clientCapabilities.fs.readTextFile",
            Self::WriteTextFile => "clientCapabilities.fs.writeTextFile",
            Self::Terminal => "clientCapabilities.terminal",
            Self::Elicitation => "clientCapabilities.elicitation",
            Self::ElicitationUrl => "clientCapabilities.elicitation.url",
        }
    }
}
