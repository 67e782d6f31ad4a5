use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use trilogue_domain as domain;
use trilogue_domain::event::{
    InterruptEvent, MessageEvent, PlanContent, RunEvent, StateEvent, ThreadEvent, ToolEvent,
    ToolStatus,
};
use trilogue_domain::{Body, HeadMove, ThreadId};
use trilogue_wire::native::{
    Event, EventBody, InterruptRaised, InterruptResolved, Json, MessageCompleted, MessageDelta,
    MessagePart, MessageStarted, Nothing, Original, PlanEntry, RuleApplied, RunAudit,
    RunCancelling, RunCreated, RunEnded, RunResult, StateCustom, StateOutput, StatePlan,
    StatePlanRemoved, StatePlanUpdated, StateSubagent, StateValues, ThoughtText, ThreadCreated,
    ThreadHeadMoved, ThreadMetadata, ThreadRunRemoved, ToolEnded, ToolStarted, ToolUpdated,
};

use crate::agent_client::PART;

use super::short_original::{has_blobs, without_long_strings};
use super::{interrupt, json, message, run};

/// Converts one event; `id` is its position on its stream, and `thread` is the thread of links to large content.
pub fn event(event: &domain::Event, id: u64, run_id: Option<&str>, thread: &ThreadId) -> Event {
    Event {
        id: id.to_string(),
        number: event.number,
        run_number: event.run.map(|_| event.run_number),
        run_id: run_id.map(str::to_owned),
        at: event.at.to_string(),
        body: body(&event.body, thread),
        original: event
            .original
            .as_ref()
            .filter(|it| *it.dialect != *PART)
            .map(|it| original(it, has_blobs(&event.body))),
    }
}

pub(crate) fn body(body: &Body, thread: &ThreadId) -> EventBody {
    match body {
        Body::Run(event) => run_event(event),
        Body::Message(event) => message_event(event, thread),
        Body::Tool(event) => tool_event(event, thread),
        Body::Interrupt(event) => interrupt_event(event, thread),
        Body::State(event) => state_event(event),
        Body::Thread(event) => thread_event(event),
        Body::Opaque => EventBody::Opaque(Nothing {}),
    }
}

fn run_audit(audit: &domain::RunAudit) -> RunAudit {
    RunAudit {
        principal: audit.principal.as_str().to_owned(),
        thread_id: audit.thread.as_str().to_owned(),
        token_id: audit.token.as_ref().map(|token| token.as_str().to_owned()),
        source: audit.source.as_str().to_owned(),
        can_answer: audit.can_answer,
    }
}

fn run_event(event: &RunEvent) -> EventBody {
    match event {
        RunEvent::Created { run: _, agent, input, audit } => EventBody::RunCreated(RunCreated {
            agent: agent.as_str().to_owned(),
            input: input.as_ref().map(json),
            audit: audit.as_deref().map(run_audit),
        }),
        RunEvent::Started => EventBody::RunStarted(Nothing {}),
        RunEvent::Resumed => EventBody::RunResumed(Nothing {}),
        RunEvent::Cancelling { reason } => EventBody::RunCancelling(RunCancelling {
            reason: reason.map(|code| code.as_str().to_owned()),
        }),
        RunEvent::Result(value) => EventBody::RunResult(RunResult { value: json(value) }),
        RunEvent::Ended(outcome) => {
            EventBody::RunEnded(RunEnded { outcome: run::outcome(outcome) })
        }
    }
}

fn message_event(event: &MessageEvent, thread: &ThreadId) -> EventBody {
    match event {
        MessageEvent::Started { message, role, times: _ } => {
            EventBody::MessageStarted(MessageStarted {
                message_id: message.as_str().to_owned(),
                role: role.to_text(),
            })
        }
        MessageEvent::Delta { message, text } => EventBody::MessageDelta(MessageDelta {
            message_id: message.as_str().to_owned(),
            text: text.to_string(),
        }),
        MessageEvent::Part { message, part } => EventBody::MessagePart(MessagePart {
            message_id: message.as_str().to_owned(),
            part: message::part(part, thread),
        }),
        MessageEvent::Completed { message } => EventBody::MessageCompleted(MessageCompleted {
            message_id: message.as_str().to_owned(),
        }),
        MessageEvent::Thought { message, text } => EventBody::MessageThought(ThoughtText {
            message_id: message.as_ref().map(ToString::to_string),
            text: text.to_string(),
        }),
    }
}

fn tool_event(event: &ToolEvent, thread: &ThreadId) -> EventBody {
    match event {
        ToolEvent::Started { call, tool, title, input, message } => {
            EventBody::ToolStarted(ToolStarted {
                call_id: call.clone(),
                tool: tool.clone(),
                title: title.clone(),
                input: input.as_ref().map(json),
                message_id: message.as_ref().map(ToString::to_string),
            })
        }
        ToolEvent::Updated { call, content } => EventBody::ToolUpdated(ToolUpdated {
            call_id: call.clone(),
            content: message::parts(content, thread),
        }),
        ToolEvent::Ended { call, status, output } => {
            let status = match status {
                ToolStatus::Completed => "completed",
                ToolStatus::Failed => "failed",
            };
            EventBody::ToolEnded(ToolEnded {
                call_id: call.clone(),
                status: status.to_owned(),
                output: output.as_ref().map(json),
            })
        }
    }
}

