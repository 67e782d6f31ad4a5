//! The limits of rendering: nesting, size and time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pulldown_cmark::{Event, Options, Parser};

/// The maximum nesting of quotes, lists, links and emphasis that is rendered, in levels. Deeper elements become plain text.
pub const MAX_NESTING: usize = 32;
/// The maximum indent of a list item or a quote, in columns.
const MAX_INDENT_COLUMNS: usize = 4 * MAX_NESTING;
const TAB_COLUMNS: usize = 4;
/// The maximum number of steps that the parser may need for titles of links. A million take a fifth of a millisecond, and up to 2.5 where the nodes lie far apart.
const MAX_TITLE_STEPS: usize = 10_000_000;
/// The signs that begin and end a title of a link.
const TITLE_ENDS: [(u8, u8); 3] = [(b'\'', b'\''), (b'"', b'"'), (b'(', b')')];

/// The time limit of a rendering, and whether its client still waits.
#[derive(Clone, Debug)]
pub struct WorkLimit {
    end: Instant,
    is_cancelled: Arc<AtomicBool>,
}

/// Cancels the work when it is dropped.
#[derive(Debug)]
pub struct WorkGuard(Arc<AtomicBool>);

/// The events of Markdown with their place in the text, without the tags above the nesting limit.
#[derive(Debug)]
pub struct BoundedEvents<'text> {
    parser: pulldown_cmark::OffsetIter<'text>,
    depth: usize,
}

// === impl WorkLimit ===

impl WorkLimit {
    /// Returns a limit that begins now.
    #[must_use]
    pub fn new(time: Duration) -> Self {
        Self { end: Instant::now() + time, is_cancelled: Arc::default() }
    }

    /// Returns a guard that cancels the work when its caller drops it.
    #[must_use]
    pub fn cancel_on_drop(&self) -> WorkGuard {
        WorkGuard(Arc::clone(&self.is_cancelled))
    }

    /// Returns `true` if the work must end: its time has elapsed, or its client has left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_cancelled() || Instant::now() >= self.end
    }

    /// Returns `true` if the client has left.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Returns the deadline.
    pub(super) fn end(&self) -> Instant {
        self.end
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// === impl BoundedEvents ===

impl<'text> BoundedEvents<'text> {
    /// Returns `None` if the parser would need much more time than is proportional to the text: if a line opens many quotes and lists, or a long paragraph has many links.
    #[must_use]
    pub fn of(text: &'text str, options: Options) -> Option<Self> {
        if !text.lines().all(has_few_markers) || title_steps(text) > MAX_TITLE_STEPS {
            return None;
        }
        Some(Self { parser: Parser::new_ext(text, options).into_offset_iter(), depth: 0 })
    }

    /// Returns the number of open elements after the previous event.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }
}

impl<'text> Iterator for BoundedEvents<'text> {
    type Item = (Event<'text>, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (event, place) = self.parser.next()?;
            let level = match event {
                Event::Start(_) => {
                    self.depth += 1;
                    self.depth
                }
                Event::End(_) => {
                    self.depth = self.depth.saturating_sub(1);
                    self.depth + 1
                }
                _ => return Some((event, place)),
            };
            if level <= MAX_NESTING {
                return Some((event, place));
            }
        }
    }
}

/// Returns `true` if a line begins with few marks of quotes and lists, and with a small indent.
fn has_few_markers(line: &str) -> bool {
    let (mut markers, mut columns, mut indent) = (0_usize, 0_usize, 0_usize);
    let mut bytes = line.bytes().peekable();
    while let Some(byte) = bytes.next() {
        columns += 1;
        match byte {
            b' ' => continue,
            b'\t' => columns += TAB_COLUMNS - 1,
            b'>' | b'-' | b'+' | b'*' | b'.' | b')' => {
                markers += 1;
                indent = columns;
            }
            b'0'..=b'9' if bytes.peek().is_some() => {}
            _ => break,
        }
        if markers > MAX_NESTING {
            // A rule of many signs opens no element.
            return is_rule(line);
        }
    }
    indent <= MAX_INDENT_COLUMNS
}

/// Returns the number of steps that the parser may need for titles of links.
///
/// The parser searches the whole text for the sign that ends a title, beyond the link's paragraph too. At each line end of that search it
/// walks over the rest of the paragraph's nodes.
fn title_steps(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let has_link: Vec<bool> = lines.iter().map(|line| line.contains("](")).collect();
    // The line ends from here to the next sign of each kind that ends a title, and the nodes from here to the end of the paragraph.
    let (mut line_ends, mut nodes, mut steps) = ([0_usize; TITLE_ENDS.len()], 0_usize, 0_usize);
    for (number, line) in lines.iter().enumerate().rev() {
        line_ends.iter_mut().for_each(|count| *count += 1);
        // A line end is a text and a break.
        nodes += 2;
        // An address and a title can begin on lines of their own.
        let may_open = has_link
            .get(number.saturating_sub(2)..=number)
            .is_some_and(|near| near.contains(&true));
        for byte in line.bytes().rev() {
            nodes += usize::from(byte.is_ascii_punctuation());
            for ((open, end), count) in TITLE_ENDS.iter().zip(&mut line_ends) {
                if byte == *open && may_open {
                    steps = steps.saturating_add(count.saturating_mul(nodes));
                }
                if byte == *end {
                    *count = 0;
                }
            }
        }
        if ends_paragraph(line) {
            nodes = 0;
        }
    }
    steps
}

