//! Renders everything but the answer: thoughts, tool calls, plans, an agent's updates. Every line is safe for a terminal.

use serde_json::Value;
use trilogue_domain::Code;
use trilogue_wire::agent_client::splice;
use trilogue_wire::native::{
    ContentEncoding, Interrupt, Json, Original, Outcome, Part, PlanEntry, Resolution,
    ResolutionKind, RuleApplied, RunStatus, StateCustom, StateSubagent, ToolEnded, ToolStarted,
    Trajectory,
};

use super::safe::{self, Stripper};
use super::tool_content::{self, ToolContent, ToolItem};

const MAX_INLINE_CHARS: usize = 200;
/// The most open tool calls whose titles are kept.
const MAX_CALLS: usize = 256;
/// The longest line of a thought that is buffered until it ends, in bytes.
const MAX_HELD_BYTES: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct ToolsAtWork(Vec<CalledTool>);

/// A tool call until it ends.
#[derive(Debug)]
struct CalledTool {
    id: String,
    title: String,
    is_command: bool,
    content: Vec<ToolItem>,
}

/// Puts the lines of thoughts together: agents of the Agent Client Protocol stream them in pieces.
#[derive(Debug, Default)]
pub(super) struct ThoughtLines {
    /// The open thought: its id, if it has one.
    open: Option<Option<String>>,
    stripper: Stripper,
    held: String,
}

// === impl ToolsAtWork ===

impl ToolsAtWork {
    pub(super) fn start_call(&mut self, tool: &ToolStarted) -> String {
        let title = if tool.title.is_empty() { &tool.tool } else { &tool.title };
        let title = safe::visible(title);
        let input = tool.input.as_ref().map(|input| format!(" {}", inline(input)));
        if self.0.len() < MAX_CALLS {
            let (id, title) = (tool.call_id.clone(), title.clone());
            self.0.push(CalledTool { id, title, is_command: false, content: Vec::new() });
        }
        format!("tool: {title}{}", input.unwrap_or_default())
    }

    /// Keeps what a call has produced until it ends: until then it may change.
    pub(super) fn set_content(&mut self, content: ToolContent) {
        let Some(call) = self.0.iter_mut().find(|call| call.id == content.call_id) else { return };
        call.is_command |= content.is_command;
        call.content = content.items.unwrap_or_else(|| std::mem::take(&mut call.content));
    }

    /// Renders the end of a call: its title if other calls are open, and the content that it produced.
    pub(super) fn end_call(&mut self, tool: &ToolEnded) -> String {
        let place = self.0.iter().position(|call| call.id == tool.call_id);
        let call = place.map(|place| self.0.remove(place));
        let title = call.as_ref().filter(|_| !self.0.is_empty());
        let title = title.map(|call| format!(" ({})", call.title)).unwrap_or_default();
        let output = tool.output.as_ref().filter(|output| !tool_content::is_list(output));
        let output = output.map(|output| format!(": {}", inline(output))).unwrap_or_default();
        let content = call.map(|call| tool_content::plain_lines(&call.content, call.is_command));
        let content = content.unwrap_or_default();
        format!("tool {}{title}{output}\n{content}", safe::line(&tool.status))
    }
}

// === impl ThoughtLines ===

impl ThoughtLines {
    /// The complete lines of a thought. One without an original is complete.
    pub(super) fn push(&mut self, text: &str, original: Option<&Original>) -> String {
        let Some(original) = original else {
            let before = self.end();
            return format!("{before}thought: {}", safe::block(text));
        };
        let id = thought_id(original);
        let mut lines = String::new();
        if self.open.as_ref() != Some(&id) {
            lines.push_str(&self.end());
            self.open = Some(id);
            self.held.push_str("thought: ");
        }
        let more = self.stripper.push(text);
        self.held.push_str(&more);
        let end = match self.held.rfind('\n') {
            Some(end) => end + 1,
            None if self.held.len() > MAX_HELD_BYTES => self.held.len(),
            None => return lines,
        };
        lines.extend(self.held.drain(..end));
        lines
    }

    pub(super) fn end(&mut self) -> String {
        (self.open, self.stripper) = (None, Stripper::default());
        let mut rest = std::mem::take(&mut self.held);
        if !rest.is_empty() {
            rest.push('\n');
        }
        rest
    }
}

/// Returns the id of a piece's thought, if the agent sent one.
pub(crate) fn thought_id(original: &Original) -> Option<String> {
    let value = original.value.as_ref()?;
    splice::message_id(value.as_str()).map(std::borrow::Cow::into_owned)
}

