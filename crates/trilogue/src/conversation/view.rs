//! Renders a run to its output, and saves its artifacts.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};
use trilogue_sdk::client::ResponseBody;
use trilogue_wire::agent_client::splice;
use trilogue_wire::native::{ContentEncoding, Event, EventBody, Json, Outcome, Part, RunStatus};

use super::denial::DenialTracker;
use super::{RunReader, image_store};
use crate::command::globals::Globals;
use crate::terminal::beside::artifact_line;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::image::ImageProtocol;
use crate::terminal::render::phase::SPINNER_STEP;
use crate::terminal::render::plain::{PlainOptions, PlainRenderer};
use crate::terminal::render::rich::{Frame, RichOptions, RichRenderer};
use crate::terminal::render::{FoldOptions, PieceFold};
use crate::terminal::save::Folder;
use crate::terminal::{print, safe};

/// The largest artifact that is fetched to be saved, in bytes.
const MAX_ARTIFACT_BYTES: usize = trilogue_domain::limits::MAX_BLOB_BYTES;

/// How soon after another a frame is drawn while words arrive.
const FRAME_STEP: Duration = Duration::from_millis(33);

/// How a run is rendered.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ViewArguments {
    /// Show the answer alone: no citations, steps, tool calls and thoughts.
    #[arg(long)]
    no_metadata: bool,
    /// Also show what the agent marks as not meant for the user.
    #[arg(long)]
    all: bool,
    /// Write plain text, as into a pipe: nothing is drawn, wrapped or folded.
    #[arg(long)]
    plain: bool,
    /// Show thoughts, steps and tool calls in full, not folded into a line each.
    #[arg(long)]
    full: bool,
    /// Save artifacts into this folder.
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Replace existing files when saving.
    #[arg(long, requires = "save")]
    force: bool,
    /// Write the agent's text unchanged, control sequences included. Only into a pipe or a file.
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Whether standard output is for something else: all of it goes to standard error.
    #[arg(skip)]
    aside: bool,
}

/// Renders one run to standard output and standard error.
#[derive(Debug)]
pub(super) struct RunView {
    json: bool,
    /// Whether all goes to standard error.
    aside: bool,
    folder: Option<Folder>,
    fold: PieceFold,
    denial: DenialTracker,
    renderer: Renderer,
    /// The results for images that the terminal cannot draw.
    images: Vec<String>,
    /// When the screen was drawn.
    drawn: Instant,
}

#[derive(Debug)]
enum Renderer {
    Plain(PlainRenderer),
    Rich(RichRenderer),
}

// === impl ViewArguments ===

