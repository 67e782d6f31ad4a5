//! Draws a run on a terminal: finished rows are written once, changing rows are redrawn below them.

use std::collections::VecDeque;
use std::time::Instant;

use anstyle::Style;
use trilogue_wire::native::{Event, Original, Part, PlanEntry, ToolEnded, Trajectory};

use super::super::beside::{self, inline_text, json, thought_id};
use super::super::cited::{CitedSource, Footnote};
use super::super::rows::{Breaks, Canvas, Prefix, ScreenRow, StyledSpan, truncate, wrap};
use super::super::safe::Stripper;
use super::super::style::{BOLD, DIM};
use super::super::tool_content::ToolContent;
use super::live_message::{LiveMessage, Passage, source_rows};
use super::phase::Phase;
use super::tool_call_row::ToolCallRow;
use super::{PieceFold, RunPiece, inline, result_text, summary};

/// How many rows of a growing thought are shown: its end.
const THOUGHT_ROWS: usize = 4;
/// The longest thought that is kept, in bytes.
const MAX_THOUGHT_BYTES: usize = 256 * 1024;
/// The most rows of an open plan: those around the entry that is in progress.
const PLAN_ROWS: usize = 8;
/// The sign of an open call that replaces the spinner once its row is written.
const GOES_ON: &str = "…";
/// The fewest rows in which something is drawn again.
const MIN_LIVE_ROWS: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(crate) struct RichOptions {
    /// Whether thoughts, steps and tool calls have all their rows.
    pub(crate) unfolded: bool,
    /// Whether each message has its sender above it, and each question its answer.
    pub(crate) record: bool,
}

#[derive(Debug)]
pub(crate) struct RichRenderer {
    options: RichOptions,
    /// The items that are not written yet, in order.
    items: VecDeque<Item>,
    /// The message that grows, below them.
    message: Option<LiveMessage>,
    /// The group that was written last.
    last: Option<Group>,
    /// The plan, until all of it is done.
    plan: Vec<PlanEntry>,
    /// The plan that was written last.
    written_plan: Vec<PlanEntry>,
    /// Calls that were written before they ended.
    away: Vec<ToolCallRow>,
    phase: Phase,
    /// The sequence that draws the image of the next event.
    image: Option<String>,
}

/// Rows for the screen.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    /// These do not change any more.
    pub(crate) written: Vec<ScreenRow>,
    /// These are drawn again by the next frame.
    pub(crate) live: Vec<ScreenRow>,
}

#[derive(Debug)]
enum Item {
    Passage(Passage),
    Sources(Vec<(usize, Footnote)>),
    Thought(OpenThought),
    Call(ToolCallRow),
    /// Who sends the message below.
    Sender(StyledLine),
    /// Lines outside of the answer.
    Lines(Vec<StyledLine>),
    /// Below the line that names it.
    Image(ScreenRow),
    /// Content of the answer other than text.
    Block(Vec<StyledLine>),
}

/// Items of one group have no empty row between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Group {
    Sender,
    Answer,
    Beside,
}

#[derive(Debug)]
struct OpenThought {
    id: Option<String>,
    stripper: Stripper,
    text: String,
    is_done: bool,
}

#[derive(Debug)]
struct StyledLine {
    prefix: Prefix,
    spans: Vec<StyledSpan>,
    breaks: Breaks,
    /// Whether it takes one row, and is cut if it is longer.
    folds: bool,
}

// === impl RichRenderer ===

impl RichRenderer {
    pub(crate) fn new(options: RichOptions, now: Instant) -> Self {
        Self {
            options,
            items: VecDeque::new(),
            message: None,
            last: None,
            plan: Vec::new(),
            written_plan: Vec::new(),
            away: Vec::new(),
            phase: Phase::new(now),
            image: None,
        }
    }

