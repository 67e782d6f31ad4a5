//! `trilogue logs`.

use std::time::Duration;

use clap::Args;
use trilogue::local::{LogFile, start};

use crate::exit::{CliError, ExitStatus, Result};
use crate::globals::Globals;
use crate::server_command::user_server_dir;
use crate::terminal::{print, safe};

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Show the log of this user's server.
#[derive(Args, Debug)]
pub(crate) struct Logs {
    /// Print at most this many lines of the log's end.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
    lines: usize,
    /// Go on with new lines until Ctrl-C.
    #[arg(long, short)]
    follow: bool,
}

// === impl Logs ===

impl Logs {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let only = "only the log of this user's server on this machine can be shown, not of";
        globals.require_users_server(only, "")?;
        let dir = user_server_dir()?;
        let log = match start::running(&dir) {
            Some(record) => record.log.clone().ok_or_else(|| {
                CliError::new(
                    ExitStatus::NotFound,
                    format!("the server {record} logs to its own standard error"),
                )
                .hint("look at its terminal, or at the log of its service")
            })?,
            None => dir.log(),
        };
        let log = LogFile::at(log);
        if !log.path().exists() {
            let message = format!("there is no log at {}", log.path().display());
            return Err(CliError::new(ExitStatus::NotFound, message)
                .hint("start the server: trilogue demo"));
        }
        let mut end = log.len();
        print::out(&shown(&log.last_lines(self.lines)))?;
        if !self.follow {
            return Ok(());
        }
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let (text, read_to) = log.lines_from(end);
            print::out(&shown(&text))?;
            end = read_to;
        }
    }
}

/// Lines that cannot control the terminal: they hold what clients and agents sent.
fn shown(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", safe::line(line))).collect()
}
