//! Turns a run's events into pieces for a person who reads them.
//!
//! Only [`PieceFold`] decides which piece an event becomes. [`plain`] writes the pieces as the same text on every output, [`rich`] draws them on a
//! terminal.

mod live_message;
pub(crate) mod phase;
pub(crate) mod plain;
pub(crate) mod rich;
mod tool_call_row;

use std::borrow::Cow;

use trilogue_mapping::plan::{MergedPlans, entries_of_markdown};
use trilogue_wire::native::{
    Event, EventBody, Interrupt, Json, Original, Outcome, Part, PartMetadata, PlanEntry,
    Resolution, RuleApplied, StateCustom, StatePlanUpdated, StateSubagent, ToolEnded, ToolStarted,
    Trajectory,
};

use super::beside::{self, is_for_user};
use super::cited::CitedSource;
use super::safe;
use super::tool_content::ToolContent;

pub(crate) use super::beside::{inline, summary};

#[derive(Clone, Copy, Debug)]
pub(crate) struct FoldOptions {
    /// Whether citations, steps, tool calls and thoughts are shown.
    pub(crate) metadata: bool,
    /// Whether blocks are shown that are not meant for the user.
    pub(crate) all: bool,
    /// Whether the user's own messages are shown.
    pub(crate) users: bool,
}

