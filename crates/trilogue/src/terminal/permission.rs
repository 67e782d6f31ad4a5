//! Renders a permission request of the Agent Client Protocol: the tool, its kind, the files, and the changes in them.
//!
//! The user decides by this text, so every line is shown in full.

use serde_json::Value;

use super::file_change::FileChange;
use super::safe;

/// The members of a tool call that have lines of their own, or that only the protocol needs.
const KNOWN_MEMBERS: [&str; 8] =
    ["toolCallId", "status", "name", "title", "kind", "locations", "rawInput", "content"];

/// The lines of a request, with nothing left out; `None` for a question of another protocol.
pub(super) fn lines(payload: &Value) -> Option<Vec<String>> {
    let call = payload.get("toolCall")?.as_object()?;
    let text = |name: &str| call.get(name).and_then(Value::as_str);
    let mut lines = Vec::new();
    let mut say = |what: &str, value: Option<&str>| {
        lines.extend(value.map(|value| format!("{what}: {}", safe::visible(value))));
    };
    say("tool", text("name").or(text("title")));
    say("title", text("title").filter(|_| text("name").is_some()));
    say("kind", text("kind"));
    for path in paths(call) {
        lines.push(format!("file: {}", safe::visible(&path)));
    }
    if let Some(input) = call.get("rawInput").filter(|input| !input.is_null()) {
        lines.push(format!("input: {}", safe::visible(&input.to_string())));
    }
    for item in content(call) {
        match kind_of(item) {
            Some("diff") => {
                let FileChange { title, lines: changed } = FileChange::whole(item);
                lines.push(title);
                lines.extend(changed.into_iter().map(|line| line.text));
                lines.extend(others_of(item, &["type", "path", "oldText", "newText"]));
            }
            _ => lines.push(format!("content: {}", safe::visible(&text_or_json(item)))),
        }
    }
    let places = call.get("locations").and_then(Value::as_array).into_iter().flatten();
    lines.extend(places.filter_map(|place| others_of(place, &["path", "line"])));
    let options = payload.get("options").and_then(Value::as_array).into_iter().flatten();
    lines.extend(options.filter_map(|option| others_of(option, &["optionId", "name", "kind"])));
    let others = call.iter().filter(|(name, _)| !KNOWN_MEMBERS.contains(&name.as_str()));
    let meta = payload.get("_meta").map(|meta| ("_meta", meta));
    let others = others.map(|(name, value)| (name.as_str(), value)).chain(meta);
    for (name, value) in others.filter(|(_, value)| !value.is_null()) {
        lines.push(format!("{}: {}", safe::visible(name), safe::visible(&value.to_string())));
    }
    Some(lines)
}

/// A line with the members of an object that are not in `known`; `None` without any.
fn others_of(object: &Value, known: &[&str]) -> Option<String> {
    let others: serde_json::Map<_, _> = object
        .as_object()?
        .iter()
        .filter(|(name, value)| !known.contains(&name.as_str()) && !value.is_null())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let shown = || format!("more: {}", safe::visible(&Value::Object(others.clone()).to_string()));
    (!others.is_empty()).then(shown)
}

/// The text of a content item, or the whole item if it is not a text.
fn text_or_json(item: &Value) -> String {
    let block = item.get("content").filter(|block| kind_of(block) == Some("text"));
    let text = block.and_then(|block| block.get("text")?.as_str());
    text.map_or_else(|| item.to_string(), str::to_owned)
}

/// The files of the call, each once.
fn paths(call: &serde_json::Map<String, Value>) -> Vec<String> {
    let located = call.get("locations").and_then(Value::as_array).into_iter().flatten();
    let located = located.filter_map(|place| {
        let path = place.get("path")?.as_str()?;
        let line = place.get("line").and_then(Value::as_u64).filter(|line| *line > 0);
        Some(line.map_or_else(|| path.to_owned(), |line| format!("{path}:{line}")))
    });
    let changed = content(call).filter_map(|item| item.get("path")?.as_str().map(str::to_owned));
    let mut paths: Vec<String> = Vec::new();
    for path in located.chain(changed) {
        let is_known = paths.iter().any(|known| {
            *known == path || known.strip_prefix(&path).is_some_and(|rest| rest.starts_with(':'))
        });
        if !is_known {
            paths.push(path);
        }
    }
    paths
}

