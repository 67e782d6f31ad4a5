//! What is kept on disk of each child, so that another life of the server finds it.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use serde_json::{Value, json};
use uuid::Uuid;

use super::tree::{self, Identity};

/// The longest record that is read, in bytes.
const MAX_RECORD_BYTES: u64 = 64 * 1024;

/// The folder of the records.
#[derive(Debug)]
pub(super) struct Records {
    folder: PathBuf,
    boot: String,
    server: Option<Identity>,
}

/// A child of a server that is not there any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Left {
    pub(super) instance: Uuid,
    /// The child itself, where that was written down.
    pub(super) head: Option<Identity>,
}

// === impl Records ===

impl Records {
    /// Opens the folder, and lists what others left in it.
    pub(super) fn open(folder: PathBuf) -> io::Result<(Self, Vec<Left>)> {
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let server = tree::identity(std::process::id());
        let records = Self { folder, boot: tree::boot_id(), server };
        let mut left = Vec::new();
        for entry in fs::read_dir(&records.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            match Uuid::parse_str(name) {
                Ok(instance) => left.extend(records.look_at(instance)),
                // What was being written when the server was killed.
                Err(_) if name.ends_with(".new") => fs::remove_file(entry.path())?,
                Err(_) => {}
            }
        }
        Ok((records, left))
    }

    /// What a record says: `None` where its server lives, or the machine has been started again since.
    fn look_at(&self, instance: Uuid) -> Option<Left> {
        let record = self.read(instance).unwrap_or_default();
        let identity = |of: &Value| {
            let pid = of.get("pid")?.as_u64().and_then(|pid| u32::try_from(pid).ok())?;
            Some(Identity { pid, start: of.get("start")?.as_u64()? })
        };
        let boot = record.get("boot").and_then(Value::as_str);
        if boot.is_some_and(|boot| boot != self.boot) {
            self.remove(instance);
            return None;
        }
        let server = record.get("server").and_then(identity);
        if server.is_some_and(|server| server.is_alive()) && server != self.server {
            return None;
        }
        Some(Left { instance, head: record.get("child").and_then(identity) })
    }

    fn read(&self, instance: Uuid) -> Option<Value> {
        let path = self.path(instance);
        if fs::metadata(&path).ok()?.len() > MAX_RECORD_BYTES {
            return None;
        }
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Writes a record so that it is there whatever happens next.
    pub(super) fn write(&self, instance: Uuid, pid: Option<u32>) -> io::Result<()> {
        let of = |identity: Option<Identity>| {
            identity.map(|one| json!({ "pid": one.pid, "start": one.start }))
        };
        let record = json!({
            "instance": instance.to_string(),
            "boot": self.boot,
            "server": of(self.server),
            "child": of(pid.and_then(tree::identity)),
        });
        let path = self.path(instance);
        let new = path.with_extension("new");
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(record.to_string().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.folder)?.sync_all()
    }

    /// Removes a record. One that stays is looked at again, and found to name nothing.
    pub(super) fn remove(&self, instance: Uuid) {
        if let Err(error) = fs::remove_file(self.path(instance))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "the record of a child that has ended could not be removed");
        }
    }

    fn path(&self, instance: Uuid) -> PathBuf {
        self.folder.join(instance.to_string())
    }
}
