//! The agents that the configuration names.

use std::fmt;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use trilogue_backends::agent_client as backend;
use trilogue_backends::permission::Verdict;
use trilogue_backends::workspace;

use super::list::List;
use super::quantity::{Size, Span};
use super::scheme::Scheme;

/// An agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// What kind of agent it is: `builtin` comes with the server, `agent-client` is a program that speaks the Agent Client Protocol on its standard input and output.
    pub kind: AgentKind,
    /// `builtin` only: which one, where the name under which it is served is another: `echo`, `mailcomposer` or `researcher`.
    #[serde(default)]
    pub builtin: Option<String>,
    /// How its callers may show who they are, any one of them: `api-key` (the header `x-api-key`), `bearer`, `basic` (the token as password), `none` (callers without a token too, who are one principal that lists nothing). Not set: `api-key` and `bearer`.
    #[serde(default)]
    pub authentication: Option<List<Scheme>>,
    /// What the agent says of itself by the Agent Connect Protocol, in place of what it says by itself: a file or an `https` address of a descriptor, or of a manifest that holds one. It is read at the start; of an address the last good copy is kept.
    #[serde(default)]
    pub descriptor: Option<String>,
    /// What it may do without anybody being asked, and what it may not: the first rule that fits decides, and where none fits somebody is asked.
    #[serde(default)]
    pub permissions: Vec<Permission>,
    /// `agent-client` only, and needed there: the program and its arguments, such as `["some-agent", "--acp"]`. No shell reads them.
    #[serde(default)]
    pub command: List<String>,
    /// `agent-client` only: what it does, for people.
    #[serde(default)]
    pub description: Option<String>,
    /// `agent-client` only: the folder in which it works. `{thread}` gives each thread its own, such as `"work/{thread}"`. What is missing is made, for this user alone. A relative path begins at the server's working directory. Not set: where the client says, else the server's working directory.
    #[serde(default)]
    pub cwd: Option<String>,
    /// `agent-client` only: a git repository of which each thread gets a worktree at `cwd`, on the branch `trilogue/AGENT/FOLDER`. It goes with the thread where it has no changes.
    #[serde(default)]
    pub worktree: Option<String>,
    /// `agent-client` only: variables that are set for it. Their values are never shown.
    #[serde(default)]
    pub env: IndexMap<String, Hidden>,
    /// `agent-client` only: names of the server's own variables that it gets beside `PATH`, `HOME` and others that tell where and in what language people work.
    #[serde(default)]
    pub inherit: List<String>,
    /// `agent-client` only: whether each thread has a process of its own, or those share one whose clients can do the same.
    #[serde(default)]
    pub processes: Processes,
    /// `agent-client` only: the most processes at once.
    #[serde(default = "max_processes")]
    pub max_processes: usize,
    /// `agent-client` only: the most sessions that are open at once in a process that is shared. The one that was used longest ago makes room for another, and is opened again when it is needed.
    #[serde(default = "max_sessions")]
    pub max_sessions: usize,
    /// `agent-client` only: how long a process without work is kept that can open its sessions again. `0s` keeps it.
    #[serde(default = "idle_stop")]
    pub idle_stop: Span,
    /// `agent-client` only: how long it may take for its first answer.
    #[serde(default = "start_timeout")]
    pub start_timeout: Span,
    /// `agent-client` only: how long it may take to open a session.
    #[serde(default = "open_timeout")]
    pub open_timeout: Span,
    /// `agent-client` only: the longest line that is taken from it.
    #[serde(default = "max_line")]
    pub max_line: Size,
    /// `agent-client` only: what it may do with the files of its folder through the server. Nothing outside of the folder is ever reached that way.
    #[serde(default)]
    pub files: Files,
    /// `agent-client` only: whether it may run commands in its folder through the server.
    #[serde(default)]
    pub terminals: bool,
    /// `agent-client` only: whether it gets the files and terminals of the client that prompted last, or that opened the session while there was none such, also in a turn that began elsewhere, as far as that has them, in place of the server's.
    #[serde(default)]
    pub client_tools: ClientTools,
    /// `agent-client` only: the way to authenticate when it asks for that. Not set: the first that is its own.
    #[serde(default)]
    pub auth_method: Option<String>,
    /// `agent-client` only: its questions wait without end. Otherwise `runtime.interrupt_deadline` counts while nobody who may answer is connected.
    #[serde(default)]
    pub hold: bool,
    /// `agent-client` only: what happens when a thread goes back behind what it has been told: that is refused, or it begins again and is told what was said until then.
    #[serde(default)]
    pub on_rewind: OnRewind,
    /// `agent-client` only: pieces of messages that come without an id get one.
    #[serde(default = "yes")]
    pub assign_message_ids: bool,
    /// `agent-client` only: prompts carry the id of the user's message.
    #[serde(default = "yes")]
    pub send_message_id: bool,
    /// `agent-client` only: whether it gets what clients attach to their requests in the member `_meta`. Some agents take what is attached for arguments of their own: what is called as one never passes, and with `"drop"` nothing does, wherever it stands in what they ask, tell or answer.
    #[serde(default)]
    pub client_meta: ClientMeta,
}

