//! Writes to standard output and standard error. No other module in the workspace does.

use std::io::{self, IsTerminal, Write as _};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::live::LiveRows;
use super::render::rich::Frame;
use super::rows::Canvas;
use super::table::{self, TableColumn};
use super::{safe, style, words};
use crate::terminal::exit::{CliError, ExitStatus, Result};

/// The size of a terminal that does not say it.
pub(super) const DEFAULT_COLUMNS: usize = 80;
pub(super) const DEFAULT_ROWS: usize = 24;

/// The rows at the bottom of the terminal; all other output is written above them.
static LIVE: Mutex<LiveRows> = Mutex::new(LiveRows::new());

/// Writes data to standard output, at once.
///
/// # Errors
/// A silent success when the reader has closed the pipe, as in `trilogue threads | head -1`.
pub(crate) fn out(text: &str) -> Result {
    let _live = erase_live_rows();
    let mut out = anstream::stdout().lock();
    settle(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Writes bytes to standard output as they are.
pub(crate) fn raw(bytes: &[u8]) -> Result {
    let _live = erase_live_rows();
    let mut out = io::stdout().lock();
    settle(out.write_all(bytes).and_then(|()| out.flush()))
}

pub(crate) fn aside(text: &str) {
    let _live = erase_live_rows();
    // There is nowhere left to report that standard error cannot be written.
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

/// Writes a control sequence to the terminal on standard error, even if styles are removed.
pub(crate) fn control(sequence: &[u8]) {
    // There is nowhere left to report that standard error cannot be written.
    let _ = io::stderr().lock().write_all(sequence);
}

/// Draws a frame at the bottom of the terminal. The next frame replaces it, unless other output is written between.
pub(crate) fn frame(frame: Frame, canvas: Canvas) -> Result {
    let mut rows = live();
    let text = rows.frame(&frame.written, frame.live, canvas.columns);
    let mut out = io::stdout().lock();
    settle(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Removes the drawn frame, and blocks further frames until the result is dropped.
fn erase_live_rows() -> MutexGuard<'static, LiveRows> {
    let mut rows = live();
    let erase = rows.erase(canvas().columns);
    if !erase.is_empty() {
        let mut out = io::stdout().lock();
        // There is nowhere left to report that the terminal cannot be written.
        let _ = out.write_all(erase.as_bytes()).and_then(|()| out.flush());
    }
    rows
}

fn live() -> MutexGuard<'static, LiveRows> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the canvas of the terminal on standard output.
pub(crate) fn canvas() -> Canvas {
    let styled = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
    Canvas { columns: data_columns().unwrap_or(DEFAULT_COLUMNS), styled }
}

/// Returns the width in pixels of a character of the terminal on standard output, if the terminal reports it.
pub(crate) fn cell_pixels() -> Option<u32> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    u32::from(size.ws_xpixel).checked_div(size.ws_col.into()).filter(|pixels| *pixels > 0)
}

/// How many rows the terminal on standard output has.
pub(crate) fn height() -> usize {
    size_of(io::stdout()).1.unwrap_or(DEFAULT_ROWS)
}

/// Whether rows can be drawn again: standard output and standard error are a terminal that knows control sequences.
pub(crate) fn can_redraw() -> bool {
    is_terminal()
        && io::stderr().is_terminal()
        && std::env::var_os("TERM").is_some_and(|name| name != "dumb")
}

/// Returns the text, without its styles if standard error shows none.
pub(crate) fn styled(text: &str) -> String {
    match anstream::AutoStream::choice(&io::stderr()) {
        anstream::ColorChoice::Never => anstream::adapter::strip_str(text).to_string(),
        _ => text.to_owned(),
    }
}

/// Returns the width in columns of the terminal on standard error, or `None` if it is not a terminal or has no known width.
pub(crate) fn columns() -> Option<usize> {
    size_of(io::stderr()).0
}

/// How many rows it has.
pub(crate) fn rows() -> Option<usize> {
    size_of(io::stderr()).1
}

/// How many columns the terminal on standard output has.
pub(crate) fn data_columns() -> Option<usize> {
    size_of(io::stdout()).0
}

/// The columns and rows of a terminal.
fn size_of(stream: impl AsFd) -> (Option<usize>, Option<usize>) {
    let Ok(size) = rustix::termios::tcgetwinsize(stream) else { return (None, None) };
    let known = |count: u16| Some(usize::from(count)).filter(|count| *count > 0);
    (known(size.ws_col), known(size.ws_row))
}

/// Writes a line for a person to standard error, broken between words to fit the terminal.
pub(crate) fn note(text: &str) {
    aside(&format!("{}\n", words::fold(text, columns())));
}

/// Writes a table: fitted to the terminal for a person, otherwise with all its content. The cells must already be safe for a
/// terminal.
pub(crate) fn table(columns: &[TableColumn], rows: &[Vec<String>]) -> Result {
    out(&match is_terminal() {
        true => table::fitting(columns, rows, data_columns()),
        false => table::wide(columns, rows),
    })
}

/// Writes lines for a person to standard output, broken between words to fit the terminal.
pub(crate) fn report(text: &str) -> Result {
    out(&words::fold(text, data_columns()))
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

/// Whether a person can answer: standard input and standard error are a terminal.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

fn settle(written: io::Result<()>) -> Result {
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            Err(CliError::silent(ExitStatus::Success))
        }
        Err(error) => Err(CliError::failure(format!("cannot write to standard output: {error}"))),
    }
}

/// Writes one of the server's objects as a line of JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Result {
    let mut line = serde_json::to_vec(value).map_err(|error| {
        CliError::failure(format!("cannot write the response as JSON: {error}"))
    })?;
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
