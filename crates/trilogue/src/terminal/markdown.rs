//! Renders Markdown as rows of the terminal.
//!
//! A line break in the source is one on the screen: agents that write no Markdown mean it so.
//! Without styles, the marks of headings, emphasis and code stay, because they carry the meaning.

use std::ops::Range;

use anstyle::{Effects, Style};
use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle};
use pulldown_cmark::{Event, HeadingLevel, Options, Tag, TagEnd};
use trilogue_inspector::draw::BoundedEvents;

use super::rows::{Breaks, Canvas, Prefix, ScreenRow, StyledSpan, wrap};
use super::safe;
use super::style::{BOLD, CODE, DIM, LINK};

/// A line below the heading, and nothing else.
const TABLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
/// How many signs open a block of code.
const MIN_FENCE: usize = 3;
/// The widest rule across the text, in columns.
const MAX_RULE_COLUMNS: usize = 40;

/// The most columns of a table that is drawn as one. The cells of a wider one follow each other.
const MAX_TABLE_COLUMNS: usize = 32;
/// The most cells of a table that is drawn as one.
const MAX_TABLE_CELLS: usize = 4_096;
/// The most bytes that are measured to break words of a table that is drawn as one. A word that is longer than its column is measured anew
/// for each row that it takes.
const MAX_TABLE_MEASURED_BYTES: usize = 500_000;

/// The rows of a text. A text that nests too deep is shown as it is written.
pub(crate) fn rows(text: &str, canvas: Canvas) -> Vec<ScreenRow> {
    let mut page = MarkdownRows::new(canvas);
    match BoundedEvents::of(text, options()) {
        Some(events) => events.for_each(|(event, _)| page.event(event)),
        None => page.text(text),
    }
    page.flush();
    page.rows
}

/// Returns the byte at which the last block of a text begins: the blocks before it are complete.
pub(crate) fn last_block(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut last = 0;
    let events = BoundedEvents::of(text, options());
    for (event, Range { start, .. }) in events.into_iter().flatten() {
        match event {
            Event::Start(_) => {
                if depth == 0 {
                    last = start;
                }
                depth += 1;
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            _ if depth == 0 => last = start,
            _ => {}
        }
    }
    // In a list or quote, a block of code begins after its line's marks; the line itself begins before them.
    text.get(..last).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1)
}

/// Returns the line that opens the code block in which a text ends, or `None` if the text does not end in
/// code.
pub(crate) fn open_fence(text: &str, before: Option<String>) -> Option<String> {
    text.lines().fold(before, |open, line| {
        let sign = |line: &str| {
            line.trim_start().chars().take_while(|c| matches!(c, '`' | '~')).collect::<String>()
        };
        let (ours, is_fence) = (sign(line), sign(line).len() >= MIN_FENCE);
        match open {
            None if is_fence => Some(line.trim_start().to_owned()),
            Some(open) if ours.starts_with(&sign(&open)) && line.trim() == ours => None,
            open => open,
        }
    })
}

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// The rows so far, and the open elements.
#[derive(Debug)]
struct MarkdownRows {
    canvas: Canvas,
    rows: Vec<ScreenRow>,
    /// The open line.
    line: Vec<StyledSpan>,
    styles: Vec<Style>,
    levels: Vec<BlockIndent>,
    lists: Vec<ItemNumbers>,
    /// The text of the open block of code.
    code: Option<String>,
    table: Option<OpenTable>,
    /// The addresses of open links, and the index in the line at which each link's text begins.
    links: Vec<(String, usize)>,
    breaks: Breaks,
}

/// A list or a quote that encloses the open block.
#[derive(Debug)]
struct BlockIndent {
    /// The prefix of the first row instead of `rest`, until that row is written.
    marker: Option<StyledSpan>,
    rest: StyledSpan,
}

#[derive(Debug)]
struct ItemNumbers {
    /// The number of the next item; `None` for bullets.
    next: Option<u64>,
    begun: usize,
}

#[derive(Debug, Default)]
struct OpenTable {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
    cell: String,
    row: Vec<String>,
}

// === impl MarkdownRows ===

