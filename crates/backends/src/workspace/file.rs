//! Text files. Symbolic links are followed within the workspace. A write replaces the file under one name; other hard links keep the old file.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use cap_std::fs::{
    File, Metadata, MetadataExt, OpenOptions, OpenOptionsExt, Permissions, PermissionsExt,
};
use rustix::fs::{OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use tokio::task::spawn_blocking;
use trilogue_sandbox::is_git_repository;
use trilogue_wire::agent_client::{
    ReadTextFileRequest, ReadTextFileResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use trilogue_wire::jsonrpc::ErrorObject;

use super::location::Location;
use super::private_paths::real_target;
use super::{Limits, Root, refusal};

/// How often a write is retried because the file was created or removed meanwhile.
const MAX_ATTEMPTS: usize = 8;
/// The bits of a file's mode that a write keeps: permissions, but not setuid and setgid.
const KEPT_MODE: u32 = 0o777;
const TEMPORARY_MODE: u32 = 0o600;
/// The mode of a new file, before the process's mask applies.
const NEW_MODE: u32 = 0o666;

struct LineRange {
    skip: u64,
    /// `None` takes all.
    take: Option<u64>,
}

pub(super) async fn read(
    root: Arc<Root>,
    limits: &Limits,
    request: ReadTextFileRequest,
) -> Result<Vec<u8>, ErrorObject> {
    let relative = root.relative(&request.path)?;
    let lines = LineRange {
        skip: request.line.map_or(0, |line| u64::from(line).saturating_sub(1)),
        take: request.limit.map(u64::from),
    };
    let limits = limits.clone();
    let work = spawn_blocking(move || {
        root.check_private(&relative)
            .and_then(|()| read_text(&root, &relative, &lines, &limits))
            .map_err(|error| refusal::of_file(&request.path, &error))
    });
    let text = work.await.map_err(|_| refusal::shutting_down())??;
    Ok(refusal::result(&ReadTextFileResponse::new(text)))
}

/// Writes a file, and creates it if it does not exist.
pub(super) async fn write(
    root: Arc<Root>,
    limits: &Limits,
    request: WriteTextFileRequest,
    is_confined: bool,
) -> Result<Vec<u8>, ErrorObject> {
    let relative = root.relative(&request.path)?;
    let most = limits.max_text_bytes;
    if request.content.len() > most {
        return Err(refusal::invalid_params(format!("the text has more than {most} bytes")));
    }
    let work = spawn_blocking(move || {
        root.check_private(&relative)
            .and_then(|()| if is_confined { check_outside_git(&root, &relative) } else { Ok(()) })
            .and_then(|()| write_text(&root, &relative, request.content.as_bytes()))
            .map_err(|error| refusal::of_file(&request.path, &error))
    });
    work.await.map_err(|_| refusal::shutting_down())??;
    Ok(refusal::result(&WriteTextFileResponse::new()))
}

/// Refuses a file of a repository of git: such files decide which programs git runs, and the server is outside of the agent's sandbox.
fn check_outside_git(root: &Root, path: &Path) -> io::Result<()> {
    let target = real_target(&root.real.join(path))?;
    let mut folders = target.ancestors().skip(1).take_while(|it| it.starts_with(&root.real));
    if target.iter().any(|part| part == ".git") || folders.any(is_git_repository) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the server writes nothing into a repository of git for an agent in a sandbox",
        ));
    }
    Ok(())
}

