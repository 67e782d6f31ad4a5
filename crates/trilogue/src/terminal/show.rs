//! Shows the events of a run: the answer on standard output, how the agent got there beside it.

use trilogue_wire::native::{
    ContentEncoding, Event, EventBody, Interrupt, Json, Outcome, Part, PartMetadata, PlanEntry,
    StatePlan, ToolEnded, ToolStarted, Trajectory,
};

use super::cited::{CitedText, Source};
use super::{safe, style};

/// The longest JSON that a line shows, in characters.
const MAX_INLINE_CHARS: usize = 200;

/// Turns events into text. Everything in it is safe for a terminal.
#[derive(Debug)]
pub(crate) struct Show {
    /// Whether the answer is written as it comes; otherwise message by message.
    live: bool,
    /// Whether citations, steps, tool calls and thoughts are shown.
    metadata: bool,
    /// Whether the answer's text keeps its control sequences.
    raw: bool,
    /// The message that grows.
    message: Option<CitedText>,
    /// The role of the message that grows is the user's: it is not repeated.
    skipping: bool,
    /// The terminal's line has text and no end.
    mid_line: bool,
    /// Whether any message had text.
    spoke: bool,
    /// Parts with a name, in order.
    artifacts: Vec<Part>,
    /// The plan as it was shown last.
    plan: Vec<PlanEntry>,
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
    pub(crate) fn new(live: bool, metadata: bool, raw: bool) -> Self {
        Self {
            live,
            metadata,
            raw,
            message: None,
            skipping: false,
            mid_line: false,
            spoke: false,
            artifacts: Vec::new(),
            plan: Vec::new(),
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
        match &event.body {
            EventBody::MessageStarted(started) => {
                self.finish(&mut shown);
                self.skipping = started.role == "user";
                self.message = (!self.skipping).then(|| CitedText::new(self.live, self.raw));
            }
            EventBody::MessageDelta(delta) => self.text(&delta.text, &mut shown),
            EventBody::MessagePart(part) if !self.skipping => self.part(&part.part, &mut shown),
            EventBody::MessageCompleted(_) => self.finish(&mut shown),
            EventBody::MessageThought(thought) => {
                self.aside(&format!("thought: {}", safe::block(&thought.text)), &mut shown);
            }
            EventBody::ToolStarted(tool) => self.aside(&tool_line(tool), &mut shown),
            EventBody::ToolEnded(tool) => self.aside(&tool_end_line(tool), &mut shown),
            EventBody::StatePlan(plan) => {
                let news = plan_lines(plan, &self.plan);
                self.plan.clone_from(&plan.entries);
                self.aside(&news, &mut shown);
            }
            EventBody::StateCustom(update) => {
                let line = format!("{}: {}", safe::line(&update.kind), inline(&update.data));
                self.aside(&line, &mut shown);
            }
            EventBody::RunResult(result) => self.result(&result.value, &mut shown),
            EventBody::InterruptRaised(raised) => {
                self.pause(&mut shown);
                shown.turn = Some(Turn::Asked(Box::new(raised.interrupt.clone())));
            }
            EventBody::RunEnded(ended) => {
                self.finish(&mut shown);
                shown.turn = Some(Turn::Ended(ended.outcome.clone()));
            }
            _ => {}
        }
        shown
    }

    fn text(&mut self, text: &str, shown: &mut Shown) {
        if self.skipping {
            return;
        }
        let out = self.message().push(text);
        self.put(&out, shown);
    }

    fn part(&mut self, part: &Part, shown: &mut Shown) {
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
            shown.out.push_str(&format!("{content}{}\n", number.unwrap_or_default()));
        }
        if let Some(source) = citation {
            let out = self.message().cite(source);
            self.put(&out, shown);
        }
        if let Some(PartMetadata::Trajectory(step)) = &part.metadata {
            self.aside(&step_lines(step), shown);
        }
    }

    /// The message that grows; begins one where there is none.
    fn message(&mut self) -> &mut CitedText {
        self.message.get_or_insert_with(|| CitedText::new(self.live, self.raw))
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
        let held = self.message.as_mut().map(CitedText::flush).unwrap_or_default();
        self.put(&held, shown);
        self.end_line(shown);
    }

