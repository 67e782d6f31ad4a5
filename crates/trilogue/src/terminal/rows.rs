//! Breaks styled text into rows of the terminal.
//!
//! The only control characters in a [`ScreenRow`] are those of this program's styles: every [`StyledSpan`] is
//! made safe.

use anstyle::Style;
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

use super::safe;

/// The fewest columns that text in a row gets, even if the terminal claims to be narrower.
const MIN_TEXT_COLUMNS: usize = 8;
const TAB: &str = "    ";
/// Wide punctuation that does not begin a row.
const CLOSING: &str = "、。，．！？：；）」』】〉》〕";

/// The area where text is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Canvas {
    pub(crate) columns: usize,
    /// Whether styles are written; without them the text alone carries the meaning.
    pub(crate) styled: bool,
}

/// Safe text of one style on one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StyledSpan {
    text: String,
    style: Style,
}

/// One row, with its styles.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ScreenRow {
    pub(crate) text: String,
    /// How many columns it takes.
    pub(crate) width: usize,
}

/// The prefix of each row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Prefix {
    pub(crate) first: Vec<StyledSpan>,
    pub(crate) rest: Vec<StyledSpan>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Breaks {
    /// At spaces and between wide characters; elsewhere only in a word that fits no row.
    Words,
    /// Anywhere, with every space: code.
    Anywhere,
}

/// A character as the terminal shows it.
#[derive(Clone, Copy, Debug)]
struct Glyph<'a> {
    text: &'a str,
    style: Style,
    width: usize,
}

// === impl StyledSpan ===

impl StyledSpan {
    pub(crate) fn new(text: &str, style: Style) -> Self {
        let text = if text.contains('\t') { &text.replace('\t', TAB) } else { text };
        Self { text: safe::line(text), style }
    }

    pub(crate) fn plain(text: &str) -> Self {
        Self::new(text, Style::new())
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn width(&self) -> usize {
        self.text.width()
    }

    fn glyphs(&self) -> impl Iterator<Item = Glyph<'_>> {
        let style = self.style;
        self.text.graphemes(true).map(move |text| Glyph { text, style, width: text.width() })
    }
}

// === impl Prefix ===

impl Prefix {
    /// The same text before the first row and, as spaces, before the others.
    pub(crate) fn hanging(first: StyledSpan) -> Self {
        let rest = StyledSpan::plain(&" ".repeat(first.width()));
        Self { first: vec![first], rest: vec![rest] }
    }
}

// === impl Glyph ===

impl Glyph<'_> {
    fn is_space(&self) -> bool {
        self.text == " "
    }

    /// Whether a row may end between this and the next.
    fn parts_from(&self, next: &Self) -> bool {
        self.is_space() || ((self.width == 2 || next.width == 2) && !CLOSING.contains(next.text))
    }
}

// === impl ScreenRow ===

impl ScreenRow {
    pub(crate) fn blank() -> Self {
        Self::default()
    }

    /// Makes a row on which the terminal draws an image by this sequence. The sequence must come from this
    /// program.
    pub(crate) fn image(sequence: String) -> Self {
        Self { text: sequence, width: 0 }
    }

    fn paint<'a>(glyphs: impl IntoIterator<Item = Glyph<'a>>, canvas: Canvas) -> Self {
        let mut row = Self::default();
        let mut style = Style::new();
        for glyph in glyphs {
            if canvas.styled && glyph.style != style {
                row.text.push_str(&format!("{style:#}{}", glyph.style));
                style = glyph.style;
            }
            row.text.push_str(glyph.text);
            row.width += glyph.width;
        }
        if canvas.styled {
            row.text.push_str(&format!("{style:#}"));
        }
        row
    }
}

/// The rows of one line of text; at least one.
pub(crate) fn wrap(
    spans: &[StyledSpan],
    prefix: &Prefix,
    breaks: Breaks,
    canvas: Canvas,
) -> Vec<ScreenRow> {
    let prefix = fitting(prefix, canvas.columns);
    let mut rows = Vec::new();
    let mut row: Vec<Glyph<'_>> = Vec::new();
    let mut used = 0;
    let room_behind = |before: &[StyledSpan]| {
        let room = canvas.columns.saturating_sub(before.iter().map(StyledSpan::width).sum());
        room.max(MIN_TEXT_COLUMNS.min(canvas.columns))
    };
    let (first_room, rest_room) = (room_behind(&prefix.first), room_behind(&prefix.rest));
    let finish = |row: &mut Vec<Glyph<'_>>, rows: &mut Vec<ScreenRow>| {
        let before = if rows.is_empty() { &prefix.first } else { &prefix.rest };
        let keeps = breaks == Breaks::Anywhere;
        let end = row.iter().rposition(|glyph| keeps || !glyph.is_space()).map_or(0, |end| end + 1);
        let text = before.iter().flat_map(StyledSpan::glyphs).chain(row.drain(..).take(end));
        rows.push(ScreenRow::paint(text, canvas));
    };
    for glyph in spans.iter().flat_map(StyledSpan::glyphs) {
        let room = if rows.is_empty() { first_room } else { rest_room };
        if used + glyph.width > room && !row.is_empty() {
            let rest = match breaks {
                Breaks::Words if !glyph.is_space() => row.split_off(break_before(&row, &glyph)),
                _ => Vec::new(),
            };
            finish(&mut row, &mut rows);
            used = rest.iter().map(|glyph| glyph.width).sum();
            row.extend(rest);
        }
        // A space between two rows is the break itself.
        let is_break = breaks == Breaks::Words && glyph.is_space() && row.is_empty();
        if !is_break || rows.is_empty() {
            used += glyph.width;
            row.push(glyph);
        }
    }
    if !row.is_empty() || rows.is_empty() {
        finish(&mut row, &mut rows);
    }
    rows
}