/// Returns `true` if a line is blank, or certainly begins a list item or a heading. With more spaces it could continue a paragraph.
fn ends_paragraph(line: &str) -> bool {
    if line.trim_ascii().is_empty() {
        return true;
    }
    let mut content = line;
    loop {
        let rest = content.trim_start_matches(' ');
        if content.len() - rest.len() > 3 {
            return false;
        }
        content = rest;
        match rest.strip_prefix('>') {
            Some(rest) if rest.trim_ascii().is_empty() => return true,
            Some(rest) => content = rest,
            None => break,
        }
    }
    let marked = content.strip_prefix(['-', '*', '+']).unwrap_or_else(|| {
        let text = content.trim_start_matches('#');
        if (1..=6).contains(&(content.len() - text.len())) { text } else { "" }
    });
    marked.strip_prefix(' ').is_some_and(|item| !item.trim_ascii().is_empty())
}

/// Returns `true` if a line is a horizontal rule, an underline or a table's delimiter: signs of one kind.
fn is_rule(line: &str) -> bool {
    let mut signs = line.bytes().filter(|byte| !matches!(byte, b' ' | b'\t'));
    let first = signs.next();
    matches!(first, Some(b'-' | b'*')) && signs.all(|sign| Some(sign) == first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_opens_few_quotes_and_lists() {
        for line in
            ["> > a", "- a", "12. a", "---", &"-".repeat(200), &" ".repeat(300), &"* ".repeat(100)]
        {
            assert!(has_few_markers(line), "{line}");
        }
        for line in [
            ">".repeat(33),
            "- > ".repeat(17),
            format!("{}a", "* ".repeat(33)),
            "1. ".repeat(33),
            format!("{}- a", " ".repeat(200)),
        ] {
            assert!(!has_few_markers(&line), "{line}");
        }
    }

    #[test]
    fn titles_of_links_that_stay_open_in_a_long_paragraph_are_not_looked_for() {
        for (begin, line) in [
            ("[a](<u>'", "\nb"),
            ("[a](u \"", "\n    - b"),
            ("> [a](<u>'", "\n> b"),
            ("[a](u (", "\n    > b"),
        ] {
            let text = format!("{begin}{}", line.repeat(10_000));
            assert!(BoundedEvents::of(&text, Options::empty()).is_none(), "{line}");
        }
        // The search continues in the items and paragraphs that follow, and walks over all that is on the link's line.
        for (rest, line) in [("*", "\n- b"), ("a\n", "\n\nb"), ("\\*", "\n"), ("[", "\n# b")] {
            let text = format!("[a](u '{}{}", rest.repeat(12_000), line.repeat(12_000));
            assert!(BoundedEvents::of(&text, Options::empty()).is_none(), "{rest} {line}");
        }
        let text = format!("[a](<u>\"{}{}", "<a ".repeat(3_900), "  \n]".repeat(2_200));
        assert!(BoundedEvents::of(&text, Options::empty()).is_none());
        for text in [
            "- [a](u)\n".repeat(5_000),
            "[a](u) b\n\n".repeat(5_000),
            "> # [a](u)\n".repeat(5_000),
            "- [a](u 'b') it's\n".repeat(5_000),
            format!("{}\n\n", "[a](u) it's\n".repeat(100)).repeat(30),
            "b\n".repeat(50_000),
        ] {
            assert!(BoundedEvents::of(&text, Options::empty()).is_some(), "{:.20}", text);
        }
    }

    #[test]
    fn what_is_nested_too_deep_keeps_its_text() {
        let text = format!("{}deep{}", "*a ".repeat(100), " b*".repeat(100));
        let events: Vec<_> =
            BoundedEvents::of(&text, Options::empty()).unwrap().map(|it| it.0).collect();
        let starts = events.iter().filter(|it| matches!(it, Event::Start(_))).count();
        let ends = events.iter().filter(|it| matches!(it, Event::End(_))).count();
        assert_eq!((starts, ends), (MAX_NESTING, MAX_NESTING));
        assert!(events.iter().any(|it| matches!(it, Event::Text(text) if text.contains("deep"))));
    }
}
