//! Tables of plain text.

use comfy_table::{ContentArrangement, Table, presets};

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
}
