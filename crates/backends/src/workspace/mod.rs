//! Files and terminals that are served to an agent from a folder of this machine.
//!
//! # Invariants
//! - The folder is pinned when it is opened: every file is reached from its descriptor, and nothing outside of it is, whatever links, names or races there are.
//! - What was not granted is not there: neither advertised nor answered.
//! - A command that was started here is ended, with all that it started, when its terminal is released, or the workspace is closed or its last clone dropped.

mod command;
mod file;
mod folder;
mod limits;
mod location;
mod output;
mod refusal;
mod terminal;
mod worktree;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use trilogue_wire::agent_client::{ClientCapabilities, FileSystemCapabilities};
use trilogue_wire::jsonrpc::ErrorObject;

pub use folder::{CwdTemplate, Folders, Removal};
pub use limits::Limits;

use terminal::Terminals;

/// The folders of which files are the system's own.
const NO_WORKSPACES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// A folder from which an agent is served. It has the agent's terminals; clones have the same.
#[derive(Clone, Debug)]
pub struct Workspace {
    place: Arc<Place>,
    grants: Arc<Grants>,
    terminals: Terminals,
}

/// A folder that is pinned.
#[derive(Debug)]
struct Place {
    /// As it was given.
    root: PathBuf,
    /// Where it really was when it was opened.
    real: PathBuf,
    dir: Dir,
}

/// What an agent may do in a workspace. By default nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Grants {
    /// Its files.
    pub files: Files,
    /// Whether it may run commands.
    pub terminals: bool,
    /// The environment of its commands, all of it; what the agent asks for comes on top. The marker of the agent's processes belongs here too, so that its commands go where the agent goes.
    pub env: Vec<(String, String)>,
    /// How much of it all.
    pub limits: Limits,
}

/// What an agent may do with files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Files {
    /// Nothing.
    #[default]
    None,
    /// Read them.
    Read,
    /// Read and write them.
    Write,
}

// === impl Workspace ===

impl Workspace {
    /// Pins this folder. It has to exist; the root of the file system and the folders of the kernel are refused.
    ///
    /// # Errors
    /// When there is no such folder, it cannot be opened, or it may be no workspace.
    pub fn open(root: &Path, grants: Grants) -> io::Result<Self> {
        let real = root.canonicalize()?;
        if real.parent().is_none() || NO_WORKSPACES.iter().any(|it| real.starts_with(it)) {
            let message = format!("'{}' may be no workspace", root.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let dir = Dir::open_ambient_dir(&real, ambient_authority())?;
        let place = Arc::new(Place { root: std::path::absolute(root)?, real, dir });
        let grants = Arc::new(grants);
        let terminals = Terminals::new(Arc::clone(&place), Arc::clone(&grants));
        Ok(Self { place, grants, terminals })
    }

    /// The folder, as it was given.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.place.root
    }

    /// What of `fs` and `terminal` is to be advertised to the agent; the rest says nothing.
    #[must_use]
    pub fn capabilities(&self) -> ClientCapabilities {
        self.grants.capabilities()
    }

    /// Whether this is a method that [`Workspace::call`] answers.
    #[must_use]
    pub fn serves(&self, method: &str) -> bool {
        self.grants.serves(method)
    }

    /// Answers `fs/*` and `terminal/*`: the result is JSON. `params` is an object; whatever its session id is, is not looked at.
    ///
    /// # Errors
    /// [`Code::METHOD_NOT_FOUND`](trilogue_wire::jsonrpc::Code::METHOD_NOT_FOUND) for what is not granted, [`Code::RESOURCE_NOT_FOUND`](trilogue_wire::jsonrpc::Code::RESOURCE_NOT_FOUND) for a file or terminal that is not there, [`Code::INVALID_PARAMS`](trilogue_wire::jsonrpc::Code::INVALID_PARAMS) for what may not be reached or is too much, [`Code::INTERNAL_ERROR`](trilogue_wire::jsonrpc::Code::INTERNAL_ERROR) where the system refuses.
    pub async fn call(&self, method: &str, params: &str) -> Result<Vec<u8>, ErrorObject> {
        if !self.serves(method) {
            return Err(ErrorObject::method_not_found(method));
        }
        let limits = &self.grants.limits;
        match method {
            READ => file::read(Arc::clone(&self.place), limits, refusal::params(params)?).await,
            WRITE => file::write(Arc::clone(&self.place), limits, refusal::params(params)?).await,
            CREATE => self.terminals.create(refusal::params(params)?).await,
            OUTPUT => self.terminals.output(&refusal::params(params)?),
            WAIT => self.terminals.wait(&refusal::params(params)?).await,
            KILL => self.terminals.kill(&refusal::params(params)?).await,
            RELEASE => self.terminals.release(&refusal::params(params)?).await,
            _ => Err(ErrorObject::method_not_found(method)),
        }
    }

    /// Ends all terminals, with everything that their commands started. No further one can be made.
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
    /// Whether nothing is granted, so that no workspace is needed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files == Files::None && !self.terminals
    }

    /// What of `fs` and `terminal` is to be advertised to the agent; the rest says nothing.
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