    /// Takes an event. Returns whether the person has to see it at once.
    pub(crate) fn event(&mut self, fold: &mut PieceFold, event: &Event, now: Instant) -> bool {
        let mut is_urgent = false;
        for piece in fold.event(event) {
            is_urgent |= matches!(piece, RunPiece::Question(_) | RunPiece::Ended(_));
            self.piece(piece, now);
        }
        is_urgent
    }

    /// Draws the image of the next event by this sequence.
    pub(crate) fn image(&mut self, sequence: Option<String>) {
        self.image = sequence;
    }

    /// The run is asked to stop.
    pub(crate) fn show_cancelling(&mut self, now: Instant) {
        self.phase.start_cancelling(now);
    }

    fn piece(&mut self, piece: RunPiece<'_>, now: Instant) {
        self.phase.piece(&piece, now);
        if !matches!(piece, RunPiece::Thought { .. }) {
            self.end_thought();
        }
        match piece {
            RunPiece::MessageBegins { role } => {
                if self.options.record && !role.is_empty() {
                    let line = StyledLine::whole(vec![StyledSpan::new(role, BOLD)]);
                    self.push(Item::Sender(line));
                }
                self.message = Some(LiveMessage::new());
            }
            RunPiece::Text(text) => self.message().push(text),
            RunPiece::Artifact(part) => {
                self.message().skip(inline_text(part).unwrap_or_default());
                if self.options.record {
                    self.push_side_note(&beside::artifact_line(part));
                }
            }
            RunPiece::Citation(source) => self.message().cite(source),
            RunPiece::MessageEnds => self.end_message(),
            RunPiece::Content { part, source } => self.content(part, source),
            RunPiece::Thought { text, original } => self.thought(text, original),
            RunPiece::Step(step) => self.step(step),
            RunPiece::ToolStarted(started) => self.push(Item::Call(ToolCallRow::new(started, now))),
            RunPiece::ToolContent(content) => self.tool_content(content),
            RunPiece::ToolEnded(ended) => self.tool_ended(ended, now),
            RunPiece::Plan(entries) => self.plan(&entries),
            RunPiece::Update(update) => self.push_side_note(&beside::custom_lines(update)),
            RunPiece::Subagent(subagent) => {
                self.push_side_note(&beside::subagent_line(subagent));
            }
            RunPiece::Rule(applied) => self.push_side_note(&beside::rule_line(applied)),
            RunPiece::Value(value) => self.push(match result_text(value) {
                Ok(text) => Item::Passage(Passage::new(text)),
                Err(json) => Item::Block(StyledLine::code(&json)),
            }),
            RunPiece::Input(value) => self.push_side_note(&format!("input: {}", inline(value))),
            RunPiece::Question(interrupt) if self.options.record => {
                self.push_side_note(&beside::question_line(interrupt));
            }
            RunPiece::Answered(resolution) if self.options.record => {
                self.push_side_note(&beside::answer_line(resolution));
            }
            RunPiece::Ended(outcome) => {
                self.end_message();
                self.end_plan();
                if self.options.record {
                    self.push_side_note(&beside::outcome_line(outcome));
                }
            }
            RunPiece::Created { .. }
            | RunPiece::Started
            | RunPiece::Question(_)
            | RunPiece::Answered(_) => {}
        }
    }

    /// Adds an item below the text so far.
    fn push(&mut self, item: Item) {
        let above = self.message.as_mut().and_then(LiveMessage::pause);
        self.items.extend(above.map(Item::Passage));
        self.items.push_back(item);
    }

    /// Returns the message that grows, and begins one if none is open.
    fn message(&mut self) -> &mut LiveMessage {
        self.message.get_or_insert_with(LiveMessage::new)
    }

    fn end_message(&mut self) {
        let Some(message) = self.message.take() else { return };
        let (rest, sources) = message.end();
        self.items.extend(rest.map(Item::Passage));
        if !sources.is_empty() {
            self.items.push_back(Item::Sources(sources));
        }
    }

    fn tool_content(&mut self, content: ToolContent) {
        let away = self.away.iter_mut().find(|call| call.id == content.call_id);
        if let Some(call) = open_call(&mut self.items, &content.call_id).or(away) {
            call.set_content(content);
        }
    }

