//! A message that grows on the screen. Its complete blocks are written once; only the last one is redrawn.

use super::super::cited::{CitedSource, CitedText, Footnote};
use super::super::markdown;
use super::super::rows::{Breaks, Canvas, Prefix, ScreenRow, StyledSpan, wrap};
use super::super::style::{DIM, LINK};

/// The longest block that is drawn as a whole, in bytes. A longer one is written in pieces.
const MAX_BLOCK_BYTES: usize = 32 * 1024;

#[derive(Debug)]
pub(super) struct LiveMessage {
    text: CitedText,
    start: PassageStart,
}

/// Text of a message that does not change any more.
#[derive(Debug)]
pub(super) struct Passage {
    text: String,
    start: PassageStart,
}

/// The prefix of a passage.
#[derive(Clone, Debug, Default)]
struct PassageStart {
    /// The line that opens the code which the passage before has left open.
    fence: Option<String>,
    /// How many of its rows are written, in how many columns.
    written: Option<(usize, usize)>,
}

// === impl LiveMessage ===

impl LiveMessage {
    pub(super) fn new() -> Self {
        Self { text: CitedText::new(false, false), start: PassageStart::default() }
    }

    pub(super) fn push(&mut self, text: &str) {
        self.text.push(text);
    }

    pub(super) fn skip(&mut self, text: &str) {
        self.text.skip(text);
    }

    pub(super) fn cite(&mut self, source: CitedSource) {
        self.text.cite(source);
    }

    /// The number of the note of this source.
    pub(super) fn note(&mut self, source: CitedSource) -> usize {
        self.text.note(source)
    }

    /// Takes the blocks before the last one.
    pub(super) fn take_complete(&mut self) -> Option<Passage> {
        let held = self.text.unwritten_text();
        let end =
            if held.len() > MAX_BLOCK_BYTES { held.len() } else { markdown::last_block(&held) };
        let complete = held.get(..end).filter(|complete| !complete.is_empty())?;
        let text = self.text.take_held(complete.chars().count());
        Some(self.passage(text))
    }

    /// Takes the text so far, before other output is drawn.
    pub(super) fn pause(&mut self) -> Option<Passage> {
        let text = self.text.flush();
        (!text.is_empty()).then(|| self.passage(text))
    }

    /// The rest of the text, and the sources.
    pub(super) fn end(mut self) -> (Option<Passage>, Vec<(usize, Footnote)>) {
        let text = self.text.end();
        let passage = (!text.is_empty()).then(|| self.passage(text));
        (passage, self.text.into_sources())
    }

    pub(super) fn is_midway(&self) -> bool {
        self.start.written.is_some()
    }

    /// The rows of the open block.
    pub(super) fn rows(&self, canvas: Canvas) -> Vec<ScreenRow> {
        self.start.rows(&self.text.preview(), canvas)
    }

    /// Takes `count` rows from the open block to write them, because the block is higher than the screen.
    pub(super) fn take_rows(&mut self, count: usize, canvas: Canvas) -> Vec<ScreenRow> {
        let mut rows = self.rows(canvas);
        rows.truncate(count);
        let (written, columns) = self.start.written.unwrap_or((0, canvas.columns));
        self.start.written = Some((written + rows.len(), columns));
        rows
    }

    fn passage(&mut self, text: String) -> Passage {
        let fence = markdown::open_fence(&text, self.start.fence.clone());
        let next = PassageStart { fence, written: None };
        Passage { text, start: std::mem::replace(&mut self.start, next) }
    }
}

// === impl Passage ===

impl Passage {
    /// A whole text.
    pub(super) fn new(text: String) -> Self {
        Self { text, start: PassageStart::default() }
    }

    pub(super) fn is_midway(&self) -> bool {
        self.start.written.is_some()
    }

    pub(super) fn rows(&self, canvas: Canvas) -> Vec<ScreenRow> {
        self.start.rows(&self.text, canvas)
    }
}

// === impl PassageStart ===

impl PassageStart {
    fn rows(&self, text: &str, canvas: Canvas) -> Vec<ScreenRow> {
        // Rows that are written fix the columns of the others.
        let (written, columns) = self.written.unwrap_or((0, canvas.columns));
        let canvas = Canvas { columns, ..canvas };
        let rows = match &self.fence {
            Some(fence) => markdown::rows(&format!("{fence}\n{text}"), canvas),
            None => markdown::rows(text, canvas),
        };
        rows.into_iter().skip(written).collect()
    }
}

/// A source: its number, passage, title and description, and its address below.
pub(super) fn source_rows(number: usize, note: &Footnote, canvas: Canvas) -> Vec<ScreenRow> {
    let source = &note.source;
    let mut line = Vec::new();
    if let Some(quote) = note.quote.as_deref().filter(|quote| !quote.is_empty()) {
        line.push(StyledSpan::new(&format!("“{quote}” "), DIM));
    }
    line.extend(source.title.as_deref().map(StyledSpan::plain));
    if let Some(description) = &source.description {
        let dash = if source.title.is_some() { " — " } else { "" };
        line.push(StyledSpan::new(&format!("{dash}{description}"), DIM));
    }
    let prefix = Prefix::hanging(StyledSpan::new(&format!("[{number}] "), DIM));
    let address = source.url.as_deref().map(|url| StyledSpan::new(url, LINK));
    if line.is_empty() {
        return wrap(&Vec::from_iter(address), &prefix, Breaks::Words, canvas);
    }
    let mut rows = wrap(&line, &prefix, Breaks::Words, canvas);
    if let Some(address) = address {
        let below = Prefix { first: prefix.rest.clone(), rest: prefix.rest };
        rows.extend(wrap(&[address], &below, Breaks::Words, canvas));
    }
    rows
}
