//! Writes to standard output and standard error. No other module in the workspace does.

use std::io::{self, IsTerminal, Write as _};
use std::os::fd::AsFd;

use super::{safe, style};
use crate::exit::{CliError, ExitStatus, Result};

/// Writes data to standard output, at once.
///
/// # Errors
/// A silent success when the reader has closed the pipe, as in `trilogue threads | head -1`.
pub(crate) fn out(text: &str) -> Result {
    let mut out = anstream::stdout().lock();
    settle(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Writes bytes to standard output as they are.
pub(crate) fn raw(bytes: &[u8]) -> Result {
    let mut out = io::stdout().lock();
    settle(out.write_all(bytes).and_then(|()| out.flush()))
}

pub(crate) fn aside(text: &str) {
    // There is nowhere left to report that standard error cannot be written.
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

/// Writes a control sequence to the terminal on standard error, also where styles are removed.
pub(crate) fn control(sequence: &[u8]) {
    // There is nowhere left to report that standard error cannot be written.
    let _ = io::stderr().lock().write_all(sequence);
}

/// How many columns the terminal on standard error has; `None` where there is none or it does not say.
pub(crate) fn columns() -> Option<usize> {
    columns_of(io::stderr())
}

/// The same of standard output.
pub(crate) fn data_columns() -> Option<usize> {
    columns_of(io::stdout())
}

fn columns_of(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

pub(crate) fn note(text: &str) {
    aside(&format!("{text}\n"));
}

pub(crate) fn hint(text: &str) {
    note(&format!("{}: {text}", style::hint("hint")));
}

pub(crate) fn error(error: &CliError) {
    if !error.message.is_empty() {
        let word = match error.exit {
            ExitStatus::Waiting => style::bold("waiting"),
            _ => style::error("error"),
        };
        note(&format!("{word}: {}", safe::block(&error.message)));
    }
    if let Some(text) = &error.hint {
        hint(&safe::block(text));
    }
}

pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether somebody can be asked: standard input and standard error are a terminal.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

fn settle(written: io::Result<()>) -> Result {
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Err(CliError::silent(ExitStatus::Success))
        }
        Err(error) => Err(CliError::failed(format!("cannot write to standard output: {error}"))),
    }
}

/// Writes one of the server's objects as a line of JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Result {
    let mut line = serde_json::to_vec(value)
        .map_err(|error| CliError::failed(format!("cannot write the response as JSON: {error}")))?;
    line.push(b'\n');
    json_lines(&line)
}

/// Writes lines of JSON as they are. On a terminal, hidden characters are escaped in them, which means the same.
pub(crate) fn json_lines(lines: &[u8]) -> Result {
    match is_terminal() {
        true => raw(safe::json(&String::from_utf8_lossy(lines)).as_bytes()),
        false => raw(lines),
    }
}
