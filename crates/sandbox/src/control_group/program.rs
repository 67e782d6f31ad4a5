//! The control group of a program.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{GroupLimits, KILL, PROCESSES, ReachedLimit};

/// The period in which processor time is counted, and the part of it that is one hundredth, in microseconds.
const CPU_PERIOD_US: u64 = 100_000;
const CPU_PERCENT_US: u64 = CPU_PERIOD_US / 100;
/// How long killed processes may take to be gone. A process that hangs in the kernel can stay.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The control group of a program: the program is in it with everything that it has started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramGroup {
    folder: PathBuf,
}

// === impl ProgramGroup ===

impl ProgramGroup {
    /// A group that exists, or has existed.
    #[must_use]
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Creates a group with these limits, of which the group above has the controllers.
    pub(super) fn create(folder: PathBuf, limits: &GroupLimits) -> io::Result<Self> {
        fs::create_dir(&folder)?;
        let group = Self { folder };
        if let Err(error) = group.set(limits) {
            // It is empty. If it stays, the record of the program names it.
            drop(group.remove());
            return Err(error);
        }
        Ok(group)
    }

    fn set(&self, limits: &GroupLimits) -> io::Result<()> {
        if let Some(bytes) = limits.memory_bytes {
            self.write("memory.max", &bytes.to_string())?;
            // With swap, a program would use more than its limit.
            match self.write("memory.swap.max", "0") {
                // A system without swap has no such file.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                written => written?,
            }
            // A program that lost one of its processes would not know why.
            self.write("memory.oom.group", "1")?;
        }
        if let Some(count) = limits.processes {
            self.write("pids.max", &count.to_string())?;
        }
        if let Some(percent) = limits.cpu_percent {
            let quota = u64::from(percent) * CPU_PERCENT_US;
            self.write("cpu.max", &format!("{quota} {CPU_PERIOD_US}"))?;
        }
        Ok(())
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Moves this process into the group.
    pub fn enter(&self) -> io::Result<()> {
        self.write(PROCESSES, "0")
    }

    /// Returns the limit that the program has reached. Blocks on the system.
    #[must_use]
    pub fn reached_limit(&self) -> Option<ReachedLimit> {
        let memory = self.count("memory.events", "oom_kill").filter(|count| *count > 0);
        let processes = || self.count("pids.events", "max").filter(|count| *count > 0);
        match memory {
            Some(_) => Some(ReachedLimit::Memory(self.number("memory.max")?)),
            None => Some(ReachedLimit::Processes(processes().and(self.number("pids.max"))?)),
        }
    }

    /// Kills what is left in the group, and removes it. Blocks for at most [`KILL_TIMEOUT`]. Returns whether it is gone.
    #[must_use]
    pub fn end(&self) -> bool {
        let until = Instant::now() + KILL_TIMEOUT;
        loop {
            match self.remove() {
                Ok(()) => return true,
                Err(_) if Instant::now() >= until => return false,
                // A process that enters it between two looks is killed by the next one.
                Err(_) => drop(self.write(KILL, "1")),
            }
            sleep(LOOK_AGAIN);
        }
    }

    /// Removes the group. Fails while a process is in it.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes a file of the kernel, which takes one write and creates none.
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        super::delegated::write_existing(&self.folder.join(name), text)
    }

    fn number(&self, name: &str) -> Option<u64> {
        fs::read_to_string(self.folder.join(name)).ok()?.trim().parse().ok()
    }

    /// Returns a count from a file with a name and a number on each line.
    fn count(&self, name: &str, key: &str) -> Option<u64> {
        let text = fs::read_to_string(self.folder.join(name)).ok()?;
        let mut counts = text.lines().filter_map(|line| line.split_once(' '));
        counts.find(|(name, _)| *name == key)?.1.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_was_reached_is_named_with_its_setting() {
        let folder = std::env::temp_dir().join(format!("trilogue-group-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let group = ProgramGroup::at(folder.clone());
        let reached = |files: &[(&str, &str)]| {
            files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
            group.reached_limit().map(|limit| limit.to_string()).unwrap_or_default()
        };
        assert_eq!(reached(&[]), "");
        let unlimited = [("memory.events", "max 0\noom_kill 0\n"), ("memory.max", "max\n")];
        assert_eq!(reached(&unlimited), "");
        let processes = reached(&[("pids.events", "max 3\n"), ("pids.max", "64\n")]);
        assert!(processes.contains("64 processes") && processes.contains("`limits.processes`"));
        let memory = [
            ("memory.events", "low 0\noom 1\noom_kill 4\noom_group_kill 1\n"),
            ("memory.max", "67108864\n"),
        ];
        let memory = reached(&memory);
        assert!(memory.contains("64 MiB") && memory.contains("`limits.memory`"), "{memory}");
        fs::remove_dir_all(folder).unwrap();
    }
}
