//! The files of leases: the name shows which lease is newer, and the content names the holder.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::child::{Identity, kill_stray, machine};

/// The folder of this server in a workspace.
const OURS: &str = ".trilogue";
const LEASES: &str = "leases";
/// Keeps git from showing the folder, in any workspace.
const IGNORE_FILE: &str = ".gitignore";
const IGNORE_ALL: &[u8] = b"*\n";
/// The suffix of a file that is being written.
const UNFINISHED: &str = "new";
/// The folders are private to this user.
const MODE: u32 = 0o700;
/// How often a write is tried while another server removes the folders, because they are empty.
const MAX_TRIES: usize = 10;
/// The most bytes of a lease that are read.
const MAX_RECORD_BYTES: u64 = 64 * 1024;

/// The leases of one thread in a workspace.
#[derive(Debug)]
pub(super) struct LeaseFolder {
    ours: PathBuf,
    leases: PathBuf,
    /// The thread's name in the names of its leases.
    thread: String,
}

/// A lease of any server, as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FoundLease {
    pub(super) path: PathBuf,
    pub(super) epoch: u64,
    pub(super) content: Vec<u8>,
}

/// The holder of a lease.
#[derive(Clone, Debug)]
pub(super) struct LeaseHolder {
    /// The name of the server.
    pub(super) node: String,
    pub(super) boot: String,
    pub(super) pid_namespace: String,
    pub(super) server: Option<Identity>,
    /// The agent's process: the value of its marker, and itself.
    pub(super) child: Option<(Uuid, Option<Identity>)>,
}

// === impl LeaseFolder ===

impl LeaseFolder {
    pub(super) fn new(workspace: &Path, thread: String) -> Self {
        let ours = workspace.join(OURS);
        Self { leases: ours.join(LEASES), ours, thread }
    }

    /// The file of a lease. `instance` is unique to the lease.
    pub(super) fn path(&self, epoch: u64, instance: Uuid) -> PathBuf {
        self.leases.join(format!("{}.{epoch}.{}", self.thread, instance.simple()))
    }

    /// Writes a lease as a whole: readers see the old content or the new one.
    pub(super) fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let unfinished = path.with_added_extension(UNFINISHED);
        let mut written = fs::write(&unfinished, content);
        for _ in 0..MAX_TRIES {
            // The agent may have removed the folder, or another server may have removed it while it was empty.
            if !matches!(&written, Err(error) if error.kind() == io::ErrorKind::NotFound) {
                break;
            }
            written = self.create().and_then(|()| fs::write(&unfinished, content));
        }
        written?;
        fs::rename(&unfinished, path)
    }

    fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(MODE).create(&self.leases)?;
        let ignore = self.ours.join(IGNORE_FILE);
        match OpenOptions::new().write(true).create_new(true).open(ignore) {
            Ok(mut file) => file.write_all(IGNORE_ALL),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The thread's leases, without this one.
    pub(super) fn others(&self, own: &Path) -> io::Result<Vec<FoundLease>> {
        let entries = match fs::read_dir(&self.leases) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let Some(epoch) = self.epoch_of(&path).filter(|_| path != own) else { continue };
            let is_short = fs::metadata(&path).is_ok_and(|it| it.len() <= MAX_RECORD_BYTES);
            match fs::read(&path) {
                Ok(content) if is_short => found.push(FoundLease { path, epoch, content }),
                // It was released just now.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(_) => found.push(FoundLease { path, epoch, content: Vec::new() }),
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// The epoch of a lease of the thread. `None` for any other file.
    fn epoch_of(&self, path: &Path) -> Option<u64> {
        let name = path.file_name()?.to_str()?;
        let (epoch, instance) =
            name.strip_prefix(&*self.thread)?.strip_prefix('.')?.split_once('.')?;
        Uuid::parse_str(instance).ok()?;
        epoch.parse().ok()
    }

    /// Removes a lease, and the folders if it was the last one.
    pub(super) fn remove(&self, path: &Path) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "a lease could not be removed");
                return;
            }
            _ => {}
        }
        // Its server may have ended while it wrote the lease.
        drop(fs::remove_file(path.with_added_extension(UNFINISHED)));
        // This fails while another lease exists.
        if fs::remove_dir(&self.leases).is_ok() {
            // A server that takes a lease meanwhile creates them again.
            drop(fs::remove_file(self.ours.join(IGNORE_FILE)));
            drop(fs::remove_dir(&self.ours));
        }
    }
}

// === impl LeaseHolder ===

impl LeaseHolder {
    pub(super) fn this_server(node: &str) -> Self {
        let (boot, pid_namespace) = machine();
        let server = Identity::of(std::process::id());
        Self { node: node.to_owned(), boot, pid_namespace, server, child: None }
    }

    /// The content of a lease. `count` grows with each renewal: other servers see that it changes.
    pub(super) fn to_content(&self, (thread, epoch): (&str, u64), count: u64) -> Vec<u8> {
        let (instance, leader) = self.child.unzip();
        let content = json!({
            "node": self.node,
            "thread": thread,
            "epoch": epoch,
            "boot": self.boot,
            "numbers": self.pid_namespace,
            "server": self.server.map(Identity::to_json),
            "instance": instance.map(|instance| instance.to_string()),
            "child": leader.flatten().map(Identity::to_json),
            "count": count,
        });
        content.to_string().into_bytes()
    }

    /// Reads a lease. Members that cannot be read count as unknown.
    pub(super) fn of_content(content: &[u8]) -> Self {
        let record: Value = serde_json::from_slice(content).unwrap_or_default();
        let text = |name: &str| record.get(name).and_then(Value::as_str).unwrap_or_default();
        let identity = |name: &str| record.get(name).and_then(Identity::from_json);
        let instance = Uuid::parse_str(text("instance")).ok();
        Self {
            node: text("node").to_owned(),
            boot: text("boot").to_owned(),
            pid_namespace: text("numbers").to_owned(),
            server: identity("server"),
            child: instance.map(|instance| (instance, identity("child"))),
        }
    }

    /// Whether its processes run on this machine, so that their ids have the same meaning here.
    fn is_here(&self) -> bool {
        let (boot, pid_namespace) = machine();
        !boot.is_empty() && self.boot == boot && self.pid_namespace == pid_namespace
    }

    /// Whether its server is known to be gone.
    pub(super) fn is_gone(&self) -> bool {
        self.is_here() && self.server.is_some_and(|server| !server.is_alive())
    }

    /// Kills its agent if the agent runs on this machine. Returns `false` if some of its processes may be left here.
    pub(super) async fn kill_agent(&self) -> bool {
        match self.child {
            Some((instance, leader)) if self.is_here() => kill_stray(instance, leader).await,
            _ => true,
        }
    }
}
