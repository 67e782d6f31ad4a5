//! The agents that the configuration names.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{self, MapDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use trilogue_backends::agent_client::{
    ClientMeta, ClientTools, Launch, OnRewind, Processes, PromptCitations,
};
use trilogue_backends::child::{ChildTrace, SandboxMode};
use trilogue_backends::permission::Verdict;
use trilogue_backends::workspace::Files;

use super::agent_limits::AgentLimits;
use super::agent_network::{KeySetting, NetworkSetting};
use super::agent_settings::{self, AgentKind};
use super::list::List;
use super::mcp_server::McpServer;
use super::quantity::{Size, Span};
use super::scheme::Scheme;
use super::token_as::TokenAs;

/// An agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = agent_settings::add_notes)]
pub struct Agent {
    /// The kind of agent: `builtin` comes with the server; `agent-client` speaks the Agent Client Protocol, as a program on its standard input and output, or behind a server; `agent-communication` is behind a server of the Agent Communication Protocol; `agent-connect` is behind a server of the Agent Connect Protocol.
    pub kind: AgentKind,
    /// `echo`, `mailcomposer`, `researcher` or `greeter`. Not set: the one with the agent's name.
    #[serde(default)]
    pub builtin: Option<String>,
    /// The ways in which callers may authenticate: `api-key` (the header `x-api-key`), `bearer`, `basic` (the token as the password), or `none`, which also accepts callers without a token. Callers without a token are one principal, which can list nothing. Not set: `api-key` and `bearer`.
    #[serde(default)]
    pub authentication: Option<List<Scheme>>,
    /// The agent's descriptor for the Agent Connect Protocol, in place of its own: a file or an `https` URL of a descriptor, or of a manifest that contains one. The server reads it when it starts, and keeps the last good copy of a URL.
    #[serde(default)]
    pub descriptor: Option<String>,
    /// What the agent may do without a question, and what it may not do. The first rule that matches decides. If no rule matches, the server asks.
    #[serde(default)]
    pub permissions: Vec<Permission>,
    /// The program and its arguments. The server uses no shell. `agent-client`, required without `url`: the agent, such as `["some-agent", "--acp"]`. `agent-communication` and `agent-connect`: the agent's server, such as `["python", "serve.py", "{port}"]`, which this server starts, watches and starts again. The server finds an `agent-client` program without a folder in `PATH` once, when it starts, outside of the folder that the agent works in. `{port}` is a free port, also in `env` and in the variable `PORT`. Agents with the same command and variables share one process.
    #[serde(default)]
    pub command: List<String>,
    /// The address of the agent's server, where it serves the protocol, such as `http://127.0.0.1:8000`. Required without `command`; with it, `http://127.0.0.1:{port}` if not set. `agent-client`: in place of `command`, the address of one agent, such as `wss://agents.example.org/client/coder` for a WebSocket, or an `https` address for posts and server-sent events. The server reaches it wherever it is; redirects are not followed.
    #[serde(default)]
    pub url: Option<String>,
    /// The agent's name at its server. Not set: its name here.
    #[serde(default)]
    pub name: Option<String>,
    /// The agent at its server, by its id or by the name of its descriptor, such as `org.agntcy.mailcomposer`. Not set: its name here.
    #[serde(default)]
    pub agent: Option<String>,
    /// The version of the agent, where its server has several under one name. Not set: the first that the server finds.
    #[serde(default)]
    pub version: Option<String>,
    /// With `"*"`, all agents of the server are served, each under its name there. Other characters than letters, digits, `_` and `-` become `-`. Agents that another entry names for the same server are left out.
    #[serde(default)]
    pub agents: Option<AllAgents>,
    /// What the name and the title of each agent begin with here, such as `"far-"`.
    #[serde(default)]
    pub prefix: String,
    /// How often the server is asked what its agents are.
    #[serde(default = "refresh")]
    pub refresh: Span,
    /// The environment variable with the token that the agent's server wants. Only that server gets it.
    #[serde(default)]
    pub token_env: Option<String>,
    /// The file with the token, in place of `token_env`.
    #[serde(default)]
    pub token_file: Option<String>,
    /// How the token is sent: `bearer` (the header `authorization`), `api-key` (the header `x-api-key`) or `header:NAME` (the header with this name).
    #[serde(default)]
    pub token_as: TokenAs,
    /// A file with certificates in PEM form: the authorities that may vouch for the agent's server, in addition to those of the system.
    #[serde(default)]
    pub ca_file: Option<String>,
    /// Where sessions work, as an absolute path on the agent's machine. Not set: the directory that the client names, or else `/`.
    #[serde(default)]
    pub remote_cwd: Option<String>,
    /// A description of the agent for people.
    #[serde(default)]
    pub description: Option<String>,
    /// The working directory. `agent-client` only: with `{thread}`, each thread gets its own, such as `"work/{thread}"`. The server creates a missing directory, for this user only. A relative path starts at the server's working directory. Not set: the directory that the client of an `agent-client` names, or else the server's.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Where the agent's processes start. `session`: in the folder in which they work. `empty`: in an empty folder of the server, so that no file of a working folder changes how the program starts; the agent learns from the protocol where it works. Not set: `empty` for the agents of `trilogue agents known` that take their folder from the protocol, else `session`.
    #[serde(default)]
    pub start_in: Option<StartIn>,
    /// The folders below which a request over the network may choose the folder of its session, if the agent has no `cwd`. Links are resolved first. A relative path starts at the server's working directory. Not set: the server's working directory, unless it is `/` or a folder of the server itself. Programs of the server's user on the same machine may choose any other folder too. The server's state folder is never allowed, and the server gives no agent its own files: those of the store, the file of the settings, and the files with secrets that it names. With `url`: folders of the agent's machine, as absolute paths that are compared as they are written; not set: none.
    #[serde(default)]
    pub roots: Option<List<String>>,
    /// Further modes and values of options, by id or name, with which the agent acts without asking. A run may choose such a mode or value, like `bypassPermissions` or `yolo`, only if its token has the right `answer`.
    #[serde(default)]
    pub unattended: List<String>,
    /// How the agent is kept from what it does not need. `auto`: by the layers that this machine has: files (Landlock), system calls (seccomp) and namespaces. `require:files` and `require:all` refuse to start without the layer for files, or without all. `off`: the agent can do what the server's user can. See [Sandbox](../sandbox.md).
    #[serde(default = "sandbox")]
    pub sandbox: SandboxMode,
    /// Files and folders that the agent may read in its sandbox, beside its program, the system and the toolchains. `~` is the home folder. A relative path starts at the server's working directory.
    #[serde(default)]
    pub read_paths: List<String>,
    /// Files and folders that the agent may change in its sandbox, beside its working folder and those that are known for it.
    #[serde(default)]
    pub write_paths: List<String>,
    /// What the agent in its sandbox may reach over the network: `open` is everything that the server's machine reaches, `none` is nothing. A list names hosts, such as `["api.example.com", "*.example.org", "example.com:8443"]`, which it reaches through the server alone; without a port, 443 and 80; `"*"` is all. `ask` asks a person about each other host, alone or in the list. See [Network](../network.md).
    #[serde(default)]
    pub network: NetworkSetting,
    /// Keys of providers of models that the server adds to the agent's requests, by the variable in which the agent expects the key, such as `{ ANTHROPIC_API_KEY = "file:/run/keys/anthropic" }`. The agent gets a placeholder, and never the key. `"file:PATH"` or `"env:NAME"`, or a table with `from`, `url` (the provider's address), `base_url` (the variables by which the agent takes another address), `header` (`bearer`, `x-api-key` or another name of a field) and `dialect` (`anthropic`, `openai`, `gemini` or `unknown`); for well-known variables only `from` is needed. `network` must be a list or `ask`.
    #[serde(default)]
    pub keys: IndexMap<String, KeySetting>,
    /// Limits of each process of the agent, with everything that it starts. They need a sandbox, and a control group (cgroup v2) that the operator delegates to the server, as `deploy/trilogue.service` does. Without one the server warns, and with `sandbox = "require:all"` it does not start.
    #[serde(default)]
    pub limits: AgentLimits,
    /// A program with arguments that starts the agent in its own way, outside of the sandbox, such as `["systemd-run", "--user", "--scope", "-p", "MemoryMax=4G"]`. The agent's command follows as further arguments.
    #[serde(default)]
    pub wrap_with: List<String>,
    /// Traces the agent in place of its sandbox. Only `trilogue agents trace` sets it.
    #[serde(skip)]
    pub trace: Option<ChildTrace>,
    /// Whether a turn of the agent continues when the server is killed or restarted: the agent works on for up to ten minutes, and the next server continues the turn without a loss. It needs a sandbox and a server with a state folder that shares its store with no other server. See [Restarts](../hosting-agents.md).
    #[serde(default = "outlive")]
    pub outlive: bool,
    /// A git repository. Each thread gets a worktree of it at `cwd`, on the branch `trilogue/AGENT/FOLDER`. When the thread is deleted, the server removes the worktree if it has no changes.
    #[serde(default)]
    pub worktree: Option<String>,
    /// Environment variables for the program. The server never shows their values.
    #[serde(default)]
    pub env: IndexMap<String, RedactedText>,
    /// Names of more variables that the program inherits from the server. It always inherits `PATH`, `HOME` and a few others for folders and language.
    #[serde(default)]
    pub inherit: List<String>,
    /// One process per thread, or one for all threads whose clients have the same capabilities.
    #[serde(default)]
    pub processes: Processes,
    /// The maximum number of processes. One principal has at most three quarters of them, rounded up.
    #[serde(default = "max_processes")]
    pub max_processes: usize,
    /// The maximum number of open sessions in a shared process. Above it, the server closes the least recently used session, and opens it again when a run needs it.
    #[serde(default = "max_sessions")]
    pub max_sessions: usize,
    /// How long the server keeps an idle process. An agent that cannot open its sessions again gets the conversation as text afterwards. `0s` keeps it forever.
    #[serde(default = "idle_stop")]
    pub idle_stop: Span,
    /// Whether running child processes of the agent keep it from being idle, for at most an hour. Not set: as known for the agents of `trilogue agents known`, else `false`. An agent whose helper processes always run, such as servers of the Model Context Protocol, then stays for that hour.
    #[serde(default)]
    pub idle_children: Option<bool>,
    /// How long the agent must be quiet until a run that it started itself ends: no update arrives, and no tool call, question or other request is open. See [Agents that work in the background](../background-work.md).
    #[serde(default = "background_quiet")]
    pub background_quiet: Span,
    /// How long late output belongs to the agent's answer: REST results, callbacks and the end of the run wait for it. The response to an editor does not wait, and neither does the next prompt. `0s` does not wait.
    #[serde(default = "answer_settle")]
    pub answer_settle: Span,
    /// How long a request of the agent that needs an editor waits for the editor to come back while no prompt is open. It is refused at once on a thread that has had no editor since the start of the server. Output that needs a run waits as long while another run has the thread.
    #[serde(default = "client_wait")]
    pub client_wait: Span,
    /// How long the program may take for its first response.
    #[serde(default = "start_timeout")]
    pub start_timeout: Span,
    /// How long the agent may take to open a session.
    #[serde(default = "open_timeout")]
    pub open_timeout: Span,
    /// The longest line that the server accepts from the agent.
    #[serde(default = "max_line")]
    pub max_line: Size,
    /// What the agent may do through the server with files in its working directory. It can never reach files outside of it this way.
    #[serde(default)]
    pub files: Files,
    /// Whether the agent may run commands in its working directory through the server.
    #[serde(default)]
    pub terminals: bool,
    /// With `"forward"`, the agent uses the client's files and terminals in place of the server's, if the client has them; with `"none"`, never. `"auto"` forwards to clients over the network, and to all clients of an agent with `url`, unless `files` or `terminals` give the agent those of the server. The client is the one that prompted last, or the one that opened the session if no client has prompted yet. This also holds for a turn that another protocol started.
    #[serde(default)]
    pub client_tools: ClientTools,
    /// The agent's authentication method to use when it asks for one. Not set: the method of an earlier sign-in, or one whose key is in a variable that the agent gets. Otherwise runs fail and say how to sign in.
    #[serde(default)]
    pub auth_method: Option<String>,
    /// Whether the agent's questions wait forever. Otherwise `runtime.interrupt_deadline` applies while no client that can answer is connected.
    #[serde(default)]
    pub hold: bool,
    /// What happens when a thread goes back to an earlier point than the agent knows: `refuse` refuses the run; `prime` starts the agent again and gives it the conversation up to that point.
    #[serde(default)]
    pub on_rewind: OnRewind,
    /// Whether the server gives an id to message chunks that come without one.
    #[serde(default = "default_true")]
    pub assign_message_ids: bool,
    /// Whether prompts carry the id of the user's message.
    #[serde(default = "default_true")]
    pub send_message_id: bool,
    /// Whether the agent gets the member `_meta` of the client's messages. Some agents read members of it as their own arguments: the server never passes those. `"drop"` removes every `_meta` at every depth of requests, notifications and responses.
    #[serde(default)]
    pub client_meta: ClientMeta,
    /// How the agent gets the citations of a prompt: `text` writes them as a list of sources behind the message; `meta` puts each as `trilogue.citation` into the `_meta` of its content block, for agents that read it. With `client_meta = "drop"` they are text.
    #[serde(default)]
    pub citations: PromptCitations,
    /// The mode that sessions begin with, by its id or name. From a list, the first that the agent offers. A session fails if it offers none of them. Not set: the agent's own.
    #[serde(default)]
    pub mode: List<String>,
    /// The model that sessions begin with, by its id or name.
    #[serde(default)]
    pub model: Option<String>,
    /// Values of the agent's options that sessions begin with, by the option's id or name, such as `{ effort = "high" }`.
    #[serde(default)]
    pub options: IndexMap<String, Value>,
    /// Servers of the Model Context Protocol that every session of the agent gets, beside those of its client.
    #[serde(default)]
    pub mcp_servers: IndexMap<String, McpServer>,
}

