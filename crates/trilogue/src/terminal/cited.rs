//! Places the notes of citations in the text they belong to.
//!
//! A citation names a range of the message's text by characters, and often comes after that text.
//! Into a pipe, a message is written when it is complete, so that every note stands at its place.
//! On a terminal, text is shown as it comes; a note whose place has scrolled by names its passage in the list below instead.

use super::safe::{self, Stripper};

/// The longest passage that a note quotes, in characters.
const MAX_QUOTE_CHARS: usize = 60;

/// One citation as an agent gave it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Source {
    pub(crate) start_index: Option<u64>,
    pub(crate) end_index: Option<u64>,
    pub(crate) url: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
}

/// The text of one message, with notes.
#[derive(Debug)]
pub(crate) struct CitedText {
    /// Whether text is given out as it comes.
    live: bool,
    /// Takes control sequences out; `None` keeps them.
    stripper: Option<Stripper>,
    /// The message's whole text so far, as the agent wrote it.
    raw: Vec<char>,
    /// How many characters of it were given out.
    written: usize,
    /// Notes whose place has not come yet, as (place, number).
    ahead: Vec<(usize, usize)>,
    notes: Vec<Note>,
}

#[derive(Debug)]
struct Note {
    source: Source,
    /// The passage, where the note could not be placed in the text.
    quote: Option<String>,
}

// === impl CitedText ===

impl CitedText {
    /// An empty message; `live` gives text out as it comes, `raw` keeps its control sequences.
    pub(crate) fn new(live: bool, raw: bool) -> Self {
        Self {
            live,
            stripper: (!raw).then(Stripper::default),
            raw: Vec::new(),
            written: 0,
            ahead: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds text. What is returned can be printed now.
    pub(crate) fn push(&mut self, text: &str) -> String {
        self.raw.extend(text.chars());
        if self.live { self.write(self.raw.len()) } else { String::new() }
    }

    /// Adds a citation. What is returned can be printed now.
    pub(crate) fn cite(&mut self, source: Source) -> String {
        let place = source.end_index.and_then(|end| usize::try_from(end).ok());
        let place = place.unwrap_or(self.raw.len());
        let known = self.notes.iter().position(|note| {
            note.source.url == source.url
                && note.source.title == source.title
                && (source.url.is_some() || source.title.is_some())
        });
        let start = source.start_index;
        let index = known.unwrap_or_else(|| {
            self.notes.push(Note { source, quote: None });
            self.notes.len() - 1
        });
        if place < self.written {
            let quote = self.quote(start, place);
            if let Some(note) = self.notes.get_mut(index) {
                note.quote.get_or_insert(quote);
            }
            return String::new();
        }
        self.ahead.push((place, index + 1));
        self.ahead.sort_by_key(|(place, _)| *place);
        if self.live { self.write(self.raw.len()) } else { String::new() }
    }

    /// Gives out what is held back: the message is complete, or something else is to be printed.
    pub(crate) fn flush(&mut self) -> String {
        let mut out = self.write(self.raw.len());
        // Places beyond the end of the text are at its end.
        for (_, number) in self.ahead.drain(..) {
            out.push_str(&format!("[{number}]"));
        }
        out
    }

    /// The list of notes, one line each.
    pub(crate) fn notes(&self) -> Vec<String> {
        (1..).zip(&self.notes).map(|(number, note)| note.line(number)).collect()
    }

    /// Whether nothing was said.
    pub(crate) fn is_empty(&self) -> bool {
        self.raw.is_empty() && self.notes.is_empty()
    }

    fn write(&mut self, until: usize) -> String {
        let mut out = String::new();
        while let Some((place, number)) = self.ahead.first().copied().filter(|it| it.0 <= until) {
            self.ahead.remove(0);
            self.copy(place.max(self.written), &mut out);
            out.push_str(&format!("[{number}]"));
        }
        self.copy(until, &mut out);
        out
    }

    fn copy(&mut self, until: usize, out: &mut String) {
        let piece: String = self.raw.get(self.written..until).unwrap_or_default().iter().collect();
        match &mut self.stripper {
            Some(stripper) => out.push_str(&stripper.push(&piece)),
            None => out.push_str(&piece),
        }
        self.written = self.written.max(until);
    }

    fn quote(&self, start: Option<u64>, end: usize) -> String {
        let start = start.and_then(|start| usize::try_from(start).ok()).unwrap_or(0).min(end);
        let passage = self.raw.get(start..end).unwrap_or_default();
        let mut text: String = passage.iter().take(MAX_QUOTE_CHARS).collect();
        if passage.len() > MAX_QUOTE_CHARS {
            text.push('…');
        }
        safe::line(&text)
    }
}

// === impl Note ===

impl Note {
    fn line(&self, number: usize) -> String {
        let mut line = format!("[{number}]");
        if let Some(quote) = &self.quote {
            line.push_str(&format!(" “{quote}”:"));
        }
        for text in [&self.source.title, &self.source.url].into_iter().flatten() {
            line.push(' ');
            line.push_str(&safe::line(text));
        }
        if let (None, None, Some(description)) =
            (&self.source.title, &self.source.url, &self.source.description)
        {
            line.push(' ');
            line.push_str(&safe::line(description));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(start: u64, end: u64, title: &str) -> Source {
        Source {
            start_index: Some(start),
            end_index: Some(end),
            url: Some(format!("https://example.com/{title}")),
            title: Some(title.to_owned()),
            description: None,
        }
    }

    #[test]
    fn into_a_pipe_late_notes_stand_at_their_place() {
        let mut text = CitedText::new(false, false);
        assert_eq!(text.push("Bees dance. Än"), "");
        assert_eq!(text.push("ts dig."), "");
        text.cite(source(12, 20, "Ants"));
        text.cite(source(0, 10, "Bees"));
        assert_eq!(text.flush(), "Bees dance[2]. Änts dig[1].");
        assert_eq!(
            text.notes(),
            ["[1] Ants https://example.com/Ants", "[2] Bees https://example.com/Bees"]
        );
    }

    #[test]
    fn on_a_terminal_a_note_is_placed_in_time_or_names_its_passage() {
        let mut text = CitedText::new(true, false);
        assert_eq!(text.push("Bees dance"), "Bees dance");
        assert_eq!(text.cite(source(0, 10, "Bees")), "[1]");
        text.cite(source(11, 14, "Ahead"));
        assert_eq!(text.push(". Ants dig."), ". An[2]ts dig.");
        assert_eq!(text.cite(source(12, 16, "Late")), "");
        assert_eq!(text.flush(), "");
        assert_eq!(text.notes()[2], "[3] “Ants”: Late https://example.com/Late");
    }

    #[test]
    fn one_source_has_one_number_and_places_beyond_the_end_are_at_the_end() {
        let mut text = CitedText::new(false, false);
        text.push("ab");
        text.cite(source(0, 1, "S"));
        text.cite(source(0, 99, "S"));
        assert_eq!(text.flush(), "a[1]b[1]");
        assert_eq!(text.notes().len(), 1);
    }

    #[test]
    fn a_sequence_around_a_note_stays_harmless() {
        let mut text = CitedText::new(false, false);
        text.push("a\u{1b}]52;c;AA");
        text.push("==\u{7}b");
        text.cite(source(0, 4, "\u{1b}[2Jtitle"));
        assert_eq!(text.flush(), "a[1]b");
        assert_eq!(text.notes(), ["[1] title https://example.com/title"]);
    }
}
