//! Logs go to standard error, in one of two forms.

use std::io::IsTerminal as _;
use std::str::FromStr as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::Directive;
use trilogue_domain::{Code, Error};
use trilogue_gateway::AUDIT_TARGET;

use crate::config::{Log, LogFormat};

/// Starts logging, unless the process logs already.
///
/// # Errors
/// As [`check`].
pub fn start(log: &Log) -> Result<(), Error> {
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter(log)?).with_writer(std::io::stderr);
    // A program that embeds the server may have its own subscriber, which is then used.
    let _ = match log.format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(false).try_init(),
    };
    Ok(())
}

/// Checks the settings without starting.
///
/// # Errors
/// `invalid_request` when the level cannot be parsed.
pub fn check(log: &Log) -> Result<(), Error> {
    filter(log).map(drop)
}

fn filter(log: &Log) -> Result<EnvFilter, Error> {
    let filter = EnvFilter::try_new(&log.level).map_err(|error| {
        Error::new(Code::InvalidRequest, format!("`log.level` is not valid: {error}")).hint(
            "set it to error, warn, info, debug or trace, or per crate, such as info,trilogue_store=debug",
        )
    })?;
    // A person who reads along sees what the level shows. Everywhere else audit lines are kept, whatever the level is.
    if std::io::stderr().is_terminal() {
        return Ok(filter);
    }
    let audit = Directive::from_str(&format!("{AUDIT_TARGET}=info"));
    Ok(audit.into_iter().fold(filter, EnvFilter::add_directive))
}
