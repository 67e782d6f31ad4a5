//! Text that stays the same everywhere: the answer for standard output, everything else for standard error.

use trilogue_wire::native::{Event, PlanEntry};

use super::super::beside::{self, ThoughtLines, ToolsAtWork, inline_text, json};
use super::super::cited::{CitedSource, CitedText};
use super::super::{safe, style};
use super::{PieceFold, RunPiece, inline, result_text, summary};

#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainOptions {
    /// Whether the answer is written as it arrives; otherwise message by message.
    pub(crate) live: bool,
    /// Whether the answer's text keeps its control sequences.
    pub(crate) raw: bool,
    /// Whether each message has its sender before it, and questions, answers and failures are shown.
    pub(crate) record: bool,
}

/// Turns pieces into text that is safe for a terminal.
#[derive(Debug)]
pub(crate) struct PlainRenderer {
    options: PlainOptions,
    /// The message that grows.
    message: Option<CitedText>,
    /// The sender of the message that grows, until some of it is written.
    sender: Option<String>,
    /// Whether a message was written above the next one.
    below_another: bool,
    /// Whether the terminal's line has text and no end.
    mid_line: bool,
    /// The plan that was shown last.
    plan: Vec<PlanEntry>,
    calls: ToolsAtWork,
    /// The thought that grows.
    thoughts: ThoughtLines,
}

#[derive(Debug, Default)]
pub(crate) struct PlainText {
    pub(crate) out: String,
    /// For standard error, after that.
    pub(crate) aside: String,
}

// === impl PlainRenderer ===

impl PlainRenderer {
    pub(crate) fn new(options: PlainOptions) -> Self {
        Self {
            options,
            message: None,
            sender: None,
            below_another: false,
            mid_line: false,
            plan: Vec::new(),
            calls: ToolsAtWork::default(),
            thoughts: ThoughtLines::default(),
        }
    }

    pub(crate) fn is_raw(&self) -> bool {
        self.options.raw
    }

    pub(crate) fn event(&mut self, fold: &mut PieceFold, event: &Event) -> PlainText {
        let mut shown = PlainText::default();
        for piece in fold.event(event) {
            self.piece(piece, &mut shown);
        }
        shown
    }

    fn piece(&mut self, piece: RunPiece<'_>, shown: &mut PlainText) {
        if let RunPiece::Thought { text, original } = piece {
            let lines = self.thoughts.push(text, original);
            self.aside(&lines, shown);
            return;
        }
        let thought = self.thoughts.end();
        self.aside(&thought, shown);
        match piece {
            RunPiece::MessageBegins { role } => {
                self.message = Some(self.new_message());
                let has_sender = self.options.record && !role.is_empty();
                self.sender = has_sender.then(|| format!("{}: ", safe::line(role)));
            }
            RunPiece::Text(text) => {
                let out = self.message().push(text);
                self.put(&out, shown);
            }
            RunPiece::Artifact(part) => {
                self.message().skip(inline_text(part).unwrap_or_default());
                if self.options.record {
                    self.aside(&beside::artifact_line(part), shown);
                }
            }
            RunPiece::Content { part, source } => {
                let number = source.map(|source| format!("[{}]", self.message().note(source)));
                self.pause(shown);
                let content = json(part).unwrap_or_else(|| format!("[{}]", summary(part)));
                self.put(&format!("{content}{}\n", number.unwrap_or_default()), shown);
            }
            RunPiece::Citation(source) => self.cite(source, shown),
            RunPiece::MessageEnds => self.finish(shown),
            RunPiece::Question(interrupt) => {
                self.pause(shown);
                if self.options.record {
                    self.aside(&beside::question_line(interrupt), shown);
                }
            }
            RunPiece::Value(value) => {
                let text = result_text(value).unwrap_or_else(|json| json);
                shown.out.push_str(&format!("{text}\n"));
            }
            piece => {
                let lines = self.side_note_text(&piece);
                self.aside(&lines, shown);
            }
        }
    }

    /// Returns the lines for a piece outside of the answer.
    fn side_note_text(&mut self, piece: &RunPiece<'_>) -> String {
        match piece {
            RunPiece::Step(step) => beside::step_lines(step),
            RunPiece::ToolStarted(tool) => self.calls.start_call(tool),
            RunPiece::ToolContent(content) => {
                self.calls.set_content(content.clone());
                String::new()
            }
            RunPiece::ToolEnded(tool) => self.calls.end_call(tool),
            RunPiece::Plan(entries) => {
                let news = beside::plan_lines(entries, &self.plan);
                self.plan = entries.to_vec();
                news
            }
            RunPiece::Update(update) => beside::custom_lines(update),
            RunPiece::Subagent(subagent) => beside::subagent_line(subagent),
            RunPiece::Rule(applied) => beside::rule_line(applied),
            RunPiece::Answered(resolution) if self.options.record => {
                beside::answer_line(resolution)
            }
            RunPiece::Ended(outcome) if self.options.record => beside::outcome_line(outcome),
            RunPiece::Input(value) => format!("input: {}", inline(value)),
            _ => String::new(),
        }
    }

    fn new_message(&self) -> CitedText {
        CitedText::new(self.options.live, self.options.raw)
    }

    /// Returns the message that grows, and begins one if none is open.
    fn message(&mut self) -> &mut CitedText {
        let begun = self.new_message();
        self.message.get_or_insert(begun)
    }

    fn cite(&mut self, source: CitedSource, shown: &mut PlainText) {
        let out = self.message().cite(source);
        self.put(&out, shown);
    }

    /// Prints the held text, before output other than the answer.
    fn pause(&mut self, shown: &mut PlainText) {
        let held = self.message.as_mut().map(CitedText::flush).unwrap_or_default();
        self.put(&held, shown);
        self.end_line(shown);
    }

    /// The message is complete: the rest of it, and its notes.
    fn finish(&mut self, shown: &mut PlainText) {
        let Some(mut message) = self.message.take() else { return };
        let held = message.end();
        self.put(&held, shown);
        self.end_line(shown);
        let notes = message.notes();
        if !notes.is_empty() {
            shown.out.push_str(&format!("\n{}\n", notes.join("\n")));
        }
        self.below_another |= !message.is_empty();
    }

    /// Adds lines outside of the answer. On a terminal both share the screen, so the answer's line ends
    /// first.
    fn aside(&mut self, text: &str, shown: &mut PlainText) {
        if text.is_empty() {
            return;
        }
        if self.options.live {
            self.end_line(shown);
        }
        for line in text.lines() {
            shown.aside.push_str(&format!("{}\n", style::dim(line)));
        }
    }

    fn put(&mut self, text: &str, shown: &mut PlainText) {
        if !text.is_empty() {
            if std::mem::take(&mut self.below_another) {
                // An empty line separates two messages.
                shown.out.push('\n');
            }
            shown.out.push_str(&self.sender.take().unwrap_or_default());
            shown.out.push_str(text);
            self.mid_line = !text.ends_with('\n');
        }
    }

    fn end_line(&mut self, shown: &mut PlainText) {
        if std::mem::take(&mut self.mid_line) {
            shown.out.push('\n');
        }
    }
}
