//! What this server serves of the protocol: methods, capabilities and kinds of updates, each with the part of the protocol that defines it.
//!
//! A capability that is not in a table is never passed on, so no side uses what would be lost on the way.
//! To serve a further part of the protocol, add its rows here first.

use serde_json::{Map, Value};

use super::{AgentGate, ClientCapabilities, ClientGate, Gate, Kind, Meta, Method, Side};

/// Whether the part belongs to the protocol's stable schema. An unstable part can change in any version, and is used only if both sides declare it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stability {
    Stable,
    Unstable,
}

/// A capability, by the names of its members below the object of its side's capabilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capability {
    pub path: &'static [&'static str],
    pub stability: Stability,
    pub source: CapabilitySource,
}

/// Who decides whether a capability is declared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CapabilitySource {
    /// The client or the agent behind the server: the server passes it on.
    Peer,
    /// The server itself, for every client or agent.
    Server,
}

/// A kind of `session/update`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpdateKind {
    pub name: &'static str,
    pub gate: UpdateGate,
    pub stability: Stability,
}

/// The capability that a client needs to receive a kind of update.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UpdateGate {
    Open,
    Notices,
    Compaction,
    Plan,
    Subagents,
    PromptSuggestions,
    Cursors,
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
    unstable(to_agent("session/fork", Gate::Agent(AgentGate::Fork))),
    unstable(to_agent("session/status", Gate::Agent(AgentGate::Status))),
    unstable(to_agent("session/set_title", Gate::Agent(AgentGate::Title))),
    unstable(to_agent("session/archive", Gate::Agent(AgentGate::Archive))),
    unstable(to_agent("session/unarchive", Gate::Agent(AgentGate::Archive))),
    unstable(to_agent("session/options", Gate::Agent(AgentGate::Options))),
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

pub const CLIENT_CAPABILITIES: &[Capability] = &[
    of_peer(&["fs", "readTextFile"]),
    of_peer(&["fs", "writeTextFile"]),
    of_peer(&["terminal"]),
    of_peer(&["elicitation", "form"]),
    of_peer(&["elicitation", "url"]),
    of_server(&["plan"]),
    of_server(&["subagents"]),
    of_server(&["session", "configOptions", "boolean"]),
    of_server(&["session", "notices"]),
    of_server(&["session", "compaction"]),
    // Which blocks a suggestion may have depends on the client.
    Capability { stability: Stability::Unstable, ..of_peer(&["session", "promptSuggestions"]) },
];

pub const AGENT_CAPABILITIES: &[Capability] = &[
    of_server(&["loadSession"]),
    of_peer(&["promptCapabilities", "image"]),
    of_peer(&["promptCapabilities", "audio"]),
    of_peer(&["promptCapabilities", "embeddedContext"]),
    of_peer(&["mcpCapabilities", "http"]),
    of_peer(&["mcpCapabilities", "sse"]),
    of_peer(&["auth", "logout"]),
    of_peer(&["sessionCapabilities", "additionalDirectories"]),
    of_server(&["sessionCapabilities", "list"]),
    of_server(&["sessionCapabilities", "delete"]),
    of_server(&["sessionCapabilities", "resume"]),
    of_server(&["sessionCapabilities", "close"]),
    of_peer(&["sessionCapabilities", "systemPrompt"]),
    Capability { stability: Stability::Unstable, ..of_server(&["sessionCapabilities", "fork"]) },
    Capability { stability: Stability::Unstable, ..of_server(&["sessionCapabilities", "status"]) },
    Capability { stability: Stability::Unstable, ..of_server(&["sessionCapabilities", "title"]) },
    Capability { stability: Stability::Unstable, ..of_server(&["sessionCapabilities", "archive"]) },
    Capability { stability: Stability::Unstable, ..of_server(&["sessionCapabilities", "options"]) },
    // The server passes these methods on as it does unknown ones.
    Capability { stability: Stability::Unstable, ..of_peer(&["auth", "status"]) },
    Capability { stability: Stability::Unstable, ..of_peer(&["providers"]) },
];