/// Puts text on one row, and cuts it if it is longer.
pub(crate) fn truncate(spans: &[StyledSpan], canvas: Canvas) -> ScreenRow {
    let glyphs: Vec<_> = spans.iter().flat_map(StyledSpan::glyphs).collect();
    let whole: usize = glyphs.iter().map(|glyph| glyph.width).sum();
    if whole <= canvas.columns {
        return ScreenRow::paint(glyphs, canvas);
    }
    let (mut used, mut kept) = (1, Vec::new());
    for glyph in glyphs {
        used += glyph.width;
        if used > canvas.columns {
            kept.push(Glyph { text: "…", width: 1, ..glyph });
            break;
        }
        kept.push(glyph);
    }
    ScreenRow::paint(kept, canvas)
}

/// Returns how many glyphs of a full row stay in it if this glyph follows.
fn break_before(row: &[Glyph<'_>], next: &Glyph<'_>) -> usize {
    let following = row.iter().skip(1).chain([next]);
    let parts = row.iter().zip(following).map(|(glyph, next)| glyph.parts_from(next));
    let parts: Vec<bool> = parts.collect();
    match parts.iter().rposition(|parts| *parts) {
        // Spaces alone are an indent: a word that is longer than the row breaks after it.
        Some(last) if row.iter().take(last + 1).any(|glyph| !glyph.is_space()) => last + 1,
        _ => row.len(),
    }
}

/// Returns the prefix, or an empty one if it would leave too little room for the text.
fn fitting(prefix: &Prefix, columns: usize) -> Prefix {
    let width = |spans: &[StyledSpan]| spans.iter().map(StyledSpan::width).sum::<usize>();
    let widest = width(&prefix.first).max(width(&prefix.rest));
    if widest + MIN_TEXT_COLUMNS > columns { Prefix::default() } else { prefix.clone() }
}

#[cfg(test)]
mod tests {
    use anstyle::Style;

    use super::*;

    const PLAIN: Canvas = Canvas { columns: 12, styled: false };

    fn texts(rows: Vec<ScreenRow>) -> Vec<String> {
        for row in &rows {
            assert_eq!(row.text.width(), row.width);
            assert!(row.width <= PLAIN.columns, "{row:?}");
        }
        rows.into_iter().map(|row| row.text).collect()
    }

    fn wrapped(text: &str, prefix: &Prefix, breaks: Breaks) -> Vec<String> {
        texts(wrap(&[StyledSpan::plain(text)], prefix, breaks, PLAIN))
    }

    #[test]
    fn words_stay_whole_where_they_fit() {
        let none = Prefix::default();
        assert_eq!(
            wrapped("the honey bees dance", &none, Breaks::Words),
            ["the honey", "bees dance"]
        );
        assert_eq!(wrapped("twelve-chars and", &none, Breaks::Words), ["twelve-chars", "and"]);
        assert_eq!(
            wrapped("pneumonoultramicro x", &none, Breaks::Words),
            ["pneumonoultr", "amicro x"]
        );
        assert_eq!(wrapped("", &none, Breaks::Words), [""]);
        assert_eq!(wrapped("a  b   ", &none, Breaks::Words), ["a  b"]);
    }

    #[test]
    fn wide_characters_and_emoji_are_measured_and_never_cut() {
        let none = Prefix::default();
        assert_eq!(wrapped("漢字漢字漢字漢字", &none, Breaks::Words), ["漢字漢字漢字", "漢字"]);
        assert_eq!(wrapped("漢字漢字漢字。漢", &none, Breaks::Words), ["漢字漢字漢", "字。漢"]);
        let family = "👩‍👩‍👧".repeat(7);
        assert_eq!(wrapped(&family, &none, Breaks::Words), ["👩‍👩‍👧".repeat(6), "👩‍👩‍👧".to_owned()]);
    }

    #[test]
    fn rows_hang_below_their_prefix_unless_it_leaves_no_room() {
        let item = Prefix::hanging(StyledSpan::plain("• "));
        assert_eq!(wrapped("one two three", &item, Breaks::Words), ["• one two", "  three"]);
        let deep = Prefix::hanging(StyledSpan::plain("        • "));
        assert_eq!(wrapped("one two three", &deep, Breaks::Words), ["one two", "three"]);
    }

    #[test]
    fn code_keeps_its_spaces() {
        let indent = vec![StyledSpan::plain("  ")];
        let code = Prefix { first: indent.clone(), rest: indent };
        assert_eq!(wrapped("if  x {   y  }", &code, Breaks::Anywhere), ["  if  x {   ", "  y  }"]);
    }

    #[test]
    fn a_row_that_is_too_long_is_cut_and_says_so() {
        let row = truncate(&[StyledSpan::plain("tool: "), StyledSpan::plain("漢字漢字")], PLAIN);
        assert_eq!((row.text.as_str(), row.width), ("tool: 漢字…", 11));
        assert_eq!(truncate(&[StyledSpan::plain("twelve chars")], PLAIN).text, "twelve chars");
    }

    #[test]
    fn nothing_of_an_agent_is_obeyed_and_styles_end_with_the_row() {
        let hostile =
            StyledSpan::new("a\u{1b}]52;c;AA\u{7}b\u{202e}\tc\u{9b}2J", Style::new().bold());
        let rows = wrap(
            &[hostile],
            &Prefix::default(),
            Breaks::Words,
            Canvas { columns: 40, styled: true },
        );
        assert_eq!(rows[0].text, "\u{1b}[1mab\\u{202e}    c\u{1b}[0m");
    }
}
