use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trilogue_domain::RequestSource;
use trilogue_mapping::agent_client::Citations;
use trilogue_sdk::agent_client::network::AgentUrl;

use crate::child::{InvalidSetting, Sandbox, check_program};
use crate::network::NetworkPlan;
use crate::workspace::{Files, Folders, Grants, PrivatePaths};

const MIN_LINE_BYTES: usize = 64 * 1024;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// The program and its arguments; empty with [`Self::remote`].
    pub command: Vec<String>,
    /// The agent's place at another server, in place of a program.
    pub remote: Option<RemoteAgent>,
    /// Where the agent starts, and where its sessions work unless their client names another directory. `None`: where the session works, or the server's working directory. Unused with [`Self::folders`].
    pub cwd: Option<PathBuf>,
    /// Where its processes start, if that is not where its sessions work.
    pub start_dir: Option<PathBuf>,
    /// Its working directories. `None`: the directory that the client names, or the server's working directory.
    pub folders: Option<Folders>,
    pub env: Vec<(String, String)>,
    /// The server's own variables that it gets in addition to [`crate::child::INHERITED`].
    pub inherit: Vec<String>,
    /// The known variables with credentials for it: a hint names those that it lacks.
    pub credentials: Vec<String>,
    pub processes: Processes,
    pub max_processes: usize,
    pub max_sessions: usize,
    /// How long an idle process is kept; `None` keeps it forever.
    pub idle_stop: Option<Duration>,
    /// How long the agent may take to answer `initialize`.
    pub start_timeout: Duration,
    pub open_timeout: Duration,
    /// How long the agent may take to end a cancelled turn before its process is killed. `None`: as long as the server gives every run.
    pub cancel_grace: Option<Duration>,
    /// How long late output is awaited after the answer to a prompt: it still belongs to the answer.
    pub answer_settle: Duration,
    /// How long the agent must be quiet until a run that it started ends.
    pub background_quiet: Duration,
    /// While no prompt is open: how long a request of the agent waits for the return of the thread's client, and work for a run.
    pub client_wait: Duration,
    /// Whether the child processes of the agent keep it from being idle.
    pub children_count: bool,
    /// How long child processes keep an agent that sends nothing: some of them never end. At least [`Self::idle_stop`].
    pub children_limit: Duration,
    /// The longest line that the server accepts from it, in bytes.
    pub max_line_bytes: usize,
    pub grants: Grants,
    pub client_tools: ClientTools,
    /// The authentication method when the agent asks for one; `None`: its first own one.
    pub auth_method: Option<String>,
    /// Whether its questions wait forever.
    pub hold: bool,
    /// What happens if a thread goes back to an earlier point than the agent remembers.
    pub on_rewind: OnRewind,
    /// Whether message chunks without an id get one.
    pub assign_message_ids: bool,
    /// Whether prompts carry the id of the user's message.
    pub send_message_id: bool,
    /// What happens to the `_meta` of the client's messages.
    pub client_meta: ClientMeta,
    /// How it gets the citations of prompts.
    pub citations: PromptCitations,
    /// The settings of its sessions when they are opened.
    pub session: SessionDefaults,
    /// The folders below which a request over the network may choose the one of its session. With [`Self::remote`], folders of the agent's machine, compared as they are written.
    pub roots: Vec<PathBuf>,
    /// The folders of the server itself, in which no session works, and its files.
    pub private: PrivatePaths,
    pub sandbox: Sandbox,
    pub network: NetworkPlan,
    /// Whether its process works on in a turn when the server is gone, so that the next server continues the turn.
    pub outlive: bool,
    /// Additional modes and values of options with which the agent asks less.
    pub unattended: Vec<String>,
    /// The servers of the Model Context Protocol that its sessions get in addition to those of their clients, in the form of that protocol.
    pub mcp_servers: Vec<Value>,
}

/// An agent behind another server. Folders, roots and variables of this server mean nothing to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteAgent {
    pub url: AgentUrl,
    /// Where its sessions work, on its machine. `None`: where their clients say, or `/`.
    pub cwd: Option<PathBuf>,
}

/// The mode and the options that sessions begin with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionDefaults {
    /// The first of these that the agent offers, each by its id or name. Empty: the agent's default.
    pub mode: Vec<String>,
    /// Values of options, each by the option's id or name.
    pub options: Vec<(String, Value)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Processes {
    #[default]
    Thread,
    /// One process for all threads whose clients have the same capabilities.
    Shared,
}

