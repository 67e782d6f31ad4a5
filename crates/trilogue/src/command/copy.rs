//! `trilogue copy`.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use trilogue::config;
use trilogue_gateway::AuditEvent;
use trilogue_store::sqlite::{self, RestoreOptions};
use trilogue_store::{CopyOptions, CopyProgress, CopyReport, CopyStep};

use crate::command::audit_log;
use crate::command::draft_folder::DraftFolder;
use crate::command::globals::Globals;
use crate::command::restore::{blocking, cancel_open_runs, restore};
use crate::terminal::exit::{CliError, Result};
use crate::terminal::render::rich::Frame;
use crate::terminal::rows::ScreenRow;
use crate::terminal::{print, safe};

/// How often the progress is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Copy a store between SQLite and PostgreSQL, and verify the copy. Needs no server.
#[derive(Args, Debug)]
pub(crate) struct CopyCommand {
    /// The store: `sqlite:PATH`, also of a backup, or `postgres://USER@HOST:PORT/DATABASE`.
    from: String,
    /// The empty database: `postgres://USER@HOST:PORT/DATABASE`; or `sqlite:PATH` of a new file, for a store in PostgreSQL.
    to: String,
    /// Take the password, the time-outs and the bucket of the database from `[store]` in this file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Copy the tokens too. Only from a store that no other person could change: the holder of one of its tokens can use the server of the copy.
    #[arg(long)]
    with_tokens: bool,
    /// Copy the runs that have not ended too: they continue, with their rules and folders, when a server opens the copy. Also copy the callbacks that were not delivered: the server of the copy signs and sends them. Only from a store that no other person could change. Without it the runs are cancelled in the copy and the callbacks are left out.
    #[arg(long)]
    with_runs: bool,
}

/// What a copy without `--with-runs` does not take.
#[derive(Default)]
struct LeftOut {
    /// The threads whose open runs were cancelled.
    threads_with_runs: usize,
    /// The callbacks that were not delivered.
    callbacks: u64,
}

/// Draws how far the copy is, on a terminal.
struct ProgressLine {
    drawn: Option<Instant>,
}

// === impl CopyCommand ===

