//! Places the notes of citations in a message's text.
//!
//! A citation names a range of the text by characters, and often comes after that text.
//! In a pipe, a message is written when it is complete, so every note is at its place.
//! On a terminal, text is shown as it comes; a note whose place was already written quotes its passage in the list below.
//!
//! # The place of a note
//! Indexes count characters (Unicode scalar values) over all `text/*` parts of the message in order, from 0; the end is excluded.
//! Artifacts are parts too, so their text counts, though it is not shown here: a place inside one is where the artifact is.
//! - A range: after its last character. One index alone, or both the same: there.
//! - No index, on a part with content: after that content. No index, on a part without content: where the part is.
//! - Indexes on a part with content count as well as on one without.
//! - An index that is negative or beyond the text: at the end of the text.

use trilogue_wire::native::Citation;

use super::safe::{self, Stripper};

const MAX_QUOTE_CHARS: usize = 60;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CitedSource {
    pub(crate) start_index: Option<i64>,
    pub(crate) end_index: Option<i64>,
    pub(crate) url: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
}

/// The text of one message, with notes.
#[derive(Debug)]
pub(crate) struct CitedText {
    /// Whether text is returned as it arrives.
    live: bool,
    /// Removes control sequences; `None` keeps them.
    stripper: Option<Stripper>,
    /// The text so far, unchanged.
    raw: Vec<char>,
    /// How many characters of it were written.
    written: usize,
    /// Text that counts and is not shown, in order of its place.
    gaps: Vec<HiddenSpan>,
    /// Notes whose place is not reached yet, in order of their place.
    ahead: Vec<FootnoteMark>,
    notes: Vec<Footnote>,
}

#[derive(Clone, Debug)]
struct HiddenSpan {
    /// The index of its first character.
    start: usize,
    /// How many characters it has; more than none.
    length: usize,
}

#[derive(Clone, Debug)]
struct FootnoteMark {
    /// After how many characters of the message.
    place: usize,
    /// The note's number, from 1.
    number: usize,
}

/// An entry of the list below a message.
#[derive(Debug)]
pub(crate) struct Footnote {
    pub(crate) source: CitedSource,
    /// The quoted passage, if the note is not in the text.
    pub(crate) quote: Option<String>,
}

// === impl CitedSource ===

impl From<&Citation> for CitedSource {
    fn from(citation: &Citation) -> Self {
        Self {
            start_index: citation.start_index,
            end_index: citation.end_index,
            url: citation.url.clone(),
            title: citation.title.clone(),
            description: citation.description.clone(),
        }
    }
}

impl CitedSource {
    pub(crate) fn is_placed(&self) -> bool {
        self.start_index.is_some() || self.end_index.is_some()
    }

    /// How many characters precede its note; `None` for the place of its part.
    fn place(&self) -> Option<usize> {
        // A negative index counts as one past the end.
        let index = self.end_index.or(self.start_index)?;
        Some(usize::try_from(index).unwrap_or(usize::MAX))
    }
}

// === impl CitedText ===

