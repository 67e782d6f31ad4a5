//! The files around the database: its lock, its reserve, their modes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use trilogue_domain::error::{Code, Error, Result};

/// Only the user that runs the server reads and writes the store.
const MODE: u32 = 0o600;
/// The size of a probe for free space, in bytes.
const PROBE_BYTES: usize = 64 * 1024;

/// The size of a part when a whole file is read, in bytes.
const SCAN_BYTES: usize = 64 * 1024;

/// The most links in a row that lead to a store, as Linux has it.
const MAX_LINKS: u32 = 40;

/// The lock of a store: held by one process until it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct FileLock {
    /// The store's own path: see [`real_path`].
    path: PathBuf,
    _file: File,
}

/// A file that reserves disk space. The store deletes it when the disk is full.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    bytes: u64,
}

/// `PATH` with something behind its last character.
pub(super) fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The absolute path of a file without links, also where a link leads to a file that does not exist yet.
/// SQLite follows links too. Every name of a store must give one lock, one log and one record of commits.
pub(super) fn real_path(path: &Path) -> Result<PathBuf> {
    let failed = |error: io::Error| cannot("open", path, &error);
    // SQLite never reads an absolute path as one of its URLs.
    let mut real = std::path::absolute(path).map_err(failed)?;
    for _ in 0..MAX_LINKS {
        match fs::canonicalize(&real) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found.map_err(failed),
        }
        let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else { break };
        real = match fs::read_link(&real) {
            Ok(target) => folder.join(target),
            Err(_) => return Ok(fs::canonicalize(folder).map_err(failed)?.join(name)),
        };
    }
    Err(failed(rustix::io::Errno::LOOP.into()))
}

/// Refuses a file with hard links: a process that opens it by another name has another lock and another write-ahead log, and both change the file.
pub(super) fn check_single_name(path: &Path) -> Result<()> {
    let names = fs::metadata(path).map_err(|error| cannot("read", path, &error))?.nlink();
    if names <= 1 {
        return Ok(());
    }
    let path = path.display();
    let message =
        format!("the store '{path}' has {names} names (hard links), and a store may have one");
    Err(Error::new(Code::InvalidRequest, message).hint(format!(
        "list its names with `find FOLDER -samefile '{path}'`; keep the name beside which SQLite's '-wal' file is, and remove the others while no server runs"
    )))
}

/// Creates the file if it does not exist; only its owner may read it.
pub(super) fn create(path: &Path) -> Result<()> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(MODE)
        .open(path)
        .map_err(|error| cannot("open", path, &error))?;
    restrict(&file).map_err(|error| cannot("restrict", path, &error))
}

pub(super) fn create_new(path: &Path) -> Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(MODE).open(path).map_err(
        |error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists_already(path),
            _ => cannot("create", path, &error),
        },
    )
}

/// Fails when there is a file that cannot be read, such as a folder.
pub(super) fn check_readable(path: &Path) -> io::Result<()> {
    match File::open(path).and_then(|mut file| file.read(&mut [0])) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The error where the disk does not give back a part of a store's file: what the engine reports then looks like damage.
pub(super) fn find_unreadable(store: &Path) -> Option<Error> {
    [store.to_owned(), sibling_path(store, "-wal")].iter().find_map(|path| {
        let mut file = File::open(path).ok()?;
        let (mut buffer, mut offset) = (vec![0; SCAN_BYTES], 0);
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return None,
                Ok(length) => offset += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let place = format!("{} bytes from byte {offset} of", buffer.len());
                    return Some(cannot(&format!("read {place}"), path, &error).hint(
                        "check the disk; if it stays so, bring the store to another disk from a backup",
                    ));
                }
            }
        }
    })
}

pub(super) fn exists_already(path: &Path) -> Error {
    let message = format!("the file '{}' exists already", path.display());
    Error::new(Code::AlreadyExists, message).hint("name a file that does not exist yet")
}

/// Refuses to begin an empty store where a store was: its file is gone or empty, and what SQLite and the writer keep beside it is not. An
/// empty store would replace the log of acknowledged commits, and with it what can be saved. `record` is behind the name of their record.
pub(super) fn check_not_lost(path: &Path, record: &str) -> Result<()> {
    let bytes = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    // SQLite takes a file of one byte for an empty one.
    if bytes(path) > 1 {
        return Ok(());
    }
    let is_left = |file: &PathBuf| bytes(file) > 0;
    let left: Vec<_> = ["-wal", record]
        .map(|suffix| sibling_path(path, suffix))
        .into_iter()
        .filter(is_left)
        .map(|file| format!("'{}'", file.display()))
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    let (what, path) = (if path.exists() { "is empty" } else { "is gone" }, path.display());
    let message = format!(
        "the store's file '{path}' {what}, and there is more of the store: {}",
        left.join(", ")
    );
    Err(Error::new(Code::StoreCorrupt, message).hint(format!(
        "put the file back, or restore a backup with `trilogue restore BACKUP --to {path} --force`; to begin an empty store, move {} to another folder",
        left.join(" and ")
    )))
}

