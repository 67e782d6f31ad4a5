//! Records children on disk, so that the next server finds the processes that a killed server left running.
//!
//! Each run of a server has a separate folder, `SERVER`. The server holds `SERVER/lock` locked while it runs, and writes
//! `SERVER/INSTANCE` for each child. The system releases the lock however the server exits.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use uuid::Uuid;

use super::holder::HolderSocket;
use super::identity::Identity;
use super::platform;

const MAX_RECORD_BYTES: u64 = 64 * 1024;
/// The name of the lock files. A server locks the one in its folder while it runs, and the common one while it looks for previous servers.
const LOCK: &str = "lock";
/// How long to wait for another server that is looking for previous servers.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_RETRY: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Records {
    folder: PathBuf,
    boot: String,
    pid_namespace: String,
    _lock: File,
}

#[derive(Debug)]
pub(super) struct PreviousServer {
    folder: PathBuf,
    /// The children that have a record: they may still run.
    pub(super) children: Vec<RecordedChild>,
    /// Keeps other servers from reading this folder at the same time.
    _lock: File,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RecordedChild {
    pub(super) instance: Uuid,
    /// The child's own process. `None` if it was not recorded, or in another process id namespace.
    pub(super) leader: Option<Identity>,
    /// The secret of its holder, if it can outlive its server.
    pub(super) secret: Option<String>,
    /// The store of its run, if it can outlive its server.
    pub(super) store: Option<String>,
    /// The folder of its control group, if it may have one.
    pub(super) group: Option<PathBuf>,
}

// === impl Records ===

impl Records {
    /// Creates the records of this server, and takes those previous servers of which `is_taken` is true. Blocks up to [`LOCK_TIMEOUT`] for another server that does so.
    pub(super) fn open(
        all: &Path,
        is_taken: impl Fn(&PreviousServer) -> bool,
    ) -> io::Result<(Self, Vec<PreviousServer>)> {
        DirBuilder::new().recursive(true).mode(0o700).create(all)?;
        // A new folder is unlocked for a moment and looks abandoned. So only one server at a time creates or reads folders.
        let _searching = lock_all(all)?;
        let machine = platform::machine();
        let previous = previous_servers(all, &machine, is_taken)?;
        let folder = all.join(Uuid::new_v4().to_string());
        DirBuilder::new().mode(0o700).create(&folder)?;
        let lock = open_lock(&folder)?;
        if !try_lock(&lock)? {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        File::open(all)?.sync_all()?;
        let (boot, pid_namespace) = machine;
        Ok((Self { folder, boot, pid_namespace, _lock: lock }, previous))
    }

    /// Takes the previous servers of which this is true, as [`Self::open`] does.
    pub(super) fn take_previous(
        &self,
        is_taken: impl Fn(&PreviousServer) -> bool,
    ) -> io::Result<Vec<PreviousServer>> {
        let all = self.folder.parent().unwrap_or(&self.folder);
        let _searching = lock_all(all)?;
        previous_servers(all, &(self.boot.clone(), self.pid_namespace.clone()), is_taken)
    }

    /// Writes a record durably.
    pub(super) fn write(&self, child: &RecordedChild) -> io::Result<()> {
        let record = json!({
            "boot": self.boot,
            "numbers": self.pid_namespace,
            "child": child.leader.map(Identity::to_json),
            "secret": child.secret,
            "store": child.store,
            "group": child.group,
        });
        let path = self.path(child.instance);
        let new = path.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&new)?;
        file.write_all(record.to_string().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.folder)?.sync_all()
    }

    /// Removes a record. If that fails, the record does no harm: the next server finds no process with it.
    pub(super) fn remove(&self, instance: Uuid) {
        if let Err(error) = fs::remove_file(self.path(instance))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "the record of a child that has exited could not be removed");
        }
    }

    /// The socket of the holder of a child. It is in no server's folder: the next server uses it too.
    pub(super) fn socket(&self, instance: Uuid) -> HolderSocket {
        HolderSocket::new(self.folder.parent().unwrap_or(&self.folder), instance)
    }

    /// Removes the folder if it has no records. The caller must not write records afterwards.
    pub(super) fn retire(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let is_empty = !entries.map(|entry| entry.file_name()).any(|name| name != LOCK);
        if is_empty {
            forget(&self.folder);
        }
    }

    /// The file of the policy of a child. It is not a record, and the child cannot change it here.
    pub(super) fn policy_path(&self, instance: Uuid) -> PathBuf {
        self.path(instance).with_extension("policy")
    }

    /// The socket over which the stage of a child passes the listener of its broker.
    pub(super) fn broker_socket(&self, instance: Uuid) -> PathBuf {
        self.path(instance).with_extension("broker")
    }

    /// The file of the lease of a child, which is not a record either.
    pub(super) fn lease_path(&self, instance: Uuid) -> PathBuf {
        self.path(instance).with_extension("lease")
    }

    fn path(&self, instance: Uuid) -> PathBuf {
        self.folder.join(instance.to_string())
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        self.retire();
    }
}

