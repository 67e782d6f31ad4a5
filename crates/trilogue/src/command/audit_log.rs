//! The audit lines of commands that change a store without its server.

use std::path::Path;

use trilogue::config::{Log, LogFormat};
use trilogue::local::{LogFile, user_options};
use trilogue::server::logging;
use trilogue_gateway::{AuditEvent, audit};

use crate::command::server_command::user_server_dir;
use crate::terminal::exit::Result;
use crate::terminal::print;

/// Writes an audit line to standard error, if that is not a terminal. Writes it also to the log of this user's server if `target` is the file of its store.
pub(super) fn write(
    event: AuditEvent,
    target: Option<&Path>,
    subject: &str,
    detail: &str,
) -> Result {
    let _log = start(target)?;
    // No token was used: who can run the command is decided by the system.
    let user = rustix::process::getuid().as_raw();
    audit(event, None, subject, &format!("by the user {user} of the system; {detail}"));
    Ok(())
}

/// A name as a part of a detail: in quotes, so that its text cannot pass for the rest of the detail.
pub(super) fn quote(name: &str) -> String {
    format!("{name:?}")
}

/// Starts a log of audit lines only.
fn start(target: Option<&Path>) -> Result<logging::LogGuard> {
    let only_audit = |format| Log { format, level: "off".to_owned() };
    let stderr_log = only_audit(LogFormat::Auto);
    if let (Some(target), Ok(dir)) = (target, user_server_dir())
        && let Ok(options) = user_options(&dir)
        && options.store.url.strip_prefix("sqlite:").is_some_and(|own| is_same(own, target))
    {
        let log = LogFile::at(dir.log());
        match log.open() {
            Ok(file) => {
                let file_log = only_audit(options.log.format);
                return Ok(logging::start_with_file(&stderr_log, &file_log, file)?);
            }
            Err(error) => print::note(&format!(
                "the audit line is not in the log {}: {error}",
                log.path().display()
            )),
        }
    }
    Ok(logging::start(&stderr_log)?)
}

fn is_same(own: &str, target: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(Path::new(own)) == real(target)
}
