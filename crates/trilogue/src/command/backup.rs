//! `trilogue backup`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use futures_util::StreamExt as _;
use trilogue_sdk::client::ResponseBody;

use crate::command::globals::Globals;
use crate::conversation::remote;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::{print, safe};

/// Write a backup of the running server's store.
#[derive(Args, Debug)]
pub(crate) struct Backup {
    /// The file to write. It must not exist.
    file: PathBuf,
}

// === impl Backup ===

impl Backup {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        if self.file.exists() {
            return Err(CliError::new(
                ExitStatus::Conflict,
                format!("{} exists and was not replaced", self.file.display()),
            )
            .hint("choose another name"));
        }
        let body = remote::open(globals)?.backup().await?;
        let mut draft = self.file.clone().into_os_string();
        // A backup that was killed leaves its draft, which must not be in the way of the next.
        draft.push(format!(".{}.partial", std::process::id()));
        let draft = PathBuf::from(draft);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)
            .map_err(|error| unwritable(&draft, &error))?;
        let written = tokio::select! {
            written = write(body, file, &draft) => written,
            _ = tokio::signal::ctrl_c() => Err(CliError::silent(ExitStatus::Interrupted)),
        };
        let moved = written.and_then(|length| {
            fs::rename(&draft, &self.file)
                .and_then(|()| sync_folder(&self.file))
                .map_err(|error| unwritable(&self.file, &error))?;
            Ok(length)
        });
        let length = moved.inspect_err(|_| {
            // A partial file must not be taken for a backup. It was created above, so no other process
            // owns it.
            if let Err(error) = fs::remove_file(&draft)
                && error.kind() != io::ErrorKind::NotFound
            {
                let draft = safe::visible(&draft.display().to_string());
                print::note(&format!("an incomplete backup remains, remove it: {draft}: {error}"));
            }
        })?;
        print::note(&format!("backup: {} ({length} bytes)", self.file.display()));
        print::hint(&format!("check it with `trilogue restore {} --verify`", self.file.display()));
        Ok(())
    }
}

async fn write(mut body: ResponseBody, mut file: File, path: &Path) -> Result<u64> {
    let failed = |error| unwritable(path, &error);
    let mut length = 0;
    while let Some(piece) = body.next().await {
        let piece =
            piece.map_err(|error| CliError::failure(format!("the backup failed: {error}")))?;
        file.write_all(&piece).map_err(failed)?;
        length += piece.len() as u64;
    }
    file.sync_all().map_err(failed)?;
    Ok(length)
}

/// Makes the name of a file durable.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn unwritable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::failure(format!("cannot write {}: {error}", path.display()))
}
