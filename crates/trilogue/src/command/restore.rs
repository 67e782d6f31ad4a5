//! `trilogue restore`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use trilogue::local::token_file;
use trilogue::local::user_options;
use trilogue_domain::port::SystemClock;
use trilogue_domain::{Code, Error};
use trilogue_gateway::AuditEvent;
use trilogue_mapping::agent_client::OriginalReader;
use trilogue_store::sqlite::{self, RestoreOptions, VerifyReport};

use crate::command::audit_log;
use crate::command::draft_folder::DraftFolder;
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
    /// Take the runs that have not ended too: they continue, with their rules and folders, when a server opens the store. Also take the callbacks that were not delivered: the server signs and sends them. Only for a backup that no other person could change. Without it the runs are cancelled and the callbacks are left out.
    #[arg(long, conflicts_with = "verify")]
    with_runs: bool,
}

// === impl Restore ===

impl Restore {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let backup = self.backup.clone();
        if self.verify {
            let report = blocking(move || sqlite::verify(&backup)).await?;
            return print_report(&report, globals);
        }
        let to = match &self.to {
            Some(to) => to.clone(),
            None => {
                let dir = user_server_dir()?;
                let folder = dir.folder();
                token_file::make_private_dir(folder)
                    .map_err(|error| CliError::failure(format!("{}: {error}", folder.display())))?;
                let url = user_options(&dir)?.store.url;
                let path = url.strip_prefix("sqlite:").map(PathBuf::from);
                path.ok_or_else(|| {
                    CliError::usage(format!("this user's server keeps its threads in {url}"))
                        .hint("name a file with --to")
                })?
            }
        };
        let target = to.clone();
        let options = RestoreOptions {
            overwrite: self.force,
            with_tokens: self.with_tokens,
            with_runs: self.with_runs,
        };
        let (report, has_cancelled) = match self.with_runs {
            true => (restore(backup.clone(), target, options).await?, false),
            false => restore_without_runs(backup.clone(), target, options).await?,
        };
        let taken = |is_taken| if is_taken { "taken" } else { "left out" };
        let detail = format!(
            "from {}; runs that had not ended: {}; tokens: {}",
            audit_log::quote(&absolute(&backup).to_string_lossy()),
            taken(self.with_runs),
            taken(self.with_tokens)
        );
        let subject = absolute(&to).display().to_string();
        audit_log::write(AuditEvent::StoreRestored, Some(&to), &subject, &detail)?;
        print_report(&report, globals)?;
        print::note(&format!("restored: {}", to.display()));
        if has_cancelled {
            print::note(
                "runs that had not ended were cancelled: the backup may come from elsewhere",
            );
            print::hint(
                "if no other person could change the backup, keep them: restore again with --force --with-runs",
            );
        }
        if report.callbacks > 0 && !self.with_runs {
            print::note(&format!(
                "{} callbacks of the backup were left out: they could go anywhere, with a signature of your server",
                report.callbacks
            ));
            print::hint(
                "if no other person could change the backup, keep them: restore again with --force --with-runs",
            );
        }
        if report.tokens > 0 && !self.with_tokens {
            print::note(&format!("{} tokens of the backup were left out", report.tokens));
            print::hint(
                "make new ones with `trilogue token create --label LABEL`, or restore again with --force --with-tokens if no other person could change the backup",
            );
        }
        Ok(())
    }
}

/// The path as another folder sees it.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Reads and writes files outside the event loop.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> trilogue_domain::error::Result<T> + Send + 'static,
) -> trilogue_domain::error::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(Error::new(Code::Internal, format!("cannot read the backup: {error}")))
    })
}

pub(super) async fn restore(
    backup: PathBuf,
    to: PathBuf,
    options: RestoreOptions,
) -> trilogue_domain::error::Result<VerifyReport> {
    blocking(move || sqlite::restore(&backup, &to, options)).await
}

/// Restores a backup. Its open runs are cancelled first, in a copy: a store with runs that could start is never in place. Returns whether there were any.
async fn restore_without_runs(
    backup: PathBuf,
    to: PathBuf,
    options: RestoreOptions,
) -> Result<(VerifyReport, bool)> {
    let target = to.clone();
    // It has a fixed name, so that the next start or restore finds what a killed one left.
    let folder = blocking(move || sqlite::create_preparation_folder(&target)).await?;
    let folder = DraftFolder::of(folder);
    match restore(backup.clone(), to.clone(), options).await {
        Err(error) if error.code() == Code::RunNotEnded => {}
        restored => return Ok((restored?, false)),
    }
    let copy = folder.store();
    let draft = RestoreOptions { overwrite: false, with_runs: true, ..options };
    let report = restore(backup, copy.clone(), draft).await?;
    let store = trilogue_store::Options::new(Arc::new(OriginalReader));
    cancel_open_runs(&format!("sqlite:{}", copy.display()), store).await?;
    // What is left of the tokens is wanted.
    restore(copy, to, RestoreOptions { with_tokens: true, ..options }).await?;
    Ok((report, true))
}

/// Cancels the open runs of a store that no server uses. Returns how many threads had such runs.
pub(super) async fn cancel_open_runs(url: &str, options: trilogue_store::Options) -> Result<usize> {
    let store = trilogue_store::open(url, options).await?;
    let done = trilogue_runtime::cancel_open_runs(
        Arc::clone(&store),
        Arc::new(SystemClock),
        Arc::new(OriginalReader),
    )
    .await;
    store.close().await?;
    Ok(done?)
}

/// Prints the content of a backup; fails if the backup is damaged.
fn print_report(report: &VerifyReport, globals: &Globals) -> Result {
    if globals.json {
        print::json(&json!({
            "schema_version": report.schema_version,
            "threads": report.threads,
            "runs": report.runs,
            "frames": report.frames,
            "events": report.events,
            "rows": report.rows,
            "tokens": report.tokens,
            "callbacks": report.callbacks,
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
    Err(CliError::failure("the backup is damaged").hint("use an earlier backup"))
}