/// Something to show. Its texts are not safe for a terminal yet.
#[derive(Clone, Debug)]
pub(crate) enum RunPiece<'e> {
    /// The run was accepted.
    Created {
        agent: &'e str,
    },
    /// The agent runs.
    Started,
    /// A message begins. Its role is empty if the agent sent none.
    MessageBegins {
        role: &'e str,
    },
    Text(&'e str),
    /// A part with a name. Citations count its text, but it is not shown.
    Artifact(&'e Part),
    /// Content other than text, with the source of all of it.
    Content {
        part: &'e Part,
        source: Option<CitedSource>,
    },
    Citation(CitedSource),
    MessageEnds,
    /// A thought, or a piece of one if it has an original.
    Thought {
        text: &'e str,
        original: Option<&'e Original>,
    },
    Step(&'e Trajectory),
    ToolStarted(&'e ToolStarted),
    /// The content that a call has produced so far.
    ToolContent(ToolContent),
    ToolEnded(&'e ToolEnded),
    Plan(Cow<'e, [PlanEntry]>),
    Update(&'e StateCustom),
    /// A sub-agent, as it is now.
    Subagent(&'e StateSubagent),
    Rule(&'e RuleApplied),
    Question(&'e Interrupt),
    /// A question is over.
    Answered(&'e Resolution),
    /// The run's input, if it is a value.
    Input(&'e Json),
    /// The run's result, if no message had text.
    Value(&'e Json),
    Ended(&'e Outcome),
}

/// Turns events into pieces.
#[derive(Debug)]
pub(crate) struct PieceFold {
    options: FoldOptions,
    /// The message that grows.
    message: Option<String>,
    /// The user's own message, which is not repeated.
    skipped: Option<String>,
    has_text: bool,
    /// Parts with a name, in order.
    artifacts: Vec<Part>,
    /// The agent's plans.
    plans: MergedPlans<PlanEntry>,
    /// How many parts were left out that are not meant for the user.
    hidden: usize,
}

// === impl PieceFold ===

impl PieceFold {
    pub(crate) fn new(options: FoldOptions) -> Self {
        Self {
            options,
            message: None,
            skipped: None,
            has_text: false,
            artifacts: Vec::new(),
            plans: MergedPlans::default(),
            hidden: 0,
        }
    }

    pub(crate) fn artifacts(&self) -> &[Part] {
        &self.artifacts
    }

    pub(crate) fn hidden_count(&self) -> usize {
        self.hidden
    }

    pub(crate) fn event<'e>(&mut self, event: &'e Event) -> Vec<RunPiece<'e>> {
        let mut pieces = Vec::new();
        match &event.body {
            EventBody::MessageStarted(started) => {
                self.finish(&mut pieces);
                let id = &started.message_id;
                let is_skipped = started.role == "user" && !self.options.users;
                self.skipped = is_skipped.then(|| id.clone());
                if !is_skipped {
                    self.begin(id, &started.role, &mut pieces);
                }
            }
            EventBody::MessageDelta(delta) if self.turn_to(&delta.message_id, &mut pieces) => {
                self.text(&delta.text, &mut pieces);
            }
            EventBody::MessagePart(part) if self.turn_to(&part.message_id, &mut pieces) => {
                self.part(&part.part, &mut pieces);
            }
            EventBody::MessageCompleted(completed) => {
                self.complete_message(&completed.message_id, &mut pieces);
            }
            EventBody::InterruptRaised(raised) => {
                pieces.push(RunPiece::Question(&raised.interrupt))
            }
            EventBody::RunResult(result) => {
                self.finish(&mut pieces);
                if !self.has_text {
                    pieces.push(RunPiece::Value(&result.value));
                }
            }
            EventBody::RunEnded(ended) => {
                self.finish(&mut pieces);
                self.has_text = false;
                pieces.push(RunPiece::Ended(&ended.outcome));
            }
            EventBody::RunCreated(created) if self.options.users && created.input.is_some() => {
                pieces.extend(created.input.as_ref().map(RunPiece::Input));
            }
            _ if self.options.metadata => {
                let content = ToolContent::of(event).map(RunPiece::ToolContent);
                let (before, after) = match &event.body {
                    EventBody::ToolEnded(_) => (content, None),
                    _ => (None, content),
                };
                pieces.extend(before.into_iter().chain(self.side_note(event)).chain(after));
            }
            _ => {}
        }
        pieces
    }

    /// Returns the piece of an event outside of the answer.
    fn side_note<'e>(&mut self, event: &'e Event) -> Option<RunPiece<'e>> {
        Some(match &event.body {
            EventBody::RunCreated(created) => RunPiece::Created { agent: &created.agent },
            EventBody::RunStarted(_) => RunPiece::Started,
            EventBody::MessageThought(thought) => {
                let original = event.original.as_ref();
                if !self.options.all && !beside::is_thought_for_user(original) {
                    return None;
                }
                RunPiece::Thought { text: &thought.text, original }
            }
            EventBody::ToolStarted(tool) => RunPiece::ToolStarted(tool),
            EventBody::ToolEnded(tool) => RunPiece::ToolEnded(tool),
            EventBody::StatePlan(plan) => {
                self.plans.set(None, plan.entries.clone());
                RunPiece::Plan(self.plan(&plan.entries))
            }
            EventBody::StatePlanUpdated(plan) => {
                self.plans.set(Some(&plan.plan_id), entries_of(plan));
                RunPiece::Plan(self.plan(&[]))
            }
            EventBody::StatePlanRemoved(plan) => {
                self.plans.remove(&plan.plan_id);
                RunPiece::Plan(self.plans.entries().cloned().collect())
            }
            EventBody::StateSubagent(subagent) => RunPiece::Subagent(subagent),
            EventBody::StateCustom(update) => RunPiece::Update(update),
            EventBody::InterruptRuleApplied(applied) => RunPiece::Rule(applied),
            EventBody::InterruptResolved(resolved) => RunPiece::Answered(&resolved.resolution),
            _ => return None,
        })
    }

    /// Returns the shown plan: the given one, or all plans as one if any has an id.
    fn plan<'e>(&self, only: &'e [PlanEntry]) -> Cow<'e, [PlanEntry]> {
        match self.plans.has_ids() {
            true => self.plans.entries().cloned().collect(),
            false => Cow::Borrowed(only),
        }
    }

    /// Makes this message the one that grows. Returns `false` if it is the user's.
    fn turn_to<'e>(&mut self, message: &str, pieces: &mut Vec<RunPiece<'e>>) -> bool {
        if self.skipped.as_deref() == Some(message) {
            return false;
        }
        if self.message.as_deref() != Some(message) {
            self.finish(pieces);
            self.begin(message, "", pieces);
        }
        true
    }

    fn begin<'e>(&mut self, message: &str, role: &'e str, pieces: &mut Vec<RunPiece<'e>>) {
        self.message = Some(message.to_owned());
        pieces.push(RunPiece::MessageBegins { role });
    }

    /// Finishes a message, unless another one has taken its place.
    fn complete_message(&mut self, message: &str, pieces: &mut Vec<RunPiece<'_>>) {
        if self.message.as_deref().is_none_or(|open| open == message) {
            self.message = None;
            pieces.push(RunPiece::MessageEnds);
        }
        if self.skipped.as_deref() == Some(message) {
            self.skipped = None;
        }
    }

    fn finish(&mut self, pieces: &mut Vec<RunPiece<'_>>) {
        if self.message.take().is_some() {
            pieces.push(RunPiece::MessageEnds);
        }
    }

    fn text<'e>(&mut self, text: &'e str, pieces: &mut Vec<RunPiece<'e>>) {
        self.has_text |= !text.is_empty();
        pieces.push(RunPiece::Text(text));
    }

    fn part<'e>(&mut self, part: &'e Part, pieces: &mut Vec<RunPiece<'e>>) {
        if !self.options.all && !is_for_user(part) {
            self.hidden += 1;
            return;
        }
        let mut source = match &part.metadata {
            Some(PartMetadata::Citation(citation)) if self.options.metadata => {
                self.has_text = true;
                Some(CitedSource::from(citation))
            }
            _ => None,
        };
        if part.name.is_some() {
            self.artifacts.push(part.clone());
            pieces.push(RunPiece::Artifact(part));
        } else if let Some(text) = part.as_text() {
            self.text(text, pieces);
        } else if part.content.is_some() || part.content_url.is_some() || part.blob.is_some() {
            let source = source.take_if(|source| !source.is_placed());
            pieces.push(RunPiece::Content { part, source });
        }
        pieces.extend(source.map(RunPiece::Citation));
        if let (Some(PartMetadata::Trajectory(step)), true) =
            (&part.metadata, self.options.metadata)
        {
            pieces.push(RunPiece::Step(step));
        }
    }
}

/// Returns the entries of a plan, or those of its Markdown document.
fn entries_of(plan: &StatePlanUpdated) -> Vec<PlanEntry> {
    if let Some(entries) = &plan.entries {
        return entries.clone();
    }
    let entries = entries_of_markdown(plan.markdown.as_deref().unwrap_or_default());
    let entry = |entry: trilogue_domain::event::PlanEntry| PlanEntry {
        content: entry.content,
        status: entry.status,
    };
    entries.into_iter().map(entry).collect()
}

/// Returns a run's result as text if it is a text; otherwise as JSON.
fn result_text(value: &Json) -> Result<String, String> {
    let value = value.to_value();
    let text = match value.as_object().filter(|members| members.len() == 1) {
        Some(members) => members.get("message").and_then(serde_json::Value::as_str),
        None => value.as_str(),
    };
    text.map(safe::block).ok_or_else(|| beside::pretty(&value))
}

#[cfg(test)]
mod tests;
