//! The kinds of agents, and which kinds have which settings.

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error};

use super::agent::Agent;
use AgentKind::{AgentClient, AgentCommunication, AgentConnect, Builtin};
use Condition::{AllAgents, Always, Command, OneAgent};

/// A kind of agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AgentKind {
    /// An agent that comes with the server.
    Builtin,
    /// A program that speaks the Agent Client Protocol.
    AgentClient,
    /// An agent behind a server of the Agent Communication Protocol.
    AgentCommunication,
    /// An agent behind a server of the Agent Connect Protocol.
    AgentConnect,
}

/// What an entry for agents behind another server must say, so that a setting has a meaning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    /// `agents = "*"`.
    AllAgents,
    /// No `agents = "*"`.
    OneAgent,
    /// `command` starts the server.
    Command,
}

/// The settings of an `agent-client` that are about its program.
const OF_PROGRAMS: [&str; 17] = [
    "command",
    "cwd",
    "start_in",
    "worktree",
    "env",
    "inherit",
    "idle_children",
    "sandbox",
    "read_paths",
    "write_paths",
    "network",
    "keys",
    "limits",
    "wrap_with",
    "outlive",
    "files",
    "terminals",
];
/// The settings of an `agent-client` that are about its server.
const OF_SERVERS: [&str; 5] = ["token_env", "token_file", "token_as", "ca_file", "remote_cwd"];

/// Settings that the same kinds of agents have.
struct SettingGroup {
    /// What the reference says before the meaning of each.
    note: &'static str,
    kinds: &'static [AgentKind],
    condition: Condition,
    keys: &'static [&'static str],
}

const ALL: &[AgentKind] = &[Builtin, AgentClient, AgentCommunication, AgentConnect];
const PROGRAMS: &[AgentKind] = &[AgentClient, AgentCommunication, AgentConnect];
const ELSEWHERE: &[AgentKind] = &[AgentCommunication, AgentConnect];

/// The settings that kinds other than `agent-client` have. All others are for that kind only.
const GROUPS: [SettingGroup; 15] = [
    group("", ALL, OneAgent, &["authentication", "descriptor"]),
    group("`builtin` only: ", &[Builtin], Always, &["builtin"]),
    group("`builtin` and `agent-client` only: ", &[Builtin, AgentClient], Always, &["permissions"]),
    group("", PROGRAMS, Always, &["command"]),
    group(
        "`agent-client`, `agent-communication` and `agent-connect` only: ",
        PROGRAMS,
        OneAgent,
        &["description"],
    ),
    group(
        "`agent-client`, and `agent-communication` and `agent-connect` with `command`: ",
        PROGRAMS,
        Command,
        &[
            "cwd",
            "env",
            "inherit",
            "start_timeout",
            "sandbox",
            "read_paths",
            "write_paths",
            "limits",
            "wrap_with",
        ],
    ),
    group("`agent-communication` and `agent-connect` only: ", ELSEWHERE, Always, &["agents"]),
    group(
        "`agent-client`, `agent-communication` and `agent-connect` only: ",
        PROGRAMS,
        Always,
        &["url"],
    ),
    group(
        "`agent-client` with `url`, `agent-communication` and `agent-connect` only: ",
        PROGRAMS,
        Always,
        &["token_env", "token_file", "token_as"],
    ),
    group("`agent-client` with `url` only: ", &[AgentClient], Always, &["ca_file", "remote_cwd"]),
    group("`agents = \"*\"` only: ", ELSEWHERE, AllAgents, &["prefix"]),
    group(
        "`agent-communication`, and `agent-connect` with `agents = \"*\"`: ",
        &[AgentCommunication],
        Always,
        &["refresh"],
    ),
    group("", &[AgentConnect], AllAgents, &["refresh"]),
    group("`agent-communication` only: ", &[AgentCommunication], OneAgent, &["name"]),
    group("`agent-connect` only: ", &[AgentConnect], OneAgent, &["agent", "version"]),
];
const CLIENT_ONLY: SettingGroup = group("`agent-client` only: ", &[AgentClient], Always, &[]);

const fn group(
    note: &'static str,
    kinds: &'static [AgentKind],
    condition: Condition,
    keys: &'static [&'static str],
) -> SettingGroup {
    SettingGroup { note, kinds, condition, keys }
}

/// The groups of a setting, at most one for each kind. The first has the note.
fn groups_of(key: &str) -> Vec<&'static SettingGroup> {
    let found: Vec<_> = GROUPS.iter().filter(|group| group.keys.contains(&key)).collect();
    if found.is_empty() { vec![&CLIENT_ONLY] } else { found }
}

/// Writes the note of each setting before its description.
pub(super) fn add_notes(schema: &mut Schema) {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (key, member) in properties.into_iter().flatten().filter(|(key, _)| *key != "kind") {
        let note = groups_of(key).first().map_or("", |group| group.note);
        if let Some(Value::String(text)) = member.get_mut("description")
            && !note.is_empty()
        {
            let mut rest = text.chars();
            let first = rest.next().map(|first| first.to_ascii_lowercase());
            *text =
                format!("{note}{}{}", first.map(String::from).unwrap_or_default(), rest.as_str());
        }
    }
}

// === impl AgentKind ===

