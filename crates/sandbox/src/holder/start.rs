//! The holder as an outer stage: its standard input is the socket that listens for servers.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::agent::AgentPipes;
use super::run::{AgentTree, run};
use crate::HoldSettings;
use crate::broker::PassedListener;
use crate::child_tree::{ChildTree, Descendants};

/// The length of a secret, in hexadecimal digits.
const SECRET_DIGITS: usize = 64;

/// Starts the inner stage with pipes, and holds it, with the listener of the broker for the next server. When this returns, all processes of the agent are gone. Returns `None` if no server was attached for too long.
pub(crate) fn hold(
    mut inner: Command,
    (settings, broker): (&HoldSettings, Option<PassedListener>),
    has_namespaces: bool,
    descendants: &Descendants,
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
    inner.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (mut tree, mut child) = ChildTree::spawn(inner, has_namespaces, descendants)?;
    let pipes = take_pipes(&mut child);
    let held = pipes.and_then(|pipes| run(listener, pipes, &mut tree, (settings, broker)));
    // The pipes are closed now, so a process that waits for a server ends by itself.
    descendants.end()?;
    held
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

impl AgentTree for ChildTree<'_> {
    fn reap(&mut self) -> io::Result<Option<ExitStatus>> {
        Self::reap(self)
    }

    fn end(&mut self) -> io::Result<()> {
        self.descendants.end()
    }
}
