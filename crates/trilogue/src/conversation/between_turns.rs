//! What happens on a chat's thread while the person types: the agent's own work, and the turns of other clients.

use trilogue_sdk::client::{EventStream, StreamItem};
use trilogue_wire::native::Event;

use crate::terminal::exit::Result;
use crate::terminal::render::plain::{PlainOptions, PlainRenderer};
use crate::terminal::render::{FoldOptions, PieceFold};
use crate::terminal::{print, style};

/// Shows the events of a thread between two turns.
#[derive(Debug)]
pub(crate) struct BetweenTurns {
    /// `None` where the protocol has no such events, or after an error.
    stream: Option<EventStream>,
    fold: PieceFold,
    renderer: PlainRenderer,
}

// === impl BetweenTurns ===

impl BetweenTurns {
    pub(crate) fn new(stream: Option<EventStream>) -> Self {
        let fold = PieceFold::new(FoldOptions { metadata: true, all: false, users: true });
        let options = PlainOptions { live: false, raw: false, record: true };
        Self { stream, fold, renderer: PlainRenderer::new(options) }
    }

    /// Waits for the next event. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Event {
        while let Some(stream) = &mut self.stream {
            match stream.next().await {
                Ok(Some(StreamItem::Event { event, .. })) => return *event,
                Ok(Some(StreamItem::Gap(_))) => {}
                // The next turn says what is wrong.
                Ok(None) | Err(_) => self.stream = None,
            }
        }
        std::future::pending().await
    }

    /// Shows an event above the prompt, which is written again.
    pub(crate) fn show(&mut self, event: &Event, prompt: &str) -> Result {
        let shown = self.renderer.event(&mut self.fold, event);
        if shown.out.is_empty() && shown.aside.is_empty() {
            return Ok(());
        }
        // The prompt is on the line, perhaps with typed characters, which the terminal keeps.
        print::note("");
        print::out(&shown.out)?;
        print::aside(&shown.aside);
        print::aside(&style::bold(prompt));
        Ok(())
    }
}