impl MarkdownRows {
    fn new(canvas: Canvas) -> Self {
        Self {
            canvas,
            rows: Vec::new(),
            line: Vec::new(),
            styles: Vec::new(),
            levels: Vec::new(),
            lists: Vec::new(),
            code: None,
            table: None,
            links: Vec::new(),
            breaks: Breaks::Words,
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(text) if self.canvas.styled => self.styled(CODE, &text),
            Event::Code(text) => self.text(&format!("`{text}`")),
            Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::SoftBreak | Event::HardBreak => match &mut self.table {
                Some(table) => table.cell.push(' '),
                None => self.flush(),
            },
            Event::Rule => {
                self.gap();
                let rule = "─".repeat(self.canvas.columns.min(MAX_RULE_COLUMNS));
                self.styled(DIM, &rule);
                self.flush();
            }
            Event::TaskListMarker(done) => self.text(if done { "☑ " } else { "☐ " }),
            Event::InlineMath(text) | Event::DisplayMath(text) => self.text(&text),
            Event::FootnoteReference(name) => self.text(&format!("[^{name}]")),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.gap(),
            Tag::Heading { level, .. } => {
                self.gap();
                self.mark(&format!("{} ", "#".repeat(level as usize)));
                self.styles.push(match level {
                    HeadingLevel::H1 => Style::new().effects(Effects::BOLD | Effects::UNDERLINE),
                    _ => BOLD,
                });
            }
            Tag::BlockQuote(_) => {
                self.gap();
                let bar = StyledSpan::new("▎ ", DIM);
                self.levels.push(BlockIndent { marker: None, rest: bar });
            }
            Tag::CodeBlock(_) => {
                self.gap();
                self.code = Some(String::new());
            }
            Tag::List(first) => {
                self.flush();
                if self.lists.is_empty() {
                    self.gap();
                }
                self.lists.push(ItemNumbers { next: first, begun: 0 });
            }
            Tag::Item => self.item(),
            Tag::Table(_) => {
                self.gap();
                self.table = Some(OpenTable::default());
            }
            Tag::Emphasis => self.emphasize("*", Style::new().italic()),
            Tag::Strong => self.emphasize("**", BOLD),
            Tag::Strikethrough => self.emphasize("~~", Style::new().strikethrough()),
            Tag::Link { dest_url, .. } => {
                self.links.push((dest_url.into_string(), self.line.len()));
                self.styles.push(LINK);
            }
            Tag::Image { dest_url, .. } => {
                self.text("image: ");
                self.links.push((dest_url.into_string(), self.line.len()));
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.flush(),
            TagEnd::Heading(_) => {
                self.styles.pop();
                self.flush();
            }
            TagEnd::Item | TagEnd::BlockQuote(_) => {
                self.flush();
                self.show_empty_item();
                self.levels.pop();
            }
            TagEnd::CodeBlock => self.code_block(),
            TagEnd::List(_) => {
                self.lists.pop();
            }
            TagEnd::Table => self.table(),
            TagEnd::TableHead => {
                if let Some(table) = &mut self.table {
                    table.heading = std::mem::take(&mut table.row);
                }
            }
            TagEnd::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(std::mem::take(&mut table.row));
                }
            }
            TagEnd::TableCell => {
                if let Some(table) = &mut self.table {
                    table.row.push(std::mem::take(&mut table.cell));
                }
            }
            TagEnd::Emphasis => self.emphasis_end("*"),
            TagEnd::Strong => self.emphasis_end("**"),
            TagEnd::Strikethrough => self.emphasis_end("~~"),
            TagEnd::Link => {
                self.styles.pop();
                self.address();
            }
            TagEnd::Image => self.address(),
            _ => {}
        }
    }

    fn item(&mut self) {
        self.flush();
        let Some(list) = self.lists.last_mut() else { return };
        list.begun += 1;
        let marker = match &mut list.next {
            Some(number) => {
                let marker = format!("{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            None => "• ".to_owned(),
        };
        let rest = StyledSpan::plain(&" ".repeat(marker.chars().count()));
        self.levels.push(BlockIndent { marker: Some(StyledSpan::plain(&marker)), rest });
    }

    /// An item without content is its marker alone.
    fn show_empty_item(&mut self) {
        if self.levels.last().is_some_and(|level| level.marker.is_some()) {
            self.break_line(&[]);
        }
    }

    /// An empty row before a block, but for the first one on the page or in an item.
    fn gap(&mut self) {
        self.flush();
        let opens_item = self.levels.last().is_some_and(|level| level.marker.is_some());
        let is_first_item = self.lists.last().is_some_and(|list| list.begun == 1);
        let is_apart = self.rows.last().is_none_or(|last| *last == ScreenRow::blank());
        if !(is_apart || opens_item && is_first_item) {
            self.rows.push(ScreenRow::blank());
        }
    }

    fn text(&mut self, text: &str) {
        if let Some(code) = &mut self.code {
            code.push_str(text);
            return;
        }
        let style = self.styles.iter().fold(Style::new(), |all, style| {
            let effects = all.get_effects() | style.get_effects();
            all.effects(effects).fg_color(style.get_fg_color().or(all.get_fg_color()))
        });
        self.styled(style, text);
    }

    fn styled(&mut self, style: Style, text: &str) {
        if let Some(table) = &mut self.table {
            table.cell.push_str(&safe::line(text));
            return;
        }
        let mut lines = text.split('\n');
        self.line.extend(lines.next().map(|line| StyledSpan::new(line, style)));
        for line in lines {
            self.flush();
            if !line.is_empty() {
                self.line.push(StyledSpan::new(line, style));
            }
        }
    }

    /// Writes a mark of the source, if styles cannot replace it.
    fn mark(&mut self, mark: &str) {
        if !self.canvas.styled {
            self.text(mark);
        }
    }

    fn emphasize(&mut self, mark: &str, style: Style) {
        self.mark(mark);
        self.styles.push(style);
    }

    fn emphasis_end(&mut self, mark: &str) {
        self.styles.pop();
        self.mark(mark);
    }

    /// Writes a link's address after its text, unless the text is the address itself: an agent must not hide
    /// it.
    fn address(&mut self) {
        let Some((address, begun)) = self.links.pop() else { return };
        let text: String = self.line.iter().skip(begun).map(StyledSpan::text).collect();
        let address = safe::line(&address);
        if self.table.is_some() || text != address {
            self.styled(DIM, &format!(" ({address})"));
        }
    }

    fn code_block(&mut self) {
        let code = self.code.take().unwrap_or_default();
        self.levels.push(BlockIndent { marker: None, rest: StyledSpan::plain("  ") });
        self.breaks = Breaks::Anywhere;
        for line in code.strip_suffix('\n').unwrap_or(&code).split('\n') {
            self.break_line(&[StyledSpan::new(line, CODE)]);
        }
        self.breaks = Breaks::Words;
        self.levels.pop();
    }

    fn table(&mut self) {
        let Some(open) = self.table.take() else { return };
        let columns = open.heading.len();
        if columns > MAX_TABLE_COLUMNS
            || columns * open.rows.len() > MAX_TABLE_CELLS
            || open.measured_bytes(self.canvas.columns) > MAX_TABLE_MEASURED_BYTES
        {
            for mut row in [open.heading].into_iter().chain(open.rows) {
                // Cells that the parser adds to short rows say nothing.
                row.truncate(row.iter().rposition(|cell| !cell.is_empty()).map_or(0, |it| it + 1));
                self.break_line(&[StyledSpan::plain(&row.join(" | "))]);
            }
            return;
        }
        let indent: usize = self.levels.iter().map(|level| level.rest.width()).sum();
        let width = u16::try_from(self.canvas.columns.saturating_sub(indent)).unwrap_or(u16::MAX);
        let mut table = Table::new();
        table.load_style(TABLE);
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        table.set_header(open.heading);
        for row in open.rows {
            table.add_row(row);
        }
        self.breaks = Breaks::Anywhere;
        for line in table.to_string().lines() {
            self.break_line(&[StyledSpan::plain(line.trim_end())]);
        }
        self.breaks = Breaks::Words;
    }

    /// Writes the open line, if there is one.
    fn flush(&mut self) {
        if !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            self.break_line(&line);
        }
    }

    fn break_line(&mut self, line: &[StyledSpan]) {
        let prefix = Prefix {
            rest: self.levels.iter().map(|level| level.rest.clone()).collect(),
            first: self
                .levels
                .iter_mut()
                .map(|level| level.marker.take().unwrap_or_else(|| level.rest.clone()))
                .collect(),
        };
        self.rows.extend(wrap(line, &prefix, self.breaks, self.canvas));
    }
}

