//! Converts events of our own face back to the vocabulary.

use std::sync::Arc;

use trilogue_domain as domain;
use trilogue_domain::error::Result;
use trilogue_domain::event::{
    InterruptEvent, MessageEvent, PlanContent, StateEvent, ToolEvent, ToolStatus,
};
use trilogue_domain::{Body, MessageId, Role};
use trilogue_wire::native::{ContentEncoding, EventBody, InputPart, Part};

use super::event::SUBAGENT;
use super::{input, object_of, read_json};

/// Returns the agent's action in an event of its run; `None` for an event about the run, the thread or a question, and for an unknown type.
/// Large content is a link: `base` is the address of a mount of the Agent Connect Protocol on the server that has it, without a slash at its end.
/// Fails with `invalid_id`, `json_too_deep`, `invalid_request`.
pub fn read_body(event: EventBody, base: &str) -> Result<Option<Body>> {
    Ok(Some(match event {
        EventBody::MessageStarted(started) => Body::Message(MessageEvent::Started {
            message: MessageId::parse(&started.message_id)?,
            role: Role::from_text(&started.role).unwrap_or(Role::Agent),
            times: None,
        }),
        EventBody::MessageDelta(delta) => Body::Message(MessageEvent::Delta {
            message: MessageId::parse(&delta.message_id)?,
            text: delta.text.into(),
        }),
        EventBody::MessagePart(part) => Body::Message(MessageEvent::Part {
            message: MessageId::parse(&part.message_id)?,
            part: read_part(part.part, base)?,
        }),
        EventBody::MessageCompleted(completed) => Body::Message(MessageEvent::Completed {
            message: MessageId::parse(&completed.message_id)?,
        }),
        EventBody::MessageThought(thought) => Body::Message(MessageEvent::Thought {
            message: thought.message_id.map(|id| MessageId::parse(&id)).transpose()?,
            text: thought.text.into(),
        }),
        EventBody::ToolStarted(started) => Body::Tool(ToolEvent::Started {
            call: started.call_id,
            tool: started.tool,
            title: started.title,
            input: started.input.map(read_json).transpose()?,
            message: started.message_id.map(|id| MessageId::parse(&id)).transpose()?,
        }),
        EventBody::ToolUpdated(updated) => Body::Tool(ToolEvent::Updated {
            call: updated.call_id,
            content: updated
                .content
                .into_iter()
                .map(|part| read_part(part, base))
                .collect::<Result<_>>()?,
        }),
        EventBody::ToolEnded(ended) => Body::Tool(ToolEvent::Ended {
            call: ended.call_id,
            status: match ended.status.as_str() {
                "failed" => ToolStatus::Failed,
                _ => ToolStatus::Completed,
            },
            output: ended.output.map(read_json).transpose()?,
        }),
        EventBody::InterruptRuleApplied(applied) => Body::Interrupt(InterruptEvent::RuleApplied {
            rule: applied.rule,
            allowed: applied.allowed,
            origin: applied.origin.as_deref().and_then(domain::RuleOrigin::from_text),
        }),
        EventBody::StatePlan(plan) => {
            Body::State(StateEvent::Plan(read_plan_entries(plan.entries)))
        }
        EventBody::StatePlanUpdated(plan) => {
            let content = match (plan.entries, plan.markdown) {
                (_, Some(text)) => PlanContent::Markdown { text, path: plan.path },
                (entries, None) => {
                    PlanContent::Entries(read_plan_entries(entries.unwrap_or_default()))
                }
            };
            Body::State(StateEvent::PlanUpdated { plan: plan.plan_id, content })
        }
        EventBody::StatePlanRemoved(plan) => {
            Body::State(StateEvent::PlanRemoved { plan: plan.plan_id })
        }
        // Its thread is one of the other server, not of this one.
        EventBody::StateSubagent(subagent) => Body::State(StateEvent::Custom {
            kind: SUBAGENT.to_owned(),
            data: object_of(&subagent)?,
        }),
        EventBody::StateCustom(custom) => {
            Body::State(StateEvent::Custom { kind: custom.kind, data: read_json(custom.data)? })
        }
        _ => return Ok(None),
    }))
}

fn read_plan_entries(
    entries: Vec<trilogue_wire::native::PlanEntry>,
) -> Vec<domain::event::PlanEntry> {
    let entry = |entry: trilogue_wire::native::PlanEntry| domain::event::PlanEntry {
        content: entry.content,
        status: entry.status,
    };
    entries.into_iter().map(entry).collect()
}

fn read_part(part: Part, base: &str) -> Result<domain::Part> {
    let below = |url: &str| url.strip_prefix("/api/v1").unwrap_or(url).to_owned();
    let link = part.blob.map(|blob| format!("{base}{}", below(&blob.url)));
    let encoding = part.content_encoding.filter(|it| *it == ContentEncoding::Base64);
    let given = InputPart {
        content_type: Some(part.content_type),
        content: part.content,
        content_encoding: encoding,
        content_url: part.content_url.or(link),
        name: part.name,
        metadata: part.metadata,
        extra: part.extra,
    };
    let mut parts = input::parts(vec![given])?;
    Ok(parts.pop().unwrap_or_else(|| domain::Part::text(Arc::<str>::from(""))))
}
