//! Tables of plain text.
//!
//! On a terminal a table fits its width: ids are short, times are ages, and long text is cut. In a pipe, and with `--wide`, it has everything.

use std::collections::HashSet;

use comfy_table::{ContentArrangement, Table, presets};
use jiff::Timestamp;
use trilogue_domain::short_id::last_group;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::age::age;
use super::{print, safe};

/// The columns of a terminal that does not say how many it has.
const DEFAULT_WIDTH: usize = 80;
/// The number of spaces between two columns.
const GAP: usize = 2;
/// The narrowest that a column of text becomes.
const MIN_TEXT_WIDTH: usize = 8;
/// How many characters of a UUID's last group are shown at least: 32 random bits.
pub(crate) const SHORT_ID_CHARS: usize = 8;
/// An id that a client chose is shown whole up to this many characters.
const MAX_WHOLE_ID_CHARS: usize = 20;

#[derive(Clone, Copy, Debug)]
pub(crate) struct TableColumn {
    heading: &'static str,
    content: CellContent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CellContent {
    /// An id, which the command line takes back in its short form.
    Id,
    /// A time of the server.
    Time,
    /// Text, which is cut if the terminal is too narrow.
    Text,
    /// Content that only a wide table shows.
    Detail,
}

// === impl TableColumn ===

impl TableColumn {
    pub(crate) const fn id(heading: &'static str) -> Self {
        Self { heading, content: CellContent::Id }
    }

    pub(crate) const fn time(heading: &'static str) -> Self {
        Self { heading, content: CellContent::Time }
    }

    pub(crate) const fn text(heading: &'static str) -> Self {
        Self { heading, content: CellContent::Text }
    }

    pub(crate) const fn detail(heading: &'static str) -> Self {
        Self { heading, content: CellContent::Detail }
    }
}

/// Rows with everything that is in them. The cells must already be safe for a terminal.
pub(crate) fn wide(columns: &[TableColumn], rows: &[Vec<String>]) -> String {
    let heading: Vec<_> = columns.iter().map(|column| column.heading).collect();
    render(&heading, rows.iter().cloned())
}

/// Formats rows for a person, in at most `width` terminal columns if it is set. The cells must already be safe for a terminal.
pub(crate) fn fitting(
    columns: &[TableColumn],
    rows: &[Vec<String>],
    width: Option<usize>,
) -> String {
    let now = Timestamp::now();
    let mut shown: Vec<(TableColumn, Vec<String>)> = Vec::new();
    for (place, column) in columns.iter().enumerate() {
        let cells = rows.iter().map(|row| row.get(place).cloned().unwrap_or_default());
        let cells: Vec<String> = match column.content {
            CellContent::Detail => continue,
            CellContent::Id => short_ids(&cells.collect::<Vec<_>>()),
            CellContent::Time => cells.map(|cell| age(&cell, now)).collect(),
            CellContent::Text => cells.collect(),
        };
        // A column without content says nothing.
        if cells.iter().any(|cell| !cell.is_empty()) {
            shown.push((*column, cells));
        }
    }
    let widths = fit(&mut shown, width.unwrap_or(DEFAULT_WIDTH));
    let heading: Vec<_> = shown.iter().map(|(column, _)| column.heading).collect();
    let rows = (0..rows.len()).map(|row| {
        let cells = shown.iter().zip(&widths);
        cells.map(|((_, cells), width)| cut(cells.get(row).map_or("", |it| it), *width)).collect()
    });
    render(&heading, rows)
}

/// Returns the widths of columns that fit `width` together. The widest text shrinks first; if that is not enough, the last columns are
/// dropped.
fn fit(shown: &mut Vec<(TableColumn, Vec<String>)>, width: usize) -> Vec<usize> {
    let natural = |(column, cells): &(TableColumn, Vec<String>)| {
        cells.iter().map(|cell| cell.width()).max().unwrap_or(0).max(column.heading.width())
    };
    let mut widths: Vec<usize> = shown.iter().map(natural).collect();
    loop {
        let total = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let Some(excess) = total.checked_sub(width).filter(|excess| *excess > 0) else { break };
        let texts = shown.iter().zip(&widths).enumerate();
        let texts = texts.filter(|(_, ((column, _), _))| column.content == CellContent::Text);
        let spare = |column: &TableColumn, width: usize| {
            width.saturating_sub(MIN_TEXT_WIDTH.max(column.heading.width()))
        };
        let texts = texts.map(|(place, ((column, _), width))| (spare(column, *width), place));
        match texts.max() {
            // Not all at once, so that two wide columns share the loss.
            Some((spare @ 1.., place)) => {
                widths.iter_mut().skip(place).take(1).for_each(|width| {
                    *width -= spare.min(excess.div_ceil(2));
                });
            }
            _ if widths.len() > 1 => {
                widths.pop();
                shown.pop();
            }
            _ => break,
        }
    }
    widths
}

/// Cuts text to at most `width` terminal columns.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let (mut kept, mut used) = (String::new(), 0);
    for char in text.chars() {
        used += char.width().unwrap_or(0);
        if used >= width {
            break;
        }
        kept.push(char);
    }
    format!("{}…", kept.trim_end())
}

