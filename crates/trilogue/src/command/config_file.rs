//! Writes configuration files.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use trilogue::local::start;

use crate::terminal::exit::{CliError, Result};
use crate::terminal::safe;

/// Returns the named file, otherwise the one that this user's server reads.
pub(crate) fn place(named: Option<&PathBuf>, option: &str) -> Result<PathBuf> {
    named.cloned().or_else(start::config_path).ok_or_else(|| {
        CliError::usage("cannot find the configuration folder")
            .hint(format!("set XDG_CONFIG_HOME, or name the file with {option}"))
    })
}

/// Writes the whole file or nothing. A file that is there keeps its permissions; a new one is this user's only.
pub(crate) fn write(file: &Path, text: &str) -> std::io::Result<()> {
    // A link stays one.
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let draft = file.with_extension("toml.new");
    let mut open = fs::File::options();
    let mut out = open.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    if let Ok(found) = fs::metadata(&file) {
        out.set_permissions(fs::Permissions::from_mode(found.permissions().mode()))?;
    }
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    fs::rename(&draft, &file)
}

pub(crate) fn unusable(file: &Path, error: &std::io::Error) -> CliError {
    let file = safe::visible(&file.display().to_string());
    CliError::failure(format!("cannot use {file}: {error}"))
}
