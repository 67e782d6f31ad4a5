//! Shows the changes of a tool in a file, line by line.

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
    /// The file, and the operation on it.
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
    /// A line that says how much is left out.
    Omission,
}

// === impl FileChange ===

impl FileChange {
    /// The change that a `diff` of the Agent Client Protocol describes, with long lines and long changes cut.
    pub(super) fn of(diff: &Value) -> Self {
        let (title, old, new) = Self::parts(diff);
        let omission = |text| DiffLine { kind: DiffLineKind::Omission, text };
        let title = cut(&title);
        if old.len() + new.len() > MAX_COMPARED_BYTES {
            let (old, new) = (old.len(), new.len());
            let text = format!("  {old} bytes become {new} bytes: too many to show");
            return Self { title, lines: vec![omission(text)] };
        }
        let mut lines = compare(old, new, cut);
        let left_out = lines.len().saturating_sub(MAX_DIFF_LINES);
        lines.truncate(MAX_DIFF_LINES);
        if left_out > 0 {
            lines.push(omission(format!("  … and {left_out} more lines")));
        }
        Self { title, lines }
    }

    /// Shows the change with nothing left out, because a person decides by it.
    pub(super) fn whole(diff: &Value) -> Self {
        let (title, old, new) = Self::parts(diff);
        Self { title, lines: compare(old, new, str::to_owned) }
    }

    /// What happens to which file, the text before and the text after.
    fn parts(diff: &Value) -> (String, &str, &str) {
        let text = |name: &str| diff.get(name).and_then(Value::as_str);
        let path = safe::visible(text("path").unwrap_or_default());
        let verb = if text("oldText").is_some() { "changes" } else { "creates" };
        let [old, new] = ["oldText", "newText"].map(|name| text(name).unwrap_or_default());
        (format!("{verb} {path}"), old, new)
    }
}

/// The changed lines with their neighbours. Texts that are too large to compare are shown as they are before and after.
fn compare(old: &str, new: &str, shorten: fn(&str) -> String) -> Vec<DiffLine> {
    let line_of = |tag, text| line_of(tag, text, shorten);
    if old.len() + new.len() > MAX_COMPARED_BYTES {
        let all = |tag, text| str::split_inclusive(text, '\n').map(move |line| line_of(tag, line));
        return all(ChangeTag::Delete, old).chain(all(ChangeTag::Insert, new)).collect();
    }
    let compared = TextDiff::configure().timeout(COMPARE_LIMIT).diff_lines(old, new);
    let mut lines = Vec::new();
    for (number, group) in compared.grouped_ops(CONTEXT_LINES).iter().enumerate() {
        if number > 0 {
            lines.push(DiffLine { kind: DiffLineKind::Omission, text: "| …".to_owned() });
        }
        let changes = group.iter().flat_map(|change| compared.iter_changes(change));
        lines.extend(changes.map(|line| line_of(line.tag(), line.value())));
    }
    lines
}

fn line_of(tag: ChangeTag, text: &str, shorten: fn(&str) -> String) -> DiffLine {
    let (kind, sign) = match tag {
        ChangeTag::Delete => (DiffLineKind::Removed, '-'),
        ChangeTag::Insert => (DiffLineKind::Added, '+'),
        ChangeTag::Equal => (DiffLineKind::Kept, ' '),
    };
    let text = text.strip_suffix('\n').unwrap_or(text);
    DiffLine { kind, text: format!("| {sign} {}", shorten(&safe::visible(text))) }
}

/// Cuts a long line. The result says how much is left out.
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