/// Whether a part's annotations address it to the user.
pub(crate) fn is_for_user(part: &Part) -> bool {
    let extra = part.extra.as_ref().map(Json::as_str).unwrap_or_default();
    names_user(splice::get(extra, &["x_trilogue", "block", "annotations", "audience"]))
}

/// Whether a thought's annotations address it to the user.
pub(super) fn is_thought_for_user(original: Option<&Original>) -> bool {
    let came = original.and_then(|original| original.value.as_ref());
    let came = came.map(Json::as_str).unwrap_or_default();
    names_user(splice::get(came, &["update", "content", "annotations", "audience"]))
}

fn names_user(audience: Option<&str>) -> bool {
    let Some(audience) = audience.filter(|list| list.starts_with('[')) else { return true };
    let known: Vec<_> = splice::items(audience)
        .filter_map(splice::decode)
        .filter(|word| matches!(&**word, "user" | "assistant"))
        .collect();
    // An unknown audience hides nothing.
    known.is_empty() || known.iter().any(|word| word == "user")
}

/// An agent's own update. Updates of the agent's state are left out.
pub(super) fn custom_lines(update: &StateCustom) -> String {
    let data = update.data.to_value();
    let text = |name: &str| data.get(name).and_then(Value::as_str).map(safe::line);
    match update.kind.as_str() {
        "notice" => {
            let title = text("title").unwrap_or_default();
            let more = text("description").map(|more| format!(" — {more}"));
            let severity = text("severity").filter(|word| word != "info");
            let severity = severity.map(|word| format!(" ({word})")).unwrap_or_default();
            format!("notice{severity}: {title}{}", more.unwrap_or_default())
        }
        "current_mode_update" => line("mode", text("currentModeId")),
        "session_info_update" => line("title", text("title")),
        "compaction_update" => line("compaction", text("status")),
        "turn_result" => line("stopped", text("stopReason").filter(|reason| reason != "end_turn")),
        "prompt_suggestions_update" => suggestion_lines(&data),
        "usage_update"
        | "available_commands_update"
        | "config_option_update"
        | "compaction_summary_chunk" => String::new(),
        kind => format!("{}: {}", safe::line(kind), inline(&update.data)),
    }
}

/// One line for each suggested prompt, with its text.
fn suggestion_lines(data: &Value) -> String {
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let suggestions = data.get("suggestions").map(list).unwrap_or_default();
    let text = |suggestion: &Value| {
        let blocks = suggestion.get("prompt").map(list).unwrap_or_default();
        let texts = blocks.iter().filter_map(|block| block.get("text")?.as_str());
        texts.collect::<Vec<_>>().join(" ")
    };
    let lines = suggestions.iter().map(|it| format!("suggestion: {}", safe::line(&text(it))));
    lines.collect::<Vec<_>>().join("\n")
}

fn line(what: &str, value: Option<String>) -> String {
    value.map(|value| format!("{what}: {value}")).unwrap_or_default()
}

pub(super) fn rule_line(applied: &RuleApplied) -> String {
    let decided = if applied.allowed { "allowed" } else { "denied" };
    format!("permission: {decided} by the rule {}", safe::visible(&applied.rule))
}

/// A sub-agent in one line: its title, what it does, and its thread.
pub(crate) fn subagent_line(subagent: &StateSubagent) -> String {
    let StateSubagent { thread_id, title, state, stop_reason, .. } = subagent;
    let mut line = "sub-agent:".to_owned();
    if let Some(title) = title {
        line.push_str(&format!(" {}", safe::visible(title)));
    }
    line.push_str(" (");
    match state {
        Some(state) => line.push_str(&safe::visible(state)),
        None => line.push_str("state not known"),
    }
    if let Some(reason) = stop_reason {
        line.push_str(&format!(", {}", safe::visible(reason)));
    }
    line.push(')');
    format!("{line} thread {}", safe::visible(thread_id))
}

pub(crate) fn artifact_line(part: &Part) -> String {
    let name = part.name.as_deref().unwrap_or_default();
    format!("artifact: {} ({})", safe::visible(name), summary(part))
}

/// A question in one line: its words, or the tool call that it is about.
pub(super) fn question_line(interrupt: &Interrupt) -> String {
    let prompt: String = interrupt.prompt.iter().filter_map(Part::as_text).collect();
    let payload = interrupt.payload.to_value();
    let call = payload.get("toolCall");
    let title = call.and_then(|call| call.get("title").or_else(|| call.get("name")));
    let text = match title.and_then(Value::as_str) {
        Some(title) if prompt.is_empty() => title,
        _ => &prompt,
    };
    format!("question ({}): {}", safe::line(&interrupt.kind), safe::line(text))
}

