//! Converts a run's log to spans of a trace.
//!
//! Content never leaves the server: spans have names, ids, codes, times and sizes.
//! Names of attributes follow OpenTelemetry's conventions for generative AI where these define one.

use std::collections::HashMap;

use trilogue_domain::event::{InterruptEvent, ToolEvent, ToolStatus};
use trilogue_domain::{
    AgentName, Body, Event, InterruptId, Outcome, ParentRun, RunId, RunTrace, TenantId, ThreadId,
    Timestamp,
};
use trilogue_wire::otlp::{SpanKind, SpanStatus, SpanVerdict, TraceAttribute, TraceSpan};

/// The most spans of one run. Further ones are counted in `trilogue.spans_left_out`.
pub const MAX_SPANS_PER_RUN: usize = 1_000;
/// The longest name from an agent, in bytes; longer ones are cut.
const MAX_NAME_BYTES: usize = 256;

/// A run that has ended, with the facts that its log does not have.
#[derive(Clone, Debug)]
pub struct TracedRun {
    pub id: RunId,
    pub thread: ThreadId,
    pub tenant: TenantId,
    pub agent: AgentName,
    pub parent: Option<ParentRun>,
    pub created_at: Timestamp,
    /// When it could begin.
    pub due: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    pub outcome: Outcome,
    /// How many events it has.
    pub events: u64,
    pub trace: RunTrace,
}

/// The spans of a run, made from its events in order.
#[derive(Debug)]
pub struct RunSpans {
    run: TracedRun,
    spans: Vec<TraceSpan>,
    /// Tool calls that have not ended.
    tools: HashMap<String, TraceSpan>,
    /// Unanswered questions.
    questions: HashMap<InterruptId, TraceSpan>,
    left_out: u64,
}

// === impl RunSpans ===

impl RunSpans {
    #[must_use]
    pub fn new(run: TracedRun) -> Self {
        let (spans, tools, questions) = (Vec::new(), HashMap::new(), HashMap::new());
        Self { run, spans, tools, questions, left_out: 0 }
    }

    /// Processes the run's next event.
    pub fn push(&mut self, event: &Event) {
        match &event.body {
            Body::Tool(tool) => self.tool(tool, event.at),
            Body::Interrupt(interrupt) => self.interrupt(interrupt, event.at),
            _ => {}
        }
    }

    /// Returns the spans, the run's own one first.
    #[must_use]
    pub fn finish(mut self) -> Vec<TraceSpan> {
        let end = self.run.ended_at;
        let unfinished = std::mem::take(&mut self.tools).into_values();
        let unfinished = unfinished.chain(std::mem::take(&mut self.questions).into_values());
        for mut span in unfinished.collect::<Vec<_>>() {
            span.attributes.push(TraceAttribute::flag("trilogue.unfinished", true));
            self.close(span, end);
        }
        let mut spans = vec![self.run_span()];
        spans.extend(self.queue_span());
        spans.append(&mut self.spans);
        spans
    }

    fn run_span(&self) -> TraceSpan {
        let run = &self.run;
        // The caller of a called run is a span of this process.
        let (kind, is_remote) = match run.parent {
            Some(_) => (SpanKind::Internal, false),
            None => (SpanKind::Server, run.trace.caller.is_some()),
        };
        let mut span = TraceSpan {
            trace: run.trace.context.trace.to_vec(),
            span: run.trace.context.span.to_vec(),
            parent: run.trace.caller.map(Vec::from).unwrap_or_default(),
            name: format!("invoke_agent {}", run.agent),
            kind: kind.into(),
            start: nanos(run.created_at),
            end: nanos(run.ended_at),
            flags: flags(is_remote),
            attributes: vec![
                TraceAttribute::text("gen_ai.operation.name", "invoke_agent"),
                TraceAttribute::text("gen_ai.agent.name", run.agent.as_str()),
                TraceAttribute::text("gen_ai.conversation.id", run.thread.as_str()),
                TraceAttribute::text("trilogue.run.id", run.id.as_str()),
                TraceAttribute::text("trilogue.tenant", run.tenant.as_str()),
                TraceAttribute::text("trilogue.run.outcome", run.outcome.status().as_str()),
                TraceAttribute::number("trilogue.run.events", run.events),
            ],
            status: None,
        };
        if let Some(parent) = &run.parent {
            let parent = TraceAttribute::text("trilogue.parent_run.id", parent.run.as_str());
            span.attributes.push(parent);
        }
        if self.left_out > 0 {
            let left_out = TraceAttribute::number("trilogue.spans_left_out", self.left_out);
            span.attributes.push(left_out);
        }
        match &run.outcome {
            Outcome::Completed => {}
            Outcome::Failed(failure) => fail(&mut span, &failure.code),
            Outcome::TimedOut { reason } => fail(&mut span, reason.as_str()),
            // A requested cancellation is not an error.
            Outcome::Cancelled { reason } => {
                let reason = reason.map(|reason| reason.as_str());
                span.attributes.extend(
                    reason.map(|reason| TraceAttribute::text("trilogue.cancel_reason", reason)),
                );
            }
        }
        span
    }