// === impl PreviousServer ===

impl PreviousServer {
    /// Reads the records of a server. Returns `None` if the server runs, or its folder was removed.
    fn read(folder: PathBuf, machine: &(String, String)) -> io::Result<Option<Self>> {
        let lock = match open_lock(&folder) {
            Ok(lock) => lock,
            // The folder was removed just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !try_lock(&lock)? {
            return Ok(None);
        }
        let mut children = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            // Other files are not records, such as one that was only partly written.
            if let Some(instance) = name.to_str().and_then(|name| Uuid::parse_str(name).ok()) {
                children.extend(RecordedChild::read(instance, &entry.path(), machine));
            }
        }
        Ok(Some(Self { folder, children, _lock: lock }))
    }

    /// The socket of the holder of a child.
    pub(super) fn socket(&self, instance: Uuid) -> HolderSocket {
        HolderSocket::new(self.folder.parent().unwrap_or(&self.folder), instance)
    }

    /// The file of the policy of a child.
    pub(super) fn policy_path(&self, instance: Uuid) -> PathBuf {
        self.folder.join(instance.to_string()).with_extension("policy")
    }

    pub(super) fn forget(self) {
        forget(&self.folder);
    }
}

// === impl RecordedChild ===

impl RecordedChild {
    /// A child that has not started.
    pub(super) fn new(instance: Uuid, group: Option<PathBuf>) -> Self {
        Self { instance, leader: None, secret: None, store: None, group }
    }

    /// Reads a record. Returns `None` if the machine has restarted since. A record that cannot be read still gives its instance, from its name.
    fn read(instance: Uuid, path: &Path, (boot, pid_namespace): &(String, String)) -> Option<Self> {
        let is_short = || fs::metadata(path).is_ok_and(|it| it.len() <= MAX_RECORD_BYTES);
        let text = is_short().then(|| fs::read(path).ok()).flatten().unwrap_or_default();
        let record: Value = serde_json::from_slice(&text).unwrap_or_default();
        let text_of = |name: &str| record.get(name).and_then(Value::as_str);
        if text_of("boot").is_some_and(|recorded| recorded != boot) {
            return None;
        }
        // A process id means nothing in another namespace.
        let is_ours = text_of("numbers") == Some(pid_namespace);
        let leader = record.get("child").filter(|_| is_ours).and_then(Identity::from_json);
        let secret = text_of("secret").filter(|_| is_ours).map(str::to_owned);
        let store = text_of("store").filter(|_| is_ours).map(str::to_owned);
        let group = text_of("group").filter(|_| is_ours).map(PathBuf::from);
        Some(Self { instance, leader, secret, store, group })
    }
}

/// Takes the lock under which one server at a time creates or reads folders.
fn lock_all(all: &Path) -> io::Result<File> {
    let searching = open_lock(all)?;
    let until = Instant::now() + LOCK_TIMEOUT;
    while !try_lock(&searching)? {
        if Instant::now() >= until {
            let message = "another server is looking through them";
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        thread::sleep(LOCK_RETRY);
    }
    Ok(searching)
}

/// Reads the servers that do not run any more. Keeps the locks of those of which `is_taken` is true.
fn previous_servers(
    all: &Path,
    machine: &(String, String),
    is_taken: impl Fn(&PreviousServer) -> bool,
) -> io::Result<Vec<PreviousServer>> {
    let mut previous = Vec::new();
    for entry in fs::read_dir(all)? {
        let entry = entry?;
        let is_server = entry.file_type()?.is_dir()
            && entry.file_name().to_str().is_some_and(|name| Uuid::parse_str(name).is_ok());
        if !is_server {
            continue;
        }
        match PreviousServer::read(entry.path(), machine) {
            Ok(server) => previous.extend(server.filter(|server| is_taken(server))),
            // The next server tries again.
            Err(error) => {
                tracing::warn!(%error, "the records of a previous server cannot be read");
            }
        }
    }
    Ok(previous)
}

fn open_lock(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).open(folder.join(LOCK))
}

/// Takes a lock without waiting. Returns `false` if another process holds it.
fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn forget(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, "the records of a previous server could not be removed");
    }
}