fn read_text(root: &Root, path: &Path, lines: &LineRange, limits: &Limits) -> io::Result<String> {
    // Checked first, because opening a device or a pipe has effects.
    check_regular(&root.dir.metadata(path)?)?;
    let mut options = OpenOptions::new();
    // A pipe may have replaced the file since. It is opened without waiting for a writer, and then refused.
    options.read(true).custom_flags(flags(OFlags::NONBLOCK | OFlags::NOCTTY));
    let file = root.dir.open_with(path, &options)?;
    check_regular(&file.metadata()?)?;
    let bytes = match lines {
        LineRange { skip: 0, take: None } => whole(file, limits)?,
        lines => some(file, lines, limits)?,
    };
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

fn whole(file: File, limits: &Limits) -> io::Result<Vec<u8>> {
    let most = limits.max_text_bytes;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most { Err(too_large(most)) } else { Ok(bytes) }
}

/// Reads lines with their line ends, so that consecutive reads give the whole file.
fn some(file: File, lines: &LineRange, limits: &Limits) -> io::Result<Vec<u8>> {
    let most = limits.max_text_bytes;
    let mut file = BufReader::new(file.take(limits.max_scanned_bytes));
    for _ in 0..lines.skip {
        if file.skip_until(b'\n')? == 0 {
            break;
        }
    }
    let mut bytes = Vec::new();
    let mut taken = 0;
    while lines.take.is_none_or(|take| taken < take) {
        let left = (most + 1).saturating_sub(bytes.len()) as u64;
        if file.by_ref().take(left).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        if bytes.len() > most {
            return Err(too_large(most));
        }
        taken += 1;
    }
    if file.get_ref().limit() == 0 && file.buffer().is_empty() {
        let scanned = limits.max_scanned_bytes;
        let why = format!("the lines are not within its first {scanned} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Writes a temporary file and renames it, so that readers see no partial file and no link is followed.
fn write_text(root: &Root, path: &Path, content: &[u8]) -> io::Result<()> {
    for _ in 0..MAX_ATTEMPTS {
        let target = root.target(path)?;
        let existing = match target.folder.symlink_metadata(&target.name) {
            Ok(existing) => Some(existing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        match &existing {
            // A link was created there since the look-up.
            Some(existing) if existing.is_symlink() => continue,
            Some(existing) => check_writable(existing)?,
            None => {}
        }
        let made = TemporaryFile::make(&target, content, existing.as_ref())?;
        match made.rename(&target, existing.is_some()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            finished => return finished,
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "another process keeps changing it"))
}

/// A file with a temporary name. It is removed unless it is renamed.
struct TemporaryFile<'a> {
    target: &'a Location,
    name: Option<OsString>,
}

// === impl TemporaryFile ===

impl<'a> TemporaryFile<'a> {
    fn make(target: &'a Location, content: &[u8], like: Option<&Metadata>) -> io::Result<Self> {
        let name: OsString = format!(".trilogue-{}", uuid::Uuid::new_v4().simple()).into();
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        options.mode(if like.is_some() { TEMPORARY_MODE } else { NEW_MODE });
        let mut file = target.folder.open_with(&name, &options)?;
        let made = Self { target, name: Some(name) };
        file.write_all(content)?;
        if let Some(like) = like {
            file.set_permissions(Permissions::from_mode(like.mode() & KEPT_MODE))?;
        }
        file.sync_data()?;
        Ok(made)
    }

    /// Renames it. Without `replaces` it fails if the file exists.
    fn rename(mut self, target: &Location, replaces: bool) -> io::Result<()> {
        let Some(name) = &self.name else { return Ok(()) };
        let folder = &target.folder;
        if replaces {
            folder.rename(name, folder, &target.name)?;
        } else {
            match renameat_with(folder, name, folder, &target.name, RenameFlags::NOREPLACE) {
                // The file system does not support that.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                    folder.rename(name, folder, &target.name)?;
                }
                done => done?,
            }
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // The file stays under its temporary name, which does no harm.
            let _ = self.target.folder.remove_file(name);
        }
    }
}

fn check_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(())
}

/// A rename would replace a read-only file too.
fn check_writable(metadata: &Metadata) -> io::Result<()> {
    check_regular(metadata)?;
    if metadata.permissions().readonly() {
        return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "it is read-only"));
    }
    Ok(())
}

fn too_large(most: usize) -> io::Error {
    let why =
        format!("it has more than {most} bytes of text; read it in parts with `line` and `limit`");
    io::Error::new(io::ErrorKind::FileTooLarge, why)
}

/// Flags as `cap_std` takes them.
fn flags(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).unwrap_or_default()
}