/// The origin of the files and terminals of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientTools {
    /// Those of a client that is on another machine than the agent, if the server offers none. Otherwise the server's.
    #[default]
    Auto,
    /// The server's, if it offers any.
    None,
    /// Those of the client that sent the last prompt.
    Forward,
}

/// What happens to the `_meta` of the client's messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientMeta {
    /// The agent gets it, without members that have the name of a parameter of its handlers.
    #[default]
    Pass,
    /// The server removes it.
    Drop,
}

/// How an agent gets the citations of prompts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PromptCitations {
    /// As text after the message.
    #[default]
    Text,
    /// Under `_meta` of the content blocks.
    Meta,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnRewind {
    #[default]
    Refuse,
    /// The agent starts again and gets the conversation so far.
    Prime,
}

// === impl Launch ===

impl Launch {
    #[must_use]
    pub fn of<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            remote: None,
            cwd: None,
            start_dir: None,
            folders: None,
            env: Vec::new(),
            inherit: Vec::new(),
            credentials: Vec::new(),
            processes: Processes::Thread,
            max_processes: 16,
            max_sessions: 256,
            idle_stop: Some(Duration::from_secs(600)),
            start_timeout: Duration::from_secs(60),
            open_timeout: Duration::from_secs(60),
            cancel_grace: None,
            answer_settle: Duration::from_millis(150),
            background_quiet: Duration::from_secs(10),
            client_wait: Duration::from_secs(30),
            children_count: false,
            children_limit: Duration::from_secs(60 * 60),
            max_line_bytes: trilogue_wire::jsonrpc::DEFAULT_MAX_LINE_BYTES,
            grants: Grants::default(),
            client_tools: ClientTools::default(),
            auth_method: None,
            hold: false,
            on_rewind: OnRewind::Refuse,
            assign_message_ids: true,
            send_message_id: true,
            client_meta: ClientMeta::Pass,
            citations: PromptCitations::Text,
            session: SessionDefaults::default(),
            roots: Vec::new(),
            private: PrivatePaths::default(),
            sandbox: Sandbox::default(),
            network: NetworkPlan::default(),
            outlive: false,
            unattended: Vec::new(),
            mcp_servers: Vec::new(),
        }
    }

    /// Where its sessions work on the agent's machine, if the settings say so.
    pub(super) fn remote_cwd(&self) -> Option<&Path> {
        self.remote.as_ref()?.cwd.as_deref()
    }

    /// Whether the agent uses the files and terminals of a client that is here or elsewhere.
    pub(super) fn forwards_tools(&self, client: RequestSource) -> bool {
        let has_own = self.grants.files != Files::None || self.grants.terminals;
        match self.client_tools {
            ClientTools::Forward => true,
            // An agent behind another server is elsewhere for each client.
            ClientTools::Auto => {
                !has_own && (client == RequestSource::Network || self.remote.is_some())
            }
            ClientTools::None => false,
        }
    }

    /// How prompts carry citations. An agent without `_meta` gets them as text.
    pub(super) fn citations(&self) -> Citations {
        match (self.citations, self.client_meta) {
            (PromptCitations::Meta, ClientMeta::Pass) => Citations::Meta,
            _ => Citations::Text,
        }
    }

    pub fn check(&self) -> Result<(), InvalidSetting> {
        let invalid =
            |key, why: &str, hint: String| Err(InvalidSetting { key, why: why.to_owned(), hint });
        let at_least_one = || "set it to at least 1".to_owned();
        if self.remote.is_none() {
            check_program(&self.command, &self.env, &self.inherit)?;
        }
        self.sandbox.check(&self.private)?;
        self.network.check()?;
        if self.max_processes == 0 {
            return invalid("max_processes", "the agent could never run", at_least_one());
        }
        if self.max_sessions == 0 {
            return invalid("max_sessions", "no session could be opened", at_least_one());
        }
        if self.max_line_bytes < MIN_LINE_BYTES {
            let hint = format!("set it to at least {}KiB", MIN_LINE_BYTES / 1024);
            return invalid("max_line", "hardly any message would fit", hint);
        }
        Ok(())
    }
}
