//! The content that a tool call has produced so far: changes of files, a command's output, text.

use serde_json::Value;
use trilogue_wire::agent_client::splice;
use trilogue_wire::native::{Event, EventBody, Json, Part};

use super::beside::{inline_text, summary};
use super::file_change::{DiffLine, DiffLineKind, FileChange, cut};
use super::safe;

/// The most items of one call that are shown.
const MAX_ITEMS: usize = 20;
/// The most lines of a text that are shown.
const MAX_TEXT_LINES: usize = 200;
/// How many lines a folded item has.
const FOLDED_LINES: usize = 8;
/// The kind of tool whose text is a command's output: its end says most.
const COMMAND_KIND: &str = "execute";

/// The content of a call, which replaces its earlier content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ToolContent {
    pub(crate) call_id: String,
    /// Whether the call is known to run a command.
    pub(super) is_command: bool,
    /// `None` if the event has no content.
    pub(super) items: Option<Vec<ToolItem>>,
}

/// One thing that a call has produced. Its texts are safe for a terminal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ToolItem {
    Change(FileChange),
    /// Lines of text.
    Text(Vec<String>),
    /// A description of content that cannot be shown here.
    Other(String),
}

// === impl ToolContent ===

impl ToolContent {
    /// Returns the content of a call's event: in the agent's own form if it has one, otherwise in
    /// the native form.
    pub(super) fn of(event: &Event) -> Option<Self> {
        let call_id = match &event.body {
            EventBody::ToolStarted(tool) => &tool.call_id,
            EventBody::ToolUpdated(tool) => &tool.call_id,
            EventBody::ToolEnded(tool) => &tool.call_id,
            _ => return None,
        };
        let original = event.original.as_ref().and_then(|original| original.value.as_ref());
        let update = original.and_then(|value| splice::get(value.as_str(), &["update"]));
        let member = |name: &str| update.and_then(|update| splice::get(update, &[name]));
        // What is stored apart is left out of the original.
        let is_apart = matches!(&event.body, EventBody::ToolUpdated(tool) if tool.content.iter().any(|part| part.blob.is_some()));
        let list = member("content").filter(|content| content.starts_with('[') && !is_apart);
        let items = match (list, &event.body) {
            (Some(list), _) => Some(splice::items(list).filter_map(item_of_protocol).collect()),
            (None, EventBody::ToolUpdated(tool)) => {
                Some(tool.content.iter().map(item_of_part).collect())
            }
            (None, _) => None,
        };
        let items = items.map(|mut items: Vec<_>| {
            let more = items.len().saturating_sub(MAX_ITEMS);
            items.truncate(MAX_ITEMS);
            items.extend((more > 0).then(|| ToolItem::Other(format!("… and {more} more"))));
            items
        });
        let is_command = member("kind").and_then(splice::decode).as_deref() == Some(COMMAND_KIND);
        (items.is_some() || is_command).then(|| Self {
            call_id: call_id.clone(),
            is_command,
            items,
        })
    }
}

// === impl ToolItem ===

impl ToolItem {
    /// Returns its lines, for a command the last ones: a few, or with `unfolded` up to the limit.
    pub(super) fn lines(&self, is_command: bool, unfolded: bool) -> Vec<DiffLine> {
        let limit = |count: usize| match unfolded {
            true => MAX_TEXT_LINES,
            // A line that says that one is left out takes as much room as that one.
            false if count == FOLDED_LINES + 1 => count,
            false => FOLDED_LINES,
        };
        let kept = |text: String| DiffLine { kind: DiffLineKind::Kept, text };
        match self {
            Self::Change(change) => {
                let mut lines = vec![kept(change.title.clone())];
                // Those of the comparison are limited already.
                let count = change.lines.len();
                let shown = if unfolded { count } else { limit(count) };
                lines.extend(change.lines.iter().take(shown).cloned());
                lines.extend(omission(count.saturating_sub(shown), "more"));
                lines
            }
            Self::Text(text) => {
                let shown = limit(text.len());
                let more = text.len().saturating_sub(shown);
                let line = |line: &String| kept(format!("| {line}"));
                if is_command {
                    let end = text.iter().skip(more).map(line);
                    omission(more, "earlier").into_iter().chain(end).collect()
                } else {
                    text.iter().take(shown).map(line).chain(omission(more, "more")).collect()
                }
            }
            Self::Other(words) => vec![kept(words.clone())],
        }
    }
}

/// A line that says how many lines are left out.
fn omission(count: usize, which: &str) -> Option<DiffLine> {
    let lines = if count == 1 { "line" } else { "lines" };
    let text = format!("  … {count} {which} {lines}");
    (count > 0).then_some(DiffLine { kind: DiffLineKind::Omission, text })
}