impl CopyCommand {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let store = match &self.config {
            Some(file) => config::load(file)?.options.store,
            None => config::Store::default(),
        };
        let mut line = ProgressLine { drawn: None };
        let is_drawn = !globals.json && print::can_redraw();
        let progress = |progress| {
            if is_drawn {
                line.draw(progress);
            }
        };
        let options = CopyOptions { store: store.to_options()?, with_tokens: self.with_tokens };
        let (report, left_out) = Box::pin(self.copy(options, progress)).await?;
        self.write_audit_line()?;
        self.print_report(&report, &left_out, globals)
    }

    /// Copies the store by way of a draft: what a server can open has passed the checks of a restore, also if this command is interrupted. Without
    /// `--with-runs`, the open runs are cancelled in the draft, and the callbacks are left out.
    async fn copy(
        &self,
        options: CopyOptions,
        mut progress: impl FnMut(CopyProgress) + Send,
    ) -> Result<(CopyReport, LeftOut)> {
        let file = self.target_file();
        let has_both = self.from.starts_with("sqlite:") && file.is_some();
        if has_both || self.from == self.to || file.as_ref().is_some_and(|file| file.exists()) {
            // It is refused, with the reason.
            let report = trilogue_store::copy(&self.from, &self.to, options, progress).await?;
            return Ok((report, LeftOut::default()));
        }
        let draft = create_draft(file.as_deref()).map_err(|error| {
            CliError::failure(format!("cannot write a draft of the copy: {error}"))
        })?;
        let path = draft.store();
        let report =
            trilogue_store::copy_to_draft(&self.from, &path, options.clone(), &mut progress)
                .await?;
        let url = format!("sqlite:{}", path.display());
        let threads_with_runs = match self.with_runs {
            true => 0,
            false => cancel_open_runs(&url, options.store.clone()).await?,
        };
        // The draft has only the tokens that are wanted.
        let wanted =
            RestoreOptions { overwrite: false, with_tokens: true, with_runs: self.with_runs };
        let (report, callbacks) = match file {
            Some(file) => (report, restore(path, file, wanted).await?.callbacks),
            None => {
                let callbacks = blocking(move || sqlite::settle_draft(&path, wanted)).await?;
                let options = CopyOptions { with_tokens: true, ..options };
                (trilogue_store::copy(&url, &self.to, options, progress).await?, callbacks)
            }
        };
        let callbacks = if self.with_runs { 0 } else { callbacks };
        Ok((report, LeftOut { threads_with_runs, callbacks }))
    }

    /// The file of a copy that is not in a database.
    fn target_file(&self) -> Option<PathBuf> {
        self.to.strip_prefix("sqlite:").map(PathBuf::from)
    }

    fn write_audit_line(&self) -> Result {
        let taken = |is_taken| if is_taken { "taken" } else { "left out" };
        let detail = format!(
            "from {}; runs that had not ended: {}; tokens: {}",
            audit_log::quote(&trilogue_store::redacted_url(&self.from)),
            taken(self.with_runs),
            taken(self.with_tokens)
        );
        let subject = trilogue_store::redacted_url(&self.to);
        audit_log::write(AuditEvent::StoreCopied, self.target_file().as_deref(), &subject, &detail)
    }

    fn print_report(&self, report: &CopyReport, left_out: &LeftOut, globals: &Globals) -> Result {
        let to = trilogue_store::redacted_url(&self.to);
        let CopyReport { threads, runs, frames, events, rows, blobs } = report;
        if globals.json {
            return print::json(&json!({
                "from": trilogue_store::redacted_url(&self.from),
                "to": to,
                "threads": threads,
                "runs": runs,
                "frames": frames,
                "events": events,
                "rows": rows,
                "blobs": blobs,
            }));
        }
        print::out(&format!(
            "copied: {threads} threads, {runs} runs, {events} events, {blobs} blobs, {rows} other rows\n"
        ))?;
        print::note(&format!("verified: everything was read again from {}", safe::visible(&to)));
        if !self.with_tokens {
            print::note(
                "tokens were left out: make new ones with `trilogue token create --label LABEL`, or copy with --with-tokens",
            );
        }
        let LeftOut { threads_with_runs, callbacks } = left_out;
        if *threads_with_runs > 0 {
            print::note(&format!(
                "threads with runs that had not ended: {threads_with_runs}. Their open runs were cancelled in the copy; --with-runs keeps them"
            ));
        }
        if *callbacks > 0 {
            print::note(&format!(
                "callbacks that were not delivered: {callbacks}. They were left out of the copy; --with-runs keeps them"
            ));
        }
        print::hint("name this store in `store.url` of the configuration, and start the server");
        Ok(())
    }
}

// === impl ProgressLine ===

impl ProgressLine {
    fn draw(&mut self, progress: CopyProgress) {
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < DRAW_EVERY) {
            return;
        }
        self.drawn = Some(Instant::now());
        let step = match progress.step {
            CopyStep::Write => "copying",
            CopyStep::Verify => "verifying",
        };
        let percent = progress.rows.saturating_mul(100) / progress.total.max(1);
        let text = format!("{step}: {} rows, {}%", progress.rows, percent.min(100));
        let row = ScreenRow { width: text.len(), text };
        // A terminal that cannot be written stops no copy.
        let _ = print::frame(Frame { written: Vec::new(), live: vec![row] }, print::canvas());
    }
}

/// Creates the folder of a draft for a new store in this file, or for a database. A server that finds the draft of its file starts no empty store.
fn create_draft(file: Option<&Path>) -> io::Result<DraftFolder> {
    let Some(file) = file else {
        let folder = tempfile::Builder::new()
            .prefix("trilogue-copy-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()?;
        return Ok(DraftFolder::of(folder.keep()));
    };
    let folder = sqlite::copy_draft(file);
    // The draft of an interrupted copy is worth nothing.
    if folder.is_dir() {
        fs::remove_dir_all(&folder)?;
    } else if folder.exists() {
        fs::remove_file(&folder)?;
    }
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(DraftFolder::of(folder))
}
