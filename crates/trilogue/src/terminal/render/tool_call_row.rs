//! A tool call on the screen: one row, which changes when the call ends, with its content below.

use std::time::{Duration, Instant};

use anstyle::Style;
use trilogue_wire::native::{Json, ToolEnded, ToolStarted};

use super::super::file_change::{DiffLine, DiffLineKind};
use super::super::rows::{Breaks, Canvas, Prefix, ScreenRow, StyledSpan, truncate, wrap};
use super::super::safe;
use super::super::style::{DIM, FAILED, SUCCEEDED};
use super::super::tool_content::{self, ToolContent, ToolItem};

/// How long something takes before its seconds are worth a word.
const NOTEWORTHY: Duration = Duration::from_secs(2);
/// The indent of the rows below a call's row.
const INDENT: &str = "  ";

#[derive(Debug)]
pub(super) struct ToolCallRow {
    pub(super) id: String,
    title: String,
    input: Option<String>,
    begun: Instant,
    is_command: bool,
    content: Vec<ToolItem>,
    end: Option<ToolCallEnd>,
}

#[derive(Debug)]
struct ToolCallEnd {
    failed: bool,
    status: String,
    output: Option<String>,
    took: Duration,
}

// === impl ToolCallRow ===

impl ToolCallRow {
    pub(super) fn new(started: &ToolStarted, now: Instant) -> Self {
        let title = if started.title.is_empty() { &started.tool } else { &started.title };
        Self {
            id: started.call_id.clone(),
            title: safe::visible(title),
            input: started.input.as_ref().map(one_line),
            begun: now,
            is_command: false,
            content: Vec::new(),
            end: None,
        }
    }

    /// Replaces the call's earlier content.
    pub(super) fn set_content(&mut self, content: ToolContent) {
        self.is_command |= content.is_command;
        self.content = content.items.unwrap_or_else(|| std::mem::take(&mut self.content));
    }

    pub(super) fn set_end(&mut self, ended: &ToolEnded, now: Instant) {
        let output = ended.output.as_ref().filter(|output| !tool_content::is_list(output));
        self.end = Some(ToolCallEnd {
            failed: ended.status != "completed",
            status: safe::line(&ended.status),
            output: output.map(one_line),
            took: now.saturating_duration_since(self.begun),
        });
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    pub(super) fn is_done(&self) -> bool {
        self.end.is_some()
    }

    /// Returns one row and the call's content; `unfolded` allows as many rows as they need.
    pub(super) fn rows(&self, frame: &str, unfolded: bool, canvas: Canvas) -> Vec<ScreenRow> {
        let mut line = vec![match &self.end {
            None => StyledSpan::new(&format!("{frame} "), DIM),
            Some(end) if end.failed => StyledSpan::new("✗ ", FAILED),
            Some(_) => StyledSpan::new("✓ ", SUCCEEDED),
        }];
        let title = if self.is_done() { DIM } else { Style::new() };
        line.push(StyledSpan::new(&self.title, title));
        let input = self.input.iter().map(|input| format!(" {input}"));
        line.extend(input.map(|input| StyledSpan::new(&input, DIM)));
        if let Some(end) = &self.end {
            line.extend(end.failed.then(|| StyledSpan::new(&format!(" {}", end.status), FAILED)));
            if end.took >= NOTEWORTHY {
                line.push(StyledSpan::new(&format!(" · {} s", end.took.as_secs()), DIM));
            }
            let output = end.output.iter().map(|output| format!(" → {output}"));
            line.extend(output.map(|output| StyledSpan::new(&output, DIM)));
        }
        if unfolded {
            let prefix = Prefix { first: Vec::new(), rest: vec![StyledSpan::plain(INDENT)] };
            let mut rows = wrap(&line, &prefix, Breaks::Words, canvas);
            rows.extend(self.produced_rows(unfolded, canvas));
            return rows;
        }
        let mut rows = vec![truncate(&line, canvas)];
        rows.extend(self.produced_rows(unfolded, canvas));
        rows
    }

    fn produced_rows(&self, unfolded: bool, canvas: Canvas) -> Vec<ScreenRow> {
        let lines = self.content.iter().flat_map(|item| item.lines(self.is_command, unfolded));
        let row = |line: DiffLine| {
            let style = match line.kind {
                DiffLineKind::Removed => FAILED,
                DiffLineKind::Added => SUCCEEDED,
                DiffLineKind::Kept | DiffLineKind::Omission => DIM,
            };
            let spans = [StyledSpan::plain(INDENT), StyledSpan::new(&line.text, style)];
            match unfolded {
                true => wrap(&spans, &Prefix::default(), Breaks::Anywhere, canvas),
                false => vec![truncate(&spans, canvas)],
            }
        };
        lines.flat_map(row).collect()
    }
}

/// Formats a value on one line: a text unchanged, other values as JSON.
fn one_line(value: &Json) -> String {
    match value.to_value() {
        serde_json::Value::String(text) => safe::visible(&text),
        value => safe::visible(&value.to_string()),
    }
}