/// An item of the Agent Client Protocol.
fn item_of_protocol(item: &str) -> Option<ToolItem> {
    let value: Value = serde_json::from_str(item).ok()?;
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    Some(match text("type")? {
        "diff" => ToolItem::Change(FileChange::of(&value)),
        "terminal" => {
            let id = safe::line(text("terminalId").unwrap_or_default());
            ToolItem::Other(format!("terminal: {}", cut(&id)))
        }
        "content" => {
            let block = value.get("content")?;
            let member = |name: &str| block.get(name).and_then(Value::as_str);
            match (member("type")?, member("text")) {
                ("text", Some(text)) => item_of_text(text),
                (kind, _) => {
                    let about = member("uri").or_else(|| member("mimeType"));
                    let about = about.map(|about| format!(", {}", cut(&safe::line(about))));
                    ToolItem::Other(format!("{}{}", safe::line(kind), about.unwrap_or_default()))
                }
            }
        }
        _ => return None,
    })
}

/// Makes an item of a native part.
fn item_of_part(part: &Part) -> ToolItem {
    let is_json = part.content_type == "application/json";
    let item = part.content.as_deref().filter(|_| is_json).and_then(item_of_protocol);
    item.or_else(|| inline_text(part).map(item_of_text))
        .unwrap_or_else(|| ToolItem::Other(summary(part)))
}

/// A text, without the fence that agents put around a command's output.
fn item_of_text(text: &str) -> ToolItem {
    let text = safe::block(text);
    let text = text.trim_matches('\n');
    let inside = text.strip_prefix("```").and_then(|text| text.strip_suffix("\n```"));
    let inside = inside.and_then(|text| text.split_once('\n')).map(|(_, inside)| inside);
    let inside = inside.filter(|inside| !inside.contains("\n```"));
    let lines = inside.unwrap_or(text).lines().map(|line| cut(&line.replace('\t', "    ")));
    ToolItem::Text(lines.collect())
}

/// The first line of each item.
pub(crate) fn titles(event: &Event) -> String {
    let items = ToolContent::of(event).and_then(|content| content.items).unwrap_or_default();
    let first = |item: &ToolItem| item.lines(false, false).into_iter().next();
    let titles = items.iter().filter_map(first).map(|line| line.text);
    titles.collect::<Vec<_>>().join("; ")
}

/// Whether a call's output only lists its content.
pub(super) fn is_list(output: &Json) -> bool {
    let list = output.as_str();
    list.starts_with('[') && splice::items(list).all(|item| item_of_protocol(item).is_some())
}

/// The lines of all items, not folded: as they stay the same everywhere.
pub(super) fn plain_lines(items: &[ToolItem], is_command: bool) -> String {
    let lines = items.iter().flat_map(|item| item.lines(is_command, true));
    lines.map(|line| format!("{}\n", line.text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(item: &ToolItem, is_command: bool, unfolded: bool) -> Vec<String> {
        item.lines(is_command, unfolded).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn a_command_shows_its_end_and_another_text_its_beginning() {
        let text: String = (1..=10).map(|number| format!("line {number}\n")).collect();
        let item = item_of_text(&format!("```console\n{text}```"));
        let end = texts(&item, true, false);
        assert_eq!((end[0].as_str(), end[8].as_str()), ("  … 2 earlier lines", "| line 10"));
        let begin = texts(&item, false, false);
        assert_eq!((begin[0].as_str(), begin[8].as_str()), ("| line 1", "  … 2 more lines"));
        assert_eq!(texts(&item, true, true).len(), 10);
    }

    #[test]
    fn nothing_of_a_tool_is_obeyed() {
        let hostile = "{\"type\":\"content\",\"content\":{\"type\":\"text\",\"text\":\"\\u001b]52;c;AA\\u0007a\\u202e\\n\\u001b[2Jb\"}}";
        let item = item_of_protocol(hostile).unwrap();
        assert_eq!(texts(&item, false, false), ["| a\\u{202e}", "| b"]);
        let diff = "{\"type\":\"diff\",\"path\":\"/a\\u001b[2J\",\"newText\":\"\\u001b[31mx\"}";
        let item = item_of_protocol(diff).unwrap();
        assert!(texts(&item, false, false).iter().all(|line| !line.contains('\u{1b}')));
        let resource = "{\"type\":\"content\",\"content\":{\"type\":\"resource_link\",\"uri\":\"file:///\\u001b[2Jx\"}}";
        assert_eq!(
            texts(&item_of_protocol(resource).unwrap(), false, false),
            ["resource_link, file:///x"]
        );
    }
}
