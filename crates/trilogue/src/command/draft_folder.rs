//! The folder of a store's draft, which is removed when its command ends. A killed command leaves it.

use std::fs;
use std::path::PathBuf;

use crate::terminal::{print, safe};

/// A folder with one store that no server uses.
pub(super) struct DraftFolder(PathBuf);

// === impl DraftFolder ===

impl DraftFolder {
    /// Takes a folder that only this user can read. The folder is removed with this value.
    pub(super) fn of(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The draft's file.
    pub(super) fn store(&self) -> PathBuf {
        self.0.join("store.db")
    }
}

impl Drop for DraftFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            let folder = safe::visible(&self.0.display().to_string());
            print::note(&format!("remove the draft of the store, {folder}: {error}"));
        }
    }
}
