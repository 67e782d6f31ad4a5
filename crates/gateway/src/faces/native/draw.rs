//! Renders texts of agents as safe HTML for pages.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, lock};
use trilogue_inspector::draw::{self, WorkLimit};
use trilogue_wire::native::{Draw, Drawing, Drawn, List};

use super::{NativeCall, NativeRoute};
use crate::core::render_turns::RenderTurns;
use crate::http::reply::Reply;
use crate::route::{Verb, json_response, of};

/// The most texts of one request.
const MAX_DRAWINGS: usize = 100;
/// The most bytes of all texts of one request.
const MAX_DRAWN_BYTES: usize = 256 * 1024;
/// The time limit for the drawings of one request; the remaining texts are shown as plain text.
const MAX_DRAWING_TIME: Duration = Duration::from_secs(1);
/// The most requests of one principal that are drawn at once; further ones wait.
const MAX_DRAWINGS_PER_PRINCIPAL: usize = 2;
/// The most HTML to cache, in bytes.
const MAX_KEPT_BYTES: usize = 8 * 1024 * 1024;
/// The most drawings to cache.
const MAX_KEPT: usize = 4_096;

const BASE: NativeRoute = NativeRoute::base(|call| Box::pin(draw_texts(call)))
    .path("/api/v1/draw")
    .verb(Verb::Post)
    .describe(
        "draw",
        "HTML without scripts, styles and foreign content, of Markdown, of code, or of what changed between two texts",
    )
    .request(of::<Draw>)
    .answers(&[json_response(200, "One piece of HTML for each text, in order.", of::<List<Drawn>>)])
    .errors(&[Code::BodyTooLarge]);

pub(crate) const ROUTES: &[NativeRoute] = &[BASE];

/// What the drawings of all callers share: a cache, and a limit of processors.
#[derive(Debug)]
pub(crate) struct Drawings {
    turns: Arc<RenderTurns>,
    kept: Mutex<KeptDrawings>,
}

/// The cache of drawings, by the digest of the text. HTML depends only on the text, so callers can share it.
#[derive(Debug, Default)]
struct KeptDrawings {
    html: HashMap<Digest, String>,
    /// The digests, oldest first.
    order: VecDeque<Digest>,
    bytes: usize,
}

type Digest = [u8; 32];

async fn draw_texts(call: NativeCall) -> Result<Reply> {
    let Draw { items } = call.json()?;
    let bytes: usize = items.iter().map(size).sum();
    if items.len() > MAX_DRAWINGS || bytes > MAX_DRAWN_BYTES {
        let message = format!("{} texts of {bytes} bytes are too much to draw", items.len());
        return Err(Error::new(Code::BodyTooLarge, message).hint(format!(
            "a request takes {MAX_DRAWINGS} texts of {MAX_DRAWN_BYTES} bytes in all"
        )));
    }
    let drawings = Arc::clone(&call.state.drawings);
    let turn = drawings.turns.wait(&call.caller.principal).await;
    let limit = WorkLimit::new(MAX_DRAWING_TIME);
    // A client that disconnects drops this, and the work ends.
    let _cancel = limit.cancel_on_drop();
    // Drawing uses a processor: a blocking task keeps the server responsive.
    let drawn = tokio::task::spawn_blocking(move || {
        // Hold these until the work ends, even if the client has disconnected.
        let _held = turn;
        items.iter().map(|item| drawings.draw(item, &limit)).collect()
    });
    let items = drawn.await.map_err(|error| Error::new(Code::Internal, error.to_string()))?;
    Ok(Reply::ok(&List::<Drawn> { items, next: None }))
}

fn size(item: &Drawing) -> usize {
    match item {
        Drawing::Markdown { markdown } => markdown.len(),
        Drawing::Difference { before, after } => before.len() + after.len(),
    }
}

fn digest(item: &Drawing) -> Digest {
    let mut hash = Sha256::new();
    match item {
        Drawing::Markdown { markdown } => hash.update(markdown),
        Drawing::Difference { before, after } => {
            hash.update((before.len() as u64).to_le_bytes());
            hash.update([0xff]);
            hash.update(before);
            hash.update(after);
        }
    }
    hash.finalize().into()
}

// === impl Drawings ===

impl Drawings {
    pub(crate) fn new() -> Arc<Self> {
        let turns = RenderTurns::new(MAX_DRAWINGS_PER_PRINCIPAL);
        Arc::new(Self { turns, kept: Mutex::default() })
    }

    fn draw(&self, item: &Drawing, limit: &WorkLimit) -> Drawn {
        let digest = digest(item);
        if let Some(html) = lock(&self.kept).html.get(&digest) {
            return Drawn { html: html.clone() };
        }
        let html = match item {
            Drawing::Markdown { markdown } => draw::markdown(markdown, limit),
            Drawing::Difference { before, after } => draw::difference(before, after, limit),
        };
        // Do not cache a drawing that was cut short: the next request draws it whole.
        if !limit.is_over() {
            lock(&self.kept).keep(digest, &html);
        }
        Drawn { html }
    }
}

// === impl KeptDrawings ===

impl KeptDrawings {
    fn keep(&mut self, digest: Digest, html: &str) {
        if html.len() > MAX_KEPT_BYTES / 8 || self.html.contains_key(&digest) {
            return;
        }
        self.bytes += html.len();
        self.html.insert(digest, html.to_owned());
        self.order.push_back(digest);
        while self.bytes > MAX_KEPT_BYTES || self.order.len() > MAX_KEPT {
            let Some(oldest) = self.order.pop_front() else { return };
            self.bytes -= self.html.remove(&oldest).map_or(0, |html| html.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_drawn_is_kept_within_limits_and_what_was_cut_short_is_not() {
        let drawings = Drawings::new();
        let item = Drawing::Markdown { markdown: "*a*".to_owned() };
        let plain = drawings.draw(&item, &WorkLimit::new(Duration::ZERO));
        assert_eq!(plain.html, "<p class=\"plain\">*a*</p>");
        let drawn = drawings.draw(&item, &WorkLimit::new(Duration::from_secs(60)));
        assert_eq!(drawn.html, "<p><em>a</em></p>\n");
        let again = drawings.draw(&item, &WorkLimit::new(Duration::ZERO));
        assert_eq!(again, drawn, "it is not drawn again");
        let mut kept = KeptDrawings::default();
        for number in 0..100_u8 {
            kept.keep([number; 32], &"x".repeat(MAX_KEPT_BYTES / 10));
        }
        assert_eq!((kept.html.len(), kept.bytes), (10, MAX_KEPT_BYTES / 10 * 10));
    }
}