    fn tool_ended(&mut self, ended: &ToolEnded, now: Instant) {
        if let Some(call) = open_call(&mut self.items, &ended.call_id) {
            call.set_end(ended, now);
        } else if let Some(place) = self.away.iter().position(|call| call.id == ended.call_id) {
            let mut call = self.away.remove(place);
            call.set_end(ended, now);
            self.push(Item::Call(call));
        }
    }

    fn content(&mut self, part: &Part, source: Option<CitedSource>) {
        let number = source.map(|source| format!(" [{}]", self.message().note(source)));
        let mut lines = match json(part) {
            Some(json) => StyledLine::code(&json),
            None => {
                vec![StyledLine::whole(vec![StyledSpan::new(&format!("▣ {}", summary(part)), DIM)])]
            }
        };
        if let (Some(line), Some(number)) = (lines.last_mut(), number) {
            line.spans.push(StyledSpan::plain(&number));
        }
        self.push(Item::Block(lines));
        if let Some(sequence) = self.image.take() {
            self.push(Item::Image(ScreenRow::image(sequence)));
        }
    }

    /// Adds a piece of a thought, or a whole thought if it has no original.
    fn thought(&mut self, text: &str, original: Option<&Original>) {
        let id = original.and_then(thought_id);
        let continues = match self.items.back() {
            Some(Item::Thought(open)) => original.is_some() && !open.is_done && open.id == id,
            _ => false,
        };
        if !continues {
            self.end_thought();
            self.push(Item::Thought(OpenThought {
                id,
                stripper: Stripper::default(),
                text: String::new(),
                is_done: false,
            }));
        }
        let Some(Item::Thought(thought)) = self.items.back_mut() else { return };
        if thought.text.len() < MAX_THOUGHT_BYTES {
            let more = thought.stripper.push(text);
            thought.text.push_str(&more);
        }
        thought.is_done = original.is_none();
    }

    fn end_thought(&mut self) {
        for item in &mut self.items {
            if let Item::Thought(thought) = item {
                thought.is_done = true;
            }
        }
    }

    fn step(&mut self, step: &Trajectory) {
        for line in beside::step_texts(step) {
            // A text on several lines folds into one.
            let line = if self.options.unfolded { line } else { line.replace('\n', " ") };
            self.push_side_note(&line);
        }
    }

    fn push_side_note(&mut self, text: &str) {
        let line = |line: &str| StyledLine {
            folds: !self.options.unfolded,
            ..StyledLine::whole(vec![StyledSpan::new(line, DIM)])
        };
        let lines: Vec<_> = text.lines().map(line).collect();
        if !lines.is_empty() {
            self.push(Item::Lines(lines));
        }
    }

    fn plan(&mut self, entries: &[PlanEntry]) {
        self.plan = entries.to_vec();
        if self.plan.iter().all(|entry| entry.status == "completed") {
            self.end_plan();
        }
    }

    fn end_plan(&mut self) {
        let plan = std::mem::take(&mut self.plan);
        if !plan.is_empty() && plan != self.written_plan {
            self.push(Item::Block(plan.iter().map(plan_line).collect()));
            self.written_plan = plan;
        }
    }

    /// Draws the next frame for a terminal of `height` rows.
    pub(crate) fn frame(&mut self, canvas: Canvas, height: usize, now: Instant) -> Frame {
        let mut written = Vec::new();
        let complete = self.message.as_mut().and_then(LiveMessage::take_complete);
        self.items.extend(complete.map(Item::Passage));
        while let Some(item) = self.items.pop_front_if(|item| item.is_done()) {
            self.write(item, canvas, &mut written);
        }
        let limit = height.saturating_sub(1).max(MIN_LIVE_ROWS);
        let below = self.footer_rows(canvas, now);
        loop {
            let mut live = self.live(canvas, now);
            let excess = (live.len() + below.len()).saturating_sub(limit);
            if excess == 0 || !self.give_way(excess, canvas, &mut written) {
                live.extend(below);
                return Frame { written, live };
            }
        }
    }