fn interrupt_event(event: &InterruptEvent, thread: &ThreadId) -> EventBody {
    match event {
        InterruptEvent::Raised(raised) => EventBody::InterruptRaised(InterruptRaised {
            interrupt: interrupt::question(raised, thread),
        }),
        InterruptEvent::Resolved { interrupt, resolution } => {
            EventBody::InterruptResolved(InterruptResolved {
                interrupt_id: interrupt.as_str().to_owned(),
                resolution: interrupt::resolution(resolution, thread),
            })
        }
        InterruptEvent::RuleApplied { rule, allowed, origin } => {
            EventBody::InterruptRuleApplied(RuleApplied {
                rule: rule.clone(),
                allowed: *allowed,
                origin: origin.map(|origin| origin.as_str().to_owned()),
            })
        }
    }
}

fn state_event(event: &StateEvent) -> EventBody {
    match event {
        StateEvent::Values(values) => EventBody::StateValues(StateValues { values: json(values) }),
        StateEvent::Output(output) => EventBody::StateOutput(StateOutput { output: json(output) }),
        StateEvent::Plan(entries) => {
            EventBody::StatePlan(StatePlan { entries: plan_entries(entries) })
        }
        StateEvent::PlanUpdated { plan, content } => {
            let (entries, markdown, path) = match content {
                PlanContent::Entries(entries) => (Some(plan_entries(entries)), None, None),
                PlanContent::Markdown { text, path } => (None, Some(text.clone()), path.clone()),
            };
            EventBody::StatePlanUpdated(StatePlanUpdated {
                plan_id: plan.clone(),
                entries,
                markdown,
                path,
            })
        }
        StateEvent::PlanRemoved { plan } => {
            EventBody::StatePlanRemoved(StatePlanRemoved { plan_id: plan.clone() })
        }
        StateEvent::Subagent(it) => EventBody::StateSubagent(subagent(it)),
        StateEvent::Custom { kind, data } => {
            EventBody::StateCustom(StateCustom { kind: kind.clone(), data: json(data) })
        }
    }
}

/// The kind of the custom event with a sub-agent of another server's agent.
pub(crate) const SUBAGENT: &str = "subagent";

/// A sub-agent as an event of this API has it.
pub(crate) fn subagent(subagent: &domain::event::Subagent) -> StateSubagent {
    let domain::event::Subagent { thread, title, description, state, can_cancel } = subagent;
    StateSubagent {
        thread_id: thread.as_str().to_owned(),
        title: title.clone(),
        description: description.clone(),
        state: state.as_ref().map(|state| state.as_str().to_owned()),
        stop_reason: state.as_ref().and_then(|state| state.stop_reason()).map(str::to_owned),
        can_cancel: *can_cancel,
    }
}

fn plan_entries(entries: &[domain::event::PlanEntry]) -> Vec<PlanEntry> {
    let entry = |entry: &domain::event::PlanEntry| PlanEntry {
        content: entry.content.clone(),
        status: entry.status.clone(),
    };
    entries.iter().map(entry).collect()
}

fn thread_event(event: &ThreadEvent) -> EventBody {
    match event {
        ThreadEvent::Created { thread, metadata, copied_from } => {
            EventBody::ThreadCreated(ThreadCreated {
                thread_id: thread.as_str().to_owned(),
                metadata: json(metadata),
                copied_from: copied_from.as_ref().map(|id| id.as_str().to_owned()),
            })
        }
        ThreadEvent::Metadata(metadata) => {
            EventBody::ThreadMetadata(ThreadMetadata { metadata: json(metadata) })
        }
        ThreadEvent::HeadMoved { checkpoint, by } => {
            let by = match by {
                HeadMove::Completion => "completion",
                HeadMove::Patch => "patch",
                HeadMove::Rollback => "rollback",
                HeadMove::Copy => "copy",
                HeadMove::Replacement => "replacement",
            };
            EventBody::ThreadHeadMoved(ThreadHeadMoved {
                checkpoint_id: checkpoint.as_str().to_owned(),
                by: by.to_owned(),
            })
        }
        ThreadEvent::RunRemoved { run, reason } => EventBody::ThreadRunRemoved(ThreadRunRemoved {
            removed_run_id: run.as_str().to_owned(),
            reason: reason.clone(),
        }),
    }
}

/// Converts an original. If its event has blobs, their content is left out.
fn original(original: &domain::Original, has_blobs: bool) -> Original {
    let text = std::str::from_utf8(&original.bytes).ok();
    let value = text.and_then(|text| match has_blobs {
        true => Json::parse(without_long_strings(text)).ok(),
        false => Json::parse(text).ok(),
    });
    let base64 = value.is_none().then(|| STANDARD.encode(&original.bytes));
    Original { dialect: original.dialect.to_string(), version: original.version, value, base64 }
}
