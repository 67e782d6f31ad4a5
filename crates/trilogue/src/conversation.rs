//! One run, from the terminal: shows its events, asks what it asks, cancels it on Ctrl-C.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use futures_util::StreamExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use trilogue_sdk::client::{Client, ClientError, EventStream, StreamItem};
use trilogue_wire::native::{
    ContentEncoding, Interrupt, Outcome, Part, ResolutionKind, RunCreate, RunStatus,
};

use crate::arguments::Globals;
use crate::exit::{Exit, Result, Stop};
use crate::terminal::save::Folder;
use crate::terminal::show::{Show, Turn, summary};
use crate::terminal::{ask, print, safe, style};

/// The largest artifact that is fetched to be saved, in bytes.
const MAX_ARTIFACT_BYTES: usize = trilogue_domain::limits::MAX_BLOB_BYTES;

/// How a run is shown.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Showing {
    /// Do not show steps, tool calls and thoughts.
    #[arg(long)]
    pub(crate) no_metadata: bool,
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
    /// What commands need beside, to reach the same server.
    elsewhere: String,
    json: bool,
    folder: Option<Folder>,
    show: Show,
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
        if showing.raw && print::is_terminal() {
            return Err(Stop::usage("--raw writes only into a pipe or a file")
                .hint("the terminal would obey whatever the agent wrote; leave --raw out"));
        }
        let folder = match &showing.save {
            Some(path) => Some(Folder::open(path, showing.force)?),
            None => None,
        };
        let show = Show::new(print::is_terminal(), !showing.no_metadata, showing.raw);
        let (elsewhere, json) = (globals.elsewhere(), globals.json);
        Ok(Self { client, run, elsewhere, json, folder, show })
    }

    /// Starts the run and shows it to its end.
    ///
    /// # Errors
    /// How the run ended, where that is not its completion.
    pub(crate) async fn hold(mut self, new: RunCreate) -> Result {
        let new = RunCreate { id: Some(self.run.clone()), ..new };
        let mut stream = self.client.stream_run(new).await?;
        let ended = self.follow(&mut stream).await;
        let kept = self.keep_artifacts().await;
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
                Some(Turn::Ended(outcome)) => return self.ended(&outcome, cancelling),
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
                let shown = self.show.event(&event);
                if self.json {
                    print::raw(format!("{json}\n").as_bytes())?;
                } else {
                    self.print(&shown.out)?;
                    print::aside(&shown.aside);
                }
                Ok(shown.turn)
            }
            StreamItem::Gap(gap) => {
                print::note(&format!("the events before {} are gone", gap.first));
                Ok(None)
            }
        }
    }

    fn print(&self, text: &str) -> Result {
        if text.is_empty() {
            Ok(())
        } else if self.show.is_raw() {
            print::raw(text.as_bytes())
        } else {
            print::out(text)
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
        if self.json || !print::can_ask() {
            if !self.json {
                ask::show(interrupt);
            }
            let (id, run) = (safe::visible(&interrupt.id), safe::visible(&self.run));
            return Err(Stop::new(
                Exit::Waiting,
                format!("the run {run} needs an answer ({})", safe::visible(&interrupt.kind)),
            )
            .hint(format!("answer it with `trilogue approve {id}{}`", self.elsewhere)));
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

    fn ended(&self, outcome: &Outcome, cancelling: bool) -> Result {
        match outcome.status {
            RunStatus::Completed => Ok(()),
            RunStatus::Cancelled if cancelling => {
                Err(Stop::new(Exit::Interrupted, "the run was cancelled"))
            }
            RunStatus::Cancelled => {
                let reason = outcome.reason.as_deref().map(safe::line);
                let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                Err(Stop::new(Exit::Cancelled, format!("the run was cancelled{reason}")))
            }
            RunStatus::TimedOut => Err(Stop::failed("the run timed out: nobody answered")),
            _ => {
                let Some(error) = &outcome.error else {
                    return Err(Stop::failed("the run failed"));
                };
                let stop = Stop::failed(format!(
                    "the run failed: {} ({})",
                    safe::block(&error.message),
                    safe::line(&error.code)
                ));
                let again = "the same request may succeed later";
                Err(if error.transient { stop.hint(again) } else { stop })
            }
        }
    }

    /// Lists the artifacts, and saves them where that was asked for.
    async fn keep_artifacts(&self) -> Result {
        let mut saved = Vec::new();
        for part in self.show.artifacts() {
            let name = part.name.as_deref().unwrap_or_default();
            if !self.json {
                print::out(&format!("artifact: {} ({})\n", safe::visible(name), summary(part)))?;
            }
            let Some(folder) = &self.folder else { continue };
            let Some(bytes) = self.bytes(part).await? else {
                print::note(&format!("not saved: {} is elsewhere", safe::visible(name)));
                continue;
            };
            let path = folder.save(&distinct(name, &mut saved), &bytes)?;
            print::note(&format!("saved: {}", path.display()));
        }
        if self.folder.is_none() && !self.json && !self.show.artifacts().is_empty() {
            print::hint("save artifacts with --save DIR");
        }
        Ok(())
    }

    /// The content of a part; `None` where it only refers to another place.
    async fn bytes(&self, part: &Part) -> Result<Option<Vec<u8>>> {
        if let Some(blob) = &part.blob {
            let mut body = self.client.blob(&blob.url).await?;
            let mut bytes = Vec::new();
            while let Some(piece) = body.next().await {
                let piece = piece.map_err(|error| Stop::failed(error.message))?;
                if bytes.len() + piece.len() > MAX_ARTIFACT_BYTES {
                    return Err(Stop::failed(format!(
                        "the artifact has more than {MAX_ARTIFACT_BYTES} bytes"
                    )));
                }
                bytes.extend_from_slice(&piece);
            }
            return Ok(Some(bytes));
        }
        let Some(content) = &part.content else { return Ok(None) };
        if part.content_encoding != Some(ContentEncoding::Base64) {
            return Ok(Some(content.clone().into_bytes()));
        }
        let decoded = STANDARD.decode(content);
        decoded.map(Some).map_err(|_| Stop::failed("the artifact's base64 is malformed"))
    }
}

/// Hears Ctrl-C from now on.
fn ctrl_c() -> Result<Signal> {
    signal(SignalKind::interrupt())
        .map_err(|error| Stop::failed(format!("Ctrl-C cannot be heard: {error}")))
}

/// A name that no artifact of this run has had: `report.md`, then `report-2.md`.
fn distinct(name: &str, saved: &mut Vec<String>) -> String {
    let same = saved.iter().filter(|other| *other == name).count();
    saved.push(name.to_owned());
    if same == 0 {
        return name.to_owned();
    }
    match name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()) {
        Some((stem, extension)) => format!("{stem}-{}.{extension}", same + 1),
        None => format!("{name}-{}", same + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_of_one_name_are_told_apart() {
        let mut saved = Vec::new();
        let names: Vec<_> =
            ["a.md", "a.md", "b", "b", ".x"].map(|name| distinct(name, &mut saved)).into();
        assert_eq!(names, ["a.md", "a-2.md", "b", "b-2", ".x"]);
    }
}