/// Where the processes of an agent start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StartIn {
    /// In an empty folder of the server.
    Empty,
    /// In the folder in which they work.
    Session,
}

/// All agents of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum AllAgents {
    /// Those that it lists now and later.
    #[serde(rename = "*")]
    All,
}

/// A permission rule. A member that is not set matches everything. A member that is set does not match a call in which the agent leaves that detail out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Permission {
    /// The rule's name in the log. Not set: `rule` and its number.
    #[serde(default)]
    pub name: Option<String>,
    /// The kinds of tools that the rule matches: `read`, `edit`, `delete`, `move`, `search`, `execute`, `think`, `fetch`, `switch_mode` or `other`.
    #[serde(default)]
    pub kind: Option<List<String>>,
    /// A pattern for tool names, such as `fs_*`.
    #[serde(default)]
    pub tool: Option<String>,
    /// A pattern for files: `*` matches anything except `/`; `**` matches anything. A relative pattern starts at the agent's working directory and matches nothing outside of it. A rule that allows matches only if every file of the call matches, both as written and after links are resolved. For other rules, one file is enough.
    #[serde(default)]
    pub path: Option<String>,
    /// What the server does with a call that matches.
    pub decision: Verdict,
}

/// A text that the server never shows.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RedactedText(pub String);