    /// Returns the span of the wait for the first turn.
    fn queue_span(&self) -> Option<TraceSpan> {
        let run = &self.run;
        let end = run.started_at.unwrap_or(run.ended_at);
        let mut span = self.child("queue", "queue".to_owned(), run.due.min(end));
        span.end = nanos(end);
        (end >= run.due).then_some(span)
    }

    fn tool(&mut self, event: &ToolEvent, at: Timestamp) {
        match event {
            ToolEvent::Started { call, tool, input, .. } => {
                let tool = cut(tool);
                let mut span =
                    self.child(&format!("tool/{call}"), format!("execute_tool {tool}"), at);
                span.attributes.extend([
                    TraceAttribute::text("gen_ai.operation.name", "execute_tool"),
                    TraceAttribute::text("gen_ai.tool.name", tool),
                    TraceAttribute::text("gen_ai.tool.call.id", cut(call)),
                ]);
                if let Some(input) = input {
                    let size = input.as_bytes().len() as u64;
                    span.attributes.push(TraceAttribute::number("trilogue.tool.input_bytes", size));
                }
                if self.has_room() {
                    self.tools.insert(call.clone(), span);
                }
            }
            ToolEvent::Updated { .. } => {}
            ToolEvent::Ended { call, status, output } => {
                let Some(mut span) = self.tools.remove(call).or_else(|| self.lone_tool(call, at))
                else {
                    return;
                };
                if let Some(output) = output {
                    let size = output.as_bytes().len() as u64;
                    span.attributes
                        .push(TraceAttribute::number("trilogue.tool.output_bytes", size));
                }
                if *status == ToolStatus::Failed {
                    fail(&mut span, "tool_failed");
                }
                self.close(span, at);
            }
        }
    }

    /// Returns the span of a call of which only the end was logged.
    fn lone_tool(&mut self, call: &str, at: Timestamp) -> Option<TraceSpan> {
        let mut span = self.child(&format!("tool/{call}"), "execute_tool".to_owned(), at);
        span.attributes.extend([
            TraceAttribute::text("gen_ai.operation.name", "execute_tool"),
            TraceAttribute::text("gen_ai.tool.call.id", cut(call)),
        ]);
        self.has_room().then_some(span)
    }

    fn interrupt(&mut self, event: &InterruptEvent, at: Timestamp) {
        match event {
            InterruptEvent::Raised(interrupt) => {
                let (id, kind) = (&interrupt.id, interrupt.kind.family());
                let mut span =
                    self.child(&format!("question/{id}"), format!("await_answer {kind}"), at);
                span.attributes.extend([
                    TraceAttribute::text("trilogue.question.id", id.as_str()),
                    TraceAttribute::text("trilogue.question.kind", kind),
                ]);
                if self.has_room() {
                    self.questions.insert(id.clone(), span);
                }
            }
            InterruptEvent::Resolved { interrupt, resolution } => {
                let Some(mut span) = self.questions.remove(interrupt) else { return };
                let how = resolution.as_str();
                span.attributes.push(TraceAttribute::text("trilogue.question.how", how));
                self.close(span, at);
            }
            InterruptEvent::RuleApplied { .. } => {}
        }
    }

    /// Returns a child span of the run's own.
    fn child(&self, what: &str, name: String, start: Timestamp) -> TraceSpan {
        let context = &self.run.trace.context;
        TraceSpan {
            trace: context.trace.to_vec(),
            span: context.child(what).to_vec(),
            parent: context.span.to_vec(),
            name,
            kind: SpanKind::Internal.into(),
            start: nanos(start),
            end: 0,
            attributes: Vec::new(),
            status: None,
            flags: flags(false),
        }
    }

    fn close(&mut self, mut span: TraceSpan, at: Timestamp) {
        span.end = nanos(at).max(span.start);
        self.spans.push(span);
    }

    fn has_room(&mut self) -> bool {
        let has_room =
            self.spans.len() + self.tools.len() + self.questions.len() < MAX_SPANS_PER_RUN;
        self.left_out += u64::from(!has_room);
        has_room
    }
}

fn fail(span: &mut TraceSpan, code: &str) {
    let code = cut(code);
    span.attributes.push(TraceAttribute::text("error.type", code));
    span.status = Some(SpanStatus { message: code.to_owned(), code: SpanVerdict::Error.into() });
}

/// Returns the flags: every exported span belongs to a sampled trace.
fn flags(is_remote: bool) -> u32 {
    0x101 | u32::from(is_remote) << 9
}

fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(0).saturating_mul(1_000)
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_NAME_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
