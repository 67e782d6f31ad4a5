//! Notifies the configured address or command of each question.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, Command};
use tokio::time::timeout;
use trilogue_backends::child::{Leader, inherited};
use trilogue_domain::{DeliveryId, Principal, safe};
use trilogue_gateway::callback::{Sender, Undelivered};
use trilogue_gateway::{AddressNotifier, NoticeDelivery, Notifier, Ports};

use crate::config::Notify;

const COMMAND_LIMIT: Duration = Duration::from_secs(30);
const MAX_STDERR_BYTES: u64 = 2_048;
/// How long standard error is read after the command has ended.
const STDERR_GRACE: Duration = Duration::from_millis(100);
const MAX_SHOWN_CHARS: usize = 300;

/// The server's variables that it inherits in addition to those of every child: they lead to the user's desktop, which shows the notice.
const DESKTOP: [&str; 4] = ["DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS"];

/// A command that reads notices from its standard input.
#[derive(Debug)]
struct NotifyCommand {
    command: Vec<String>,
    limit: Duration,
}

/// Notifies the configured address or command of each new interrupt; what goes to an address is signed as the owner's callbacks are. The runtime's own options must ask for notices too, by [`Notify::is_on`].
pub fn start(notify: &Notify, ports: &Ports, owner: &Principal, sender: &Sender) {
    let to: Arc<dyn Notifier> = match &notify.url {
        Some(url) => {
            Arc::new(AddressNotifier::new(url.clone(), owner.into(), sender.clone(), ports))
        }
        None if !notify.is_on() => return,
        None => Arc::new(NotifyCommand { command: notify.command.0.clone(), limit: COMMAND_LIMIT }),
    };
    ports.runtime.notify_with(Arc::new(NoticeDelivery::new(ports, to)));
}

// === impl NotifyCommand ===

#[async_trait]
impl Notifier for NotifyCommand {
    async fn notify(&self, _: &DeliveryId, notice: Bytes) -> Result<(), Undelivered> {
        let later = |reason: String| Undelivered { reason, retry: true, after: None };
        let not_run = |error: &io::Error| Undelivered {
            reason: format!("cannot run the command of `notify`: {error}"),
            // A missing program does not appear soon.
            retry: !matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ),
            after: None,
        };
        let Some((program, arguments)) = self.command.split_first() else { return Ok(()) };
        // It gets the environment of every child: the server's own variables may hold its tokens.
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(inherited())
            .envs(DESKTOP.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut leader = Leader::spawn(&mut command).map_err(|error| not_run(&error))?;
        let (input, error) = (leader.take_stdin(), leader.take_stderr());
        let ended = timeout(self.limit, run_command(&leader, input, error, notice)).await;
        // Kills what it left running, before reaping frees the group's id.
        leader.signal_group(Signal::KILL);
        leader.reap().await;
        match ended {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(why))) => Err(later(format!("the command of `notify` failed: {why}"))),
            Ok(Err(error)) => Err(not_run(&error)),
            Err(_) => {
                let seconds = self.limit.as_secs();
                Err(later(format!("the command of `notify` took more than {seconds} seconds")))
            }
        }
    }
}

