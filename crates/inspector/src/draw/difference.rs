//! Renders the difference between two texts.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use similar::{ChangeTag, TextDiff};

use super::bounds::WorkLimit;

/// The time limit of the search for the smallest difference. Then a larger one is shown.
const MAX_SEARCH: Duration = Duration::from_millis(200);
/// The number of unchanged lines around a change.
const CONTEXT_LINES: usize = 3;
/// The maximum number of lines in a difference. Each becomes a row of about 100 bytes plus its text.
const MAX_LINES: usize = 4_000;

/// Renders the difference between two texts as a table of lines: the old number, the new number, the line. Long unchanged parts are left out, and lines above the limit are counted in a row of the class `cut`.
#[must_use]
pub fn difference(before: &str, after: &str, limit: &WorkLimit) -> String {
    let mut config = TextDiff::configure();
    let end = limit.end().min(Instant::now() + MAX_SEARCH);
    let diff = config.deadline(end).diff_lines(before, after);
    let mut html = String::from("<table class=\"difference\"><tbody>");
    let (mut lines, mut more) = (0_usize, 0_usize);
    for (place, group) in diff.grouped_ops(CONTEXT_LINES).iter().enumerate() {
        if limit.is_cancelled() {
            break;
        }
        if place > 0 && lines < MAX_LINES {
            html.push_str("<tr class=\"left-out\"><td colspan=\"4\">…</td></tr>");
        }
        for change in group.iter().flat_map(|operation| diff.iter_changes(operation)) {
            if lines == MAX_LINES {
                more += 1;
                continue;
            }
            lines += 1;
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
    if more > 0 {
        _ = write!(
            html,
            "<tr class=\"left-out cut\"><td colspan=\"4\">… and {more} more lines</td></tr>"
        );
    }
    html.push_str("</tbody></table>");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(before: &str, after: &str) -> String {
        super::difference(before, after, &WorkLimit::new(Duration::from_secs(60)))
    }

    #[test]
    fn a_long_difference_is_cut_and_says_so() {
        let html = difference("", &"\n".repeat(MAX_LINES + 50));
        assert_eq!(html.matches("<tr").count(), MAX_LINES + 1);
        assert!(
            html.contains("left-out cut\"><td colspan=\"4\">… and 50 more lines"),
            "{}",
            html.len()
        );
    }

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