/// A kind of agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AgentKind {
    /// It comes with the server.
    Builtin,
    /// A program that speaks the Agent Client Protocol.
    AgentClient,
}

/// A permission rule. What it does not name fits everything; what it names and the agent does not say, does not fit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Permission {
    /// What the log calls it where it decided. Not set: `rule` and its number.
    #[serde(default)]
    pub name: Option<String>,
    /// The kinds of tools that it is about: `read`, `edit`, `delete`, `move`, `search`, `execute`, `think`, `fetch`, `switch_mode` or `other`.
    #[serde(default)]
    pub kind: Option<List<String>>,
    /// A pattern of the names of tools, such as `fs_*`.
    #[serde(default)]
    pub tool: Option<String>,
    /// A pattern of files: `*` stands for anything but `/`, `**` for anything. A relative one begins at the agent's folder and fits nothing outside of it. To allow, every file of a call has to fit, as it is written and where it really leads; otherwise one is enough.
    #[serde(default)]
    pub path: Option<String>,
    /// What it decides.
    pub decision: Decision,
}

/// What a permission rule decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// Go on.
    Allow,
    /// Do not.
    Deny,
    /// Somebody is asked.
    Ask,
}

/// Which threads share a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Processes {
    /// Each has its own.
    #[default]
    Thread,
    /// Those whose clients can do the same share one.
    Shared,
}

/// What an agent may do with files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Files {
    /// Nothing.
    #[default]
    None,
    /// Read them.
    Read,
    /// Read and write them.
    Write,
}

/// Whose files and terminals an agent works with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientTools {
    /// Those that the server serves, if any.
    #[default]
    None,
    /// Those of the client that prompted last.
    Forward,
}

/// What becomes of what clients attach to their requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientMeta {
    /// The agent gets it.
    #[default]
    Pass,
    /// It does not.
    Drop,
}

/// What happens when a thread goes back behind what its agent was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnRewind {
    /// That is refused.
    #[default]
    Refuse,
    /// The agent begins again and is told what was said.
    Prime,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Hidden(pub String);

fn yes() -> bool {
    true
}

fn max_processes() -> usize {
    launch().max_processes
}

fn max_sessions() -> usize {
    launch().max_sessions
}

fn idle_stop() -> Span {
    Span(launch().idle_stop.unwrap_or_default())
}

fn start_timeout() -> Span {
    Span(launch().start_timeout)
}

fn open_timeout() -> Span {
    Span(launch().open_timeout)
}

fn max_line() -> Size {
    Size::of(launch().max_line_bytes)
}

/// How agents are started by default.
fn launch() -> backend::Launch {
    backend::Launch::of::<String>([])
}

