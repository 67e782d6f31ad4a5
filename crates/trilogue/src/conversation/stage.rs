//! What every conversation has: the place where it is shown, and what it leaves behind.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use trilogue_sdk::client::Body;
use trilogue_wire::agent_client::splice;
use trilogue_wire::native::{ContentEncoding, Event, Json, Outcome, Part, RunStatus};

use super::Showing;
use crate::arguments::Globals;
use crate::exit::{Exit, Result, Stop};
use crate::terminal::save::Folder;
use crate::terminal::show::{Show, Turn, summary};
use crate::terminal::{print, safe};

/// The largest artifact that is fetched to be saved, in bytes.
const MAX_ARTIFACT_BYTES: usize = trilogue_domain::limits::MAX_BLOB_BYTES;

/// Where a run is shown.
#[derive(Debug)]
pub(super) struct Stage {
    /// What commands need beside, to reach the same server.
    pub(super) elsewhere: String,
    pub(super) json: bool,
    folder: Option<Folder>,
    show: Show,
}

// === impl Stage ===

impl Stage {
    /// Prepares to show a run.
    ///
    /// # Errors
    /// When the folder for artifacts cannot be made, or `--raw` would reach a terminal.
    pub(super) fn new(showing: &Showing, globals: &Globals) -> Result<Self> {
        if showing.raw && print::is_terminal() {
            return Err(Stop::usage("--raw writes only into a pipe or a file")
                .hint("the terminal would obey whatever the agent wrote; leave --raw out"));
        }
        let folder = match &showing.save {
            Some(path) => Some(Folder::open(path, showing.force)?),
            None => None,
        };
        let show = Show::new(print::is_terminal(), !showing.no_metadata, showing.raw, showing.all);
        Ok(Self { elsewhere: globals.elsewhere(), json: globals.json, folder, show })
    }

    /// Takes in an event and prints it, unless the events themselves are printed; gives what it asks for.
    pub(super) fn event(&mut self, event: &Event) -> Result<Option<Turn>> {
        let shown = self.show.event(event);
        if !self.json {
            self.print(&shown.out)?;
            print::aside(&shown.aside);
        }
        Ok(shown.turn)
    }

    /// Prints what is held back: the run waits for somebody.
    pub(super) fn pause(&mut self) -> Result {
        let held = self.show.pause_here();
        if self.json { Ok(()) } else { self.print(&held) }
    }

    /// Prints an event as the server wrote it, where that is wanted.
    pub(super) fn original(&self, json: &str) -> Result {
        if self.json { print::raw(format!("{json}\n").as_bytes()) } else { Ok(()) }
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

    /// How the command ends after a run that ended so.
    pub(super) fn ended(&self, outcome: &Outcome, cancelling: bool) -> Result {
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
                let again = || "the same request may succeed later".to_owned();
                let hint = error.data.as_ref().and_then(hint_in);
                let hint = hint.or_else(|| error.transient.then(again));
                Err(match hint {
                    Some(hint) => stop.hint(hint),
                    None => stop,
                })
            }
        }
    }

    /// Lists the artifacts, and saves them where that was asked for.
    ///
    /// `open` opens the content of a part that is not in the part itself; `None` for what is not on the server.
    pub(super) async fn keep_artifacts(
        &self,
        open: impl AsyncFn(&Part) -> Result<Option<Body>>,
    ) -> Result {
        let mut saved = Vec::new();
        for part in self.show.artifacts() {
            let name = part.name.as_deref().unwrap_or_default();
            if !self.json {
                print::out(&format!("artifact: {} ({})\n", safe::visible(name), summary(part)))?;
            }
            let Some(folder) = &self.folder else { continue };
            let Some(bytes) = bytes(part, open(part).await?).await? else {
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
}

/// The content of a part, from here or from what was opened; `None` where it only refers to another place.
async fn bytes(part: &Part, body: Option<Body>) -> Result<Option<Vec<u8>>> {
    if let Some(mut body) = body {
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

/// What to do next, where the details of a failure say so.
fn hint_in(details: &Json) -> Option<String> {
    let hint = splice::get_text(details.as_str(), &["hint"])?;
    Some(safe::block(&hint))
}

/// Hears Ctrl-C from now on.
pub(super) fn ctrl_c() -> Result<Signal> {
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