pub const UPDATES: &[UpdateKind] = &[
    update("agent_message_chunk", UpdateGate::Open),
    update("agent_thought_chunk", UpdateGate::Open),
    update("user_message_chunk", UpdateGate::Open),
    update("tool_call", UpdateGate::Open),
    update("tool_call_update", UpdateGate::Open),
    update("plan", UpdateGate::Open),
    update("plan_update", UpdateGate::Plan),
    update("plan_removed", UpdateGate::Plan),
    update("available_commands_update", UpdateGate::Open),
    update("current_mode_update", UpdateGate::Open),
    update("config_option_update", UpdateGate::Open),
    update("session_info_update", UpdateGate::Open),
    update("usage_update", UpdateGate::Open),
    update("notice", UpdateGate::Notices),
    update("compaction_update", UpdateGate::Compaction),
    update("compaction_summary_chunk", UpdateGate::Compaction),
    update("subagent_update", UpdateGate::Subagents),
    update("session_message", UpdateGate::Subagents),
    update("session_message_chunk", UpdateGate::Subagents),
    UpdateKind {
        stability: Stability::Unstable,
        ..update("prompt_suggestions_update", UpdateGate::PromptSuggestions)
    },
    UpdateKind { stability: Stability::Unstable, ..update("cursor_update", UpdateGate::Cursors) },
];

pub fn method(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

pub fn update_kind(name: &str) -> Option<&'static UpdateKind> {
    UPDATES.iter().find(|kind| kind.name == name)
}

/// Removes the capabilities that are not served. `_meta` stays at every level.
pub fn retain_served(capabilities: &mut Map<String, Value>, served: &[Capability]) {
    retain_below(capabilities, served, &mut Vec::new());
}

fn retain_below(object: &mut Map<String, Value>, served: &[Capability], path: &mut Vec<String>) {
    object.retain(|name, value| {
        if name == Meta::KEY {
            return true;
        }
        path.push(name.clone());
        let is_at = |row: &&Capability| row.path.iter().zip(path.iter()).all(|(a, b)| a == b);
        let depth = path.len();
        let mut below = served.iter().filter(|row| row.path.len() >= depth).filter(is_at);
        let is_kept = match (below.next(), value.as_object_mut()) {
            (None, _) => false,
            (Some(row), _) if row.path.len() == depth => true,
            (Some(_), Some(inner)) => {
                retain_below(inner, served, path);
                true
            }
            // The protocol has an object here.
            (Some(_), None) => false,
        };
        path.pop();
        is_kept
    });
}

const fn to_agent(name: &'static str, gate: Gate) -> Method {
    Method { name, to: Side::Agent, kind: Kind::Request, gate, stability: Stability::Stable }
}

const fn to_client(name: &'static str, gate: Gate) -> Method {
    Method { to: Side::Client, ..to_agent(name, gate) }
}

const fn notification(name: &'static str, to: Side, gate: Gate) -> Method {
    Method { to, kind: Kind::Notification, ..to_agent(name, gate) }
}

const fn unstable(method: Method) -> Method {
    Method { stability: Stability::Unstable, ..method }
}

const fn of_peer(path: &'static [&'static str]) -> Capability {
    Capability { path, stability: Stability::Stable, source: CapabilitySource::Peer }
}

const fn of_server(path: &'static [&'static str]) -> Capability {
    Capability { path, stability: Stability::Stable, source: CapabilitySource::Server }
}

const fn update(name: &'static str, gate: UpdateGate) -> UpdateKind {
    UpdateKind { name, gate, stability: Stability::Stable }
}

// === impl UpdateGate ===

impl UpdateGate {
    pub fn is_open(self, client: &ClientCapabilities) -> bool {
        let session = client.session.as_ref();
        match self {
            Self::Open => true,
            Self::Notices => session.is_some_and(|session| session.notices.is_some()),
            Self::Compaction => session.is_some_and(|session| session.compaction.is_some()),
            Self::Plan => client.plan.is_some(),
            Self::Subagents => client.subagents.is_some(),
            Self::PromptSuggestions => {
                session.is_some_and(|session| session.prompt_suggestions.is_some())
            }
            Self::Cursors => session.is_some_and(|session| session.cursors.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_served_capabilities_stay() {
        let mut told = json!({
            "_meta": { "x": 1 }, "terminal": true, "subagents": {}, "later": 1, "plan": { "_meta": { "y": 2 } },
            "fs": { "readTextFile": true, "later": true, "_meta": {} },
            "session": { "cursors": {}, "notices": {}, "configOptions": { "boolean": {}, "later": {} } },
            "elicitation": 7,
        });
        retain_served(told.as_object_mut().unwrap(), CLIENT_CAPABILITIES);
        let kept = json!({
            "_meta": { "x": 1 }, "terminal": true, "subagents": {}, "plan": { "_meta": { "y": 2 } },
            "fs": { "readTextFile": true, "_meta": {} },
            "session": { "notices": {}, "configOptions": { "boolean": {} } },
        });
        assert_eq!(told, kept);
    }

    #[test]
    fn no_part_is_in_a_table_twice() {
        let names = METHODS.iter().map(|method| method.name);
        let mut names: Vec<_> = names.chain(UPDATES.iter().map(|kind| kind.name)).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