fn content(call: &serde_json::Map<String, Value>) -> impl Iterator<Item = &Value> {
    call.get("content").and_then(Value::as_array).into_iter().flatten()
}

fn kind_of(item: &Value) -> Option<&str> {
    item.get("type").and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tool_kind_files_and_changes_are_shown_and_nothing_is_hidden() {
        let asked = json!({ "sessionId": "", "options": [], "toolCall": {
            "toolCallId": "c", "title": "Edit\u{1b}[2J a", "name": "write", "kind": "edit",
            "locations": [{ "path": "/a\u{202e}b", "line": 3 }, { "path": "/c" }],
            "rawInput": { "x": 1 },
            "content": [
                { "type": "content", "content": { "type": "text", "text": "no change" } },
                { "type": "diff", "path": "/c", "oldText": "one\ntwo\nthree\n", "newText": "one\r\ntwo\n\u{1b}]0;x\u{7}\n" },
                { "type": "diff", "path": "/new", "newText": "all", "_meta": { "d": 1 } },
                { "type": "terminal", "terminalId": "t" },
            ],
            "_meta": { "y": 2 }, "sandbox\u{1b}": false,
        }, "_meta": { "z": 3 } });
        let lines = lines(&asked).unwrap();
        assert_eq!(
            lines,
            [
                "tool: write",
                "title: Edit\\u{1b}[2J a",
                "kind: edit",
                "file: /a\\u{202e}b:3",
                "file: /c",
                "file: /new",
                "input: {\"x\":1}",
                "content: no change",
                "changes /c",
                "| - one",
                "| + one\\r",
                "|   two",
                "| - three",
                "| + \\u{1b}]0;x\\u{7}",
                "creates /new",
                "| + all",
                "more: {\"_meta\":{\"d\":1}}",
                "content: {\"terminalId\":\"t\",\"type\":\"terminal\"}",
                "_meta: {\"y\":2}",
                "sandbox\\u{1b}: false",
                "_meta: {\"z\":3}",
            ]
        );
        assert_eq!(super::lines(&json!({ "tool": "x" })), None);
    }

    #[test]
    fn nothing_that_is_long_is_cut() {
        let long = |end: &str| format!("{}{end}", "a ".repeat(5_000));
        let change = |at: usize| {
            let text: String = (0..1_000).map(|line| format!("{at}/{line}\n")).collect();
            json!({ "type": "diff", "path": format!("/{at}"), "newText": text })
        };
        let asked = json!({ "options": [], "toolCall": {
            "title": long("title"), "kind": "execute",
            "locations": [{ "path": long("path") }],
            "rawInput": { "command": long("; rm -rf ~") },
            "content": (0..30).map(change).collect::<Vec<_>>(),
        }});
        let lines = lines(&asked).unwrap();
        for wanted in [long("title"), long("path"), long("; rm -rf ~")] {
            assert!(lines.iter().any(|line| line.contains(&wanted)), "{wanted}");
        }
        assert_eq!(lines.iter().filter(|line| line.starts_with("| + ")).count(), 30_000);
        assert_eq!(lines.last().unwrap(), "| + 29/999");
        // A file too large to compare is shown before and after the change.
        let (old, new) = ("o\n".repeat(600_000), "n\n".repeat(600_000));
        let huge = json!({ "type": "diff", "path": "/h", "oldText": old, "newText": new });
        let lines = super::lines(&json!({ "toolCall": { "content": [huge] } })).unwrap();
        assert_eq!(lines.iter().filter(|line| *line == "| - o").count(), 600_000);
        assert_eq!(lines.iter().filter(|line| *line == "| + n").count(), 600_000);
    }
}
