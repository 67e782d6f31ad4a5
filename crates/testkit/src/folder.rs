//! A temporary folder that is kept when its test fails.

use std::path::Path;

use anyhow::Result;
use tempfile::TempDir;

/// A temporary folder. A drop removes it, except during a panic.
#[derive(Debug)]
pub struct Folder(TempDir);

// === impl Folder ===

impl Folder {
    pub fn new() -> Result<Self> {
        Ok(Self(TempDir::new()?))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Folder {
    #[expect(clippy::print_stderr, reason = "who reads the failure wants to look into the folder")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.disable_cleanup(true);
            eprintln!("kept for inspection: {}", self.0.path().display());
        }
    }
}
