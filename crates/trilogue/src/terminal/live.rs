//! The rows at the bottom of the screen that are drawn again and again.
//!
//! Rows that are done are written above them once and belong to the terminal from then on: they scroll and stay.
//! Only the live rows are erased, so that nothing of the conversation is lost by a resize or by a character
//! that the terminal draws wider than we measure it: while live rows are drawn the terminal does not wrap.

use std::fmt::Write as _;

use super::rows::ScreenRow;

const ERASE_BELOW: &str = "\u{1b}[J";
const WRAP_OFF: &str = "\u{1b}[?7l";
const WRAP_ON: &str = "\u{1b}[?7h";
/// Terminals that know these show a frame as a whole; the others ignore them.
const FRAME_BEGIN: &str = "\u{1b}[?2026h";
const FRAME_END: &str = "\u{1b}[?2026l";

/// The live rows on the screen, with the cursor at the end of the last one.
#[derive(Debug)]
pub(crate) struct LiveRows {
    rows: Vec<ScreenRow>,
    /// How wide the terminal was when they were drawn.
    columns: usize,
}

// === impl LiveRows ===

impl LiveRows {
    pub(crate) const fn new() -> Self {
        Self { rows: Vec::new(), columns: 0 }
    }

    /// Returns the sequence that replaces the live rows with these, below `written`. It is empty if nothing
    /// changes.
    pub(crate) fn frame(
        &mut self,
        written: &[ScreenRow],
        live: Vec<ScreenRow>,
        columns: usize,
    ) -> String {
        if written.is_empty() && self.rows == live && self.columns == columns {
            return String::new();
        }
        let mut out = FRAME_BEGIN.to_owned();
        out.push_str(&self.erase(columns));
        for row in written {
            out.push_str(&row.text);
            out.push('\n');
        }
        if !live.is_empty() {
            out.push_str(WRAP_OFF);
            let texts: Vec<&str> = live.iter().map(|row| row.text.as_str()).collect();
            out.push_str(&texts.join("\n"));
            out.push_str(WRAP_ON);
        }
        out.push_str(FRAME_END);
        (self.rows, self.columns) = (live, columns);
        out
    }

    /// Returns the sequence that erases the live rows, before other output is written.
    pub(crate) fn erase(&mut self, columns: usize) -> String {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return String::new();
        }
        // A terminal that became narrower has broken the longer rows.
        let is_narrower = columns < self.columns && columns > 0 && breaks_rows();
        let height =
            |row: &ScreenRow| if is_narrower { row.width.div_ceil(columns).max(1) } else { 1 };
        let above = rows.iter().map(height).sum::<usize>().saturating_sub(1);
        let mut out = "\r".to_owned();
        if above > 0 {
            // Writing to a String cannot fail.
            let _ = write!(out, "\u{1b}[{above}A");
        }
        out.push_str(ERASE_BELOW);
        out
    }
}

/// Whether the terminal breaks its rows anew when its width changes. The few that do not cut them off.
fn breaks_rows() -> bool {
    let name = std::env::var("TERM").unwrap_or_default();
    let is_set = |name: &str| std::env::var_os(name).is_some();
    let cuts = ["linux", "rxvt", "st-", "screen"].iter().any(|known| name.starts_with(known));
    is_set("TMUX") || !(cuts || is_set("XTERM_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSAGE: &str = "a row that is rather long";

    fn row(text: &str) -> ScreenRow {
        ScreenRow { text: text.to_owned(), width: text.len() }
    }

    fn display(terminal: &avt::Terminal) -> String {
        let lines: Vec<_> = terminal.screen().all_lines().map(|line| line.text()).collect();
        let lines: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
        lines.join("|").trim_end_matches('|').to_owned()
    }

    /// The terminal's driver turns a line feed into a carriage return and a line feed.
    fn feed(terminal: &mut avt::Terminal, text: &str) {
        terminal.feed(text.replace('\n', "\r\n").as_str());
    }

    #[test]
    fn only_the_live_rows_change() {
        let mut terminal = avt::Terminal::with_scrollback(30, 5, None).unwrap();
        let mut live = LiveRows::new();
        feed(&mut terminal, "$ trilogue\n");
        feed(&mut terminal, &live.frame(&[row("one")], vec![row("two"), row("spins")], 30));
        assert_eq!(display(&terminal), "$ trilogue|one|two|spins");
        assert_eq!(live.frame(&[], vec![row("two"), row("spins")], 30), "", "nothing changed");
        let written = [row("two"), row("three"), row("four")];
        feed(&mut terminal, &live.frame(&written, vec![row("five"), row("spins")], 30));
        assert_eq!(display(&terminal), "$ trilogue|one|two|three|four|five|spins");
        feed(&mut terminal, &live.erase(30));
        feed(&mut terminal, "a note\n");
        assert_eq!(display(&terminal), "$ trilogue|one|two|three|four|a note");
    }

    #[test]
    fn a_resize_takes_nothing_away() {
        for columns in [60, 20, 13, 9, 5] {
            let mut terminal = avt::Terminal::with_scrollback(30, 12, None).unwrap();
            let mut live = LiveRows::new();
            let kept: Vec<ScreenRow> = (10..30).map(|number| row(&number.to_string())).collect();
            feed(&mut terminal, &live.frame(&kept, vec![row(PASSAGE), row("spins")], 30));
            terminal.resize(columns, 12);
            feed(&mut terminal, &live.frame(&[], vec![row("new")], columns));
            let texts: Vec<&str> = kept.iter().map(|row| row.text.as_str()).collect();
            assert_eq!(display(&terminal), format!("{}|new", texts.join("|")), "{columns} columns");
        }
    }

    #[test]
    fn a_row_that_the_terminal_draws_wider_takes_one_row() {
        let mut terminal = avt::Terminal::with_scrollback(20, 5, None).unwrap();
        let mut live = LiveRows::new();
        // We count one character, the terminal three.
        let family = ScreenRow { text: "👩‍👩‍👧".repeat(5), width: 10 };
        feed(&mut terminal, &live.frame(&[row("kept")], vec![family, row("spins")], 20));
        feed(&mut terminal, &live.frame(&[], vec![row("new")], 20));
        assert_eq!(display(&terminal), "kept|new");
    }
}
