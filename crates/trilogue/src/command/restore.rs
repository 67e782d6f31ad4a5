//! `trilogue restore`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use trilogue::local::token_file;
use trilogue::local::user_options;
use trilogue_store::sqlite::{self, RestoreOptions, VerifyReport};

use crate::command::globals::Globals;
use crate::command::server_command::user_server_dir;
use crate::terminal::exit::{CliError, Result};
use crate::terminal::{print, safe};

/// Verify a backup, or restore it. Needs no server.
#[derive(Args, Debug)]
pub(crate) struct Restore {
    /// The backup.
    backup: PathBuf,
    /// The store's file. By default the one of this user's server.
    #[arg(long, value_name = "PATH")]
    to: Option<PathBuf>,
    /// Only read everything and compare every checksum.
    #[arg(long, conflicts_with_all = ["to", "force"])]
    verify: bool,
    /// Replace an existing store, which no server may be using.
    #[arg(long)]
    force: bool,
    /// Take the backup's tokens too. Only for a backup that no other person could change: the holder of one of its tokens can use the restored server.
    #[arg(long, conflicts_with = "verify")]
    with_tokens: bool,
}

// === impl Restore ===

impl Restore {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let backup = self.backup.clone();
        if self.verify {
            let report = blocking(move || sqlite::verify(&backup)).await?;
            return tell(&report, globals);
        }
        let to = match &self.to {
            Some(to) => to.clone(),
            None => {
                let dir = user_server_dir()?;
                let folder = dir.folder();
                token_file::make_private_dir(folder)
                    .map_err(|error| CliError::failed(format!("{}: {error}", folder.display())))?;
                let url = user_options(&dir)?.store.url;
                let path = url.strip_prefix("sqlite:").map(PathBuf::from);
                path.ok_or_else(|| {
                    CliError::usage(format!("this user's server keeps its threads in {url}"))
                        .hint("name a file with --to")
                })?
            }
        };
        let target = to.clone();
        let options = RestoreOptions { overwrite: self.force, with_tokens: self.with_tokens };
        let report = blocking(move || sqlite::restore(&backup, &target, options)).await?;
        tell(&report, globals)?;
        print::note(&format!("restored: {}", to.display()));
        if report.tokens > 0 && !self.with_tokens {
            print::note(&format!("{} tokens of the backup were left out", report.tokens));
            print::hint(
                "make new ones with `trilogue token create --label LABEL`, or restore again with --force --with-tokens if no other person could change the backup",
            );
        }
        Ok(())
    }
}

/// Reads and writes files outside the event loop.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> trilogue_domain::error::Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(error) => Err(CliError::failed(format!("cannot read the backup: {error}"))),
    }
}

/// Prints what a backup holds; fails where it is damaged.
fn tell(report: &VerifyReport, globals: &Globals) -> Result {
    if globals.json {
        print::json(&json!({
            "schema_version": report.schema_version,
            "threads": report.threads,
            "runs": report.runs,
            "frames": report.frames,
            "events": report.events,
            "rows": report.rows,
            "tokens": report.tokens,
            "blobs": report.blobs,
            "damage": report.damage,
        }))?;
    } else {
        print::out(&format!(
            "schema {}: {} threads, {} runs, {} events, {} blobs\n",
            report.schema_version, report.threads, report.runs, report.events, report.blobs
        ))?;
        for damage in &report.damage {
            print::note(&format!("damaged: {}", safe::line(damage)));
        }
    }
    if report.is_sound() {
        return Ok(());
    }
    Err(CliError::failed("the backup is damaged").hint("use an earlier backup"))
}