impl CitedText {
    /// Makes an empty message; `live` returns text as it arrives, `raw` keeps its control sequences.
    pub(crate) fn new(live: bool, raw: bool) -> Self {
        Self {
            live,
            stripper: (!raw).then(Stripper::default),
            raw: Vec::new(),
            written: 0,
            gaps: Vec::new(),
            ahead: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds text; returns what can be printed now.
    pub(crate) fn push(&mut self, text: &str) -> String {
        self.raw.extend(text.chars());
        if self.live { self.flush() } else { String::new() }
    }

    /// Counts text that is not shown: an artifact's.
    pub(crate) fn skip(&mut self, text: &str) {
        let (start, length) = (self.characters(), text.chars().count());
        if length > 0 {
            self.gaps.push(HiddenSpan { start, length });
        }
    }

    /// Adds a citation; returns what can be printed now.
    pub(crate) fn cite(&mut self, source: CitedSource) -> String {
        let place = source.place().unwrap_or(self.characters());
        let start = source.start_index;
        let number = self.note(source);
        if self.visible_chars_before(place) < self.written {
            let quote = self.quote(start, place);
            if let Some(note) = self.notes.get_mut(number - 1) {
                note.quote.get_or_insert(quote);
            }
            return String::new();
        }
        let after = self.ahead.partition_point(|mark| mark.place <= place);
        self.ahead.insert(after, FootnoteMark { place, number });
        if self.live { self.flush() } else { String::new() }
    }

    /// The number of a source's note, from 1: the same for every citation of it.
    pub(crate) fn note(&mut self, source: CitedSource) -> usize {
        let known = self.notes.iter().position(|note| {
            note.source.url == source.url
                && note.source.title == source.title
                && (source.url.is_some() || source.title.is_some())
        });
        if let Some(index) = known {
            return index + 1;
        }
        self.notes.push(Footnote { source, quote: None });
        self.notes.len()
    }

    /// Returns the text so far, before other output is printed.
    pub(crate) fn flush(&mut self) -> String {
        self.take(self.raw.len())
    }

    /// Returns the whole text that was not returned yet, without notes.
    pub(crate) fn unwritten_text(&self) -> String {
        self.raw.iter().skip(self.written).collect()
    }

    /// Returns the text that [`Self::end`] would return now.
    pub(crate) fn preview(&self) -> String {
        self.render(&self.ahead, self.raw.len(), &mut self.stripper.clone())
    }

    /// Returns the next `characters` characters of the held text, with their notes.
    pub(crate) fn take_held(&mut self, characters: usize) -> String {
        self.take(self.written.saturating_add(characters).min(self.raw.len()))
    }

    /// Returns the rest: the message is complete. Places beyond the end of the text are at its end.
    pub(crate) fn end(&mut self) -> String {
        let rest = std::mem::take(&mut self.ahead);
        self.advance(&rest, self.raw.len())
    }

    /// Returns the text up to this index of the displayed text.
    fn take(&mut self, until: usize) -> String {
        let reached = self.characters();
        let is_due = |mark: &FootnoteMark| {
            mark.place <= reached && self.visible_chars_before(mark.place) <= until
        };
        let due = self.ahead.partition_point(is_due);
        let due: Vec<_> = self.ahead.drain(..due).collect();
        self.advance(&due, until)
    }

    fn advance(&mut self, marks: &[FootnoteMark], until: usize) -> String {
        let mut stripper = self.stripper.take();
        let out = self.render(marks, until, &mut stripper);
        self.stripper = stripper;
        self.written = self.written.max(until);
        out
    }

    /// The text that was not returned, up to this index, with these notes.
    fn render(
        &self,
        marks: &[FootnoteMark],
        until: usize,
        stripper: &mut Option<Stripper>,
    ) -> String {
        let mut out = String::new();
        let mut written = self.written;
        let ends = marks
            .iter()
            .map(|mark| (self.visible_chars_before(mark.place).min(until), Some(mark.number)));
        for (end, number) in ends.chain([(until, None)]) {
            let piece: String = self.raw.get(written..end).unwrap_or_default().iter().collect();
            match stripper {
                Some(stripper) => out.push_str(&stripper.push(&piece)),
                None => out.push_str(&piece),
            }
            out.extend(number.map(|number| format!("[{number}]")));
            written = written.max(end);
        }
        out
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        (1..).zip(&self.notes).map(|(number, note)| note.line(number)).collect()
    }

    /// The notes, by their numbers.
    pub(crate) fn into_sources(self) -> Vec<(usize, Footnote)> {
        (1..).zip(self.notes).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.raw.is_empty() && self.notes.is_empty()
    }

    fn characters(&self) -> usize {
        self.gaps.iter().fold(self.raw.len(), |sum, gap| sum.saturating_add(gap.length))
    }

    /// How many shown characters precede this place.
    fn visible_chars_before(&self, place: usize) -> usize {
        let hidden = self.gaps.iter().take_while(|gap| gap.start < place);
        let hidden: usize = hidden.map(|gap| gap.length.min(place - gap.start)).sum();
        place.saturating_sub(hidden)
    }

    /// The shown text from this index to this place.
    fn quote(&self, start: Option<i64>, place: usize) -> String {
        let end = self.visible_chars_before(place);
        let start = start.and_then(|start| usize::try_from(start).ok()).unwrap_or(0);
        let passage = self.raw.get(self.visible_chars_before(start)..end).unwrap_or_default();
        let mut text: String = passage.iter().take(MAX_QUOTE_CHARS).collect();
        if passage.len() > MAX_QUOTE_CHARS {
            text.push('…');
        }
        safe::line(&text)
    }
}

// === impl Footnote ===

impl Footnote {
    fn line(&self, number: usize) -> String {
        let mut line = format!("[{number}]");
        if let Some(quote) = self.quote.as_ref().filter(|quote| !quote.is_empty()) {
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

    fn source(start: i64, end: i64, title: &str) -> CitedSource {
        CitedSource {
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
        assert_eq!(text.end(), "Bees dance[2]. Änts dig[1].");
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
        assert_eq!(text.end(), "");
        assert_eq!(text.notes()[2], "[3] “Ants”: Late https://example.com/Late");
    }

    #[test]
    fn one_source_has_one_number_and_places_beyond_the_end_are_at_the_end() {
        let mut text = CitedText::new(false, false);
        text.push("ab");
        text.cite(source(0, 1, "S"));
        text.cite(source(0, 99, "S"));
        assert_eq!(text.end(), "a[1]b[1]");
        assert_eq!(text.notes().len(), 1);
    }

    #[test]
    fn a_sequence_around_a_note_stays_harmless() {
        let mut text = CitedText::new(false, false);
        text.push("a\u{1b}]52;c;AA");
        text.push("==\u{7}b");
        text.cite(source(0, 4, "\u{1b}[2Jtitle"));
        assert_eq!(text.end(), "a[1]b");
        assert_eq!(text.notes(), ["[1] title https://example.com/title"]);
    }

    /// The text with a note by these indexes, given once the text is complete.
    fn placed(text: &str, start: Option<i64>, end: Option<i64>) -> String {
        let mut cited = CitedText::new(false, false);
        cited.push(text);
        let source = CitedSource { start_index: start, end_index: end, ..source(0, 0, "S") };
        cited.cite(source);
        cited.end()
    }

    #[test]
    fn a_range_starts_at_0_excludes_its_end_and_counts_characters() {
        let text = "If you are bored, you can try tipping a cow.";
        let cow = "If you are bored, you can try tipping a cow[1].";
        assert_eq!(placed(text, Some(30), Some(43)), cow);
        assert_eq!(placed("a𝄞é漢b", Some(0), Some(4)), "a𝄞é漢[1]b");
        assert_eq!(placed("e\u{301}b", Some(0), Some(2)), "e\u{301}[1]b", "code points");
    }

    #[test]
    fn one_index_alone_or_both_the_same_name_the_place_itself() {
        assert_eq!(placed("abcd", Some(2), None), "ab[1]cd");
        assert_eq!(placed("abcd", None, Some(2)), "ab[1]cd");
        assert_eq!(placed("abcd", Some(2), Some(2)), "ab[1]cd");
        assert_eq!(placed("abcd", Some(0), Some(0)), "[1]abcd");
    }

    #[test]
    fn without_an_index_the_note_stands_where_the_part_is() {
        for live in [false, true] {
            let mut text = CitedText::new(live, false);
            let mut out = text.push("ab");
            out +=
                &text.cite(CitedSource { start_index: None, end_index: None, ..source(0, 0, "S") });
            out += &text.push("cd");
            assert_eq!(out + &text.end(), "ab[1]cd");
        }
    }

    #[test]
    fn an_index_that_is_negative_or_beyond_the_text_is_its_end() {
        for (start, end) in [
            (Some(-1), None),
            (None, Some(-1)),
            (Some(-9), Some(-2)),
            (Some(0), Some(i64::MIN)),
            (Some(0), Some(i64::MAX)),
            (Some(99), None),
            (Some(4), Some(4)),
        ] {
            assert_eq!(placed("abcd", start, end), "abcd[1]", "{start:?} {end:?}");
        }
        assert_eq!(placed("abcd", Some(-3), Some(2)), "ab[1]cd", "the end is what counts");
        assert_eq!(placed("abcd", Some(3), Some(1)), "a[1]bcd");
        assert_eq!(placed("", Some(0), Some(4)), "[1]");
    }

    #[test]
    fn what_stands_beyond_the_text_waits_for_its_end() {
        for live in [false, true] {
            let mut text = CitedText::new(live, false);
            let mut out = text.push("ab");
            out += &text.cite(source(0, -1, "Beyond"));
            out += &text.cite(source(0, 3, "Ahead"));
            out += &text.flush();
            out += &text.push("cd");
            assert_eq!(out + &text.end(), "abc[2]d[1]");
        }
    }

    #[test]
    fn the_text_of_artifacts_counts_and_is_not_shown() {
        for live in [false, true] {
            let mut text = CitedText::new(live, false);
            let mut out = text.push("ab");
            text.skip("hidden");
            text.skip("");
            out += &text.cite(source(8, 10, "Ahead"));
            out += &text.cite(source(2, 5, "Inside"));
            out += &text.push("cdef");
            assert_eq!(out + &text.end(), "ab[2]cd[1]ef");
        }
        let mut text = CitedText::new(true, false);
        text.push("ab");
        text.skip("hidden");
        text.push("cdef");
        text.cite(source(1, 9, "Late"));
        assert_eq!(text.notes(), ["[1] “bc”: Late https://example.com/Late"]);
    }
}