impl AgentKind {
    /// Its name in the file.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Builtin => "builtin",
            AgentClient => "agent-client",
            AgentCommunication => "agent-communication",
            AgentConnect => "agent-connect",
        }
    }

    /// Whether agents of this kind are behind another server.
    pub(crate) fn is_elsewhere(self) -> bool {
        matches!(self, AgentCommunication | AgentConnect)
    }
}

// === impl Agent ===

impl Agent {
    /// Refuses settings without a meaning for this agent.
    ///
    /// # Errors
    /// `invalid_request` that names the first such setting.
    pub(crate) fn check_settings(&self, name: &AgentName) -> Result<()> {
        let (Ok(Value::Object(defaults)), Ok(Value::Object(own))) =
            (serde_json::to_value(Self::of(self.kind)), serde_json::to_value(self))
        else {
            return Ok(());
        };
        let set = own.into_iter().filter(|(key, value)| defaults.get(key) != Some(value));
        for (key, _) in set {
            let refuse = |why: &str, hint: &str| {
                let message = format!("`agents.{name}.{key}` is {why}");
                Err(Error::new(Code::InvalidRequest, message).hint(hint.to_owned()))
            };
            let groups = groups_of(&key);
            let Some(group) = groups.iter().find(|group| group.kinds.contains(&self.kind)) else {
                let kinds = groups.iter().flat_map(|group| group.kinds);
                let kinds: Vec<_> = kinds.map(|kind| format!("\"{}\"", kind.as_str())).collect();
                return refuse(
                    &format!("for agents of kind {}", kinds.join(" or ")),
                    "remove the setting, or change the agent's kind",
                );
            };
            let is_client = self.kind == AgentClient;
            if is_client && self.url.is_some() && OF_PROGRAMS.contains(&key.as_str()) {
                return refuse(
                    "for a program, and `url` names an agent behind a server",
                    "remove one of the two settings",
                );
            }
            if is_client && self.url.is_none() && OF_SERVERS.contains(&key.as_str()) {
                return refuse(
                    "for an agent behind a server",
                    "set `url` in place of `command`, or remove the setting",
                );
            }
            match group.condition {
                AllAgents if self.agents.is_none() => {
                    return refuse(
                        "for all agents of a server",
                        "set agents = \"*\" too, or remove the setting",
                    );
                }
                OneAgent if self.kind.is_elsewhere() && self.agents.is_some() => {
                    return refuse(
                        "not for all agents of a server",
                        "remove the setting, or name the agents one by one",
                    );
                }
                Command if self.kind.is_elsewhere() && self.command.0.is_empty() => {
                    return refuse(
                        "for a server that `command` starts",
                        "set `command` too, or remove the setting",
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_group_names_settings_that_exist() {
        let schema = schemars::schema_for!(Agent);
        let settings = schema.get("properties").and_then(Value::as_object).unwrap();
        for key in GROUPS.iter().flat_map(|group| group.keys) {
            assert!(settings.contains_key(*key), "{key}");
        }
    }

    #[test]
    fn a_setting_without_a_meaning_says_what_it_is_for() {
        let refusal = |kind: &str, rest: &str| {
            let text = format!("[agents.far]\nkind = \"{kind}\"\n{rest}\n");
            let options = super::super::parse(Path::new("t.toml"), &text).unwrap().options;
            let name = AgentName::parse("far").unwrap();
            let checked = options.agents["far"].check_settings(&name);
            checked.err().map_or_else(String::new, |error| error.message().to_owned())
        };
        let (client, communication, connect) =
            ("agent-client", "agent-communication", "agent-connect");
        for (kind, rest, expected) in [
            (
                client,
                "name = \"x\"",
                "`agents.far.name` is for agents of kind \"agent-communication\"",
            ),
            (
                communication,
                "version = \"1\"",
                "`agents.far.version` is for agents of kind \"agent-connect\"",
            ),
            (
                "builtin",
                "url = \"x\"",
                "`agents.far.url` is for agents of kind \"agent-client\" or \"agent-communication\" or \"agent-connect\"",
            ),
            (connect, "hold = true", "`agents.far.hold` is for agents of kind \"agent-client\""),
            (connect, "prefix = \"x\"", "`agents.far.prefix` is for all agents of a server"),
            (connect, "refresh = \"1s\"", "`agents.far.refresh` is for all agents of a server"),
            (
                communication,
                "agents = \"*\"\nname = \"x\"",
                "`agents.far.name` is not for all agents of a server",
            ),
            (
                connect,
                "env = { A = \"x\" }",
                "`agents.far.env` is for a server that `command` starts",
            ),
            (connect, "agents = \"*\"\nrefresh = \"1s\"\nprefix = \"x\"", ""),
            (connect, "command = [\"x\"]\nenv = { A = \"x\" }\nversion = \"1\"", ""),
            (communication, "refresh = \"1s\"\nname = \"x\"\ndescription = \"x\"", ""),
            (
                client,
                "url = \"wss://x\"\nterminals = true",
                "`agents.far.terminals` is for a program, and `url` names an agent behind a server",
            ),
            (
                client,
                "command = [\"x\"]\nremote_cwd = \"/x\"",
                "`agents.far.remote_cwd` is for an agent behind a server",
            ),
            (
                client,
                "url = \"wss://x\"\ntoken_env = \"X\"\nremote_cwd = \"/x\"\nroots = [\"/x\"]",
                "",
            ),
            (client, "cwd = \"x\"\ndescription = \"x\"\nhold = true", ""),
        ] {
            assert_eq!(refusal(kind, rest), expected, "{kind} {rest}");
        }
    }
}