/// Writes the notice to a command and waits for its end; returns why it failed.
async fn run_command(
    leader: &Leader,
    input: Option<ChildStdin>,
    error: Option<ChildStderr>,
    notice: Bytes,
) -> io::Result<Option<String>> {
    let write = async {
        if let Some(mut input) = input {
            // The command may close its input early.
            let _ = input.write_all(&notice).await;
            let _ = input.write_all(b"\n").await;
        }
    };
    let read = async {
        let mut stderr = Vec::new();
        if let Some(mut error) = error {
            // The text only explains a failure, so an incomplete one is enough. The rest is read so that the command can write it.
            let _ = (&mut error).take(MAX_STDERR_BYTES).read_to_end(&mut stderr).await;
            let _ = tokio::io::copy(&mut error, &mut tokio::io::sink()).await;
        }
        stderr
    };
    let work = async { tokio::join!(write, read).1 };
    tokio::pin!(work);
    let mut stderr = None;
    let ended = leader.wait_for_exit();
    tokio::pin!(ended);
    let status = loop {
        tokio::select! {
            read = &mut work, if stderr.is_none() => stderr = Some(read),
            status = &mut ended => break status,
        }
    };
    let status = status.ok_or_else(|| io::Error::other("its exit status is unknown"))?;
    if status.success() {
        return Ok(None);
    }
    // Processes that it left running may keep its standard error open.
    let stderr = match stderr {
        Some(stderr) => stderr,
        None => timeout(STDERR_GRACE, work).await.unwrap_or_default(),
    };
    let stderr = safe::line(&String::from_utf8_lossy(&stderr));
    let words = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: String = words.chars().take(MAX_SHOWN_CHARS).collect();
    Ok(Some(if shown.is_empty() { status.to_string() } else { format!("{status}: {shown}") }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(line: &str, limit: Duration) -> NotifyCommand {
        NotifyCommand { command: ["sh", "-c", line].map(str::to_owned).into(), limit }
    }

    async fn notify_once(command: &NotifyCommand) -> Result<(), Undelivered> {
        let notice = Bytes::from_static(b"{\"type\":\"interrupt.raised\"}");
        command.notify(&DeliveryId::generate(), notice).await
    }

    #[tokio::test]
    async fn a_command_gets_the_notice_on_its_standard_input() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("told");
        let line = format!("cat > {}", path.display());
        assert_eq!(notify_once(&sh(&line, COMMAND_LIMIT)).await, Ok(()));
        let told = std::fs::read_to_string(&path).unwrap();
        assert_eq!(told, "{\"type\":\"interrupt.raised\"}\n");
        // A command that does not read its input still runs.
        assert_eq!(notify_once(&sh("exec <&-; exit 0", COMMAND_LIMIT)).await, Ok(()));
    }

    #[tokio::test]
    async fn a_command_knows_no_variable_but_those_that_it_may() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("env");
        let line = format!("env > {}", path.display());
        assert_eq!(notify_once(&sh(&line, COMMAND_LIMIT)).await, Ok(()));
        let env = std::fs::read_to_string(&path).unwrap();
        assert!(std::env::vars().any(|(name, _)| name.starts_with("CARGO")));
        assert!(env.contains("PATH=") && !env.contains("CARGO"), "{env}");
    }

    #[tokio::test]
    async fn what_a_command_leaves_running_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let line = format!("sleep 1000 2>&- & echo $! > {}", path.display());
        assert_eq!(notify_once(&sh(&line, COMMAND_LIMIT)).await, Ok(()));
        is_gone(&path).await;
    }

    #[tokio::test]
    async fn a_failed_command_is_retried_and_a_missing_one_is_not() {
        let failed = notify_once(&sh("echo no luck >&2; exit 7", COMMAND_LIMIT)).await.unwrap_err();
        assert!(failed.retry && failed.reason.contains("7"), "{failed:?}");
        let missing =
            NotifyCommand { command: vec!["/no/such/program".to_owned()], limit: COMMAND_LIMIT };
        let missing = notify_once(&missing).await.unwrap_err();
        assert!(!missing.retry && missing.reason.contains("cannot run"), "{missing:?}");
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_is_killed_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let line = format!("sleep 1000 & echo $! > {}; wait", path.display());
        let slow = notify_once(&sh(&line, Duration::from_secs(3))).await.unwrap_err();
        assert!(slow.retry && slow.reason.contains("took more than"), "{slow:?}");
        is_gone(&path).await;
    }

    /// Waits until the process whose number is in this file is gone.
    async fn is_gone(file: &std::path::Path) {
        let pid = std::fs::read_to_string(file).unwrap();
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
            if stat.map_or(true, |stat| stat.contains(") Z ")) {
                break;
            }
            assert!(tokio::time::Instant::now() < until, "it lives on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
