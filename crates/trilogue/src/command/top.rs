//! `trilogue top`.

mod panes;

use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use trilogue::config::Span;
use trilogue_sdk::client::{Client, ClientError, Filter, Page};
use trilogue_wire::native::{Interrupt, Run, RunStatus, Status, Thread};

use self::panes::{PaneRow, Panes};
use super::status::count_text;
use crate::command::globals::Globals;
use crate::conversation::closing_reason;
use crate::conversation::remote;
use crate::terminal::ask::{self, TypedReply};
use crate::terminal::exit::{CliError, Result};
use crate::terminal::screen::{Screen, ScreenKey};
use crate::terminal::{print, safe, style, table};

/// The most threads, and the most runs, that are shown.
const MAX_ITEMS: u32 = 100;
/// How long a key is waited for before the screen is drawn again, in tenths of a second.
const KEY_TENTHS: u8 = 2;
const FORBIDDEN: u16 = 403;
const KEYS: &str = "↑↓ move  Tab next list  Enter open  a answer  c cancel  q leave";

/// Watch questions, runs, threads and agents' processes on one live screen.
///
/// Keys: the arrows move, Tab goes to the next list, Enter opens, `a` answers a question, `c` cancels a run, `q` leaves.
#[derive(Args, Debug)]
pub(crate) struct Top {
    /// Ask the server again after this time.
    #[arg(long, default_value = "2s", value_name = "DURATION")]
    every: Span,
}

/// The server's state at one time.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// `None` for a token without the right to see it.
    pub(super) status: Option<Status>,
    pub(super) questions: Vec<Interrupt>,
    pub(super) runs: Vec<Run>,
    pub(super) threads: Vec<Thread>,
}

/// A screen that follows a server.
struct Watch<'a> {
    client: Client,
    globals: &'a Globals,
    snapshot: Snapshot,
    panes: Panes,
    /// What the last key led to, or why the server does not answer.
    note: String,
    /// The run that `y` cancels.
    cancelling: Option<String>,
}

// === impl Top ===

impl Top {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        if globals.json || !print::can_ask() {
            return Err(CliError::usage("top needs a terminal")
                .hint("read the same with `trilogue status`, `runs`, `inbox` and `threads`"));
        }
        let client = remote::open(globals)?;
        let snapshot = Snapshot::take(&client).await?;
        let panes = Panes::of(&snapshot);
        let mut watch =
            Watch { client, globals, snapshot, panes, note: String::new(), cancelling: None };
        watch.follow(self.every.0).await
    }
}

// === impl Snapshot ===

impl Snapshot {
    async fn take(client: &Client) -> Result<Self, ClientError> {
        let page = Page { after: None, limit: Some(MAX_ITEMS) };
        let filter = Filter::default();
        let status = async {
            match client.status().await {
                Ok(status) => Ok(Some(status)),
                Err(ClientError::Problem(problem)) if problem.status == FORBIDDEN => Ok(None),
                Err(error) => Err(error),
            }
        };
        let (status, questions, mut runs, threads) = tokio::try_join!(
            status,
            client.interrupts(&filter, &page),
            client.runs(&filter, &page),
            client.threads(&page),
        )?;
        // What is at work comes first, each part newest first.
        runs.items.sort_by_key(|run| run.status.is_terminal());
        Ok(Self { status, questions: questions.items, runs: runs.items, threads: threads.items })
    }
}

// === impl Watch ===

