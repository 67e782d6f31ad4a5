//! A machine's clock that is wrong, and is set while processes run: libfaketime of the system's packages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where distributions keep it: a folder for each architecture.
const FOLDERS: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// What processes that begin with [`SkewedClock::environment`] take for the time. How much time passes stays right.
#[derive(Clone, Debug)]
pub struct SkewedClock {
    library: PathBuf,
    file: PathBuf,
}

// === impl SkewedClock ===

impl SkewedClock {
    /// A clock that is right, and is set by a file in this folder.
    pub fn new(dir: &Path) -> Result<Self> {
        let folders = fs::read_dir(FOLDERS)?.flatten().map(|entry| entry.path().join(LIBRARY));
        let library = folders
            .into_iter()
            .find(|path| path.is_file())
            .context("libfaketime is missing: apt-get install faketime")?;
        let clock = Self { library, file: dir.join("clock") };
        clock.set(0)?;
        Ok(clock)
    }

    pub fn environment(&self) -> Vec<(String, PathBuf)> {
        let settings = [
            ("LD_PRELOAD", self.library.clone()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.clone()),
            // In seconds.
            ("FAKETIME_CACHE_DURATION", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("FAKETIME_DISABLE_SHM", "1".into()),
            ("NO_FAKE_STAT", "1".into()),
        ];
        settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// So many seconds ahead of the right time, or behind it. Processes notice it within a second.
    pub fn set(&self, seconds_ahead: i64) -> Result<()> {
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{seconds_ahead:+}s\n"))?;
        Ok(fs::rename(next, &self.file)?)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::Folder;

    #[test]
    fn a_process_takes_the_skewed_time_for_the_time() {
        const HOUR: u64 = 3_600;
        let folder = Folder::new().unwrap();
        let clock = SkewedClock::new(folder.path()).unwrap();
        let ahead = || {
            let mut date = Command::new("date");
            let output = date.arg("+%s").envs(clock.environment()).output().unwrap();
            let said: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
            // To the next hour: both looks take less than half of one.
            (said + 10 * HOUR + HOUR / 2 - UNIX_EPOCH.elapsed().unwrap().as_secs()) / HOUR
        };
        assert_eq!(ahead(), 10);
        clock.set(2 * 3_600).unwrap();
        assert_eq!(ahead(), 12);
        clock.set(-3 * 3_600).unwrap();
        assert_eq!(ahead(), 7);
    }
}
