//! An agent's files and terminals through the server, in one folder of this machine.
//!
//! # Invariants
//! - The folder is pinned when it is opened: files are opened from its descriptor, so that no link, name or race leads outside.
//! - Only granted methods are advertised and answered.
//! - A command is stopped, with all processes that it started, when its terminal is released, the workspace is closed or its last clone is dropped.

mod command;
mod file;
mod folder;
pub(crate) mod lease;
mod limits;
mod location;
mod output;
mod private_paths;
mod refusal;
mod terminal;
mod worktree;
mod worktree_paths;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trilogue_wire::agent_client::{ClientCapabilities, FileSystemCapabilities};
use trilogue_wire::jsonrpc::ErrorObject;

use crate::child::SavedPolicy;
pub use folder::{CwdTemplate, Folders, Removal};
pub(crate) use folder::{make_folder, whole_folder};
pub use limits::Limits;
pub use private_paths::PrivatePaths;
pub(crate) use worktree_paths::paths_of_worktree;

use terminal::Terminals;

/// Folders of the kernel.
const SYSTEM_FOLDERS: [&str; 3] = ["/proc", "/sys", "/dev"];

/// A folder that is served to an agent, with the agent's terminals. Clones share them.
#[derive(Clone, Debug)]
pub struct Workspace {
    root: Arc<Root>,
    grants: Arc<Grants>,
    terminals: Terminals,
}

#[derive(Debug)]
struct Root {
    /// As it was given.
    path: PathBuf,
    /// Without links, when it was opened.
    real: PathBuf,
    dir: Dir,
    /// The folders and files of the server itself, without links.
    private: PrivatePaths,
}

/// The rights of an agent in a workspace. By default it has none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Grants {
    pub files: Files,
    pub terminals: bool,
    /// The whole environment of its commands; the agent's request adds to it. It includes the marker of the agent's processes, so that its commands are stopped with the agent.
    pub env: Vec<(String, String)>,
    /// The server's own: none of it is read or written, even if the workspace contains it.
    pub private: PrivatePaths,
    pub limits: Limits,
    /// The sandbox of its commands. `None`: they have none.
    pub policy: Option<Arc<SavedPolicy>>,
}

#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Files {
    #[default]
    None,
    Read,
    Write,
}

// === impl Workspace ===

impl Workspace {
    /// Pins a folder.
    /// Fails if it does not exist, cannot be opened, or is the root of the file system or a folder of the kernel or of the server.
    pub fn open(root: &Path, grants: Grants) -> io::Result<Self> {
        let real = root.canonicalize()?;
        let private = grants.private.resolve();
        if real.parent().is_none()
            || SYSTEM_FOLDERS.iter().any(|it| real.starts_with(it))
            || private.contains(&real)
        {
            let message = format!("'{}' cannot be a workspace", root.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let dir = Dir::open_ambient_dir(&real, ambient_authority())?;
        let pinned = Arc::new(Root { path: std::path::absolute(root)?, real, dir, private });
        let grants = Arc::new(grants);
        let terminals = Terminals::new(Arc::clone(&pinned), Arc::clone(&grants));
        Ok(Self { root: pinned, grants, terminals })
    }

    /// The folder, as it was given.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root.path
    }

    /// The capabilities to advertise to the agent.
    #[must_use]
    pub fn capabilities(&self) -> ClientCapabilities {
        self.grants.capabilities()
    }

    /// Whether this is a method that [`Workspace::call`] answers.
    #[must_use]
    pub fn serves(&self, method: &str) -> bool {
        self.grants.serves(method)
    }

    /// Answers `fs/*` and `terminal/*` with JSON. The session id in `params` is ignored.
    /// Errors: `METHOD_NOT_FOUND` for a method that is not granted, `RESOURCE_NOT_FOUND` for a file or terminal that does not exist, `INVALID_PARAMS` for a path outside or a request above a limit, `INTERNAL_ERROR` if the system refuses.
    pub async fn call(&self, method: &str, params: &str) -> Result<Vec<u8>, ErrorObject> {
        if !self.serves(method) {
            return Err(ErrorObject::method_not_found(method));
        }
        let limits = &self.grants.limits;
        match method {
            READ => file::read(Arc::clone(&self.root), limits, refusal::params(params)?).await,
            WRITE => {
                let (root, request) = (Arc::clone(&self.root), refusal::params(params)?);
                file::write(root, limits, request, self.grants.policy.is_some()).await
            }
            CREATE => self.terminals.create(refusal::params(params)?).await,
            OUTPUT => self.terminals.output(&refusal::params(params)?),
            WAIT => self.terminals.wait(&refusal::params(params)?).await,
            KILL => self.terminals.kill(&refusal::params(params)?).await,
            RELEASE => self.terminals.release(&refusal::params(params)?).await,
            _ => Err(ErrorObject::method_not_found(method)),
        }
    }

    /// Stops all commands, with all processes that they started. No further terminal can be created.
    pub async fn close(&self) {
        self.terminals.close().await;
    }
}

const READ: &str = "fs/read_text_file";
const WRITE: &str = "fs/write_text_file";
const CREATE: &str = "terminal/create";
const OUTPUT: &str = "terminal/output";
const WAIT: &str = "terminal/wait_for_exit";
const KILL: &str = "terminal/kill";
const RELEASE: &str = "terminal/release";

// === impl Grants ===

impl Grants {
    /// Whether no workspace is needed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files == Files::None && !self.terminals
    }

    #[must_use]
    pub fn capabilities(&self) -> ClientCapabilities {
        let mut fs = FileSystemCapabilities::new();
        fs.read_text_file = self.files >= Files::Read;
        fs.write_text_file = self.files >= Files::Write;
        let mut capabilities = ClientCapabilities::new();
        capabilities.fs = Some(fs);
        capabilities.terminal = self.terminals;
        capabilities
    }

    fn serves(&self, method: &str) -> bool {
        match method {
            READ => self.files >= Files::Read,
            WRITE => self.files >= Files::Write,
            CREATE | OUTPUT | WAIT | KILL | RELEASE => self.terminals,
            _ => false,
        }
    }
}
