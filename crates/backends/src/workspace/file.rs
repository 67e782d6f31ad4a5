//! Text files.
//!
//! A link is followed where it stays within the workspace. A hard link is a name of its file like any other: it is read as such, and a write gives its name to a new file and leaves the other names the old one.

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
use trilogue_wire::agent_client::{
    ReadTextFileRequest, ReadTextFileResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use trilogue_wire::jsonrpc::ErrorObject;

use super::location::Location;
use super::{Limits, Place, refusal};

/// How often a write begins again because somebody made or took away the file meanwhile.
const MAX_ATTEMPTS: usize = 8;
/// What of a file's mode is kept: who may do what. What runs it as somebody else is not.
const KEPT_MODE: u32 = 0o777;
/// The mode of a file before it has its name, so that nobody reads it who may not.
const UNFINISHED_MODE: u32 = 0o600;
/// The mode of a new file, less what the process's mask takes away.
const NEW_MODE: u32 = 0o666;

/// The lines that are asked for.
struct Lines {
    /// How many to leave out.
    skip: u64,
    /// How many to take; all where it is `None`.
    take: Option<u64>,
}

/// Reads a file, or some lines of it.
pub(super) async fn read(
    place: Arc<Place>,
    limits: &Limits,
    request: ReadTextFileRequest,
) -> Result<Vec<u8>, ErrorObject> {
    let relative = place.relative(&request.path)?;
    let lines = Lines {
        skip: request.line.map_or(0, |line| u64::from(line).saturating_sub(1)),
        take: request.limit.map(u64::from),
    };
    let limits = limits.clone();
    let work = spawn_blocking(move || {
        read_text(&place, &relative, &lines, &limits)
            .map_err(|error| refusal::of_file(&request.path, &error))
    });
    let text = work.await.map_err(|_| refusal::lost())??;
    Ok(refusal::result(&ReadTextFileResponse::new(text)))
}

/// Writes a file, which is made where there is none.
pub(super) async fn write(
    place: Arc<Place>,
    limits: &Limits,
    request: WriteTextFileRequest,
) -> Result<Vec<u8>, ErrorObject> {
    let relative = place.relative(&request.path)?;
    let most = limits.max_text_bytes;
    if request.content.len() > most {
        return Err(refusal::refused(format!("the text has more than {most} bytes")));
    }
    let work = spawn_blocking(move || {
        write_text(&place, &relative, request.content.as_bytes())
            .map_err(|error| refusal::of_file(&request.path, &error))
    });
    work.await.map_err(|_| refusal::lost())??;
    Ok(refusal::result(&WriteTextFileResponse::new()))
}

fn read_text(place: &Place, path: &Path, lines: &Lines, limits: &Limits) -> io::Result<String> {
    // Opening a device or a pipe does something already, so that it is looked first.
    check_regular(&place.dir.metadata(path)?)?;
    let mut options = OpenOptions::new();
    // Where somebody has put a pipe there since, it is opened without waiting for its other end; then it is seen what it is.
    options.read(true).custom_flags(flags(OFlags::NONBLOCK | OFlags::NOCTTY));
    let file = place.dir.open_with(path, &options)?;
    check_regular(&file.metadata()?)?;
    let bytes = match lines {
        Lines { skip: 0, take: None } => whole(file, limits)?,
        lines => some(file, lines, limits)?,
    };
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8"))
}

fn whole(file: File, limits: &Limits) -> io::Result<Vec<u8>> {
    let most = limits.max_text_bytes;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most { Err(too_large(most)) } else { Ok(bytes) }
}

/// Reads lines with what ends them, so that one reading after the other gives the file.
fn some(file: File, lines: &Lines, limits: &Limits) -> io::Result<Vec<u8>> {
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
        let why = format!("the lines lie behind its first {scanned} bytes, which is too far");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Writes beside the file and then gives it the name, so that nobody ever sees half of it, and no link in its place is followed.
fn write_text(place: &Place, path: &Path, content: &[u8]) -> io::Result<()> {
    for _ in 0..MAX_ATTEMPTS {
        let target = place.target(path)?;
        let standing = match target.folder.symlink_metadata(&target.name) {
            Ok(standing) => Some(standing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        match &standing {
            // Somebody has put a link there since it was looked up.
            Some(standing) if standing.is_symlink() => continue,
            Some(standing) => check_writable(standing)?,
            None => {}
        }
        let made = Unfinished::make(&target, content, standing.as_ref())?;
        match made.finish(&target, standing.is_some()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            finished => return finished,
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "somebody else keeps changing it"))
}

/// A file that is written and has not its name yet. It is removed unless it gets it.
struct Unfinished<'a> {
    target: &'a Location,
    name: Option<OsString>,
}

// === impl Unfinished ===

impl<'a> Unfinished<'a> {
    fn make(target: &'a Location, content: &[u8], like: Option<&Metadata>) -> io::Result<Self> {
        let name: OsString = format!(".trilogue-{}", uuid::Uuid::new_v4().simple()).into();
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        options.mode(if like.is_some() { UNFINISHED_MODE } else { NEW_MODE });
        let mut file = target.folder.open_with(&name, &options)?;
        let made = Self { target, name: Some(name) };
        file.write_all(content)?;
        if let Some(like) = like {
            file.set_permissions(Permissions::from_mode(like.mode() & KEPT_MODE))?;
        }
        file.sync_data()?;
        Ok(made)
    }

    /// Gives it its name; where there was no file, only if there is still none.
    fn finish(mut self, target: &Location, replaces: bool) -> io::Result<()> {
        let Some(name) = &self.name else { return Ok(()) };
        let folder = &target.folder;
        if replaces {
            folder.rename(name, folder, &target.name)?;
        } else {
            match renameat_with(folder, name, folder, &target.name, RenameFlags::NOREPLACE) {
                // The file system cannot do that.
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

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // It lies there under a name of its own and disturbs nobody.
            let _ = self.target.folder.remove_file(name);
        }
    }
}

fn check_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(())
}

/// A name can be given to a new file whatever the old one's mode is; a file that may not be written is kept all the same.
fn check_writable(metadata: &Metadata) -> io::Result<()> {
    check_regular(metadata)?;
    if metadata.permissions().readonly() {
        return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "it may only be read"));
    }
    Ok(())
}

fn too_large(most: usize) -> io::Error {
    let why = format!("it has more than {most} bytes of text; ask for it with line and limit");
    io::Error::new(io::ErrorKind::FileTooLarge, why)
}

/// Flags as the library takes them.
fn flags(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).unwrap_or_default()
}
