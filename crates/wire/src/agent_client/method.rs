use super::{AgentCapabilities, ClientCapabilities};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Method {
    pub name: &'static str,
    pub to: Side,
    pub kind: Kind,
    pub gate: Gate,
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

pub const METHODS: &[Method] = &[
    to_agent("initialize", Gate::Open),
    to_agent("authenticate", Gate::AuthMethods),
    to_agent("logout", Gate::Agent(AgentGate::Logout)),
    to_agent("session/new", Gate::Open),
    to_agent("session/load", Gate::Agent(AgentGate::LoadSession)),
    to_agent("session/resume", Gate::Agent(AgentGate::Resume)),
    to_agent("session/list", Gate::Agent(AgentGate::List)),
    to_agent("session/delete", Gate::Agent(AgentGate::Delete)),
    to_agent("session/close", Gate::Agent(AgentGate::Close)),
    to_agent("session/set_mode", Gate::Modes),
    to_agent("session/set_config_option", Gate::ConfigOptions),
    to_agent("session/prompt", Gate::Open),
    notification("session/cancel", Side::Agent, Gate::Open),
    to_client("session/request_permission", Gate::Open),
    notification("session/update", Side::Client, Gate::Open),
    to_client("fs/read_text_file", Gate::Client(ClientGate::ReadTextFile)),
    to_client("fs/write_text_file", Gate::Client(ClientGate::WriteTextFile)),
    to_client("terminal/create", Gate::Client(ClientGate::Terminal)),
    to_client("terminal/output", Gate::Client(ClientGate::Terminal)),
    to_client("terminal/wait_for_exit", Gate::Client(ClientGate::Terminal)),
    to_client("terminal/kill", Gate::Client(ClientGate::Terminal)),
    to_client("terminal/release", Gate::Client(ClientGate::Terminal)),
    to_client("elicitation/create", Gate::Client(ClientGate::Elicitation)),
    notification("elicitation/complete", Side::Client, Gate::Client(ClientGate::ElicitationUrl)),
    notification("$/cancel_request", Side::Both, Gate::Open),
];

const fn to_agent(name: &'static str, gate: Gate) -> Method {
    Method { name, to: Side::Agent, kind: Kind::Request, gate }
}

const fn to_client(name: &'static str, gate: Gate) -> Method {
    Method { name, to: Side::Client, kind: Kind::Request, gate }
}

const fn notification(name: &'static str, to: Side, gate: Gate) -> Method {
    Method { name, to, kind: Kind::Notification, gate }
}

pub fn method(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
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
