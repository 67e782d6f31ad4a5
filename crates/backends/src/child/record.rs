//! What is kept on disk of each child, so that another life of the server finds it.
//!
//! Each life of a server has a folder of its own, in which it holds a lock as long as it lives: `LIFE/lock`, and `LIFE/INSTANCE` for each
//! child. The system gives a lock back when whoever holds it ends, however that is.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use uuid::Uuid;

use super::tree::{self, Identity};

/// The longest record that is read, in bytes.
const MAX_RECORD_BYTES: u64 = 64 * 1024;
/// What a life holds as long as it lives, and what is held while lives are looked through.
const LOCK: &str = "lock";
/// How long another server may look through the lives.
const LOOKED_WITHIN: Duration = Duration::from_secs(10);
/// How long to wait before asking for a lock again.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// The records of this life.
#[derive(Debug)]
pub(super) struct Records {
    folder: PathBuf,
    boot: String,
    numbers: String,
    /// Held as long as this lives.
    _lock: File,
}

/// A life that is over.
#[derive(Debug)]
pub(super) struct Dead {
    folder: PathBuf,
    /// The children that were not known to have ended.
    pub(super) left: Vec<Left>,
    /// So that nobody else looks at it at the same time.
    _lock: File,
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
    /// Begins a life, and lists what others left that are over.
    pub(super) fn open(all: &Path) -> io::Result<(Self, Vec<Dead>)> {
        DirBuilder::new().recursive(true).mode(0o700).create(all)?;
        // Nobody begins a life, which is not locked for a moment, while somebody looks which ones are over.
        let looking = open_lock(all)?;
        let until = Instant::now() + LOOKED_WITHIN;
        while !try_lock(&looking)? {
            if Instant::now() >= until {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "another server looks through them",
                ));
            }
            thread::sleep(ASK_AGAIN);
        }
        let machine = tree::machine();
        let mut dead = Vec::new();
        for entry in fs::read_dir(all)? {
            let entry = entry?;
            let is_life = entry.file_type()?.is_dir()
                && entry.file_name().to_str().is_some_and(|name| Uuid::parse_str(name).is_ok());
            if !is_life {
                continue;
            }
            match Dead::of(entry.path(), &machine) {
                Ok(life) => dead.extend(life),
                // It is looked at again by the next life.
                Err(error) => tracing::warn!(%error, "the records of another life cannot be read"),
            }
        }
        let folder = all.join(Uuid::new_v4().to_string());
        DirBuilder::new().mode(0o700).create(&folder)?;
        let lock = open_lock(&folder)?;
        if !try_lock(&lock)? {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        File::open(all)?.sync_all()?;
        let (boot, numbers) = machine;
        Ok((Self { folder, boot, numbers, _lock: lock }, dead))
    }

    /// Writes a record so that it is there whatever happens next.
    pub(super) fn write(&self, instance: Uuid, head: Option<Identity>) -> io::Result<()> {
        let record = json!({
            "boot": self.boot,
            "numbers": self.numbers,
            "child": head.map(|head| json!({ "pid": head.pid, "start": head.start })),
        });
        let path = self.path(instance);
        let new = path.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&new)?;
        file.write_all(record.to_string().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.folder)?.sync_all()
    }

    /// Removes a record. One that stays is looked at by the next life, and found to name nothing.
    pub(super) fn remove(&self, instance: Uuid) {
        if let Err(error) = fs::remove_file(self.path(instance))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "the record of a child that has ended could not be removed");
        }
    }

    /// Ends this life where nothing is left of it: nothing may be written behind that.
    pub(super) fn retire(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let is_empty = !entries.map(|entry| entry.file_name()).any(|name| name != LOCK);
        if is_empty {
            forget(&self.folder);
        }
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

// === impl Dead ===

impl Dead {
    /// A life, if it is over.
    fn of(folder: PathBuf, machine: &(String, String)) -> io::Result<Option<Self>> {
        let lock = match open_lock(&folder) {
            Ok(lock) => lock,
            // Somebody has just forgotten it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !try_lock(&lock)? {
            return Ok(None);
        }
        let mut left = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            // All else is no record, such as one that was being written.
            if let Some(instance) = name.to_str().and_then(|name| Uuid::parse_str(name).ok()) {
                left.extend(Left::read(instance, &entry.path(), machine));
            }
        }
        Ok(Some(Self { folder, left, _lock: lock }))
    }

    /// Removes everything of it.
    pub(super) fn forget(self) {
        forget(&self.folder);
    }
}

// === impl Left ===

impl Left {
    /// What a record says: `None` where the machine has been started again since. One that cannot be read names its child all the same.
    fn read(instance: Uuid, path: &Path, (boot, numbers): &(String, String)) -> Option<Self> {
        let is_short = || fs::metadata(path).is_ok_and(|it| it.len() <= MAX_RECORD_BYTES);
        let text = is_short().then(|| fs::read(path).ok()).flatten().unwrap_or_default();
        let record: Value = serde_json::from_slice(&text).unwrap_or_default();
        let says = |name: &str| record.get(name).and_then(Value::as_str);
        if says("boot").is_some_and(|said| said != boot) {
            return None;
        }
        let identity = |of: &Value| {
            let pid = of.get("pid")?.as_u64().and_then(|pid| u32::try_from(pid).ok())?;
            Some(Identity { pid, start: of.get("start")?.as_u64()? })
        };
        // A number means nothing where numbers mean others.
        let is_ours = says("numbers") == Some(numbers);
        let head = record.get("child").filter(|_| is_ours).and_then(identity);
        Some(Self { instance, head })
    }
}

fn open_lock(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).open(folder.join(LOCK))
}

/// Takes a lock unless somebody has it.
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
        tracing::warn!(%error, "the records of a life that is over could not be removed");
    }
}
