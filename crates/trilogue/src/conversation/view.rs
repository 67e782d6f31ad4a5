//! Where a run is rendered, and the artifacts that it leaves behind.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use futures_util::StreamExt as _;
use trilogue_sdk::client::ResponseBody;
use trilogue_wire::agent_client::splice;
use trilogue_wire::native::{ContentEncoding, Event, Json, Outcome, Part, RunStatus};

use super::RunReader;
use crate::exit::{CliError, ExitStatus, Result};
use crate::globals::Globals;
use crate::terminal::render::{RenderOptions, RunRenderer, summary};
use crate::terminal::save::Folder;
use crate::terminal::{print, safe};

/// The largest artifact that is fetched to be saved, in bytes.
const MAX_ARTIFACT_BYTES: usize = trilogue_domain::limits::MAX_BLOB_BYTES;

/// How a run is rendered.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ViewArguments {
    /// Show the answer alone: no citations, steps, tool calls and thoughts.
    #[arg(long)]
    no_metadata: bool,
    /// Also show what the agent marks as not meant for the user.
    #[arg(long)]
    all: bool,
    /// Save artifacts into this folder.
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Replace existing files when saving.
    #[arg(long, requires = "save")]
    force: bool,
    /// Write the agent's text unchanged, control sequences included. Only into a pipe or a file.
    #[arg(long, conflicts_with = "json")]
    raw: bool,
}

/// Renders one run to standard output and standard error.
#[derive(Debug)]
pub(super) struct RunView {
    json: bool,
    folder: Option<Folder>,
    renderer: RunRenderer,
}

// === impl RunView ===

impl RunView {
    pub(super) fn new(arguments: &ViewArguments, globals: &Globals) -> Result<Self> {
        if arguments.raw && print::is_terminal() {
            return Err(CliError::usage("--raw writes only into a pipe or a file").hint(
                "leave --raw out: a terminal would obey the control sequences in the agent's text",
            ));
        }
        let folder = match &arguments.save {
            Some(path) => Some(Folder::open(path, arguments.force)?),
            None => None,
        };
        let options = RenderOptions {
            live: print::is_terminal(),
            metadata: !arguments.no_metadata,
            raw: arguments.raw,
            all: arguments.all,
        };
        Ok(Self { json: globals.json, folder, renderer: RunRenderer::new(options) })
    }

    /// Renders an event; with `--json`, only takes note of it.
    pub(super) fn event(&mut self, event: &Event) -> Result {
        let rendered = self.renderer.event(event);
        if self.json {
            return Ok(());
        }
        self.print(&rendered.out)?;
        print::aside(&rendered.aside);
        Ok(())
    }

    /// Prints an event as the server wrote it, with `--json`.
    pub(super) fn original(&self, json: &str) -> Result {
        if self.json { print::json_lines(format!("{json}\n").as_bytes()) } else { Ok(()) }
    }

    fn print(&self, text: &str) -> Result {
        if text.is_empty() {
            Ok(())
        } else if self.renderer.is_raw() {
            print::raw(text.as_bytes())
        } else {
            print::out(text)
        }
    }

    /// The command's result for a run with this outcome.
    pub(super) fn ended(&self, outcome: &Outcome, cancelling: bool) -> Result {
        match outcome.status {
            RunStatus::Completed => Ok(()),
            RunStatus::Cancelled if cancelling => {
                Err(CliError::new(ExitStatus::Interrupted, "the run was cancelled"))
            }
            RunStatus::Cancelled => {
                let reason = outcome.reason.as_deref().map(safe::line);
                let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                Err(CliError::new(ExitStatus::Cancelled, format!("the run was cancelled{reason}")))
            }
            RunStatus::TimedOut => Err(CliError::failed("the run timed out: nobody answered")),
            _ => {
                let Some(error) = &outcome.error else {
                    return Err(CliError::failed("the run failed"));
                };
                let failed = CliError::failed(format!(
                    "the run failed: {} ({})",
                    safe::block(&error.message),
                    safe::line(&error.code)
                ));
                let again = || "the same request may succeed later".to_owned();
                let hint = error.data.as_ref().and_then(hint_in);
                let hint = hint.or_else(|| error.transient.then(again));
                Err(match hint {
                    Some(hint) => failed.hint(hint),
                    None => failed,
                })
            }
        }
    }

    pub(super) async fn save_artifacts(&self, reader: &impl RunReader) -> Result {
        let mut saved = Vec::new();
        for part in self.renderer.artifacts() {
            let name = part.name.as_deref().unwrap_or_default();
            if !self.json {
                print::out(&format!("artifact: {} ({})\n", safe::visible(name), summary(part)))?;
            }
            let Some(folder) = &self.folder else { continue };
            let Some(bytes) = bytes(part, reader.open(part).await?).await? else {
                print::note(&format!("not saved: {} is not on this server", safe::visible(name)));
                continue;
            };
            let path = folder.save(&distinct(name, &mut saved), &bytes)?;
            print::note(&format!("saved: {}", path.display()));
        }
        if self.folder.is_none() && !self.json && !self.renderer.artifacts().is_empty() {
            print::hint("save artifacts with --save DIR");
        }
        Ok(())
    }
}

/// The content of a part, from the part or from the opened body; `None` where it lies elsewhere.
async fn bytes(part: &Part, body: Option<ResponseBody>) -> Result<Option<Vec<u8>>> {
    if let Some(mut body) = body {
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| CliError::failed(error.message))?;
            if bytes.len() + piece.len() > MAX_ARTIFACT_BYTES {
                return Err(CliError::failed(format!(
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
    decoded.map(Some).map_err(|_| CliError::failed("the artifact's base64 is malformed"))
}

/// What to do next, where the details of a failure say so.
fn hint_in(details: &Json) -> Option<String> {
    let hint = splice::get_text(details.as_str(), &["hint"])?;
    Some(safe::block(&hint))
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