// === impl AgentKind ===

impl AgentKind {
    /// The kinds that there are, by name.
    pub const NAMES: [&'static str; 2] = ["builtin", "agent-client"];
    /// The kinds that a later version will have; their names are refused with an explanation.
    pub const LATER: [&'static str; 2] = ["agent-communication", "agent-connect"];
}

// === impl Agent ===

impl Agent {
    /// An agent of a kind with nothing else set.
    #[must_use]
    pub fn of(kind: AgentKind) -> Self {
        Self {
            kind,
            builtin: None,
            authentication: None,
            descriptor: None,
            permissions: Vec::new(),
            command: List::default(),
            description: None,
            cwd: None,
            worktree: None,
            env: IndexMap::new(),
            inherit: List::default(),
            processes: Processes::default(),
            max_processes: max_processes(),
            max_sessions: max_sessions(),
            idle_stop: idle_stop(),
            start_timeout: start_timeout(),
            open_timeout: open_timeout(),
            max_line: max_line(),
            files: Files::default(),
            terminals: false,
            client_tools: ClientTools::default(),
            auth_method: None,
            hold: false,
            on_rewind: OnRewind::default(),
            assign_message_ids: true,
            send_message_id: true,
            client_meta: ClientMeta::default(),
        }
    }

    /// The first key that is set and means nothing for this kind.
    pub(crate) fn misplaced(&self) -> Option<String> {
        let mut plain = Self {
            authentication: self.authentication.clone(),
            permissions: self.permissions.clone(),
            ..Self::of(self.kind)
        };
        match self.kind {
            AgentKind::Builtin => {
                plain.builtin.clone_from(&self.builtin);
                plain.descriptor.clone_from(&self.descriptor);
            }
            AgentKind::AgentClient => {
                let (builtin, descriptor) = (None, self.descriptor.clone());
                plain = Self { builtin, descriptor, ..self.clone() };
            }
        }
        let (Ok(Value::Object(plain)), Ok(Value::Object(own))) =
            (serde_json::to_value(&plain), serde_json::to_value(self))
        else {
            return None;
        };
        own.into_iter().find(|(key, value)| plain.get(key) != Some(value)).map(|(key, _)| key)
    }

    /// How long its processes are kept without work.
    pub(crate) fn idle(&self) -> Option<Duration> {
        Some(self.idle_stop.0).filter(|idle| !idle.is_zero())
    }
}

// === impl Decision ===

impl From<Decision> for Verdict {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Allow => Self::Allow,
            Decision::Deny => Self::Deny,
            Decision::Ask => Self::Ask,
        }
    }
}

impl From<Processes> for backend::Processes {
    fn from(processes: Processes) -> Self {
        match processes {
            Processes::Thread => Self::Thread,
            Processes::Shared => Self::Shared,
        }
    }
}

impl From<ClientMeta> for backend::ClientMeta {
    fn from(meta: ClientMeta) -> Self {
        match meta {
            ClientMeta::Pass => Self::Pass,
            ClientMeta::Drop => Self::Drop,
        }
    }
}

impl From<ClientTools> for backend::ClientTools {
    fn from(tools: ClientTools) -> Self {
        match tools {
            ClientTools::None => Self::None,
            ClientTools::Forward => Self::Forward,
        }
    }
}

impl From<Files> for workspace::Files {
    fn from(files: Files) -> Self {
        match files {
            Files::None => Self::None,
            Files::Read => Self::Read,
            Files::Write => Self::Write,
        }
    }
}

// === impl Hidden ===

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Says that there is one, and no more.
impl Serialize for Hidden {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("(hidden)")
    }
}

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // What is no text is not repeated either.
        String::deserialize(deserializer)
            .map(Self)
            .map_err(|_| serde::de::Error::custom("the value does not fit, expected a text"))
    }
}

impl JsonSchema for Hidden {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "text".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}
