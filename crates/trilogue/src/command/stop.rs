//! `trilogue stop`.

use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;
use trilogue::local::{ServerRecord, StartedBy, UserServerDir, start};

use crate::command::globals::Globals;
use crate::command::server_command::user_server_dir;
use crate::terminal::exit::{CliError, Result};
use crate::terminal::print;

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long the stop waits before it explains the reason to the user.
const EXPLAIN_AFTER: Duration = Duration::from_secs(2);

/// Stop this user's server.
///
/// The server accepts no new runs, and gives running ones until `server.shutdown_deadline`. Questions that wait for an answer are still there after the next start.
#[derive(Args, Debug)]
pub(crate) struct Stop {
    /// Do not wait for running agents. That is as safe as a crash: the next start recovers.
    #[arg(long)]
    now: bool,
}

// === impl Stop ===

impl Stop {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let only = "only this user's server on this machine can be stopped, not";
        globals.require_users_server(only, ", or stop that server where it runs")?;
        let dir = user_server_dir()?;
        let Some(record) = start::running(&dir) else {
            print::note("no server of this user runs");
            return Ok(());
        };
        let pid = process(&dir, &record).await?;
        let signal = |signal| {
            kill_process(pid, signal)
                .map_err(|error| CliError::failure(format!("cannot stop {record}: {error}")))
        };
        // Unlike after a `TERM`, no agent works on.
        signal(Signal::INT)?;
        if self.now {
            // Two signals of one kind may arrive as one. The server may have ended after the first.
            let _ = signal(Signal::TERM);
        }
        wait(&dir, &record).await;
        report(&record, globals)
    }
}

/// Returns the process that listens on the socket. A record can outlive its process, and the number of a process can be reused.
async fn process(dir: &UserServerDir, record: &ServerRecord) -> Result<Pid> {
    let cannot = |why: String| CliError::failure(format!("cannot stop {record}: {why}"));
    let stream = start::connect(dir).await.map_err(|error| cannot(error.to_string()))?;
    let peer = stream.peer_cred().map_err(|error| cannot(error.to_string()))?;
    let pid = peer.pid().or_else(|| i32::try_from(record.pid).ok());
    pid.and_then(Pid::from_raw).ok_or_else(|| cannot("its process is unknown".to_owned()))
}

async fn wait(dir: &UserServerDir, record: &ServerRecord) {
    let begun = Instant::now();
    let mut explained = false;
    while !start::has_ended(dir, record) {
        if !explained && begun.elapsed() >= EXPLAIN_AFTER {
            explained = true;
            print::note("waiting for running agents");
            print::hint("do not wait: `trilogue stop --now`");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn report(record: &ServerRecord, globals: &Globals) -> Result {
    if globals.json {
        print::json(record)?;
    } else {
        print::out(&format!("stopped: {record}\n"))?;
    }
    if record.started_by == StartedBy::OnDemand {
        print::note("an editor that is still connected starts it again");
    }
    Ok(())
}