    /// The message is complete: the rest of it, and its notes.
    fn finish(&mut self, shown: &mut Shown) {
        self.skipping = false;
        let Some(mut message) = self.message.take() else { return };
        let held = message.end();
        self.put(&held, shown);
        self.end_line(shown);
        let notes = message.notes();
        if !notes.is_empty() {
            shown.out.push_str(&format!("\n{}\n", notes.join("\n")));
        }
        self.spoke |= !message.is_empty();
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

/// The text of a part that holds text inline, artifact or not.
fn written(part: &Part) -> Option<&str> {
    let coded = part.content_encoding == Some(ContentEncoding::Base64);
    part.content.as_deref().filter(|_| !coded && part.content_type.starts_with("text/"))
}

/// The content of a part that holds JSON inline.
fn json(part: &Part) -> Option<String> {
    let content = part.content.as_deref().filter(|_| part.content_type == "application/json")?;
    let value: serde_json::Value = serde_json::from_str(content).ok()?;
    Some(pretty(&value))
}

/// JSON on lines of its own.
fn pretty(value: &serde_json::Value) -> String {
    safe::block(&serde_json::to_string_pretty(value).unwrap_or_default())
}

/// What a part is, where its content cannot be shown.
pub(crate) fn summary(part: &Part) -> String {
    let mut text = safe::line(&part.content_type);
    if let Some(url) = &part.content_url {
        text.push_str(&format!(", {}", safe::line(url)));
    } else if let Some(length) = length(part) {
        text.push_str(&format!(", {length} bytes"));
    }
    text
}

/// The length of a part's content in bytes, where it is known.
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

/// JSON on one line, cut where it is long.
pub(crate) fn inline(json: &Json) -> String {
    let text = safe::visible(&json.to_value().to_string());
    match text.char_indices().nth(MAX_INLINE_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

fn tool_line(tool: &ToolStarted) -> String {
    let title = if tool.title.is_empty() { &tool.tool } else { &tool.title };
    let input = tool.input.as_ref().map(|input| format!(" {}", inline(input)));
    format!("tool: {}{}", safe::visible(title), input.unwrap_or_default())
}

fn tool_end_line(tool: &ToolEnded) -> String {
    let output = tool.output.as_ref().map(|output| format!(": {}", inline(output)));
    format!("tool {}{}", safe::line(&tool.status), output.unwrap_or_default())
}

/// What is new in a plan.
fn plan_lines(plan: &StatePlan, shown: &[PlanEntry]) -> String {
    let line = |entry: &PlanEntry| {
        format!("plan: {} ({})\n", safe::line(&entry.content), safe::line(&entry.status))
    };
    plan.entries.iter().filter(|entry| !shown.contains(entry)).map(line).collect()
}

fn step_lines(step: &Trajectory) -> String {
    let mut lines = String::new();
    if let Some(message) = &step.message {
        lines.push_str(&format!("step: {}\n", safe::block(message)));
    }
    if let Some(name) = &step.tool_name {
        let input = step.tool_input.as_ref().map(inline).unwrap_or_default();
        lines.push_str(&format!("step: {} {input}", safe::visible(name)));
        if let Some(output) = &step.tool_output {
            lines.push_str(&format!(" → {}", inline(output)));
        }
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(live: bool, events: &[&str]) -> (String, String) {
        let mut show = Show::new(live, true, false);
        let (mut out, mut aside) = (String::new(), String::new());
        for (number, body) in (1..).zip(events) {
            let event = format!("{{\"id\":\"{number}\",\"number\":{number},\"at\":\"x\",{body}}}");
            let shown = show.event(&serde_json::from_str(&event).unwrap());
            out.push_str(&shown.out);
            aside.push_str(&shown.aside);
        }
        (out, anstream::adapter::strip_str(&aside).to_string())
    }

    const STARTED: &str = r#""type":"message.started","message_id":"m","role":"agent/x""#;
    const COMPLETED: &str = r#""type":"message.completed","message_id":"m""#;

    #[test]
    fn the_answer_has_its_notes_and_the_steps_stand_beside() {
        let events = [
            r#""type":"message.started","message_id":"u","role":"user""#,
            r#""type":"message.delta","message_id":"u","text":"question""#,
            r#""type":"message.completed","message_id":"u""#,
            STARTED,
            r#""type":"message.delta","message_id":"m","text":"Bees dan""#,
            r#""type":"tool.started","call_id":"c","tool":"search","title":"Search\u001b[2J","input":{"q":1}"#,
            r#""type":"message.delta","message_id":"m","text":"ce.""#,
            r#""type":"message.part","message_id":"m","part":{"content_type":"text/plain","metadata":{"kind":"citation","start_index":0,"end_index":4,"title":"B","url":"https://b"}}"#,
            r#""type":"message.part","message_id":"m","part":{"content_type":"image/png","content":"AAAA","content_encoding":"base64"}"#,
            COMPLETED,
        ];
        let (out, aside) = show(false, &events);
        assert_eq!(out, "Bees[1] dance.\n[image/png, 3 bytes]\n\n[1] B https://b\n");
        assert_eq!(aside, "tool: Search\\u{1b}[2J {\"q\":1}\n");
        let (out, _) = show(true, &events);
        assert_eq!(out, "Bees dan\nce.\n[image/png, 3 bytes]\n\n[1] “Bees”: B https://b\n");
    }

    /// A part whose content and citation are these members.
    fn part(content: &str, citation: &str) -> String {
        format!(
            r#""type":"message.part","message_id":"m","part":{{{content}"content_type":"text/plain","metadata":{{"kind":"citation","title":"T"{citation}}}}}"#
        )
    }

    #[test]
    fn a_citation_without_an_index_belongs_to_the_content_of_its_part() {
        let image = r#""type":"message.part","message_id":"m","part":{"content_type":"image/png","content":"AAAA","content_encoding":"base64","metadata":{"kind":"citation","title":"T"}}"#;
        let text = part(r#""content":"Bees.","#, "");
        let next = r#""type":"message.delta","message_id":"m","text":" Ants.""#;
        for live in [true, false] {
            let (out, _) = show(live, &[STARTED, &text, next, COMPLETED]);
            assert_eq!(out, "Bees.[1] Ants.\n\n[1] T\n");
            let (out, _) = show(live, &[STARTED, image, next, COMPLETED]);
            assert_eq!(out, "[image/png, 3 bytes][1]\n Ants.\n\n[1] T\n");
            let (out, _) = show(live, &[STARTED, next, &part("", ""), next, COMPLETED]);
            assert_eq!(out, " Ants.[1] Ants.\n\n[1] T\n");
        }
    }

    #[test]
    fn the_indexes_of_a_part_with_content_count_too() {
        let study = r#""content":"According to a recent study, it is so.","#;
        let cited = part(study, r#","start_index":15,"end_index":27"#);
        let (out, _) = show(false, &[STARTED, &cited, COMPLETED]);
        assert_eq!(out, "According to a recent study[1], it is so.\n\n[1] T\n");
        let (out, _) = show(true, &[STARTED, &cited, COMPLETED]);
        assert_eq!(out, "According to a recent study, it is so.\n\n[1] “recent study”: T\n");
        let icon = part(study, r#","start_index":9"#);
        let (out, _) = show(false, &[STARTED, &icon, COMPLETED]);
        assert_eq!(out, "According[1] to a recent study, it is so.\n\n[1] T\n");
    }

    #[test]
    fn artifacts_count_and_a_part_with_empty_content_shows_nothing_but_its_note() {
        let artifact = r#""type":"message.part","message_id":"m","part":{"content_type":"text/css","name":"a.css","content":"12345"}"#;
        let words = r#""type":"message.delta","message_id":"m","text":"abcd""#;
        let cited = part(r#""content":"","#, r#","start_index":5,"end_index":7"#);
        let (out, _) = show(false, &[STARTED, artifact, words, &cited, COMPLETED]);
        assert_eq!(out, "ab[1]cd\n\n[1] T\n");
    }

    #[test]
    fn without_metadata_only_the_answer_is_left() {
        let step = r#""type":"message.part","message_id":"m","part":{"content_type":"text/plain","metadata":{"kind":"trajectory","message":"hm"}}"#;
        let cited = part(r#""content":"Bees.","#, r#","start_index":0,"end_index":2"#);
        for live in [true, false] {
            let mut show = Show::new(live, false, false);
            let (mut out, mut aside) = (String::new(), String::new());
            for body in [STARTED, step, &cited, COMPLETED] {
                let event = format!("{{\"id\":\"1\",\"number\":1,\"at\":\"x\",{body}}}");
                let shown = show.event(&serde_json::from_str(&event).unwrap());
                out.push_str(&shown.out);
                aside.push_str(&shown.aside);
            }
            assert_eq!((out.as_str(), aside.as_str()), ("Bees.\n", ""));
        }
    }

    #[test]
    fn a_value_is_shown_where_there_are_no_words() {
        let value = r#""type":"run.result","value":{"message":"hi\u001b]52;c;AA\u0007!"}"#;
        assert_eq!(show(false, &[value]).0, "hi!\n");
        let spoken = r#""type":"message.delta","message_id":"m","text":"said""#;
        assert_eq!(show(false, &[STARTED, spoken, COMPLETED, value]).0, "said\n");
        let other = r#""type":"run.result","value":{"a":1,"message":"x"}"#;
        assert_eq!(show(false, &[other]).0, "{\n  \"a\": 1,\n  \"message\": \"x\"\n}\n");
    }

    #[test]
    fn a_part_of_json_is_shown_as_it_is() {
        let json = r#""type":"message.part","message_id":"m","part":{"content_type":"application/json","content":"{\"a\":\"\\u001b[2J\"}"}"#;
        let (out, _) = show(false, &[STARTED, json, COMPLETED]);
        assert_eq!(out, "{\n  \"a\": \"\\u001b[2J\"\n}\n");
        let broken = r#""type":"message.part","message_id":"m","part":{"content_type":"application/json","content":"{"}"#;
        let (out, _) = show(false, &[STARTED, broken, COMPLETED]);
        assert_eq!(out, "[application/json, 1 bytes]\n");
    }

    #[test]
    fn a_sequence_split_across_deltas_is_not_printed() {
        let first = r#""type":"message.delta","message_id":"m","text":"a\u001b]52;c""#;
        let second = r#""type":"message.delta","message_id":"m","text":";AA==\u0007b""#;
        for live in [true, false] {
            assert_eq!(show(live, &[STARTED, first, second, COMPLETED]).0, "ab\n");
        }
    }
}
