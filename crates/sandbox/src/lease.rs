//! Until when a program may work: in a cluster, another server takes over a thread whose server does not answer any more, and no two agents may work in one folder.
//!
//! The server extends the lease while it works. The stage of the program suspends all its processes when the lease is over, and resumes them when it is extended again. So a server that
//! stands still, with its lease, has no agent that works on. The lease is a time and not a message: one that was sent late extends nothing.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The suffix of a file that is being written.
const UNFINISHED: &str = "new";

/// The file of a lease: the time since boot until which the program may work, in milliseconds. Without the file, it may work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseFile(PathBuf);

// === impl LeaseFile ===

impl LeaseFile {
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Returns the time since boot, of which a lease is a later one. It includes the time in which the machine sleeps. Other systems than Linux have no stage, and no such time.
    #[must_use]
    pub fn now() -> Duration {
        #[cfg(target_os = "linux")]
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime).try_into();
        #[cfg(not(target_os = "linux"))]
        let now = Ok::<_, std::convert::Infallible>(Duration::ZERO);
        // The system knows no negative time since boot.
        now.unwrap_or_default()
    }

    /// Writes until when the program may work, as a whole: the stage reads the old time or the new one. Blocks on the file system.
    pub fn extend(&self, until: Duration) -> io::Result<()> {
        let unfinished = self.0.with_added_extension(UNFINISHED);
        fs::write(&unfinished, until.as_millis().to_string())?;
        fs::rename(unfinished, &self.0)
    }

    /// Lets the program work without a lease. Blocks on the file system.
    pub fn end(&self) -> io::Result<()> {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(target_os = "linux")]
pub(crate) use watch::{OpenLease, run_under};

#[cfg(target_os = "linux")]
mod watch {
    use std::ffi::OsString;
    use std::fs::File;
    use std::io;
    use std::os::fd::AsFd as _;
    use std::process::{Command, ExitStatus};
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{Mode, OFlags, openat};
    use rustix::io::Errno;
    use rustix::process::{Signal, getppid};

    use super::LeaseFile;
    use crate::child_tree::{ChildTree, Descendants};

    /// How often the lease is read. The server leaves this time before another one may begin.
    const LOOK_EVERY: Duration = Duration::from_millis(250);

    /// The folder of a lease, opened before the namespaces, which hide it.
    pub(crate) struct OpenLease {
        folder: File,
        name: OsString,
    }

    // === impl OpenLease ===

    impl OpenLease {
        pub(crate) fn open(file: &LeaseFile) -> io::Result<Self> {
            match (file.0.parent(), file.0.file_name()) {
                (Some(folder), Some(name)) => {
                    Ok(Self { folder: File::open(folder)?, name: name.to_owned() })
                }
                _ => Err(io::Error::other("invalid policy: the lease has no file name")),
            }
        }

        /// Whether the program may work now. A lease that cannot be read is over.
        fn allows_work(&self) -> bool {
            match openat(&self.folder, &self.name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            {
                Ok(file) => {
                    let text = io::read_to_string(File::from(file)).unwrap_or_default();
                    let until = text.parse().map(Duration::from_millis);
                    until.is_ok_and(|until| LeaseFile::now() < until)
                }
                Err(error) => error == Errno::NOENT,
            }
        }
    }

    /// Runs a program under a lease. Returns `None` if its server is gone: its processes may still run then.
    pub(crate) fn run_under(
        lease: &OpenLease,
        inner: Command,
        has_namespaces: bool,
        descendants: &Descendants,
    ) -> io::Result<Option<ExitStatus>> {
        let server = getppid();
        let (mut tree, _) = ChildTree::spawn(inner, has_namespaces, descendants)?;
        let mut is_suspended = false;
        loop {
            wait_for_exit(&tree)?;
            if let Some(status) = tree.reap()? {
                return Ok(Some(status));
            }
            if getppid() != server {
                return Ok(None);
            }
            if !lease.allows_work() {
                is_suspended = true;
                // Again at each look: other processes of the user can resume them.
                if !descendants.suspend() {
                    // They resume each other faster than they stop. Another agent may work in their folder soon.
                    descendants.signal(Signal::KILL);
                }
            } else if is_suspended {
                is_suspended = false;
                descendants.signal(Signal::CONT);
            }
        }
    }

    /// Waits until a process may have exited, or the lease is to be read.
    fn wait_for_exit(tree: &ChildTree<'_>) -> io::Result<()> {
        let timeout = Timespec::try_from(LOOK_EVERY).map_err(io::Error::other)?;
        let mut fds = [PollFd::from_borrowed_fd(tree.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
