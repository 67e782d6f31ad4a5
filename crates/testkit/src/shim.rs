//! Disk faults on demand: our library, which is loaded before the C library into the server under test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::disk_journal::{DiskImage, DiskJournal};

const SOURCE: &str = include_str!("shim.c");

#[derive(Debug)]
pub struct Shim {
    library: PathBuf,
    watched: PathBuf,
    flags: PathBuf,
}

// === impl Shim ===

impl Shim {
    pub fn build(work: &Path, watched: &Path) -> Result<Self> {
        let source = work.join("shim.c");
        let library = work.join("shim.so");
        let flags = work.join("flags");
        fs::create_dir_all(&flags)?;
        fs::write(&source, SOURCE)?;
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .output()
            .context("cc could not be started; the fault tests need a C compiler")?;
        ensure!(output.status.success(), "cc failed: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Self { library, watched: watched.canonicalize()?, flags })
    }

    pub fn environment(&self) -> Vec<(String, PathBuf)> {
        vec![
            ("LD_PRELOAD".to_owned(), self.library.clone()),
            ("TRILOGUE_SHIM_DIR".to_owned(), self.watched.clone()),
            ("TRILOGUE_SHIM_FLAGS".to_owned(), self.flags.clone()),
        ]
    }

    /// Limits the free space to `spare` more bytes.
    pub fn fill_disk(&self, spare: u64) -> Result<()> {
        let mut used = spare;
        for entry in fs::read_dir(&self.watched)? {
            let info = entry?.metadata()?;
            used += if info.is_file() { info.len() } else { 0 };
        }
        // Renamed into place, so that the server never reads half a number.
        let draft = self.flags.join("disk-full.draft");
        fs::write(&draft, used.to_string())?;
        Ok(fs::rename(draft, self.flags.join("disk-full"))?)
    }

    pub fn free_disk(&self) -> Result<()> {
        Ok(fs::remove_file(self.flags.join("disk-full"))?)
    }

    /// Makes fsync fail.
    pub fn break_fsync(&self) -> Result<()> {
        Ok(fs::write(self.flags.join("fsync-fails"), "")?)
    }

    pub fn mend_fsync(&self) -> Result<()> {
        Ok(fs::remove_file(self.flags.join("fsync-fails"))?)
    }

    /// Makes reads of this byte of a database fail.
    pub fn break_read(&self, offset: u64) -> Result<()> {
        let draft = self.flags.join("read-fails.draft");
        fs::write(&draft, offset.to_string())?;
        Ok(fs::rename(draft, self.flags.join("read-fails"))?)
    }

    pub fn mend_read(&self) -> Result<()> {
        Ok(fs::remove_file(self.flags.join("read-fails"))?)
    }

    /// Makes the next process write a journal of the folder's changes, starting with the folder's current state; `SIGKILL` ends the process at its change number `stop_at`.
    pub fn begin_journal(&self, stop_at: Option<u64>) -> Result<DiskImage> {
        let flag = self.flags.join("stop-at");
        match stop_at {
            Some(change) => fs::write(flag, change.to_string())?,
            None if flag.exists() => fs::remove_file(flag)?,
            None => {}
        }
        fs::write(self.journal_path(), "")?;
        DiskImage::read(&self.watched)
    }

    /// The length of the journal: anything acknowledged now depends only on changes before this byte.
    pub fn journal_bytes(&self) -> u64 {
        fs::metadata(self.journal_path()).map_or(0, |info| info.len())
    }

    /// The changes since the journal began on this folder. Call it once the process has ended.
    pub fn journal(&self, start: DiskImage) -> Result<DiskJournal> {
        DiskJournal::read(start, &fs::read(self.journal_path())?)
    }

    fn journal_path(&self) -> PathBuf {
        self.flags.join("journal")
    }

    pub fn failed_fsyncs(&self) -> u64 {
        fs::metadata(self.flags.join("fsynced")).map_or(0, |info| info.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `dd` under the shim, once with and once without each fault.
    #[test]
    fn faults_come_and_go_with_their_flags() {
        let work = tempfile::tempdir().unwrap();
        let disk = tempfile::tempdir().unwrap();
        let shim = Shim::build(work.path(), disk.path()).unwrap();
        let write = |folder: &Path, name: &str| {
            Command::new("dd")
                .args(["if=/dev/zero", "bs=4096", "count=4", "conv=fsync", "status=none"])
                .arg(format!("of={}", folder.join(name).display()))
                .envs(shim.environment())
                .output()
                .unwrap()
                .status
                .success()
        };
        assert!(write(disk.path(), "a"));

        shim.fill_disk(8192).unwrap();
        assert!(!write(disk.path(), "b"), "16 KiB fit into 8 KiB");
        fs::remove_file(disk.path().join("a")).unwrap();
        assert!(write(disk.path(), "b"), "room that was freed is not used");
        assert!(write(work.path(), "elsewhere"), "another folder is full too");
        shim.free_disk().unwrap();
        assert!(write(disk.path(), "c"));

        shim.break_fsync().unwrap();
        assert!(!write(disk.path(), "d"));
        assert_eq!(shim.failed_fsyncs(), 1);
        shim.mend_fsync().unwrap();
        assert!(write(disk.path(), "d"));
    }
}
