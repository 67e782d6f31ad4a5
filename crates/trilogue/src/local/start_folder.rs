//! The folder in which known agents and package runners start. It contains nothing that a program could read as a project's settings.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use trilogue_domain::{Code, Error};

use crate::local::token_file;

/// The name of the folder in the state folder.
const NAME: &str = "start";
/// The files of the folder. npm and uv look for a project's settings in the folders above, up to the first that has such a file.
const FILES: [(&str, &str); 2] = [("package.json", "{\"private\": true}\n"), ("uv.toml", "")];

/// Prepares the folder of the user who runs this process, and removes everything that programs have left there.
///
/// # Errors
/// When the state folder is missing, or the folder cannot be prepared.
pub fn prepare() -> io::Result<PathBuf> {
    let state = token_file::state_dir()?;
    token_file::make_private_dir(&state)?;
    let folder = state.join(NAME);
    prepare_at(&folder)?;
    Ok(folder)
}

/// Returns the error of a start whose folder cannot be prepared.
pub(crate) fn unusable(error: &io::Error) -> Error {
    Error::new(Code::InvalidRequest, format!("the folder in which agents start cannot be prepared: {error}"))
        .hint("make the folder `trilogue/start` in XDG_STATE_HOME, or else in ~/.local/state, writable for this user, or remove it")
}

fn prepare_at(folder: &Path) -> io::Result<()> {
    if folder.is_symlink() {
        fs::remove_file(folder)?;
    }
    token_file::make_private_dir(folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kept = FILES.iter().find(|(name, _)| entry.file_name() == *name);
        let is_folder = entry.file_type()?.is_dir();
        if kept.is_some_and(|(_, text)| is_plain_file(&entry.path(), text)) {
            continue;
        }
        let removed = if is_folder {
            fs::remove_dir_all(entry.path())
        } else {
            fs::remove_file(entry.path())
        };
        // Another program may prepare it at the same time.
        removed.or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
    }
    for (name, text) in FILES {
        let file = folder.join(name);
        if !is_plain_file(&file, text) {
            fs::write(file, text)?;
        }
    }
    Ok(())
}

/// Whether it is a regular file with this text, and not a link.
fn is_plain_file(file: &Path, text: &str) -> bool {
    let is_file = fs::symlink_metadata(file).is_ok_and(|found| {
        found.is_file() && usize::try_from(found.len()).is_ok_and(|bytes| bytes == text.len())
    });
    is_file && fs::read(file).is_ok_and(|found| found == text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_that_a_program_left_stays() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join(NAME);
        prepare_at(&folder).unwrap();
        fs::write(folder.join(".npmrc"), "registry=http://127.0.0.1:1/").unwrap();
        fs::create_dir_all(folder.join("node_modules/.bin")).unwrap();
        fs::write(folder.join("package.json"), "{\"private\":false}\n").unwrap();
        fs::remove_file(folder.join("uv.toml")).unwrap();
        symlink(state.path(), folder.join("uv.toml")).unwrap();
        prepare_at(&folder).unwrap();
        let mut names: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["package.json", "uv.toml"]);
        for (name, text) in FILES {
            assert!(is_plain_file(&folder.join(name), text), "{name}");
        }
        assert!(state.path().is_dir());
    }
}
