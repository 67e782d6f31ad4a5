//! Safe HTML of texts, for pages that show what agents write.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use trilogue_inspector::draw;
use trilogue_wire::native::{Draw, Drawing, Drawn, List};

use super::{NativeCall, NativeRoute};
use crate::http::reply::Reply;
use crate::route::{Verb, json_response, of};

/// The most texts of one request.
const MAX_DRAWINGS: usize = 100;
/// The most bytes of all texts of one request.
const MAX_DRAWN_BYTES: usize = 256 * 1024;

const BASE: NativeRoute = NativeRoute::base(|call| Box::pin(draw_texts(call)))
    .path("/api/v1/draw")
    .verb(Verb::Post)
    .named(
        "draw",
        "HTML without scripts, styles and foreign content, of Markdown, of code, or of what changed between two texts",
    )
    .request(of::<Draw>)
    .answers(&[json_response(200, "One piece of HTML for each text, in order.", of::<List<Drawn>>)])
    .errors(&[Code::BodyTooLarge]);

pub(crate) const ROUTES: &[NativeRoute] = &[BASE];

async fn draw_texts(call: NativeCall) -> Result<Reply> {
    let Draw { items } = call.json()?;
    let bytes: usize = items.iter().map(size).sum();
    if items.len() > MAX_DRAWINGS || bytes > MAX_DRAWN_BYTES {
        let message = format!("{} texts of {bytes} bytes are too much to draw", items.len());
        return Err(Error::new(Code::BodyTooLarge, message).hint(format!(
            "a request takes {MAX_DRAWINGS} texts of {MAX_DRAWN_BYTES} bytes in all"
        )));
    }
    // Drawing is work for a processor: others are served meanwhile.
    let drawn = tokio::task::spawn_blocking(move || items.iter().map(drawn).collect());
    let items = drawn.await.map_err(|error| Error::new(Code::Internal, error.to_string()))?;
    Ok(Reply::ok(&List::<Drawn> { items, next: None }))
}

fn size(item: &Drawing) -> usize {
    match item {
        Drawing::Markdown { markdown } => markdown.len(),
        Drawing::Difference { before, after } => before.len() + after.len(),
    }
}

fn drawn(item: &Drawing) -> Drawn {
    let html = match item {
        Drawing::Markdown { markdown } => draw::markdown(markdown),
        Drawing::Difference { before, after } => draw::difference(before, after),
    };
    Drawn { html }
}
