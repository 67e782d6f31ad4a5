//! Shows a question. Each line of the agent's text has a bar before it; all other lines are written by this program.
//!
//! A person decides by this text, so the agent must not be able to forge a line of it: neither with line breaks nor with text that is long enough to
//! wrap.

use serde_json::Value;
use trilogue_wire::native::{Effect, Interrupt, Part, PermissionOption};
use unicode_width::UnicodeWidthChar as _;

use super::choice;
use super::form::Field;
use super::{beside, permission, print, safe, style};

/// The prefix of each line of the agent.
const BAR: &str = "| ";
/// The narrowest terminal for which lines are folded, in columns.
const MIN_COLUMNS: usize = 20;
/// The rows of a question that are shown whole on the lowest screen.
const MIN_WHOLE_ROWS: usize = 20;
/// The rows of the screen that a longer question leaves for its cue and for earlier output.
const CUE_ROWS: usize = 6;

/// The text of a question, row by row: who asks, what the agent says, and all of what it wants to do.
#[derive(Debug)]
pub(super) struct QuestionText {
    rows: Vec<String>,
    columns: usize,
}

/// Shows who asks, the question, and the options of a permission.
pub(crate) fn show(interrupt: &Interrupt) {
    QuestionText::of(interrupt, print::columns().unwrap_or(usize::MAX)).show_all();
    for (number, label) in (1..).zip(option_labels(interrupt)) {
        show_line(&format!("{number}  {label}"));
    }
}

/// The options of a permission: what each does, and what the agent calls it.
pub(super) fn option_labels(interrupt: &Interrupt) -> Vec<String> {
    let label = |option: &PermissionOption| {
        let effect = match (option.effect, option.always) {
            (Effect::Allow, false) => "allows this call",
            (Effect::Allow, true) => "allows this and later calls",
            (Effect::Reject, false) => "rejects this call",
            (Effect::Reject, true) => "rejects this and later calls",
        };
        let choices = choice::of_options(std::slice::from_ref(option));
        let label = choices.first().map(choice::label).unwrap_or_default();
        format!("{effect} {BAR}{label}")
    };
    interrupt.options.iter().map(label).collect()
}

/// The choices of a field.
pub(super) fn choice_labels(field: &Field) -> Vec<String> {
    field.choices().iter().map(|choice| format!("{BAR}{}", choice::label(choice))).collect()
}

/// Shows what a field of a form is for, and what it takes.
pub(super) fn show_field(field: &Field) {
    quote(&field.title);
    quote(field.description.as_deref().unwrap_or_default());
    if let Some(about) = field.about() {
        print::note(&style::dim(&about));
    }
}

/// Shows text of the agent, with a bar before each line.
fn quote(text: &str) {
    for line in text.lines() {
        show_line(&format!("{BAR}{}", safe::visible(line)));
    }
}

/// Shows a line. If the terminal would wrap it, each further row has a bar.
fn show_line(line: &str) {
    let columns = print::columns().filter(|columns| *columns >= MIN_COLUMNS);
    for row in fold(line, columns.unwrap_or(usize::MAX)) {
        print::note(&row);
    }
}

// === impl QuestionText ===

impl QuestionText {
    /// The text, folded to this width.
    pub(super) fn of(interrupt: &Interrupt, columns: usize) -> Self {
        let agent = interrupt.agent.as_deref().map(safe::visible);
        let agent =
            agent.map_or_else(|| "the agent".to_owned(), |name| format!("the agent {name}"));
        let heading = format!("{agent} asks ({}):", safe::visible(&interrupt.kind));
        let columns = columns.max(MIN_COLUMNS);
        let mut text = Self { rows: vec![style::bold(&heading)], columns };
        let payload = interrupt.payload.to_value();
        let url = payload.get("url").and_then(Value::as_str);
        let is_payload_url = |part: &&Part| url.is_some() && url == part.content_url.as_deref();
        let parts = interrupt.prompt.iter().filter(|part| !is_payload_url(part));
        parts.for_each(|part| text.add_part(part));
        match permission::lines(&payload) {
            Some(lines) => lines.iter().for_each(|line| text.add_line(line)),
            None => text.add_payload(interrupt, payload),
        }
        text
    }

    /// Shows every row.
    pub(super) fn show_all(&self) {
        self.rows.iter().for_each(|row| print::note(row));
    }

    /// Shows all of a question that fits a screen of this height, and otherwise its beginning and its end. Returns how many rows are hidden.
    pub(super) fn show_ends(&self, height: usize) -> usize {
        let height = height.max(MIN_WHOLE_ROWS);
        if self.rows.len() <= height {
            self.show_all();
            return 0;
        }
        // One row says how many are hidden.
        let room = height - CUE_ROWS;
        let hidden = self.rows.len() - (room - 1);
        let (head, tail) = self.rows.split_at((room - 1).div_ceil(2));
        head.iter().for_each(|row| print::note(row));
        print::note(&style::bold(&format!("… {hidden} rows are hidden …")));
        tail.iter().skip(hidden).for_each(|row| print::note(row));
        hidden
    }

    fn add_part(&mut self, part: &Part) {
        let json = || beside::json(part);
        let text = part.as_text().or_else(|| beside::inline_text(part)).map(str::to_owned);
        match text.or_else(json) {
            Some(text) => self.quote(&text),
            None => self.add_line(&format!("content: {}", safe::visible(&beside::summary(part)))),
        }
    }

    /// Of an elicitation of the Agent Client Protocol only the URL: the rest is asked for.
    fn add_payload(&mut self, interrupt: &Interrupt, payload: Value) {
        let is_elicitation = matches!(interrupt.kind.as_str(), "form" | "url")
            && payload.get("mode").is_some_and(Value::is_string);
        if is_elicitation {
            if let Some(url) = payload.get("url").and_then(Value::as_str) {
                self.add_line(&format!("url: {}", safe::visible(url)));
            }
            return;
        }
        match payload {
            Value::Null => {}
            Value::Object(members) => {
                for (name, value) in members {
                    let value = match value {
                        Value::String(text) => text.replace('\n', "\n  "),
                        other => other.to_string(),
                    };
                    self.quote(&format!("{}: {value}", name.replace('\n', "\\n")));
                }
            }
            other => self.quote(&other.to_string()),
        }
    }

    /// Adds text of the agent, with a bar before each line.
    fn quote(&mut self, text: &str) {
        for line in text.lines() {
            self.add_line(&format!("{BAR}{}", safe::visible(line)));
        }
    }

    fn add_line(&mut self, line: &str) {
        self.rows.extend(fold(line, self.columns));
    }
}

/// Breaks a line into rows of at most `columns` columns.
pub(super) fn fold(line: &str, columns: usize) -> Vec<String> {
    let (mut rows, mut width) = (vec![String::new()], 0);
    for char in line.chars() {
        let wide = char.width().unwrap_or(0);
        if width + wide > columns {
            rows.push(BAR.to_owned());
            width = BAR.len();
        }
        width += wide;
        if let Some(row) = rows.last_mut() {
            row.push(char);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_forges_no_row() {
        let forged = format!("title: {}kind: read", " ".repeat(13));
        assert_eq!(fold(&forged, 20), ["title:              ", "| kind: read"]);
        assert_eq!(fold("title: 漢字漢字漢字漢字", 20), ["title: 漢字漢字漢字", "| 漢字"]);
        assert_eq!(fold("short", 20), ["short"]);
        assert_eq!(fold("", 20), [""]);
    }
}
