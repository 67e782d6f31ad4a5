//! Telling somebody that an agent waits, as the configuration says.

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
use trilogue_domain::DeliveryId;
use trilogue_gateway::callback::{Sender, Undelivered};
use trilogue_gateway::{NoticeDelivery, Ports, Tell, TellAddress};

use crate::config::Notify;

/// How long the command has.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);
/// How much of what it says to standard error is kept, in bytes.
const MAX_SAID_BYTES: u64 = 2_048;
/// How long is listened to it when the command has ended.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// How much of it the log repeats, in characters.
const MAX_SHOWN_CHARS: usize = 300;

/// The server's own variables that it gets beside those of every child: where the user's desktop is, which shows what it is told.
const DESKTOP: [&str; 4] = ["DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS"];

/// A command that is told on its standard input.
#[derive(Debug)]
struct TellCommand {
    command: Vec<String>,
    limit: Duration,
}

/// Has whom the configuration names told of each new interrupt; nobody where it names none. The runtime's own options have to ask for that too, by [`Notify::is_on`].
pub fn start(notify: &Notify, ports: &Ports, sender: &Sender) {
    let to: Arc<dyn Tell> = match &notify.url {
        Some(url) => Arc::new(TellAddress::new(url.clone(), sender.clone(), ports)),
        None if !notify.is_on() => return,
        None => Arc::new(TellCommand { command: notify.command.0.clone(), limit: COMMAND_LIMIT }),
    };
    ports.runtime.notify_with(Arc::new(NoticeDelivery::new(ports, to)));
}

// === impl TellCommand ===

#[async_trait]
impl Tell for TellCommand {
    async fn tell(&self, _: &DeliveryId, notice: Bytes) -> Result<(), Undelivered> {
        let later = |reason: String| Undelivered { reason, retry: true, after: None };
        let not_run = |error: &io::Error| Undelivered {
            reason: format!("the command of `notify` cannot be run: {error}"),
            // What is not there now is not there in a moment either.
            retry: !matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
            ),
            after: None,
        };
        let Some((program, arguments)) = self.command.split_first() else { return Ok(()) };
        // It gets what a child of ours gets: the server's own variables may hold its tokens.
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
        let said = timeout(self.limit, told(&leader, input, error, notice)).await;
        // Whatever it left running goes with it. Until it is reaped its group is its own.
        leader.signal_group(Signal::KILL);
        leader.reap().await;
        match said {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(why))) => Err(later(format!("the command of `notify` ended with {why}"))),
            Ok(Err(error)) => Err(not_run(&error)),
            Err(_) => {
                let seconds = self.limit.as_secs();
                Err(later(format!("the command of `notify` took more than {seconds} seconds")))
            }
        }
    }
}

/// Gives a command the notice and waits for its end. Says how it ended where that was not well.
async fn told(
    leader: &Leader,
    input: Option<ChildStdin>,
    error: Option<ChildStderr>,
    notice: Bytes,
) -> io::Result<Option<String>> {
    let give = async {
        if let Some(mut input) = input {
            // One that does not want to know everything may close it.
            let _ = input.write_all(&notice).await;
            let _ = input.write_all(b"\n").await;
        }
    };
    let listen = async {
        let mut said = Vec::new();
        if let Some(mut error) = error {
            let _ = (&mut error).take(MAX_SAID_BYTES).read_to_end(&mut said).await;
            let _ = tokio::io::copy(&mut error, &mut tokio::io::sink()).await;
        }
        said
    };
    let work = async { tokio::join!(give, listen).1 };
    tokio::pin!(work);
    let mut said = None;
    let ended = leader.exited();
    tokio::pin!(ended);
    let status = loop {
        tokio::select! {
            heard = &mut work, if said.is_none() => said = Some(heard),
            status = &mut ended => break status,
        }
    };
    let status = status.ok_or_else(|| io::Error::other("nobody saw how it ended"))?;
    if status.success() {
        return Ok(None);
    }
    // What it left running may keep its standard error open.
    let said = match said {
        Some(said) => said,
        None => timeout(LAST_WORDS, work).await.unwrap_or_default(),
    };
    let said = String::from_utf8_lossy(&said);
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: String = words.chars().filter(|it| !it.is_control()).take(MAX_SHOWN_CHARS).collect();
    Ok(Some(if shown.is_empty() { status.to_string() } else { format!("{status}: {shown}") }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(line: &str, limit: Duration) -> TellCommand {
        TellCommand { command: ["sh", "-c", line].map(str::to_owned).into(), limit }
    }

    async fn tell(command: &TellCommand) -> Result<(), Undelivered> {
        let notice = Bytes::from_static(b"{\"type\":\"interrupt.raised\"}");
        command.tell(&DeliveryId::generate(), notice).await
    }

    #[tokio::test]
    async fn a_command_gets_the_notice_on_its_standard_input() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("told");
        let line = format!("cat > {}", path.display());
        assert_eq!(tell(&sh(&line, COMMAND_LIMIT)).await, Ok(()));
        let told = std::fs::read_to_string(&path).unwrap();
        assert_eq!(told, "{\"type\":\"interrupt.raised\"}\n");
        // One that does not read is told all the same.
        assert_eq!(tell(&sh("exec <&-; exit 0", COMMAND_LIMIT)).await, Ok(()));
    }

    #[tokio::test]
    async fn a_command_knows_no_variable_but_those_that_it_may() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("env");
        let line = format!("env > {}", path.display());
        assert_eq!(tell(&sh(&line, COMMAND_LIMIT)).await, Ok(()));
        let env = std::fs::read_to_string(&path).unwrap();
        assert!(std::env::vars().any(|(name, _)| name.starts_with("CARGO")));
        assert!(env.contains("PATH=") && !env.contains("CARGO"), "{env}");
    }

    #[tokio::test]
    async fn what_a_command_leaves_running_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let line = format!("sleep 1000 2>&- & echo $! > {}", path.display());
        assert_eq!(tell(&sh(&line, COMMAND_LIMIT)).await, Ok(()));
        is_gone(&path).await;
    }

    #[tokio::test]
    async fn a_command_that_fails_is_tried_again_and_one_that_is_not_there_is_not() {
        let failed = tell(&sh("echo no luck >&2; exit 7", COMMAND_LIMIT)).await.unwrap_err();
        assert!(failed.retry && failed.reason.contains("7"), "{failed:?}");
        let missing =
            TellCommand { command: vec!["/no/such/program".to_owned()], limit: COMMAND_LIMIT };
        let missing = tell(&missing).await.unwrap_err();
        assert!(!missing.retry && missing.reason.contains("cannot be run"), "{missing:?}");
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_is_killed_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let line = format!("sleep 1000 & echo $! > {}; wait", path.display());
        let slow = tell(&sh(&line, Duration::from_secs(3))).await.unwrap_err();
        assert!(slow.retry && slow.reason.contains("took more than"), "{slow:?}");
        is_gone(&path).await;
    }

    /// Waits until the process whose number is in this file is not there any more.
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