// === impl OpenTable ===

impl OpenTable {
    /// Returns about how many bytes the layout measures to break the words, if each column is equally wide.
    fn measured_bytes(&self, canvas_columns: usize) -> usize {
        let width = (canvas_columns / self.heading.len().max(1)).max(1);
        let cells = self.rows.iter().flatten().chain(&self.heading);
        let words = cells.flat_map(|cell| cell.split(' ')).map(str::len);
        words.map(|bytes| bytes.saturating_mul(1 + bytes / (2 * width))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str, columns: usize) -> String {
        let rows = rows(text, Canvas { columns, styled: false });
        let rows: Vec<String> = rows.into_iter().map(|row| row.text).collect();
        rows.join("\n")
    }

    #[test]
    fn blocks_stand_apart_and_wrap_below_their_marks() {
        let text = "# Bees\nThey *dance* and **hum** `zzz`.\n\n- one two three four\n- two\n  1. deep\n  2. er\n\n> said\n> so\n\n---\n\n```rust\nlet  x = 1;\n\nlet y;\n```\nend";
        let expected = "# Bees\n\nThey *dance* and\n**hum** `zzz`.\n\n• one two three\n  four\n• two\n  1. deep\n  2. er\n\n▎ said\n▎ so\n\n────────────────\n\n  let  x = 1;\n\n  let y;\n\nend";
        let shown = plain(text, 16);
        let shown: Vec<&str> = shown.lines().map(str::trim_end).collect();
        assert_eq!(shown.join("\n"), expected);
    }

    #[test]
    fn loose_lists_breathe_and_tasks_have_boxes() {
        assert_eq!(plain("1. a\n\n2. b\n\n   more", 20), "1. a\n\n2. b\n\n   more");
        assert_eq!(plain("- [x] a\n- [ ] b\n-", 20), "• ☑ a\n• ☐ b\n• ");
    }

    #[test]
    fn an_address_is_never_hidden() {
        assert_eq!(
            plain("[bank](https://evil.example) <https://a.example>", 80),
            "bank (https://evil.example) https://a.example"
        );
        assert_eq!(
            plain("![cat](https://c.example/c.png)", 80),
            "image: cat (https://c.example/c.png)"
        );
    }

    #[test]
    fn a_table_fits_the_width() {
        let shown =
            plain("| bee | does |\n|---|---|\n| worker | dances in the dark of the hive |", 30);
        assert!(shown.lines().all(|line| line.chars().count() <= 30), "{shown}");
        assert!(shown.contains("worker"), "{shown}");
    }

    #[test]
    fn codes_for_control_characters_are_not_obeyed() {
        for text in ["&#27;[2J &#x9b;2J &#8238;x", "`\u{1b}[2J`", "```\n\u{1b}]0;x\u{7}\n```"] {
            let rows = rows(text, Canvas { columns: 80, styled: false });
            assert!(rows.iter().all(|row| !row.text.contains(char::is_control)), "{rows:?}");
            assert!(rows.iter().all(|row| !row.text.contains('\u{202e}')), "{rows:?}");
        }
    }

    #[test]
    fn code_that_is_left_open_is_known() {
        let open = |text| open_fence(text, None);
        assert_eq!(open("a\n```rust\nlet x"), Some("```rust".to_owned()));
        assert_eq!(open("```\n~~~\n"), Some("```".to_owned()));
        assert_eq!(open("```\na\n```\nb"), None);
        assert_eq!(open_fence("b\n````\nc", Some("```".to_owned())), None);
        assert_eq!(open("``a``"), None);
    }

    #[test]
    fn only_the_last_block_is_open() {
        assert_eq!(last_block("one\n\ntwo\n\nthree"), 10);
        assert_eq!(last_block("one\n"), 0);
        assert_eq!(last_block("one\n\n- a\n- b\n\n  c"), 5);
        assert_eq!(last_block("```\na\n\nb"), 0);
        assert_eq!(last_block("one\n\n    code\n"), 5);
        assert_eq!(last_block(""), 0);
    }
}
