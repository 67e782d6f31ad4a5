use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};

use tokio::task::spawn_blocking;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, TenantId, ThreadId, ThreadKey};
use uuid::Uuid;

use super::worktree::Repository;

/// The placeholder of the thread's name in a template.
const THREAD: &str = "{thread}";
/// The longest thread id that is part of a folder's name, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The hexadecimal digits after the id that make a folder's name unique.
const SUFFIX_DIGITS: usize = 16;
/// New folders are private to this user.
const MODE: u32 = 0o700;
/// The namespace of the names.
const NAMESPACE: Uuid = Uuid::from_u128(0x7f0c_52a1_9d3e_4b6a_8f21_54c0_1e9b_d713);

/// The path of a working directory, with `{thread}` for the thread's name: `work/{thread}`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CwdTemplate(String);

/// Creates the working directories of an agent's threads, and removes them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folders {
    /// Where a relative path begins.
    base: PathBuf,
    template: CwdTemplate,
    /// Each folder is a worktree of it.
    repository: Option<Repository>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Removal {
    /// Removed, or it did not exist.
    Gone,
    /// Kept, for this reason.
    Kept(String),
}

/// The thread's name in file names: its id, if that is safe everywhere, and a suffix.
///
/// Clients choose the ids of threads, two tenants may choose the same one, and an erased one may be chosen again. The suffix comes from
/// the thread's key, which is never used again, so that no other folder has or had the name.
pub(super) fn name(tenant: &TenantId, thread: &ThreadId, key: ThreadKey) -> String {
    let id = thread.as_str();
    let suffix = Uuid::new_v5(&NAMESPACE, format!("{tenant}\0{id}\0{}", key.0).as_bytes());
    let is_plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
    if id.len() <= MAX_NAME_BYTES && id.bytes().all(is_plain) && !id.starts_with('-') {
        let suffix = suffix.simple().to_string();
        return format!("{id}-{}", suffix.get(..SUFFIX_DIGITS).unwrap_or(&suffix));
    }
    suffix.to_string()
}

// === impl CwdTemplate ===

impl CwdTemplate {
    /// Checks a template; fails with `invalid_request` if it is empty, or has another placeholder than `{thread}`.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            let error = Error::new(Code::InvalidRequest, format!("the folder's path {why}"));
            Err(error.hint("write a path such as \"work/{thread}\""))
        };
        if text.is_empty() || text.contains('\0') {
            return wrong("is empty or has a zero byte");
        }
        if text.replace(THREAD, "").contains(['{', '}']) {
            return wrong("has another placeholder than {thread}");
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether each thread has its own folder.
    #[must_use]
    pub fn is_per_thread(&self) -> bool {
        self.0.contains(THREAD)
    }

    /// The folder of a thread, and the topmost folder of that path that belongs to this thread alone.
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
    /// An agent's working directories by this template. A relative template begins at `base`. With a repository, each is a worktree on its own branch `trilogue/AGENT/FOLDER`.
    /// Errors: `invalid_request` for a repository if threads share a folder.
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
        let base = whole_folder(base)?;
        let repository = repository.map(|path| Repository::new(&base.join(path), agent));
        Ok(Self { base, template, repository })
    }

    /// The folder of a thread, whether it exists or not.
    #[must_use]
    pub fn path(&self, tenant: &TenantId, thread: &ThreadId, key: ThreadKey) -> PathBuf {
        self.template.of(&self.base, tenant, thread, key).0
    }

    /// Creates the folder of a thread, unless it exists, and returns its path. Fails with `agent_failed`.
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
                    make_folder(parent.to_owned(), false).await?;
                }
                repository.add(&path, &name(tenant, thread, key)).await?;
            }
            None => make_folder(path.clone(), own.is_some()).await?,
        }
        Ok(path)
    }

    /// Removes an erased thread's folder that was made for it alone. A worktree with changes stays. Fails with `agent_failed` when the folder cannot be removed.
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
            Err(error) => Err(folder_error(&own, "cannot be removed", &error)),
        }
    }
}

/// Returns the whole path of a folder. A relative one starts at the server's working directory.
pub(crate) fn whole_folder(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| folder_error(path, "cannot be found", &error))
}

/// Creates a folder with its parents. A thread's own folder must not be a link.
pub(crate) async fn make_folder(path: PathBuf, is_own: bool) -> Result<()> {
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
    made.map_err(|error| folder_error(&path, "cannot be created", &error))
}

fn folder_error(path: &Path, what: &str, error: &io::Error) -> Error {
    Error::new(Code::AgentFailed, format!("the folder '{}' {what}: {error}", path.display()))
        .hint("check `cwd` of the agent, and that this user may write there")
}
