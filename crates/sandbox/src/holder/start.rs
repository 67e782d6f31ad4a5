//! The holder as an outer stage: its standard input is the socket that listens for servers.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::io::Errno;
use rustix::process::WaitOptions;

use super::agent::AgentPipes;
use super::run::{AgentTree, run};
use crate::HoldSettings;
use crate::stage::{Reaped, end_children, program_status, reap_next};

/// The length of a secret, in hexadecimal digits.
const SECRET_DIGITS: usize = 64;

/// The children of this process, which are the agent and the processes that have lost their parent.
struct ChildTree {
    exits: SignalFd,
    agent: u32,
    has_namespaces: bool,
}

/// Starts the inner stage with pipes, and holds it. When this returns, all processes of the agent are gone. Returns `None` if no server was attached for too long.
pub(crate) fn hold(
    inner: Command,
    settings: &HoldSettings,
    has_namespaces: bool,
) -> io::Result<Option<ExitStatus>> {
    let is_digit = |byte: u8| byte.is_ascii_hexdigit();
    if settings.secret.len() != SECRET_DIGITS || !settings.secret.bytes().all(is_digit) {
        return Err(io::Error::other("invalid policy: the secret is not 64 hexadecimal digits"));
    }
    let listener = UnixListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    // A socket that does not listen would only fail when the first server comes.
    if !rustix::net::sockopt::socket_acceptconn(&listener)? {
        return Err(io::Error::other("the standard input is not a socket that listens"));
    }
    let exited = SigSet::from(Signal::SIGCHLD);
    // Before the start, so that no exit is missed. The inner stage starts the agent without this mask.
    exited.thread_block()?;
    let exits = SignalFd::with_flags(&exited, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let mut child = spawn_piped(inner)?;
    let held = take_pipes(&mut child).and_then(|pipes| {
        let mut tree = ChildTree { exits, agent: child.id(), has_namespaces };
        run(listener, pipes, &mut tree, settings)
    });
    // The pipes are closed now, so a process that waits for a server ends by itself.
    end_children()?;
    held
}

fn spawn_piped(mut inner: Command) -> io::Result<Child> {
    inner.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

fn take_pipes(child: &mut Child) -> io::Result<AgentPipes> {
    match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(input), Some(output), Some(errors)) => {
            Ok(AgentPipes { input: input.into(), output: output.into(), errors: errors.into() })
        }
        _ => Err(io::Error::other("the program has no pipes")),
    }
}

// === impl ChildTree ===

impl AsFd for ChildTree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exits.as_fd()
    }
}

impl AgentTree for ChildTree {
    fn reap(&mut self) -> io::Result<Option<ExitStatus>> {
        // Read the signal before the exits: one that comes in between is seen again, and not lost.
        while self.exits.read_signal()?.is_some() {}
        let mut status = None;
        loop {
            match reap_next(self.agent, WaitOptions::NOHANG) {
                Ok(Reaped::Child(exit)) => status = Some(program_status(exit, self.has_namespaces)),
                Ok(Reaped::Orphan) => {}
                Ok(Reaped::Nothing) | Err(Errno::CHILD) => return Ok(status),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn end(&mut self) -> io::Result<()> {
        end_children()
    }
}
