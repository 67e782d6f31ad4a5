//! The processes of a program, as the outer stage sees them: its children, and those that have lost their parent.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal as NixSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

use crate::stage::{Reaped, program_status, reap_next};

/// The looks for processes that start while others get a signal.
const MAX_LOOKS: usize = 100;

/// How long the processes that a program has left may take to exit after `TERM`. Then they are killed.
const GRACE: Duration = Duration::from_secs(2);
/// How long the processes of a program may take to stand still.
const SUSPEND_TIME: Duration = Duration::from_secs(1);
const SUSPEND_LOOK: Duration = Duration::from_millis(2);
/// The states of a process that runs, or resumes by itself. One that waits in the kernel, such as for a stopped child, stops before it runs again.
const RUNS: [char; 3] = ['R', 'S', 'I'];
/// The states of a process that is stopped, traced, or has exited.
const ENDED_OR_STOPPED: [char; 4] = ['T', 't', 'Z', 'X'];
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The descendants of this process, by the folder `/proc` of the machine.
#[derive(Debug)]
pub struct Descendants(File);

/// A program that was started, with all its processes. Its descriptor becomes readable when one may have exited.
pub(crate) struct ChildTree<'a> {
    exits: SignalFd,
    program: u32,
    has_namespaces: bool,
    pub(crate) descendants: &'a Descendants,
}

// === impl ChildTree ===

impl<'a> ChildTree<'a> {
    /// Starts the inner stage of a program.
    pub(crate) fn spawn(
        mut inner: Command,
        has_namespaces: bool,
        descendants: &'a Descendants,
    ) -> io::Result<(Self, Child)> {
        let exited = SigSet::from(NixSignal::SIGCHLD);
        // Before the start, so that no exit is missed. The inner stage starts the program without this mask.
        exited.thread_block()?;
        let exits = SignalFd::with_flags(&exited, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let child = inner.spawn()?;
        Ok((Self { exits, program: child.id(), has_namespaces, descendants }, child))
    }

    /// Reaps the processes that have exited. Returns the status of the program if it was one of them.
    pub(crate) fn reap(&mut self) -> io::Result<Option<ExitStatus>> {
        // Read the signal before the exits: one that comes in between is seen again, and not lost.
        while self.exits.read_signal()?.is_some() {}
        let mut status = None;
        loop {
            match reap_next(self.program, WaitOptions::NOHANG) {
                Ok(Reaped::Child(exit)) => status = Some(program_status(exit, self.has_namespaces)),
                Ok(Reaped::Orphan) => {}
                Ok(Reaped::Nothing) | Err(Errno::CHILD) => return Ok(status),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for ChildTree<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exits.as_fd()
    }
}

// === impl Descendants ===

impl Descendants {
    /// Makes this process the parent of all descendants that lose theirs, so that [`Self::end`] finds them.
    pub fn adopt_orphans() -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(getpid()))?;
        Self::open()
    }

    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(File::open("/proc")?))
    }

    /// Sends a signal to all, also to those that start meanwhile.
    pub(crate) fn signal(&self, signal: Signal) {
        let mut known = HashSet::new();
        for _ in 0..MAX_LOOKS {
            let mut found = self.children_of(getpid());
            let mut has_new = false;
            while let Some(pid) = found.pop() {
                if known.insert(pid) {
                    has_new = true;
                    // One that has exited needs no signal.
                    let _ = kill_process(pid, signal);
                }
                found.extend(self.children_of(pid));
            }
            // A process with a waiting signal starts no other one.
            if !has_new {
                return;
            }
        }
    }

    /// Suspends all, and looks until none of them runs: they can resume each other. Returns `false` if they resist.
    pub(crate) fn suspend(&self) -> bool {
        let until = Instant::now() + SUSPEND_TIME;
        let mut calm_looks = 0;
        loop {
            let mut is_calm = true;
            for pid in self.all() {
                let state = self.state_of(pid);
                is_calm &= state.is_none_or(|state| !RUNS.contains(&state));
                if state.is_some_and(|state| !ENDED_OR_STOPPED.contains(&state)) {
                    // One that has exited needs no signal.
                    let _ = kill_process(pid, Signal::STOP);
                }
            }
            // Twice: a later one of the same look can resume an earlier one.
            calm_looks = if is_calm { calm_looks + 1 } else { 0 };
            if calm_looks == 2 {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            sleep(SUSPEND_LOOK);
        }
    }

    fn all(&self) -> HashSet<Pid> {
        let mut all = HashSet::new();
        let mut found = self.children_of(getpid());
        while let Some(pid) = found.pop() {
            if all.insert(pid) {
                found.extend(self.children_of(pid));
            }
        }
        all
    }

    /// Returns the state of a process. `None` if it is gone.
    fn state_of(&self, pid: Pid) -> Option<char> {
        let file = self.open_in(&format!("{}/stat", number(pid)), OFlags::empty()).ok()?;
        let text = io::read_to_string(File::from(file)).ok()?;
        // The name of the program before it can have any character.
        text.rsplit_once(") ")?.1.chars().next()
    }

    /// Ends the processes that the program has left. Each one that exits leaves its children to this process. Blocks, and reaps every child of this process.
    pub fn end(&self) -> io::Result<()> {
        let (mut signal, mut until) = (Signal::TERM, Instant::now() + GRACE);
        let mut known = Vec::new();
        loop {
            match wait(WaitOptions::NOHANG) {
                Err(Errno::CHILD) => return Ok(()),
                Ok(Some(_)) | Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(None) => {}
            }
            if Instant::now() >= until {
                // A process that hangs in the kernel is left to the system.
                if signal == Signal::KILL {
                    return Ok(());
                }
                (signal, until) = (Signal::KILL, Instant::now() + GRACE);
                known.clear();
            }
            for child in self.children_of(getpid()) {
                if !known.contains(&child) {
                    known.push(child);
                    // It may have exited, and is reaped then.
                    let _ = kill_process(child, signal);
                }
            }
            sleep(LOOK_AGAIN);
        }
    }

    /// Returns the children of all threads of a process. Empty if it has exited.
    fn children_of(&self, pid: Pid) -> Vec<Pid> {
        let threads = self.open_in(&format!("{}/task", number(pid)), OFlags::DIRECTORY);
        let threads = threads.and_then(|threads| Ok(Dir::read_from(threads)?)).into_iter();
        let names = threads.flatten().flatten().map(|thread| thread.file_name().to_owned());
        let lists = names.filter_map(|thread| {
            let path = format!("{}/task/{}/children", number(pid), thread.to_str().ok()?);
            io::read_to_string(File::from(self.open_in(&path, OFlags::empty()).ok()?)).ok()
        });
        let parse = |pid: &str| Pid::from_raw(pid.parse().ok()?);
        lists.flat_map(|list| list.split(' ').filter_map(parse).collect::<Vec<_>>()).collect()
    }

    fn open_in(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(openat(&self.0, path, flags | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }
}

pub(crate) fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}
