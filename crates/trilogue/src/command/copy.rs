//! `trilogue copy`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use trilogue::config;
use trilogue_store::{CopyOptions, CopyProgress, CopyReport, CopyStep};

use crate::command::globals::Globals;
use crate::command::restore::cancel_open_runs;
use crate::terminal::exit::Result;
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
    /// Copy the runs that have not ended too: they continue, with their rules and folders, when a server opens the copy. Only from a store that no other person could change. Without it they are cancelled in the copy.
    #[arg(long)]
    with_runs: bool,
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
        let report = trilogue_store::copy(&self.from, &self.to, options, progress).await?;
        let cancelled = match self.with_runs {
            true => 0,
            false => cancel_open_runs(&self.to, store.to_options()?).await?,
        };
        self.print_report(&report, cancelled, globals)
    }

    /// `cancelled` is the number of threads whose open runs were cancelled.
    fn print_report(&self, report: &CopyReport, cancelled: usize, globals: &Globals) -> Result {
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
        if cancelled > 0 {
            print::note(&format!(
                "threads with runs that had not ended: {cancelled}. Their open runs were cancelled in the copy; --with-runs keeps them"
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
