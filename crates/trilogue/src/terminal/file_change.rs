//! What a tool changes in a file, line by line.

use std::time::Duration;

use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::safe;

const MAX_DIFF_LINES: usize = 200;
const MAX_COMPARED_BYTES: usize = 1024 * 1024;
/// How long a comparison may take; the rest is then shown as one change.
const COMPARE_LIMIT: Duration = Duration::from_millis(200);
const MAX_LINE_CHARS: usize = 300;
const CONTEXT_LINES: usize = 3;

/// A change of one file. Its texts are safe for a terminal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FileChange {
    /// What happens to which file.
    pub(super) title: String,
    pub(super) lines: Vec<DiffLine>,
}

/// One line of a change, with its sign.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DiffLine {
    pub(super) kind: DiffLineKind,
    pub(super) text: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DiffLineKind {
    Removed,
    Added,
    /// Stays as it is.
    Kept,
    /// Says what is left out.
    Omission,
}

// === impl FileChange ===

impl FileChange {
    /// The change that a `diff` of the Agent Client Protocol describes.
    pub(super) fn of(diff: &Value) -> Self {
        let text = |name: &str| diff.get(name).and_then(Value::as_str);
        let path = safe::visible(text("path").unwrap_or_default());
        let (old, new) = (text("oldText"), text("newText").unwrap_or_default());
        let verb = if old.is_some() { "changes" } else { "creates" };
        let title = format!("{verb} {}", cut(&path));
        Self { title, lines: compare(old.unwrap_or_default(), new) }
    }
}

fn compare(old: &str, new: &str) -> Vec<DiffLine> {
    let omission = |text: String| DiffLine { kind: DiffLineKind::Omission, text };
    if old.len() + new.len() > MAX_COMPARED_BYTES {
        return vec![omission(format!(
            "  {} bytes become {} bytes: too many to show",
            old.len(),
            new.len()
        ))];
    }
    let compared = TextDiff::configure().timeout(COMPARE_LIMIT).diff_lines(old, new);
    let (mut lines, mut left_out) = (Vec::new(), 0);
    for (number, group) in compared.grouped_ops(CONTEXT_LINES).iter().enumerate() {
        if number > 0 {
            lines.push(omission("| …".to_owned()));
        }
        for line in group.iter().flat_map(|change| compared.iter_changes(change)) {
            if lines.len() >= MAX_DIFF_LINES {
                left_out += 1;
                continue;
            }
            let (kind, sign) = match line.tag() {
                ChangeTag::Delete => (DiffLineKind::Removed, '-'),
                ChangeTag::Insert => (DiffLineKind::Added, '+'),
                ChangeTag::Equal => (DiffLineKind::Kept, ' '),
            };
            let text = line.value();
            let text = text.strip_suffix('\n').unwrap_or(text);
            lines.push(DiffLine { kind, text: format!("| {sign} {}", cut(&safe::visible(text))) });
        }
    }
    if left_out > 0 {
        lines.push(omission(format!("  … and {left_out} more lines")));
    }
    lines
}

/// A line, cut where it is long. It says how much is left out.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_LINE_CHARS) {
        Some((end, _)) => {
            let more = text.chars().count() - MAX_LINE_CHARS;
            format!("{}… ({more} more characters)", text.get(..end).unwrap_or_default())
        }
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_long_says_that_there_is_more() {
        let change = |old: &str, new: &str| {
            FileChange::of(&json!({ "path": "/a", "oldText": old, "newText": new })).lines
        };
        let last = |lines: &[DiffLine]| lines.last().unwrap().text.clone();
        let many: String = (0..500).map(|line| format!("{line}\n")).collect();
        let shown = change("", &many);
        assert!(shown.len() < MAX_DIFF_LINES + 10);
        assert!(last(&shown).contains("300 more lines"), "{shown:?}");
        let wide = change("", &"x".repeat(10_000));
        assert!(last(&wide).contains("9700 more characters"), "{wide:?}");
        let huge = change(&"x".repeat(MAX_COMPARED_BYTES + 1), "");
        assert!(last(&huge).contains("too many"), "{huge:?}");
    }
}