/// Makes the names in the directory of this file durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

pub(super) fn cannot(what: &str, path: &Path, error: &io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::DiskFull,
        io::ErrorKind::NotFound | io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory => {
            Code::InvalidRequest
        }
        _ => Code::StoreReadOnly,
    };
    Error::new(code, format!("cannot {what} the file '{}': {error}", path.display())).hint(
        "check that the folder exists, that this user may write there, and that the disk has room",
    )
}

// === impl FileLock ===

impl FileLock {
    /// Takes the lock of the store that `path` leads to, in a file beside the store; fails with `store_locked`, naming the process that holds it.
    pub(super) fn take(path: &Path) -> Result<Self> {
        let path = real_path(path)?;
        let name = sibling_path(&path, ".lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .open(&name)
            .map_err(|error| cannot("open", &name, &error))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(locked_error(&path, &mut file)),
            Err(errno) => return Err(cannot("lock", &name, &errno.into())),
        }
        write_pid(&mut file).map_err(|error| cannot("write", &name, &error))?;
        Ok(Self { path, _file: file })
    }

    /// The store's path without links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    restrict(file)?;
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    // A full disk must not keep a store from being opened: the process id is only for people.
    match writeln!(file, "{}", std::process::id()) {
        Err(error) if error.kind() != io::ErrorKind::StorageFull => Err(error),
        _ => Ok(()),
    }
}

fn locked_error(path: &Path, file: &mut File) -> Error {
    let mut text = String::new();
    let read = Read::take(&mut *file, 32).read_to_string(&mut text);
    let by = match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!("the process {pid}"),
        _ => "another process".to_owned(),
    };
    Error::new(Code::StoreLocked, format!("the store '{}' is held by {by}", path.display())).hint(
        "stop that process first, or use another store; commands on a running server need no store",
    )
}

fn restrict(file: &File) -> io::Result<()> {
    let mode = file.metadata()?.permissions().mode() & 0o777;
    if mode == MODE { Ok(()) } else { file.set_permissions(fs::Permissions::from_mode(MODE)) }
}

// === impl Reserve ===

impl Reserve {
    pub(super) fn new(store: &Path, bytes: u64) -> Self {
        Self { path: sibling_path(store, ".reserve"), bytes }
    }

    /// Makes sure that the space is really allocated. Returns `false` if the disk does not have it.
    pub(super) fn fill(&self) -> Result<bool> {
        if self.bytes == 0 {
            return Ok(true);
        }
        let Err(error) = self.try_fill() else { return Ok(true) };
        // A partial reserve would only take the remaining space. The first error is the one to report.
        let _ = self.release();
        let error = cannot("write", &self.path, &error);
        if error.code() == Code::DiskFull { Ok(false) } else { Err(error) }
    }

    fn try_fill(&self) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .open(&self.path)?;
        let found = file.metadata()?;
        if found.len() == self.bytes && found.blocks().saturating_mul(512) >= self.bytes {
            return Ok(());
        }
        restrict(&file)?;
        match fallocate(&file, FallocateFlags::empty(), 0, self.bytes) {
            // Writing a little shows whether the space is usable.
            Ok(()) => write_zeros(&mut file, self.bytes.min(PROBE_BYTES as u64))?,
            Err(rustix::io::Errno::NOTSUP) => write_zeros(&mut file, self.bytes)?,
            Err(errno) => return Err(errno.into()),
        }
        file.set_len(self.bytes)?;
        file.sync_all()
    }

    pub(super) fn release(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn write_zeros(file: &mut File, bytes: u64) -> io::Result<()> {
    let zeros = [0_u8; PROBE_BYTES];
    file.seek(SeekFrom::Start(0))?;
    let mut left = bytes;
    while left > 0 {
        let length = usize::try_from(left).unwrap_or(PROBE_BYTES).min(PROBE_BYTES);
        file.write_all(zeros.get(..length).unwrap_or_default())?;
        left -= length as u64;
    }
    Ok(())
}