    /// Writes everything, before other output or at the end.
    pub(crate) fn settle(&mut self, canvas: Canvas) -> Vec<ScreenRow> {
        let mut written = Vec::new();
        let open = self.message.as_mut().and_then(LiveMessage::pause);
        self.items.extend(open.map(Item::Passage));
        while let Some(item) = self.items.pop_front() {
            self.write(item, canvas, &mut written);
        }
        written
    }

    /// Writes an item as it is.
    fn write(&mut self, item: Item, canvas: Canvas, written: &mut Vec<ScreenRow>) {
        let rows = item.rows(GOES_ON, self.options.unfolded, canvas);
        self.last = stack(self.last, item.group(), item.is_midway(), rows, written);
        match item {
            Item::Call(call) if !call.is_done() => self.away.push(call),
            _ => {}
        }
    }

    /// The rows that still change.
    fn live(&self, canvas: Canvas, now: Instant) -> Vec<ScreenRow> {
        let (mut live, mut last) = (Vec::new(), self.last);
        for item in &self.items {
            let rows = item.rows(self.phase.spinner(now), self.options.unfolded, canvas);
            last = stack(last, item.group(), item.is_midway(), rows, &mut live);
        }
        if let Some(message) = &self.message {
            stack(last, Group::Answer, message.is_midway(), message.rows(canvas), &mut live);
        }
        live
    }

    /// Writes the first `excess` of the rows that still change, because they are higher than the screen. Returns `false` if nothing
    /// can be written.
    fn give_way(&mut self, excess: usize, canvas: Canvas, written: &mut Vec<ScreenRow>) -> bool {
        if let Some(item) = self.items.pop_front() {
            self.write(item, canvas, written);
            return true;
        }
        let Some(message) = &mut self.message else { return false };
        let is_midway = message.is_midway();
        let rows = message.take_rows(excess, canvas);
        let gives = !rows.is_empty();
        self.last = stack(self.last, Group::Answer, is_midway, rows, written);
        gives
    }

    /// The plan and the phase, which stay at the bottom.
    fn footer_rows(&self, canvas: Canvas, now: Instant) -> Vec<ScreenRow> {
        let mut rows = Vec::new();
        let current = self.plan.iter().position(|entry| entry.status != "completed").unwrap_or(0);
        let first = current.saturating_sub(1).min(self.plan.len().saturating_sub(PLAN_ROWS));
        let lines = self.plan.iter().skip(first).take(PLAN_ROWS).map(plan_line);
        rows.extend(lines.map(|line| truncate(&line.all_spans(), canvas)));
        let running = self.items.iter().rev().find_map(|item| match item {
            Item::Call(call) if !call.is_done() => Some(call.title()),
            _ => None,
        });
        rows.push(truncate(&[StyledSpan::new(&self.phase.line(running, now), DIM)], canvas));
        if self.last.is_some() || !self.items.is_empty() {
            rows.insert(0, ScreenRow::blank());
        }
        rows
    }
}

// === impl Item ===

impl Item {
    fn group(&self) -> Group {
        match self {
            Self::Passage(_) | Self::Sources(_) | Self::Block(_) => Group::Answer,
            Self::Sender(_) => Group::Sender,
            Self::Image(_) => Group::Beside,
            Self::Thought(_) | Self::Call(_) | Self::Lines(_) => Group::Beside,
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Self::Thought(thought) => thought.is_done,
            Self::Call(call) => call.is_done(),
            Self::Passage(_)
            | Self::Sources(_)
            | Self::Sender(_)
            | Self::Image(_)
            | Self::Lines(_)
            | Self::Block(_) => true,
        }
    }

    /// Whether the item continues the row that was written last.
    fn is_midway(&self) -> bool {
        matches!(self, Self::Passage(passage) if passage.is_midway())
    }

