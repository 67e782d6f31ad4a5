//! Renders a run's events: the answer for standard output, everything else for standard error.

use trilogue_wire::native::{Event, EventBody, Json, Part, PartMetadata, PlanEntry};

use super::beside::{self, OpenCalls, ThoughtLines, is_for_user, json, pretty, written};
use super::cited::{CitedSource, CitedText};
use super::{safe, style};

pub(crate) use super::beside::{inline, summary};

#[derive(Clone, Copy, Debug)]
pub(crate) struct RenderOptions {
    /// Whether the answer is written as it comes; otherwise message by message.
    pub(crate) live: bool,
    /// Whether citations, steps, tool calls and thoughts are shown.
    pub(crate) metadata: bool,
    /// Whether the answer's text keeps its control sequences.
    pub(crate) raw: bool,
    /// Whether blocks are shown that are not meant for the user.
    pub(crate) all: bool,
}

/// Turns events into text that is safe for a terminal.
#[derive(Debug)]
pub(crate) struct RunRenderer {
    options: RenderOptions,
    /// The message that grows.
    message: Option<ShownMessage>,
    /// The user's own message, which is not repeated.
    skipped: Option<String>,
    /// Whether a message stands above the next one.
    below_another: bool,
    /// Whether the terminal's line has text and no end.
    mid_line: bool,
    has_text: bool,
    /// Parts with a name, in order.
    artifacts: Vec<Part>,
    /// The plan as it was shown last.
    plan: Vec<PlanEntry>,
    calls: OpenCalls,
    /// The thought that grows.
    thoughts: ThoughtLines,
}

/// A message that grows.
#[derive(Debug)]
struct ShownMessage {
    id: String,
    text: CitedText,
}

#[derive(Debug, Default)]
pub(crate) struct Rendered {
    pub(crate) out: String,
    /// For standard error, after that.
    pub(crate) aside: String,
}

// === impl RunRenderer ===

impl RunRenderer {
    pub(crate) fn new(options: RenderOptions) -> Self {
        Self {
            options,
            message: None,
            skipped: None,
            below_another: false,
            mid_line: false,
            has_text: false,
            artifacts: Vec::new(),
            plan: Vec::new(),
            calls: OpenCalls::default(),
            thoughts: ThoughtLines::default(),
        }
    }

    pub(crate) fn is_raw(&self) -> bool {
        self.options.raw
    }

    pub(crate) fn artifacts(&self) -> &[Part] {
        &self.artifacts
    }

    pub(crate) fn event(&mut self, event: &Event) -> Rendered {
        let mut shown = Rendered::default();
        if let EventBody::MessageThought(thought) = &event.body {
            let original = event.original.as_ref();
            if self.options.all || beside::is_thought_for_user(original) {
                let lines = self.thoughts.push(&thought.text, original);
                self.aside(&lines, &mut shown);
            }
            return shown;
        }
        let thought = self.thoughts.end();
        self.aside(&thought, &mut shown);
        match &event.body {
            EventBody::MessageStarted(started) => {
                self.finish(&mut shown);
                let id = &started.message_id;
                self.skipped = (started.role == "user").then(|| id.clone());
                if self.skipped.is_none() {
                    self.begin(id);
                }
            }
            EventBody::MessageDelta(delta) if self.turn_to(&delta.message_id, &mut shown) => {
                self.text(&delta.text, &mut shown);
            }
            EventBody::MessagePart(part) if self.turn_to(&part.message_id, &mut shown) => {
                self.part(&part.part, &mut shown);
            }
            EventBody::MessageCompleted(completed) => {
                self.completed(&completed.message_id, &mut shown)
            }
            EventBody::InterruptRaised(_) => self.pause(&mut shown),
            EventBody::RunResult(result) => self.result(&result.value, &mut shown),
            EventBody::RunEnded(_) => self.finish(&mut shown),
            body => {
                let lines = self.beside(body);
                self.aside(&lines, &mut shown);
            }
        }
        shown
    }

    /// Lines about anything but the answer.
    fn beside(&mut self, body: &EventBody) -> String {
        match body {
            EventBody::ToolStarted(tool) => self.calls.started(tool),
            EventBody::ToolEnded(tool) => self.calls.ended(tool),
            EventBody::StatePlan(plan) => {
                let news = beside::plan_lines(plan, &self.plan);
                self.plan.clone_from(&plan.entries);
                news
            }
            EventBody::StateCustom(update) => beside::custom_lines(update),
            EventBody::InterruptRuleApplied(applied) => beside::rule_line(applied),
            _ => String::new(),
        }
    }

    /// Makes this message the one that grows. `false` where it is the user's.
    fn turn_to(&mut self, message: &str, shown: &mut Rendered) -> bool {
        if self.skipped.as_deref() == Some(message) {
            return false;
        }
        if self.message.as_ref().is_none_or(|open| open.id != message) {
            self.finish(shown);
            self.begin(message);
        }
        true
    }