/// Formats an id in a note: short for a person at the terminal, otherwise whole.
pub(crate) fn noted_id(id: &str) -> String {
    if !print::can_ask() {
        return safe::visible(id);
    }
    short_ids(&[safe::visible(id)]).pop().unwrap_or_default()
}

/// Returns the part of an id that a person types, and the least number of its characters.
fn typed(id: &str) -> (&str, usize) {
    match last_group(id) {
        Some(group) => (group, SHORT_ID_CHARS),
        None => (id, MAX_WHOLE_ID_CHARS),
    }
}

/// Returns ids in the shortest form in which they still differ from each other.
pub(crate) fn short_ids(ids: &[String]) -> Vec<String> {
    let different: HashSet<&str> = ids.iter().map(String::as_str).collect();
    let texts: Vec<&str> = different.iter().map(|id| typed(id).0).collect();
    let short = |id: &str| {
        let (text, least) = typed(id);
        let ends = text.char_indices().map(|(end, _)| end).skip(least);
        let is_alone =
            |begin: &&str| texts.iter().filter(|other| other.starts_with(begin)).count() == 1;
        let mut begins = ends.filter_map(|end| text.get(..end));
        begins.find(is_alone).unwrap_or(text).to_owned()
    };
    ids.iter().map(|id| short(id)).collect()
}

/// Rows below a heading. The cells must already be safe for a terminal.
pub(crate) fn render(heading: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(heading.iter().copied());
    for row in rows {
        table.add_row(row);
    }
    let mut text = String::new();
    for line in table.to_string().lines() {
        text.push_str(line.trim());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_without_frames() {
        let rows =
            [vec!["a".to_owned(), "one".to_owned()], vec!["long".to_owned(), "2".to_owned()]];
        assert_eq!(render(&["ID", "NAME"], rows), "ID    NAME\na     one\nlong  2\n");
    }

    fn rows<const N: usize>(rows: &[[&str; N]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
    }

    #[test]
    fn a_table_fits_and_leaves_out_what_is_empty() {
        let columns = [
            TableColumn::id("THREAD"),
            TableColumn::text("TITLE"),
            TableColumn::text("NOTE"),
            TableColumn::time("CHANGED"),
            TableColumn::detail("METADATA"),
        ];
        let rows = rows(&[
            ["0199f3a2-1b2c-7abc-8def-3f9c45a01b2d", &"long ".repeat(30), "", "no time", "{}"],
            ["lunch", "短い", "", "x", "{}"],
        ]);
        let table = fitting(&columns, &rows, Some(40));
        assert_eq!(
            table,
            "THREAD    TITLE                CHANGED\n\
             3f9c45a0  long long long long…  no time\n\
             lunch     短い                 x\n"
                .replace("TITLE                CHANGED", "TITLE                 CHANGED")
                .replace("短い                 x", "短い                  x"),
        );
        assert!(table.lines().all(|line| line.width() <= 40), "{table}");
        assert!(wide(&columns, &rows).contains("METADATA"));
        // A terminal that is too narrow for everything keeps the first columns.
        assert_eq!(fitting(&columns, &rows, Some(10)), "THREAD\n3f9c45a0\nlunch\n");
    }

    #[test]
    fn short_ids_are_different_from_each_other() {
        let ids = [
            "0199f3a2-1b2c-7abc-8def-3f9c45a01b2d",
            "0199f3a2-1b2c-7abc-8def-3f9c45a02b2d",
            "0199f3a2-1b2c-7abc-8def-000000000000",
            "0199f3a2-1b2c-7abc-8def-000000000000",
            "lunch",
            "a-very-long-name-that-is-shared-one",
            "a-very-long-name-that-is-shared-two",
        ];
        assert_eq!(
            short_ids(&ids.map(str::to_owned)),
            [
                "3f9c45a01",
                "3f9c45a02",
                "00000000",
                "00000000",
                "lunch",
                "a-very-long-name-that-is-shared-o",
                "a-very-long-name-that-is-shared-t",
            ]
        );
    }
}