impl Watch<'_> {
    async fn follow(&mut self, every: Duration) -> Result {
        let mut screen = open()?;
        let mut asked = Instant::now();
        loop {
            screen.draw(&self.rows());
            let waiting = tokio::task::spawn_blocking(move || {
                let key = screen.key(KEY_TENTHS);
                (screen, key)
            });
            let (back, key) = waiting.await.map_err(unreadable)?;
            screen = back;
            let row = self.panes.selected_row().cloned();
            match (key.map_err(unreadable)?, row) {
                (None, _) => {}
                (Some(key), _) if self.cancelling.is_some() => self.confirm(key).await,
                (Some(ScreenKey::Leave | ScreenKey::Char('q')), _) => return Ok(()),
                (Some(ScreenKey::Up), _) => self.panes.step(-1),
                (Some(ScreenKey::Down), _) => self.panes.step(1),
                (Some(ScreenKey::Next), _) => self.panes.next(),
                (Some(ScreenKey::Char('c')), Some(PaneRow { run: Some(run), .. })) => {
                    self.cancelling = Some(run);
                }
                (Some(ScreenKey::Char('a') | ScreenKey::Open), Some(row))
                    if row.question.is_some() =>
                {
                    // Leaves the screen, because the answer uses the plain terminal.
                    drop(screen);
                    self.answer(row.question.as_deref().unwrap_or_default()).await;
                    screen = open()?;
                    self.refresh().await;
                }
                (Some(ScreenKey::Open), Some(PaneRow { open: Some(command), .. })) => {
                    // Leaves the screen, because the command uses the plain terminal.
                    drop(screen);
                    self.show(&command).await;
                    screen = open()?;
                }
                (Some(_), _) => {}
            }
            if asked.elapsed() >= every {
                self.refresh().await;
                asked = Instant::now();
            }
        }
    }

    async fn refresh(&mut self) {
        match Snapshot::take(&self.client).await {
            Ok(snapshot) => {
                self.panes.update(&snapshot);
                self.snapshot = snapshot;
            }
            // The screen stays; the server may come back.
            Err(error) => self.note = safe::line(&error.to_string()),
        }
    }

    /// Asks the person the question, and sends the answer.
    async fn answer(&mut self, id: &str) {
        let question = self.snapshot.questions.iter().find(|question| question.id == *id);
        let Some(question) = question else { return };
        let client = &self.client;
        let reply = ask::answer(question, async || closing_reason(client, id).await).await;
        self.note = match reply {
            Ok(TypedReply::Answer(answer)) => match self.client.answer(id, &answer).await {
                Ok(_) => "answered".to_owned(),
                Err(error) => safe::line(&error.to_string()),
            },
            Ok(TypedReply::Later) => "the question stays open".to_owned(),
            Ok(TypedReply::Closed(why)) => format!("the question is closed: {}", safe::line(&why)),
            // Ctrl-C leaves the question, not the screen.
            Err(error) if error.message.is_empty() => "the question stays open".to_owned(),
            Err(error) => safe::line(&error.message),
        };
    }

    /// Shows the output of another command until Enter is pressed.
    async fn show(&mut self, arguments: &[String]) {
        let program = std::env::current_exe().unwrap_or_else(|_| "trilogue".into());
        let mut command = Command::new(program);
        command.args(arguments).env("TRILOGUE_URL", self.globals.server());
        command.envs(self.globals.token.as_ref().map(|token| ("TRILOGUE_TOKEN", token)));
        // Ctrl-C ends the other command alone.
        let shown = tokio::select! {
            shown = tokio::task::spawn_blocking(move || command.status()) => shown,
            () = async { while tokio::signal::ctrl_c().await.is_ok() {} } => return,
        };
        if let Ok(Err(error)) = shown {
            self.note = format!("cannot show it: {error}");
            return;
        }
        // The terminal is read only to wait, so the typed text is dropped.
        drop(ask::pause("\nEnter goes back ").await);
        self.note.clear();
    }

    async fn confirm(&mut self, key: ScreenKey) {
        let Some(run) = self.cancelling.take() else { return };
        if key != ScreenKey::Char('y') {
            self.note = "nothing was cancelled".to_owned();
            return;
        }
        self.note = match self.client.cancel_run(&run).await {
            Ok(_) => format!("cancelling {}", table::noted_id(&run)),
            Err(error) => safe::line(&error.to_string()),
        };
        self.refresh().await;
    }

    /// Everything on the screen, row by row.
    fn rows(&self) -> Vec<String> {
        let (columns, height) = Screen::size();
        let fit = |text: &str| table::cut(text, columns.saturating_sub(1));
        let last = match &self.cancelling {
            Some(run) => format!("Cancel the run {}? y or n", table::noted_id(run)),
            None if self.note.is_empty() => KEYS.to_owned(),
            None => format!("{} · {KEYS}", self.note),
        };
        let mut rows = vec![style::bold(&fit(&self.heading())), String::new()];
        let left = height.saturating_sub(rows.len() + 1);
        rows.extend(self.panes.rows(columns.saturating_sub(1), left));
        rows.resize(height.saturating_sub(1).max(rows.len()), String::new());
        rows.truncate(height.saturating_sub(1));
        rows.push(style::dim(&fit(&last)));
        rows
    }

    /// The server in one row.
    fn heading(&self) -> String {
        let server = safe::line(&self.globals.server());
        let at_work = self.snapshot.runs.iter().filter(|run| is_at_work(run)).count();
        let open = self.snapshot.questions.len();
        let count = |count: usize, noun| count_text(count as u64, noun);
        let (at_work, open) = (count(at_work, "run"), count(open, "question"));
        let mut text = format!("{server}  {at_work} at work, {open}");
        if let Some(status) = &self.snapshot.status {
            let processes = &status.agents.list;
            let memory: u64 = processes.iter().map(|process| process.memory_bytes).sum();
            text.push_str(&format!(
                ", {}, {}",
                count_text(status.streams, "stream"),
                count_text(status.connections, "connection"),
            ));
            if memory > 0 {
                text.push_str(&format!(", agents use {}", panes::memory(memory)));
            }
        }
        text
    }
}

/// Whether the run's agent runs: it does not wait for its turn or for an answer.
fn is_at_work(run: &Run) -> bool {
    matches!(run.status, RunStatus::Running | RunStatus::Cancelling)
}

fn open() -> Result<Screen> {
    Screen::open().map_err(unreadable)
}

fn unreadable(error: impl std::fmt::Display) -> CliError {
    CliError::failure(format!("cannot read the terminal: {error}"))
}
