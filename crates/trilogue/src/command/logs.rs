//! `trilogue logs`.

use std::time::Duration;

use clap::Args;
use trilogue::local::{LogFile, start};
use trilogue_domain::short_id::last_group;

use crate::command::globals::Globals;
use crate::command::server_command::user_server_dir;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::{print, safe, table};

const POLL_INTERVAL: Duration = Duration::from_millis(200);
const UUID_CHARS: usize = 36;
/// How many characters of a UUID stand before its first dash.
const FIRST_GROUP_CHARS: usize = 8;

/// Show the log of this user's server.
#[derive(Args, Debug)]
pub(crate) struct Logs {
    /// Print at most this many lines of the log's end.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
    lines: usize,
    /// Print new lines as they arrive, until Ctrl-C.
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
            let message = format!("log file '{}' not found", log.path().display());
            return Err(CliError::new(ExitStatus::NotFound, message)
                .hint("start the server: trilogue demo"));
        }
        let mut end = log.len();
        show(&log.last_lines(self.lines))?;
        if !self.follow {
            return Ok(());
        }
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let (text, read_to) = log.lines_from(end);
            show(&text)?;
            end = read_to;
        }
    }
}

/// Writes lines that cannot control the terminal, because they contain text of clients and agents. On a terminal
/// they fit its width.
fn show(text: &str) -> Result {
    let lines = text.lines().map(|line| safe::line(line) + "\n");
    match print::is_terminal() {
        true => print::report(&lines.map(|line| for_person(&line)).collect::<String>()),
        false => print::out(&lines.collect::<String>()),
    }
}

/// Formats a line of text with whole seconds and with ids as tables show them. A line of JSON stays unchanged.
fn for_person(line: &str) -> String {
    if line.starts_with('{') {
        return line.to_owned();
    }
    let (time, rest) = line.split_once(' ').unwrap_or((line, ""));
    match time.split_once('.') {
        Some((seconds, fraction)) if fraction.ends_with('Z') => {
            format!("{seconds}Z {}", with_short_ids(rest))
        }
        _ => with_short_ids(line),
    }
}

fn with_short_ids(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(dash) = rest.find('-') {
        let start = dash.saturating_sub(FIRST_GROUP_CHARS);
        let id = rest.get(start..start + UUID_CHARS).filter(|id| last_group(id).is_some());
        let (kept, end) = match id {
            Some(_) => (start, start + UUID_CHARS),
            None => (dash + 1, dash + 1),
        };
        out.push_str(rest.get(..kept).unwrap_or_default());
        out.extend(id.map(|id| table::short_ids(&[id.to_owned()]).concat()));
        rest = rest.get(end..).unwrap_or_default();
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_reads_whole_seconds_and_short_ids() {
        let id = "01a2149a-31c1-76ae-ac39-68f449f6c19b";
        for (line, read) in [
            (
                format!(
                    "2026-11-25T21:26:19.347359Z  INFO a::b: run-end run={id} x=\"{id}\" é-{id}-"
                ),
                "2026-11-25T21:26:19Z  INFO a::b: run-end run=68f449f6 x=\"68f449f6\" é-68f449f6-",
            ),
            (format!("version 1.2 of {id}0"), "version 1.2 of 68f449f60"),
            ("--- é-é a-b".to_owned(), "--- é-é a-b"),
        ] {
            assert_eq!(for_person(&line), read);
        }
        let json = format!("{{\"run\":\"{id}\"}}");
        assert_eq!(for_person(&json), json);
    }
}
