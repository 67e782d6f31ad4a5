//! One run, from the terminal: shows its events, asks what it asks, cancels it on Ctrl-C.

mod asked;
pub(crate) mod communication;
pub(crate) mod connect;
mod growth;
mod stage;
mod translation;

use std::path::PathBuf;

use clap::Args;
use trilogue_sdk::client::{Client, ClientError, EventStream, StreamItem};
use trilogue_wire::native::{Interrupt, Part, ResolutionKind, RunCreate};

use crate::arguments::Globals;
use crate::exit::{Exit, Result, Stop};
use crate::terminal::show::Turn;
use crate::terminal::{ask, print, safe, style};

use stage::{Stage, ctrl_c};

/// How a run is shown.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Showing {
    /// Show the answer alone: no citations, steps, tool calls and thoughts.
    #[arg(long)]
    pub(crate) no_metadata: bool,
    /// Show what the agent marks as not meant for the user, too.
    #[arg(long)]
    pub(crate) all: bool,
    /// Save artifacts into this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) save: Option<PathBuf>,
    /// Replace files that exist when saving.
    #[arg(long, requires = "save")]
    pub(crate) force: bool,
    /// Write the agent's text as it came, control sequences included. Only into a pipe or a file.
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
}

/// A run that is shown.
#[derive(Debug)]
pub(crate) struct Conversation {
    client: Client,
    run: String,
    stage: Stage,
}

/// What came next.
enum Next {
    Item(Result<Option<StreamItem>, ClientError>),
    CtrlC,
}

// === impl Conversation ===

impl Conversation {
    /// Prepares to show the run with this id.
    ///
    /// # Errors
    /// When the folder for artifacts cannot be made, or `--raw` would reach a terminal.
    pub(crate) fn new(
        client: Client,
        run: String,
        showing: &Showing,
        globals: &Globals,
    ) -> Result<Self> {
        Ok(Self { client, run, stage: Stage::new(showing, globals)? })
    }

    /// Starts the run and shows it to its end.
    ///
    /// # Errors
    /// How the run ended, where that is not its completion.
    pub(crate) async fn hold(mut self, new: RunCreate) -> Result {
        let new = RunCreate { id: Some(self.run.clone()), ..new };
        let mut stream = self.client.stream_run(new).await?;
        let ended = self.follow(&mut stream).await;
        let client = &self.client;
        let open = async |part: &Part| match &part.blob {
            Some(blob) => Ok(Some(client.blob(&blob.url).await?)),
            None => Ok(None),
        };
        let kept = self.stage.keep_artifacts(open).await;
        ended.and(kept)
    }

    async fn follow(&mut self, stream: &mut EventStream) -> Result {
        let mut cancelling = false;
        let mut interrupts = ctrl_c()?;
        loop {
            let next = tokio::select! {
                item = stream.next() => Next::Item(item),
                _ = interrupts.recv() => Next::CtrlC,
            };
            let item = match next {
                Next::CtrlC if cancelling => return Err(Stop::silent(Exit::Interrupted)),
                Next::CtrlC => {
                    cancelling = true;
                    self.cancel().await?;
                    continue;
                }
                Next::Item(item) => item?,
            };
            let Some(item) = item else {
                return Err(Stop::failed("the server ended the stream before the run"));
            };
            match self.item(item)? {
                None => {}
                Some(Turn::Ended(outcome)) => return self.stage.ended(&outcome, cancelling),
                Some(Turn::Asked(_)) if cancelling => {}
                Some(Turn::Asked(interrupt)) => match self.asked(&interrupt).await {
                    Err(stop) if stop.exit == Exit::Interrupted => {
                        cancelling = true;
                        self.cancel().await?;
                        // The question took this Ctrl-C; only the next one leaves at once.
                        interrupts = ctrl_c()?;
                    }
                    asked => asked?,
                },
            }
        }
    }

    /// Prints an item, and gives what it asks for.
    fn item(&mut self, item: StreamItem) -> Result<Option<Turn>> {
        match item {
            StreamItem::Event { event, json } => {
                self.stage.original(&json)?;
                self.stage.event(&event)
            }
            StreamItem::Gap(gap) => {
                print::note(&format!("the events before {} are gone", gap.first));
                Ok(None)
            }
        }
    }

    async fn cancel(&self) -> Result {
        print::note("\ncancelling the run; press Ctrl-C again to leave at once");
        match self.client.cancel_run(&self.run).await {
            Ok(_) => Ok(()),
            // It ended in the meantime: its last event says how.
            Err(error) if error.code() == Some("run_ended") => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks who is at the terminal, or stops with what to do.
    async fn asked(&self, interrupt: &Interrupt) -> Result {
        if self.stage.json || !print::can_ask() {
            if !self.stage.json {
                ask::show(interrupt);
            }
            let (id, run) = (safe::visible(&interrupt.id), safe::visible(&self.run));
            return Err(Stop::new(
                Exit::Waiting,
                format!("the run {run} needs an answer ({})", safe::visible(&interrupt.kind)),
            )
            .hint(format!("answer it with `trilogue approve {id}{}`", self.stage.elsewhere)));
        }
        loop {
            let answer = ask::answer(interrupt).await?;
            match self.client.answer(&interrupt.id, &answer).await {
                Ok(_) => return Ok(()),
                Err(error) if error.code() == Some("answer_invalid") => {
                    print::note(&format!("the answer does not fit: {error}"));
                }
                // Somebody else was faster, or the run has ended: its events go on and say how.
                Err(error) if matches!(error.code(), Some("interrupt_resolved" | "run_ended")) => {
                    let why = self.why_resolved(&interrupt.id).await;
                    let why = why.unwrap_or_else(|| safe::line(&error.to_string()));
                    let refused = style::bold("your answer was not taken");
                    print::note(&format!("\n{refused}: {why}"));
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// How a question ended; `None` where the server does not say.
    async fn why_resolved(&self, interrupt: &str) -> Option<String> {
        let resolution = self.client.interrupt(interrupt).await.ok()?.resolution?;
        Some(match (resolution.kind, &resolution.by) {
            (ResolutionKind::Answered, Some(by)) => {
                format!("the question was answered by {} before", safe::visible(by))
            }
            (ResolutionKind::Answered, None) => "the question was answered before".to_owned(),
            (ResolutionKind::TimedOut, _) => "the time to answer was over".to_owned(),
            (ResolutionKind::Cancelled, _) => "the run was cancelled before".to_owned(),
            (ResolutionKind::Withdrawn, _) => "the question was withdrawn before".to_owned(),
        })
    }
}
