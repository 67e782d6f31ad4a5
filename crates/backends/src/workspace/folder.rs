//! The folders in which agents work, one for each thread.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};

use tokio::task::spawn_blocking;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, TenantId, ThreadId, ThreadKey};
use uuid::Uuid;

use super::worktree::Repository;

/// Where in the template the thread's name goes.
const THREAD: &str = "{thread}";
/// The longest thread id that stands in a folder's name as it is, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// How much of what tells a thread from all others stands behind its id, in hexadecimal digits.
const MARK_DIGITS: usize = 16;
/// Who may enter a folder that is made here: this user alone.
const MODE: u32 = 0o700;
/// What names are made from.
const NAMES: Uuid = Uuid::from_u128(0x7f0c_52a1_9d3e_4b6a_8f21_54c0_1e9b_d713);

/// The path of a folder with a place for the thread's name: `work/{thread}`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CwdTemplate(String);

/// Makes the folders of an agent's threads, and removes them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folders {
    /// What a relative path begins at.
    base: PathBuf,
    template: CwdTemplate,
    /// Of what each folder is a worktree.
    repository: Option<Repository>,
}

/// What became of a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Removal {
    /// It is gone, or there was none.
    Gone,
    /// It is still there, and why.
    Kept(String),
}

/// What a thread is called where files are: its id where that is safe in a name everywhere, and what is made from it and its tenant.
///
/// Clients choose the ids of threads, two tenants may choose the same, and one that was erased may be chosen again: a name never is one
/// that something else has or had, such as a folder of the user that stands beside. A thread's key is never used again.
pub(super) fn name(tenant: &TenantId, thread: &ThreadId, key: ThreadKey) -> String {
    let id = thread.as_str();
    let mark = Uuid::new_v5(&NAMES, format!("{tenant}\0{id}\0{}", key.0).as_bytes());
    let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
    if id.len() <= MAX_NAME_BYTES && id.bytes().all(is_plain) && !id.starts_with('-') {
        let mark = mark.simple().to_string();
        return format!("{id}-{}", mark.get(..MARK_DIGITS).unwrap_or(&mark));
    }
    mark.to_string()
}

// === impl CwdTemplate ===

impl CwdTemplate {
    /// Checks a template.
    ///
    /// # Errors
    /// `invalid_request` where it is empty, or has a place for something that there is not.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            let error = Error::new(Code::InvalidRequest, format!("the folder's path {why}"));
            Err(error.hint("write a path such as \"work/{thread}\""))
        };
        if text.is_empty() || text.contains('\0') {
            return wrong("is empty or has a byte that is 0");
        }
        if text.replace(THREAD, "").contains(['{', '}']) {
            return wrong("has a place for something else than {thread}");
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether each thread has a folder of its own.
    #[must_use]
    pub fn is_per_thread(&self) -> bool {
        self.0.contains(THREAD)
    }

    /// The folder of a thread, and which folder on the way to it is the thread's own, if one is.
    fn of(
        &self,
        base: &Path,
        tenant: &TenantId,
        thread: &ThreadId,
        key: ThreadKey,
    ) -> (PathBuf, Option<PathBuf>) {
        let name = name(tenant, thread, key);
        let (mut path, mut own) = (base.to_owned(), None);
        for part in Path::new(&self.0).components() {
            let Component::Normal(part) = part else {
                path.push(part);
                continue;
            };
            let written = part.to_string_lossy();
            path.push(written.replace(THREAD, &name));
            if own.is_none() && written.contains(THREAD) {
                own = Some(path.clone());
            }
        }
        (path, own)
    }
}

// === impl Folders ===

impl Folders {
    /// An agent's folders by this template. A relative one begins at `base`. With a repository each is a worktree of it, on a branch of its own: `trilogue/AGENT/FOLDER`.
    ///
    /// # Errors
    /// `invalid_request` for a repository where threads have no folders of their own.
    pub fn new(
        base: &Path,
        template: CwdTemplate,
        repository: Option<&Path>,
        agent: &AgentName,
    ) -> Result<Self> {
        if repository.is_some() && !template.is_per_thread() {
            let message = "a worktree needs a folder for each thread";
            return Err(Error::new(Code::InvalidRequest, message)
                .hint("set cwd to a path with {thread}, such as \"work/{thread}\""));
        }
        let base = std::path::absolute(base)
            .map_err(|error| failed(base, "is not to be found", &error))?;
        let repository = repository.map(|path| Repository::new(&base.join(path), agent));
        Ok(Self { base, template, repository })
    }

    /// The folder of a thread; it need not exist.
    #[must_use]
    pub fn path(&self, tenant: &TenantId, thread: &ThreadId, key: ThreadKey) -> PathBuf {
        self.template.of(&self.base, tenant, thread, key).0
    }

    /// Makes the folder of a thread where it is not there yet, for nobody but this user, and says where it is.
    ///
    /// # Errors
    /// `agent_failed` with a hint, when it cannot be made, or git cannot make it.
    pub async fn prepare(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        key: ThreadKey,
    ) -> Result<PathBuf> {
        let (path, own) = self.template.of(&self.base, tenant, thread, key);
        match &self.repository {
            Some(repository) => {
                if let Some(parent) = path.parent() {
                    make(parent.to_owned(), false).await?;
                }
                repository.add(&path, &name(tenant, thread, key)).await?;
            }
            None => make(path.clone(), own.is_some()).await?,
        }
        Ok(path)
    }

    /// Removes the folder of a thread that is erased, where it was made for it alone. A worktree with changes stays.
    ///
    /// # Errors
    /// `agent_failed` when it is there and cannot be removed.
    pub async fn remove(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        key: ThreadKey,
    ) -> Result<Removal> {
        let (path, Some(own)) = self.template.of(&self.base, tenant, thread, key) else {
            return Ok(Removal::Kept("other threads work there too".to_owned()));
        };
        if let Some(repository) = &self.repository
            && let Removal::Kept(why) = repository.remove(&path, &name(tenant, thread, key)).await?
        {
            return Ok(Removal::Kept(why));
        }
        let removed = spawn_blocking({
            let own = own.clone();
            // Links are removed, not followed.
            move || std::fs::remove_dir_all(own)
        });
        match removed.await.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into())) {
            Ok(()) => Ok(Removal::Gone),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Removal::Gone),
            Err(error) => Err(failed(&own, "cannot be removed", &error)),
        }
    }
}

/// Makes a folder with what is missing on the way. One that is a thread's own is no link to another place.
async fn make(path: PathBuf, is_own: bool) -> Result<()> {
    let made = path.clone();
    let made = spawn_blocking(move || {
        DirBuilder::new().recursive(true).mode(MODE).create(&made)?;
        let found = if is_own { made.symlink_metadata() } else { made.metadata() };
        if found.as_ref().is_ok_and(Metadata::is_dir) {
            return Ok(());
        }
        Err(found.err().unwrap_or_else(|| io::ErrorKind::NotADirectory.into()))
    });
    let made = made.await.unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()));
    made.map_err(|error| failed(&path, "cannot be made", &error))
}

fn failed(path: &Path, what: &str, error: &io::Error) -> Error {
    Error::new(Code::AgentFailed, format!("the folder '{}' {what}: {error}", path.display()))
        .hint("check `cwd` of the agent, and that this user may write there")
}