/// How a question ended, and who answered what.
pub(super) fn answer_line(resolution: &Resolution) -> String {
    let by = resolution.by.as_deref().map(|by| format!(" by {}", safe::line(by)));
    let (by, answer) = (by.unwrap_or_default(), resolution.answer.as_ref());
    match resolution.kind {
        ResolutionKind::Answered => {
            let option = answer.and_then(|answer| answer.option.as_deref().map(safe::line));
            let value = || answer.and_then(|answer| answer.value.as_ref().map(inline));
            let words = || {
                let parts = answer?.message.as_ref()?;
                Some(safe::line(&parts.iter().filter_map(Part::as_text).collect::<String>()))
            };
            let given = option.or_else(value).or_else(words).unwrap_or_default();
            format!("answered{by}: {given}")
        }
        ResolutionKind::TimedOut => "not answered in time".to_owned(),
        ResolutionKind::Cancelled => "not answered: the run was cancelled".to_owned(),
        ResolutionKind::Withdrawn => {
            let reason = resolution.reason.as_deref();
            let has_reason = |code: Code| reason == Some(code.as_str());
            let why = if has_reason(Code::RunEnded) {
                "the run ended"
            } else if has_reason(Code::AgentLost) {
                "the agent was lost"
            } else {
                "the agent withdrew the question"
            };
            format!("not answered: {why}")
        }
    }
}

/// How a run ended that did not complete.
pub(super) fn outcome_line(outcome: &Outcome) -> String {
    let status = match outcome.status {
        RunStatus::Completed => return String::new(),
        status => status.as_str(),
    };
    match (&outcome.error, &outcome.reason) {
        (Some(error), _) => {
            format!("{status}: {} ({})", safe::line(&error.message), safe::line(&error.code))
        }
        (None, Some(reason)) => format!("{status}: {}", safe::line(reason)),
        (None, None) => status.to_owned(),
    }
}

/// The inline text of a part, artifact or not.
pub(super) fn inline_text(part: &Part) -> Option<&str> {
    let coded = part.content_encoding == Some(ContentEncoding::Base64);
    part.content.as_deref().filter(|_| !coded && part.content_type.starts_with("text/"))
}

/// The inline JSON of a part.
pub(super) fn json(part: &Part) -> Option<String> {
    let content = part.content.as_deref().filter(|_| part.content_type == "application/json")?;
    let value: serde_json::Value = serde_json::from_str(content).ok()?;
    Some(pretty(&value))
}

pub(super) fn pretty(value: &serde_json::Value) -> String {
    safe::block(&serde_json::to_string_pretty(value).unwrap_or_default())
}

/// A part's type and size or address, in place of its content.
pub(crate) fn summary(part: &Part) -> String {
    let mut text = safe::line(&part.content_type);
    if let Some(url) = &part.content_url {
        text.push_str(&format!(", {}", safe::line(url)));
    } else if let Some(length) = length(part) {
        text.push_str(&format!(", {length} bytes"));
    }
    text
}

/// The length of a part's content in bytes, if known.
fn length(part: &Part) -> Option<u64> {
    if let Some(blob) = &part.blob {
        return Some(blob.length);
    }
    let content = part.content.as_ref()?;
    let length = content.len() as u64;
    let coded = part.content_encoding == Some(ContentEncoding::Base64);
    let padding = content.bytes().rev().take_while(|byte| *byte == b'=').count() as u64;
    Some(if coded { (length / 4 * 3).saturating_sub(padding) } else { length })
}

/// Formats JSON on one line, and cuts it if it is long.
pub(crate) fn inline(json: &Json) -> String {
    let text = safe::visible(&json.to_value().to_string());
    match text.char_indices().nth(MAX_INLINE_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// The new or changed entries of a plan.
pub(super) fn plan_lines(entries: &[PlanEntry], shown: &[PlanEntry]) -> String {
    let line = |entry: &PlanEntry| {
        format!("plan: {} ({})\n", safe::line(&entry.content), safe::line(&entry.status))
    };
    entries.iter().filter(|entry| !shown.contains(entry)).map(line).collect()
}

pub(super) fn step_lines(step: &Trajectory) -> String {
    step_texts(step).iter().map(|text| format!("{text}\n")).collect()
}

/// A step: its words, which can have several lines, and its tool.
pub(super) fn step_texts(step: &Trajectory) -> Vec<String> {
    let mut texts = Vec::new();
    if let Some(message) = &step.message {
        texts.push(format!("step: {}", safe::block(message)));
    }
    if let Some(name) = &step.tool_name {
        let input = step.tool_input.as_ref().map(inline).unwrap_or_default();
        let output = step.tool_output.as_ref().map(|output| format!(" → {}", inline(output)));
        texts.push(format!("step: {} {input}{}", safe::visible(name), output.unwrap_or_default()));
    }
    texts
}
