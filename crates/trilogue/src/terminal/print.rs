//! Writes to standard output and standard error. Nothing else in the workspace does.

use std::io::{self, IsTerminal, Write as _};

use super::{safe, style};
use crate::exit::{Exit, Result, Stop};

/// Writes data to standard output, at once.
///
/// # Errors
/// A silent success when the reader has gone, as in `trilogue threads | head -1`.
pub(crate) fn out(text: &str) -> Result {
    let mut out = anstream::stdout().lock();
    settle(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Writes bytes to standard output as they are.
///
/// # Errors
/// As [`out`].
pub(crate) fn raw(bytes: &[u8]) -> Result {
    let mut out = io::stdout().lock();
    settle(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Writes text beside the data to standard error.
pub(crate) fn aside(text: &str) {
    // There is nowhere left to report that standard error cannot be written.
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

/// Writes one line beside the data.
pub(crate) fn note(text: &str) {
    aside(&format!("{text}\n"));
}

/// Writes what to do next, on a line of its own.
pub(crate) fn hint(text: &str) {
    note(&format!("{}: {text}", style::hint("hint")));
}

/// Says why the command stops.
pub(crate) fn stop(stop: &Stop) {
    if !stop.message.is_empty() {
        let word = match stop.exit {
            Exit::Waiting => style::bold("waiting"),
            _ => style::error("error"),
        };
        note(&format!("{word}: {}", safe::block(&stop.message)));
    }
    if let Some(text) = &stop.hint {
        hint(&safe::block(text));
    }
}

/// Whether standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether somebody is there to be asked: standard input and standard error are a terminal.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

fn settle(written: io::Result<()>) -> Result {
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Stop::silent(Exit::Success)),
        Err(error) => Err(Stop::failed(format!("standard output cannot be written: {error}"))),
    }
}

/// Writes one of the server's objects as a line of JSON.
///
/// # Errors
/// As [`out`].
pub(crate) fn json(value: &impl serde::Serialize) -> Result {
    let mut line = serde_json::to_vec(value)
        .map_err(|error| Stop::failed(format!("the answer cannot be written as JSON: {error}")))?;
    line.push(b'\n');
    raw(&line)
}
