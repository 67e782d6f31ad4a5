//! How an agent is started, and how it is spoken to.

use std::path::PathBuf;
use std::time::Duration;

use trilogue_domain::AgentName;
use trilogue_domain::error::{Code, Error, Result};

use crate::workspace::{Folders, Grants};

/// How an agent is started, and how it is spoken to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it is started, and where its sessions work while nobody says; without it where its session works, or where the server runs. Not for [`Self::folders`].
    pub cwd: Option<PathBuf>,
    /// The folders in which it works; without them where the client says, else where the server runs.
    pub folders: Option<Folders>,
    /// Variables that are set for it.
    pub env: Vec<(String, String)>,
    /// Names of the server's own variables that it gets beside [`crate::child::INHERITED`].
    pub inherit: Vec<String>,
    /// Which sessions share a process.
    pub processes: Processes,
    /// The most processes at once.
    pub max_processes: usize,
    /// The most sessions that are open at once in a process that is shared.
    pub max_sessions: usize,
    /// How long a process without work is kept that can open its sessions again; `None` keeps it.
    pub idle_stop: Option<Duration>,
    /// How long the agent may take for its first answer.
    pub start_timeout: Duration,
    /// How long the agent may take to open a session.
    pub open_timeout: Duration,
    /// How long the agent may take to end a turn that is cancelled. Then its process is killed.
    pub cancel_grace: Duration,
    /// The longest line that is taken from it, in bytes.
    pub max_line_bytes: usize,
    /// What it may do with files and terminals in its folder, through us. The environment is set when it is started.
    pub grants: Grants,
    /// Whose files and terminals it works with.
    pub client_tools: ClientTools,
    /// The way to authenticate when the agent asks for it; the first that is its own where it is `None`.
    pub auth_method: Option<String>,
    /// Whether its questions wait without end.
    pub hold: bool,
    /// Whether a thread that goes back begins a new session that is told what was said, or does not go back.
    pub primes_on_rewind: bool,
    /// Whether pieces of messages without an id get one.
    pub assign_message_ids: bool,
    /// Whether prompts carry the id of the user's message.
    pub send_message_id: bool,
    /// What becomes of what clients attach to their requests.
    pub client_meta: ClientMeta,
}

/// Which sessions share a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Processes {
    /// None: each thread has its own.
    #[default]
    Thread,
    /// Those whose clients can do the same.
    Shared,
}

/// Whose files and terminals an agent works with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ClientTools {
    /// Ours, as far as they are granted.
    #[default]
    None,
    /// Those of the client that prompted last, as far as it has them.
    Forward,
}

/// What becomes of what clients attach to their requests, in the member `_meta`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ClientMeta {
    /// The agent gets it, but for what is called as a parameter of its handlers.
    #[default]
    Pass,
    /// It does not.
    Drop,
}

// === impl Launch ===

impl Launch {
    /// This command, with everything else as it is by default.
    #[must_use]
    pub fn of<S: Into<String>>(command: impl IntoIterator<Item = S>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            cwd: None,
            folders: None,
            env: Vec::new(),
            inherit: Vec::new(),
            processes: Processes::Thread,
            max_processes: 16,
            max_sessions: 256,
            idle_stop: Some(Duration::from_secs(600)),
            start_timeout: Duration::from_secs(60),
            open_timeout: Duration::from_secs(60),
            cancel_grace: Duration::from_secs(8),
            max_line_bytes: trilogue_wire::jsonrpc::DEFAULT_MAX_LINE_BYTES,
            grants: Grants::default(),
            client_tools: ClientTools::None,
            auth_method: None,
            hold: false,
            primes_on_rewind: false,
            assign_message_ids: true,
            send_message_id: true,
            client_meta: ClientMeta::Pass,
        }
    }

    /// Checks what only the whole can tell.
    ///
    /// # Errors
    /// `invalid_request`, naming what is missing.
    pub(super) fn check(&self, agent: &AgentName) -> Result<()> {
        let wrong = |what: &str| {
            Err(Error::new(Code::InvalidRequest, format!("the agent '{agent}' {what}")))
        };
        if self.command.first().is_none_or(String::is_empty) {
            return wrong("has no command");
        }
        let is_nul = |text: &String| text.contains('\0');
        if self.command.iter().any(is_nul)
            || self.env.iter().any(|(name, value)| {
                name.is_empty() || name.contains('=') || is_nul(name) || is_nul(value)
            })
        {
            return wrong("has an argument or a variable that no program can be given");
        }
        if self.max_processes == 0 {
            return wrong("may have no process");
        }
        if self.max_sessions == 0 {
            return wrong("may have no session");
        }
        Ok(())
    }
}
