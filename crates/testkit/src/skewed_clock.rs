//! A machine's clock that is wrong, and that is set while processes run, with libfaketime from the system's packages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The folders in which distributions install it, one for each architecture.
const FOLDERS: &str = "/usr/lib";
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// The time that processes with [`SkewedClock::environment`] see. Durations stay right.
#[derive(Clone, Debug)]
pub struct SkewedClock {
    library: PathBuf,
    file: PathBuf,
}

// === impl SkewedClock ===

impl SkewedClock {
    /// Creates a right clock, which a file in this folder controls.
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

    /// Sets the clock this many seconds ahead of the right time, or behind it if negative. Processes notice within a second.
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
            // One hour ahead: both readings take less than half an hour.
            (said + 10 * HOUR + HOUR / 2 - UNIX_EPOCH.elapsed().unwrap().as_secs()) / HOUR
        };
        assert_eq!(ahead(), 10);
        clock.set(2 * 3_600).unwrap();
        assert_eq!(ahead(), 12);
        clock.set(-3 * 3_600).unwrap();
        assert_eq!(ahead(), 7);
    }
}
