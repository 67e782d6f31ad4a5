//! Differences of two texts.

use std::fmt::Write as _;
use std::time::Duration;

use similar::{ChangeTag, TextDiff};

/// How long a search for the smallest difference may take; after it, a larger one is shown.
const MAX_SEARCH: Duration = Duration::from_millis(200);
/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// What changed between two texts, as a table of lines: the number before, the number after, the line. Long unchanged stretches are left out.
#[must_use]
pub fn difference(before: &str, after: &str) -> String {
    let mut config = TextDiff::configure();
    let diff = config.timeout(MAX_SEARCH).diff_lines(before, after);
    let mut html = String::from("<table class=\"difference\"><tbody>");
    for (place, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
        if place > 0 {
            html.push_str("<tr class=\"left-out\"><td colspan=\"4\">…</td></tr>");
        }
        for change in group.iter().flat_map(|operation| diff.iter_changes(operation)) {
            let (class, mark) = match change.tag() {
                ChangeTag::Equal => ("same", ' '),
                ChangeTag::Delete => ("removed", '−'),
                ChangeTag::Insert => ("added", '+'),
            };
            let number =
                |index: Option<usize>| index.map_or(String::new(), |it| (it + 1).to_string());
            let (old, new) = (number(change.old_index()), number(change.new_index()));
            let line = super::text(change.value().trim_end_matches(['\n', '\r']));
            // Writing to a string cannot fail.
            _ = write!(
                html,
                "<tr class=\"{class}\"><td>{old}</td><td>{new}</td><td>{mark}</td><td><code>{line}</code></td></tr>"
            );
        }
    }
    html.push_str("</tbody></table>");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_is_shown_with_its_neighbours() {
        let html = difference("a\nb\nc\n", "a\nB<\nc\n");
        assert!(
            html.contains(
                "<tr class=\"removed\"><td>2</td><td></td><td>−</td><td><code>b</code></td></tr>"
            ),
            "{html}"
        );
        assert!(
            html.contains(
                "<tr class=\"added\"><td></td><td>2</td><td>+</td><td><code>B&lt;</code></td></tr>"
            ),
            "{html}"
        );
        assert_eq!(html.matches("class=\"same\"").count(), 2);
    }

    #[test]
    fn what_is_far_from_a_change_is_left_out() {
        let lines = |last: &str| {
            (0..100).map(|n| format!("{n}\n")).chain([last.to_owned()]).collect::<String>()
        };
        let html = difference(&lines("x"), &lines("y"));
        assert_eq!(html.matches("<tr").count(), 5, "{html}");
    }
}
