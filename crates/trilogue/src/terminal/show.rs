//! Shows the events of a run: the answer on standard output, how the agent got there beside it.

use trilogue_wire::native::{
    Event, EventBody, Interrupt, Json, Outcome, Part, PartMetadata, PlanEntry,
};

use super::beside::{self, Calls, Thoughts, is_for_user, json, pretty, written};
use super::cited::{CitedText, Source};
use super::{safe, style};

pub(crate) use super::beside::{inline, summary};

/// Turns events into text. Everything in it is safe for a terminal.
#[derive(Debug)]
pub(crate) struct Show {
    /// Whether the answer is written as it comes; otherwise message by message.
    live: bool,
    /// Whether citations, steps, tool calls and thoughts are shown.
    metadata: bool,
    /// Whether the answer's text keeps its control sequences.
    raw: bool,
    /// Whether blocks are shown that are not meant for the user.
    all: bool,
    /// The message that grows.
    message: Option<Growing>,
    /// The message of the user that is told: it is not repeated.
    skipped: Option<String>,
    /// A message stands above the next one.
    below_another: bool,
    /// The terminal's line has text and no end.
    mid_line: bool,
    /// Whether any message had text.
    spoke: bool,
    /// Parts with a name, in order.
    artifacts: Vec<Part>,
    /// The plan as it was shown last.
    plan: Vec<PlanEntry>,
    /// Tool calls that go on.
    calls: Calls,
    /// The thought that grows.
    thoughts: Thoughts,
}

/// A message that grows.
#[derive(Debug)]
struct Growing {
    id: String,
    text: CitedText,
}

/// What to print for one event.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// For standard output.
    pub(crate) out: String,
    /// For standard error, after that.
    pub(crate) aside: String,
    /// Something that the event asks of the reader.
    pub(crate) turn: Option<Turn>,
}

/// What an event asks of the reader.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Somebody must answer.
    Asked(Box<Interrupt>),
    /// The run is over.
    Ended(Outcome),
}

// === impl Show ===

impl Show {
    /// Shows a run from its beginning.
    pub(crate) fn new(live: bool, metadata: bool, raw: bool, all: bool) -> Self {
        Self {
            live,
            metadata,
            raw,
            all,
            message: None,
            skipped: None,
            below_another: false,
            mid_line: false,
            spoke: false,
            artifacts: Vec::new(),
            plan: Vec::new(),
            calls: Calls::default(),
            thoughts: Thoughts::default(),
        }
    }

    /// Whether the answer's text keeps its control sequences.
    pub(crate) fn is_raw(&self) -> bool {
        self.raw
    }

    /// The artifacts so far.
    pub(crate) fn artifacts(&self) -> &[Part] {
        &self.artifacts
    }

    /// What is held back, because the run waits for somebody.
    pub(crate) fn pause_here(&mut self) -> String {
        let mut shown = Shown::default();
        self.pause(&mut shown);
        shown.out
    }

    /// Takes in the next event.
    pub(crate) fn event(&mut self, event: &Event) -> Shown {
        let mut shown = Shown::default();
        if let EventBody::MessageThought(thought) = &event.body {
            let came = event.original.as_ref();
            if self.all || beside::is_thought_for_user(came) {
                let lines = self.thoughts.push(&thought.text, came);
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
            EventBody::InterruptRaised(raised) => {
                self.pause(&mut shown);
                shown.turn = Some(Turn::Asked(Box::new(raised.interrupt.clone())));
            }
            EventBody::RunResult(result) => self.result(&result.value, &mut shown),
            EventBody::RunEnded(ended) => {
                self.finish(&mut shown);
                shown.turn = Some(Turn::Ended(ended.outcome.clone()));
            }
            body => {
                let lines = self.beside(body);
                self.aside(&lines, &mut shown);
            }
        }
        shown
    }

    /// What stands beside the answer.
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
    fn turn_to(&mut self, message: &str, shown: &mut Shown) -> bool {
        if self.skipped.as_deref() == Some(message) {
            return false;
        }
        if self.message.as_ref().is_none_or(|growing| growing.id != message) {
            self.finish(shown);
            self.begin(message);
        }
        true
    }

    fn begin(&mut self, message: &str) {
        let text = CitedText::new(self.live, self.raw);
        self.message = Some(Growing { id: message.to_owned(), text });
    }

    /// A message is complete; one that does not grow any more stands already.
    fn completed(&mut self, message: &str, shown: &mut Shown) {
        if self.message.as_ref().is_none_or(|growing| growing.id == message) {
            self.finish(shown);
        }
        if self.skipped.as_deref() == Some(message) {
            self.skipped = None;
        }
    }

    fn text(&mut self, text: &str, shown: &mut Shown) {
        let out = self.message().push(text);
        self.put(&out, shown);
    }

    fn part(&mut self, part: &Part, shown: &mut Shown) {
        if !self.all && !is_for_user(part) {
            return;
        }
        let citation = match &part.metadata {
            Some(PartMetadata::Citation(citation)) if self.metadata => Some(citation),
            _ => None,
        };
        let mut citation = citation.map(|citation| Source {
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
        let (live, raw) = (self.live, self.raw);
        let begun = || Growing { id: String::new(), text: CitedText::new(live, raw) };
        &mut self.message.get_or_insert_with(begun).text
    }

    /// The agent's answer as a value: shown where it said nothing in words.
    fn result(&mut self, value: &Json, shown: &mut Shown) {
        self.finish(shown);
        if self.spoke {
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

    /// Something else than the answer is shown next.
    fn pause(&mut self, shown: &mut Shown) {
        let held = self.message.as_mut().map(|growing| growing.text.flush()).unwrap_or_default();
        self.put(&held, shown);
        self.end_line(shown);
    }

    /// The message is complete: the rest of it, and its notes.
    fn finish(&mut self, shown: &mut Shown) {
        let Some(Growing { text: mut message, .. }) = self.message.take() else { return };
        let held = message.end();
        self.put(&held, shown);
        self.end_line(shown);
        let notes = message.notes();
        if !notes.is_empty() {
            shown.out.push_str(&format!("\n{}\n", notes.join("\n")));
        }
        let said = !message.is_empty();
        self.spoke |= said;
        self.below_another |= said;
    }

    /// A line beside the answer. On a terminal both are one screen, so the answer's line is ended first.
    fn aside(&mut self, text: &str, shown: &mut Shown) {
        if !self.metadata || text.is_empty() {
            return;
        }
        if self.live {
            self.end_line(shown);
        }
        for line in text.lines() {
            shown.aside.push_str(&format!("{}\n", style::dim(line)));
        }
    }

    fn put(&mut self, text: &str, shown: &mut Shown) {
        if !text.is_empty() {
            if std::mem::take(&mut self.below_another) {
                // Two messages in a row are two.
                shown.out.push('\n');
            }
            shown.out.push_str(text);
            self.mid_line = !text.ends_with('\n');
        }
    }

    fn end_line(&mut self, shown: &mut Shown) {
        if std::mem::take(&mut self.mid_line) {
            shown.out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests;