    fn begin(&mut self, message: &str) {
        let text = CitedText::new(self.options.live, self.options.raw);
        self.message = Some(ShownMessage { id: message.to_owned(), text });
    }

    /// Finishes a message, unless another one has taken its place.
    fn completed(&mut self, message: &str, shown: &mut Rendered) {
        if self.message.as_ref().is_none_or(|open| open.id == message) {
            self.finish(shown);
        }
        if self.skipped.as_deref() == Some(message) {
            self.skipped = None;
        }
    }

    fn text(&mut self, text: &str, shown: &mut Rendered) {
        let out = self.message().push(text);
        self.put(&out, shown);
    }

    fn part(&mut self, part: &Part, shown: &mut Rendered) {
        if !self.options.all && !is_for_user(part) {
            return;
        }
        let citation = match &part.metadata {
            Some(PartMetadata::Citation(citation)) if self.options.metadata => Some(citation),
            _ => None,
        };
        let mut citation = citation.map(|citation| CitedSource {
            start_index: citation.start_index,
            end_index: citation.end_index,
            url: citation.url.clone(),
            title: citation.title.clone(),
            description: citation.description.clone(),
        });
        if part.name.is_some() {
            self.artifacts.push(part.clone());
            if let Some(text) = written(part) {
                self.message().skip(text);
            }
        } else if let Some(text) = part.as_text() {
            self.text(text, shown);
        } else if part.content.is_some() || part.content_url.is_some() || part.blob.is_some() {
            let number = citation.take_if(|source| !source.is_placed());
            let number = number.map(|source| format!("[{}]", self.message().note(source)));
            self.pause(shown);
            let content = json(part).unwrap_or_else(|| format!("[{}]", summary(part)));
            self.put(&format!("{content}{}\n", number.unwrap_or_default()), shown);
        }
        if let Some(source) = citation {
            let out = self.message().cite(source);
            self.put(&out, shown);
        }
        if let Some(PartMetadata::Trajectory(step)) = &part.metadata {
            self.aside(&beside::step_lines(step), shown);
        }
    }

    /// The message that grows; begins one where there is none.
    fn message(&mut self) -> &mut CitedText {
        let RenderOptions { live, raw, .. } = self.options;
        let begun = || ShownMessage { id: String::new(), text: CitedText::new(live, raw) };
        &mut self.message.get_or_insert_with(begun).text
    }

    /// The agent's answer as a value: shown where no message had text.
    fn result(&mut self, value: &Json, shown: &mut Rendered) {
        self.finish(shown);
        if self.has_text {
            return;
        }
        let value = value.to_value();
        let text = match value.as_object().filter(|members| members.len() == 1) {
            Some(members) => members.get("message").and_then(serde_json::Value::as_str),
            None => value.as_str(),
        };
        let text = match text {
            Some(text) => safe::block(text),
            None => pretty(&value),
        };
        shown.out.push_str(&text);
        shown.out.push('\n');
    }

    /// Prints what is held back: something other than the answer comes next.
    fn pause(&mut self, shown: &mut Rendered) {
        let held = self.message.as_mut().map(|open| open.text.flush()).unwrap_or_default();
        self.put(&held, shown);
        self.end_line(shown);
    }

    /// The message is complete: the rest of it, and its notes.
    fn finish(&mut self, shown: &mut Rendered) {
        let Some(ShownMessage { text: mut message, .. }) = self.message.take() else { return };
        let held = message.end();
        self.put(&held, shown);
        self.end_line(shown);
        let notes = message.notes();
        if !notes.is_empty() {
            shown.out.push_str(&format!("\n{}\n", notes.join("\n")));
        }
        let has_text = !message.is_empty();
        self.has_text |= has_text;
        self.below_another |= has_text;
    }

    /// Adds lines beside the answer. On a terminal both share the screen, so the answer's line ends first.
    fn aside(&mut self, text: &str, shown: &mut Rendered) {
        if !self.options.metadata || text.is_empty() {
            return;
        }
        if self.options.live {
            self.end_line(shown);
        }
        for line in text.lines() {
            shown.aside.push_str(&format!("{}\n", style::dim(line)));
        }
    }

    fn put(&mut self, text: &str, shown: &mut Rendered) {
        if !text.is_empty() {
            if std::mem::take(&mut self.below_another) {
                // An empty line separates two messages.
                shown.out.push('\n');
            }
            shown.out.push_str(text);
            self.mid_line = !text.ends_with('\n');
        }
    }

    fn end_line(&mut self, shown: &mut Rendered) {
        if std::mem::take(&mut self.mid_line) {
            shown.out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests;