fn default_true() -> bool {
    true
}

fn refresh() -> Span {
    Span(Duration::from_secs(60))
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

fn background_quiet() -> Span {
    Span(launch().background_quiet)
}

fn answer_settle() -> Span {
    Span(launch().answer_settle)
}

fn client_wait() -> Span {
    Span(launch().client_wait)
}

fn start_timeout() -> Span {
    Span(launch().start_timeout)
}

fn open_timeout() -> Span {
    Span(launch().open_timeout)
}

fn sandbox() -> SandboxMode {
    SandboxMode::Auto
}

fn outlive() -> bool {
    true
}

fn max_line() -> Size {
    Size::of(launch().max_line_bytes)
}

/// The defaults for starting an agent.
fn launch() -> Launch {
    Launch::of::<String>([])
}

// === impl Agent ===

impl Agent {
    /// An agent of a kind with nothing else set.
    #[must_use]
    pub fn of(kind: AgentKind) -> Self {
        #[expect(clippy::expect_used, reason = "the kind is the only required setting")]
        Self::deserialize(MapDeserializer::<_, value::Error>::new(
            [("kind", kind.as_str())].into_iter(),
        ))
        .expect("every other setting has a default")
    }

    /// Its home folder: that of its own variables, or else of the server.
    #[must_use]
    pub fn home(&self) -> Option<PathBuf> {
        let own = self.env.get("HOME").map(|home| PathBuf::from(&home.0));
        own.or_else(|| std::env::var_os("HOME").map(PathBuf::from))
    }

    /// Returns a path of its settings as a whole: `~/` is in its home folder, and a relative path starts at the server's working directory.
    #[must_use]
    pub fn whole_path(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), self.home()) {
            (Some(below), Some(home)) => home.join(below),
            _ => std::env::current_dir().unwrap_or_default().join(path),
        }
    }

    /// How long its processes are kept without work.
    pub(crate) fn idle(&self) -> Option<Duration> {
        Some(self.idle_stop.0).filter(|idle| !idle.is_zero())
    }
}

// === impl RedactedText ===

impl fmt::Debug for RedactedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Says that there is one, and no more.
impl Serialize for RedactedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("(hidden)")
    }
}

impl<'de> Deserialize<'de> for RedactedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A value that is not text may be a secret too, so the message does not repeat it.
        String::deserialize(deserializer)
            .map(Self)
            .map_err(|_| serde::de::Error::custom("the value does not fit, expected a text"))
    }
}

impl JsonSchema for RedactedText {
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