impl ViewArguments {
    /// Writes all to standard error.
    pub(crate) fn aside() -> Self {
        Self { aside: true, ..Self::default() }
    }
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
        let fold = PieceFold::new(FoldOptions {
            metadata: !arguments.no_metadata,
            all: arguments.all,
            users: false,
        });
        let is_plain = arguments.plain || arguments.aside || globals.json;
        let draws = print::can_redraw() && !is_plain;
        let drawn = Instant::now();
        let renderer = if draws {
            let options = RichOptions { unfolded: arguments.full, record: false };
            Renderer::Rich(RichRenderer::new(options, drawn))
        } else {
            let live = print::is_terminal() && !arguments.aside;
            Renderer::Plain(PlainRenderer::new(PlainOptions {
                live,
                raw: arguments.raw,
                record: false,
            }))
        };
        let (json, aside) = (globals.json, arguments.aside);
        let (denial, images) = (DenialTracker::default(), Vec::new());
        Ok(Self { json, aside, folder, fold, denial, renderer, images, drawn })
    }

    /// Renders an event; with `--json`, only takes note of it.
    pub(super) fn event(&mut self, event: &Event) -> Result {
        self.denial.event(&event.body);
        match &mut self.renderer {
            Renderer::Plain(plain) => {
                let rendered = plain.event(&mut self.fold, event);
                if self.json {
                    return Ok(());
                }
                match rendered.out.as_str() {
                    "" => {}
                    out if self.aside => print::aside(out),
                    out if plain.is_raw() => print::raw(out.as_bytes())?,
                    out => print::out(out)?,
                }
                print::aside(&rendered.aside);
                Ok(())
            }
            Renderer::Rich(rich) => {
                let now = Instant::now();
                if rich.event(&mut self.fold, event, now) {
                    self.settle()
                } else if now.saturating_duration_since(self.drawn) >= FRAME_STEP {
                    self.draw()
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Prepares the image of an event: to be drawn, otherwise to be saved.
    pub(super) async fn image(&mut self, event: &Event, reader: &impl RunReader) -> Result {
        let Renderer::Rich(rich) = &mut self.renderer else { return Ok(()) };
        let EventBody::MessagePart(message) = &event.body else { return Ok(()) };
        let part = &message.part;
        if !part.content_type.starts_with("image/") || part.name.is_some() {
            return Ok(());
        }
        let Some(bytes) = bytes(part, reader.open(part).await?).await? else { return Ok(()) };
        let columns = print::canvas().columns;
        let draw = |protocol: ImageProtocol| protocol.draw(&bytes, columns, print::cell_pixels());
        match ImageProtocol::of_terminal().and_then(draw) {
            Some(sequence) => rich.image(Some(sequence)),
            None => self.save_image(&part.content_type, &bytes),
        }
        Ok(())
    }

    /// Saves an image that the terminal cannot draw.
    fn save_image(&mut self, content_type: &str, bytes: &[u8]) {
        let subtype = content_type.trim_start_matches("image/");
        let extension: String = subtype.chars().take_while(char::is_ascii_alphanumeric).collect();
        let digest = Sha256::digest(bytes);
        let start: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        let folder = match &self.folder {
            Some(folder) => Ok(folder.clone()),
            None => image_store::open(),
        };
        let saved = folder.and_then(|folder| folder.save(&format!("{start}.{extension}"), bytes));
        self.images.push(match saved {
            Ok(path) => format!("image saved: {}", path.display()),
            Err(error) => format!("image not saved: {}", safe::line(&error.message)),
        });
    }

    /// Waits until the screen has to be drawn again.
    pub(super) async fn next_frame(&self) {
        match &self.renderer {
            Renderer::Plain(_) => std::future::pending().await,
            Renderer::Rich(_) => tokio::time::sleep_until((self.drawn + SPINNER_STEP).into()).await,
        }
    }

    /// Does this work while the screen shows its progress.
    pub(super) async fn while_drawing<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = self.next_frame() => {
                    // The next write reports an error of the terminal.
                    let _ = self.draw();
                }
            }
        }
    }

    /// Draws the changes on the screen.
    pub(super) fn draw(&mut self) -> Result {
        let Renderer::Rich(rich) = &mut self.renderer else { return Ok(()) };
        self.drawn = Instant::now();
        let canvas = print::canvas();
        print::frame(rich.frame(canvas, print::height(), self.drawn), canvas)
    }

    /// Leaves the screen unchanged, before other output is written.
    pub(super) fn settle(&mut self) -> Result {
        let Renderer::Rich(rich) = &mut self.renderer else { return Ok(()) };
        let canvas = print::canvas();
        let written = rich.settle(canvas);
        print::frame(Frame { written, live: Vec::new() }, canvas)
    }

    /// The run is asked to stop.
    pub(super) fn show_cancelling(&mut self) {
        if let Renderer::Rich(rich) = &mut self.renderer {
            rich.show_cancelling(Instant::now());
        }
    }

    /// Prints an event as the server wrote it, with `--json`.
    pub(super) fn original(&self, json: &str) -> Result {
        if self.json { print::json_lines(format!("{json}\n").as_bytes()) } else { Ok(()) }
    }

    /// The command's result for a run with this outcome.
    pub(super) fn command_result(&self, outcome: &Outcome, cancelling: bool) -> Result {
        match outcome.status {
            RunStatus::Completed if self.denial.has_ended_turn() && !cancelling => {
                Err(CliError::call_denied())
            }
            RunStatus::Completed => Ok(()),
            RunStatus::Cancelled if cancelling => {
                Err(CliError::new(ExitStatus::Interrupted, "the run was cancelled"))
            }
            RunStatus::Cancelled => {
                let reason = outcome.reason.as_deref().map(safe::line);
                let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                Err(CliError::new(ExitStatus::Cancelled, format!("the run was cancelled{reason}")))
            }
            RunStatus::TimedOut => Err(CliError::failure("the run timed out: no answer in time")),
            _ => {
                let Some(error) = &outcome.error else {
                    return Err(CliError::failure("the run failed"));
                };
                let failed = CliError::failure(format!(
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
        for image in &self.images {
            print::note(image);
        }
        let mut saved = Vec::new();
        for part in self.fold.artifacts() {
            let name = part.name.as_deref().unwrap_or_default();
            let line = format!("{}\n", artifact_line(part));
            match (self.json, self.aside) {
                (true, _) => {}
                (false, true) => print::aside(&line),
                (false, false) => print::out(&line)?,
            }
            let Some(folder) = &self.folder else { continue };
            let Some(bytes) = bytes(part, reader.open(part).await?).await? else {
                print::note(&format!(
                    "not saved: {} is not content that this server stores",
                    safe::visible(name)
                ));
                continue;
            };
            let path = folder.save(&distinct(name, &mut saved), &bytes)?;
            print::note(&format!("saved: {}", path.display()));
        }
        if self.folder.is_none() && !self.json && !self.fold.artifacts().is_empty() {
            print::hint("save artifacts with --save DIR");
        }
        Ok(())
    }
}

/// Returns the content of a part, from the part or from the opened body; `None` if it is stored
/// elsewhere.
async fn bytes(part: &Part, body: Option<ResponseBody>) -> Result<Option<Vec<u8>>> {
    if let Some(mut body) = body {
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| CliError::failure(error.message))?;
            if bytes.len() + piece.len() > MAX_ARTIFACT_BYTES {
                return Err(CliError::failure(format!(
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
    decoded.map(Some).map_err(|_| CliError::failure("the artifact's base64 is malformed"))
}

/// Returns the hint in the details of a failure, if they have one.
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
