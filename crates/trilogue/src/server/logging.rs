//! Logs go to standard error, in one of two forms. Audit lines are written at once, others through a queue.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::str::FromStr as _;
use std::sync::Arc;

use tracing_subscriber::filter::Directive;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};
use trilogue_domain::{Code, Error};
use trilogue_gateway::AUDIT_TARGET;

use crate::config::{self, Log};
use crate::server::log_queue::LogQueue;

pub use crate::server::log_queue::LogGuard;

/// Standard error, as a value that can be copied.
#[derive(Clone, Copy, Debug)]
struct StandardError;

/// Starts logging, unless the process logs already. Keep the guard until the server has stopped.
///
/// # Errors
/// As [`check`], or if the system refuses another thread.
pub fn start(log: &Log) -> Result<LogGuard, Error> {
    let filter = filter(log, io::stderr().is_terminal())?;
    let (writer, guard) = LogQueue::start(StandardError).map_err(no_thread)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // A program that embeds the server may have its own subscriber, which is then used.
    let started = match log.format.is_json() {
        true => builder.json().flatten_event(true).try_init(),
        false => builder.with_ansi(false).try_init(),
    };
    Ok(if started.is_ok() { guard } else { LogGuard::none() })
}

/// Starts logging to standard error, and with settings of its own to a file that is open for appending.
///
/// # Errors
/// As [`start`].
pub fn start_with_file(log: &Log, file_log: &Log, file: File) -> Result<LogGuard, Error> {
    let is_terminal = io::stderr().is_terminal();
    let (file, file_guard) = LogQueue::start(Arc::new(file)).map_err(no_thread)?;
    let (stderr, guard) = LogQueue::start(StandardError).map_err(no_thread)?;
    let all = tracing_subscriber::registry().with(layer(log, is_terminal, stderr)?);
    // As in `start`.
    let started = all.with(layer(file_log, false, file)?).try_init();
    Ok(if started.is_ok() { guard.and(file_guard) } else { LogGuard::none() })
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn no_thread(error: io::Error) -> Error {
    Error::new(Code::Internal, format!("the log cannot start: {error}"))
        .hint("raise the limit of threads and processes of the server's user: ulimit -u")
}

// === impl StandardError ===

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stderr().write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        // One lock for all of it, so that another line cannot come in between.
        io::stderr().lock().write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn layer<S, W>(
    log: &Log,
    is_terminal: bool,
    writer: W,
) -> Result<Box<dyn Layer<S> + Send + Sync>, Error>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = filter(log, is_terminal)?;
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    Ok(match log.format.is_json() {
        true => layer.json().flatten_event(true).with_filter(filter).boxed(),
        false => layer.with_ansi(false).with_filter(filter).boxed(),
    })
}

/// Checks the settings without starting.
///
/// # Errors
/// `invalid_request` when the level cannot be parsed.
pub fn check(log: &Log) -> Result<(), Error> {
    filter(log, true).map(drop)
}

/// The levels, and the words that other programs have for them.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
/// The levels as numbers, which the library takes too.
const NUMBERS: [&str; 6] = ["0", "1", "2", "3", "4", "5"];
const USUAL_LEVELS: [(&str, &str); 8] = [
    ("warning", "warn"),
    ("verbose", "debug"),
    ("information", "info"),
    ("notice", "info"),
    ("fatal", "error"),
    ("critical", "error"),
    ("silent", "off"),
    ("none", "off"),
];

/// Refuses a word that is not a level. The filter would take it for a module's name and enable every line of that
/// module.
fn check_levels(text: &str) -> Result<(), Error> {
    // A directive with a span's fields has commas of its own; the library reads it.
    let directives = text.split(',').map(str::trim).filter(|it| !it.contains(['[', ']', '{', '}']));
    let levels = directives.map(|it| it.rsplit_once('=').map_or(it, |(_, level)| level.trim()));
    for word in levels.filter(|it| !it.is_empty()) {
        let lower = word.to_ascii_lowercase();
        if LEVELS.contains(&lower.as_str()) || NUMBERS.contains(&lower.as_str()) {
            continue;
        }
        let usual = USUAL_LEVELS.iter().find(|(other, _)| *other == lower).map(|(_, level)| *level);
        let meant = usual.or_else(|| config::nearest(&lower, &LEVELS));
        let meant = meant.map_or_else(String::new, |level| format!(", did you mean `{level}`?"));
        let message = format!("`log.level` has the unknown level `{}`{meant}", word.escape_debug());
        return Err(Error::new(Code::InvalidRequest, message).hint(LEVEL_HINT));
    }
    Ok(())
}

const LEVEL_HINT: &str =
    "set it to error, warn, info, debug or trace, or per crate, such as info,trilogue_store=debug";

fn filter(log: &Log, is_terminal: bool) -> Result<EnvFilter, Error> {
    check_levels(&log.level)?;
    let filter = EnvFilter::try_new(&log.level).map_err(|error| {
        Error::new(Code::InvalidRequest, format!("`log.level` is not valid: {error}"))
            .hint(LEVEL_HINT)
    })?;
    // On a terminal, the level decides which audit lines a person sees. Everywhere else audit lines are kept at every
    // level.
    if is_terminal {
        return Ok(filter);
    }
    let audit = Directive::from_str(&format!("{AUDIT_TARGET}=info"));
    Ok(audit.into_iter().fold(filter, EnvFilter::add_directive))
}