    fn rows(&self, spinner: &str, unfolded: bool, canvas: Canvas) -> Vec<ScreenRow> {
        match self {
            Self::Passage(passage) => passage.rows(canvas),
            Self::Sources(sources) => {
                let rows = |(number, note): &(usize, Footnote)| source_rows(*number, note, canvas);
                sources.iter().flat_map(rows).collect()
            }
            Self::Thought(thought) => thought.rows(unfolded, canvas),
            Self::Call(call) => call.rows(spinner, unfolded, canvas),
            Self::Sender(line) => line.rows(canvas),
            Self::Image(row) => vec![row.clone()],
            Self::Lines(lines) | Self::Block(lines) => {
                lines.iter().flat_map(|line| line.rows(canvas)).collect()
            }
        }
    }
}

/// The call of this id that has not ended and is not written.
fn open_call<'i>(items: &'i mut VecDeque<Item>, id: &str) -> Option<&'i mut ToolCallRow> {
    items.iter_mut().find_map(|item| match item {
        Item::Call(call) if call.id == id && !call.is_done() => Some(call),
        _ => None,
    })
}

/// Adds rows below others, with an empty row between different groups. Returns the group that is last then.
fn stack(
    last: Option<Group>,
    group: Group,
    is_midway: bool,
    rows: Vec<ScreenRow>,
    stacked: &mut Vec<ScreenRow>,
) -> Option<Group> {
    if rows.is_empty() {
        return last;
    }
    let stands_apart = match last {
        None | Some(Group::Sender) => false,
        Some(last) => last != group || group == Group::Answer,
    };
    if stands_apart && !is_midway {
        stacked.push(ScreenRow::blank());
    }
    stacked.extend(rows);
    Some(group)
}

// === impl OpenThought ===

impl OpenThought {
    fn rows(&self, unfolded: bool, canvas: Canvas) -> Vec<ScreenRow> {
        if self.is_done && !unfolded {
            let text: Vec<&str> = self.text.split_whitespace().collect();
            return vec![truncate(
                &[StyledSpan::new(&format!("thought: {}", text.join(" ")), DIM)],
                canvas,
            )];
        }
        let text = format!("thought: {}", self.text.trim_end());
        let line = |line: &str| StyledLine::whole(vec![StyledSpan::new(line, DIM)]).rows(canvas);
        let mut rows: Vec<ScreenRow> = text.lines().flat_map(line).collect();
        if !self.is_done {
            rows.drain(..rows.len().saturating_sub(THOUGHT_ROWS));
        }
        rows
    }
}

// === impl StyledLine ===

impl StyledLine {
    fn whole(spans: Vec<StyledSpan>) -> Self {
        Self { prefix: Prefix::default(), spans, breaks: Breaks::Words, folds: false }
    }

    /// The lines of a text that keeps its spaces.
    fn code(text: &str) -> Vec<Self> {
        let line =
            |line| Self { breaks: Breaks::Anywhere, ..Self::whole(vec![StyledSpan::plain(line)]) };
        text.lines().map(line).collect()
    }

    fn all_spans(&self) -> Vec<StyledSpan> {
        self.prefix.first.iter().chain(&self.spans).cloned().collect()
    }

    fn rows(&self, canvas: Canvas) -> Vec<ScreenRow> {
        match self.folds {
            true => vec![truncate(&self.all_spans(), canvas)],
            false => wrap(&self.spans, &self.prefix, self.breaks, canvas),
        }
    }
}

fn plan_line(entry: &PlanEntry) -> StyledLine {
    let (sign, style) = match entry.status.as_str() {
        "completed" => ("☑ ", DIM),
        "in_progress" => ("▶ ", BOLD),
        _ => ("☐ ", Style::new()),
    };
    let prefix = Prefix::hanging(StyledSpan::new(sign, style));
    StyledLine { prefix, ..StyledLine::whole(vec![StyledSpan::new(&entry.content, style)]) }
}
