//! Records: one event each, as head and body, or as head and original.

use std::sync::Arc;

use trilogue_domain::content::BlobRef;
use trilogue_domain::event::{
    Body, InterruptEvent, MessageEvent, Original, PlanEntry, RunEvent, StateEvent, ThreadEvent,
    ToolEvent, ToolStatus,
};
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{Answer, HeadMove, Resolution};

use super::codec::{Damage, Decoded, Reader};
use super::content::blobs_of;
use super::field::{Field, fields, late, plain_enum, text};
use super::frame::RawOriginal;
use super::subject::Subject;

fields!(PlanEntry { content, status });
plain_enum!(ToolStatus: 0 = Completed, 1 = Failed);
plain_enum!(HeadMove: 0 = Completion, 1 = Patch, 2 = Rollback, 3 = Copy, 4 = Replacement);

/// The tags of records. A tag is never given a second meaning.
mod tag {
    pub(super) const ORIGINAL: u8 = 0;
    pub(super) const OPAQUE: u8 = 1;
    pub(super) const RUN_CREATED: u8 = 16;
    pub(super) const RUN_STARTED: u8 = 17;
    pub(super) const RUN_RESUMED: u8 = 18;
    pub(super) const RUN_CANCELLING: u8 = 19;
    pub(super) const RUN_RESULT: u8 = 20;
    pub(super) const RUN_ENDED: u8 = 21;
    pub(super) const MESSAGE_STARTED: u8 = 32;
    pub(super) const MESSAGE_DELTA: u8 = 33;
    pub(super) const MESSAGE_PART: u8 = 34;
    pub(super) const MESSAGE_COMPLETED: u8 = 35;
    pub(super) const MESSAGE_THOUGHT: u8 = 36;
    pub(super) const MESSAGE_STARTED_AT: u8 = 37;
    pub(super) const TOOL_STARTED: u8 = 48;
    pub(super) const TOOL_UPDATED: u8 = 49;
    pub(super) const TOOL_ENDED: u8 = 50;
    pub(super) const INTERRUPT_RAISED: u8 = 64;
    pub(super) const INTERRUPT_RESOLVED: u8 = 65;
    pub(super) const INTERRUPT_RULE_APPLIED: u8 = 66;
    pub(super) const STATE_VALUES: u8 = 80;
    pub(super) const STATE_PLAN: u8 = 81;
    pub(super) const STATE_CUSTOM: u8 = 82;
    pub(super) const STATE_OUTPUT: u8 = 83;
    pub(super) const THREAD_CREATED: u8 = 96;
    pub(super) const THREAD_METADATA: u8 = 97;
    pub(super) const THREAD_HEAD_MOVED: u8 = 98;
    pub(super) const THREAD_RUN_REMOVED: u8 = 99;
}

/// Adds a body.
pub(super) fn put_body(body: &Body, out: &mut Vec<u8>) {
    match body {
        Body::Run(event) => put_run(event, out),
        Body::Message(event) => put_message(event, out),
        Body::Tool(event) => put_tool(event, out),
        Body::Interrupt(event) => put_interrupt(event, out),
        Body::State(event) => put_state(event, out),
        Body::Thread(event) => put_thread(event, out),
        Body::Opaque => out.push(tag::OPAQUE),
    }
}

/// Adds an original with the head's id in place of a body. The original's bytes come last and without length.
pub(super) fn put_original(original: &Original, body: &Body, out: &mut Vec<u8>) {
    out.push(tag::ORIGINAL);
    Subject::of(body).put(out);
    original.dialect.put(out);
    original.version.put(out);
    out.extend_from_slice(&original.bytes);
}

/// Takes a body, reading it from the original where that is what was stored.
pub(super) fn take_body(
    input: &mut Reader<'_>,
    originals: &dyn ReadOriginal,
) -> Decoded<(Body, Option<Original>)> {
    let tag = input.byte()?;
    match tag {
        tag::ORIGINAL => {
            let subject = Subject::take(input)?;
            let original = Original {
                dialect: Field::take(input)?,
                version: Field::take(input)?,
                bytes: input.rest(),
            };
            let body = originals.read(&original).unwrap_or_else(|error| {
                tracing::debug!(
                    dialect = &*original.dialect,
                    version = original.version,
                    code = error.code().as_str(),
                    "an original cannot be read and is kept as it is"
                );
                Body::Opaque
            });
            Ok((subject.restore(body)?, Some(original)))
        }
        tag::OPAQUE => Ok((Body::Opaque, None)),
        tag::RUN_CREATED..=tag::RUN_ENDED => Ok((Body::Run(take_run(tag, input)?), None)),
        tag::MESSAGE_STARTED..=tag::MESSAGE_STARTED_AT => {
            Ok((Body::Message(take_message(tag, input)?), None))
        }
        tag::TOOL_STARTED..=tag::TOOL_ENDED => Ok((Body::Tool(take_tool(tag, input)?), None)),
        tag::INTERRUPT_RAISED..=tag::INTERRUPT_RULE_APPLIED => {
            Ok((Body::Interrupt(take_interrupt(tag, input)?), None))
        }
        tag::STATE_VALUES..=tag::STATE_OUTPUT => Ok((Body::State(take_state(tag, input)?), None)),
        tag::THREAD_CREATED..=tag::THREAD_RUN_REMOVED => {
            Ok((Body::Thread(take_thread(tag, input)?), None))
        }
        _ => Err(UNKNOWN_TAG),
    }
}

/// Takes the original of a record that has one, without reading what it says. Of another record nothing but the tag is taken.
pub(super) fn take_original<'a>(input: &mut Reader<'a>) -> Decoded<Option<RawOriginal<'a>>> {
    if input.byte()? != tag::ORIGINAL {
        return Ok(None);
    }
    let (message, call) = match Subject::take(input)? {
        Subject::Message(id) => (Some(id), None),
        Subject::Tool(id) => (None, Some(id)),
        Subject::ToolOf(id, message) => (Some(message), Some(id)),
        Subject::None | Subject::Interrupt(_) => (None, None),
    };
    let (dialect, version) = (text(input)?, Field::take(input)?);
    Ok(Some(RawOriginal { dialect, version, message, call, bytes: input.rest() }))
}

const UNKNOWN_TAG: Damage = Damage("it holds an unknown kind of event");

/// Adds the blobs that a body names.
pub(crate) fn blobs_in(body: &Body, blobs: &mut Vec<BlobRef>) {
    match body {
        Body::Message(MessageEvent::Part { part, .. }) => {
            blobs_of(std::slice::from_ref(part), blobs);
        }
        Body::Tool(ToolEvent::Updated { content, .. }) => blobs_of(content, blobs),
        Body::Interrupt(InterruptEvent::Raised(interrupt)) => blobs_of(&interrupt.prompt, blobs),
        Body::Interrupt(InterruptEvent::Resolved {
            resolution: Resolution::Answered { answer: Answer::Message(parts), .. },
            ..
        }) => blobs_of(parts, blobs),
        _ => {}
    }
}

fn put_run(event: &RunEvent, out: &mut Vec<u8>) {
    match event {
        RunEvent::Created { run, agent, input } => {
            out.push(tag::RUN_CREATED);
            run.put(out);
            agent.put(out);
            input.put(out);
        }
        RunEvent::Started => out.push(tag::RUN_STARTED),
        RunEvent::Resumed => out.push(tag::RUN_RESUMED),
        RunEvent::Cancelling { reason } => {
            out.push(tag::RUN_CANCELLING);
            reason.put(out);
        }
        RunEvent::Result(json) => {
            out.push(tag::RUN_RESULT);
            json.put(out);
        }
        RunEvent::Ended(outcome) => {
            out.push(tag::RUN_ENDED);
            outcome.put(out);
        }
    }
}

fn take_run(tag: u8, input: &mut Reader<'_>) -> Decoded<RunEvent> {
    Ok(match tag {
        tag::RUN_CREATED => RunEvent::Created {
            run: Field::take(input)?,
            agent: Field::take(input)?,
            input: Field::take(input)?,
        },
        tag::RUN_STARTED => RunEvent::Started,
        tag::RUN_RESUMED => RunEvent::Resumed,
        tag::RUN_CANCELLING => RunEvent::Cancelling { reason: Field::take(input)? },
        tag::RUN_RESULT => RunEvent::Result(Field::take(input)?),
        tag::RUN_ENDED => RunEvent::Ended(Field::take(input)?),
        _ => return Err(UNKNOWN_TAG),
    })
}

fn put_message(event: &MessageEvent, out: &mut Vec<u8>) {
    match event {
        MessageEvent::Started { message, role, times: None } => {
            out.push(tag::MESSAGE_STARTED);
            message.put(out);
            role.put(out);
        }
        MessageEvent::Started { message, role, times: Some(times) } => {
            out.push(tag::MESSAGE_STARTED_AT);
            message.put(out);
            role.put(out);
            times.put(out);
        }
        MessageEvent::Delta { message, text } => {
            // The text comes last and without length, so that a draft can let it grow.
            out.push(tag::MESSAGE_DELTA);
            message.put(out);
            out.extend_from_slice(text.as_bytes());
        }
        MessageEvent::Part { message, part } => {
            out.push(tag::MESSAGE_PART);
            message.put(out);
            part.put(out);
        }
        MessageEvent::Completed { message } => {
            out.push(tag::MESSAGE_COMPLETED);
            message.put(out);
        }
        MessageEvent::Thought { text } => {
            out.push(tag::MESSAGE_THOUGHT);
            text.put(out);
        }
    }
}

fn take_message(tag: u8, input: &mut Reader<'_>) -> Decoded<MessageEvent> {
    Ok(match tag {
        tag::MESSAGE_STARTED => MessageEvent::Started {
            message: Field::take(input)?,
            role: Field::take(input)?,
            times: None,
        },
        tag::MESSAGE_STARTED_AT => MessageEvent::Started {
            message: Field::take(input)?,
            role: Field::take(input)?,
            times: Field::take(input).map(Some)?,
        },
        tag::MESSAGE_DELTA => {
            let message = Field::take(input)?;
            let text = input.rest();
            let text = std::str::from_utf8(&text)
                .map_err(|_| Damage("it holds text that is not UTF-8"))?;
            MessageEvent::Delta { message, text: Arc::from(text) }
        }
        tag::MESSAGE_PART => {
            MessageEvent::Part { message: Field::take(input)?, part: Field::take(input)? }
        }
        tag::MESSAGE_COMPLETED => MessageEvent::Completed { message: Field::take(input)? },
        tag::MESSAGE_THOUGHT => MessageEvent::Thought { text: Field::take(input)? },
        _ => return Err(UNKNOWN_TAG),
    })
}

fn put_tool(event: &ToolEvent, out: &mut Vec<u8>) {
    match event {
        ToolEvent::Started { call, tool, title, input, message } => {
            out.push(tag::TOOL_STARTED);
            call.put(out);
            tool.put(out);
            title.put(out);
            input.put(out);
            message.put(out);
        }
        ToolEvent::Updated { call, content } => {
            out.push(tag::TOOL_UPDATED);
            call.put(out);
            content.put(out);
        }
        ToolEvent::Ended { call, status, output } => {
            out.push(tag::TOOL_ENDED);
            call.put(out);
            status.put(out);
            output.put(out);
        }
    }
}

fn take_tool(tag: u8, input: &mut Reader<'_>) -> Decoded<ToolEvent> {
    Ok(match tag {
        tag::TOOL_STARTED => ToolEvent::Started {
            call: Field::take(input)?,
            tool: Field::take(input)?,
            title: Field::take(input)?,
            input: Field::take(input)?,
            message: late(input, 4)?,
        },
        tag::TOOL_UPDATED => {
            ToolEvent::Updated { call: Field::take(input)?, content: Field::take(input)? }
        }
        tag::TOOL_ENDED => ToolEvent::Ended {
            call: Field::take(input)?,
            status: Field::take(input)?,
            output: Field::take(input)?,
        },
        _ => return Err(UNKNOWN_TAG),
    })
}

fn put_interrupt(event: &InterruptEvent, out: &mut Vec<u8>) {
    match event {
        InterruptEvent::Raised(interrupt) => {
            out.push(tag::INTERRUPT_RAISED);
            interrupt.put(out);
        }
        InterruptEvent::Resolved { interrupt, resolution } => {
            out.push(tag::INTERRUPT_RESOLVED);
            interrupt.put(out);
            resolution.put(out);
        }
        InterruptEvent::RuleApplied { rule, allowed } => {
            out.push(tag::INTERRUPT_RULE_APPLIED);
            rule.put(out);
            allowed.put(out);
        }
    }
}

fn take_interrupt(tag: u8, input: &mut Reader<'_>) -> Decoded<InterruptEvent> {
    Ok(match tag {
        tag::INTERRUPT_RAISED => InterruptEvent::Raised(Field::take(input)?),
        tag::INTERRUPT_RESOLVED => InterruptEvent::Resolved {
            interrupt: Field::take(input)?,
            resolution: Field::take(input)?,
        },
        tag::INTERRUPT_RULE_APPLIED => {
            InterruptEvent::RuleApplied { rule: Field::take(input)?, allowed: Field::take(input)? }
        }
        _ => return Err(UNKNOWN_TAG),
    })
}

fn put_state(event: &StateEvent, out: &mut Vec<u8>) {
    match event {
        StateEvent::Values(json) => {
            out.push(tag::STATE_VALUES);
            json.put(out);
        }
        StateEvent::Output(json) => {
            out.push(tag::STATE_OUTPUT);
            json.put(out);
        }
        StateEvent::Plan(entries) => {
            out.push(tag::STATE_PLAN);
            entries.put(out);
        }
        StateEvent::Custom { kind, data } => {
            out.push(tag::STATE_CUSTOM);
            kind.put(out);
            data.put(out);
        }
    }
}

fn take_state(tag: u8, input: &mut Reader<'_>) -> Decoded<StateEvent> {
    Ok(match tag {
        tag::STATE_VALUES => StateEvent::Values(Field::take(input)?),
        tag::STATE_OUTPUT => StateEvent::Output(Field::take(input)?),
        tag::STATE_PLAN => StateEvent::Plan(Field::take(input)?),
        tag::STATE_CUSTOM => {
            StateEvent::Custom { kind: Field::take(input)?, data: Field::take(input)? }
        }
        _ => return Err(UNKNOWN_TAG),
    })
}

fn put_thread(event: &ThreadEvent, out: &mut Vec<u8>) {
    match event {
        ThreadEvent::Created { thread, metadata, copied_from } => {
            out.push(tag::THREAD_CREATED);
            thread.put(out);
            metadata.put(out);
            copied_from.put(out);
        }
        ThreadEvent::Metadata(json) => {
            out.push(tag::THREAD_METADATA);
            json.put(out);
        }
        ThreadEvent::HeadMoved { checkpoint, by } => {
            out.push(tag::THREAD_HEAD_MOVED);
            checkpoint.put(out);
            by.put(out);
        }
        ThreadEvent::RunRemoved { run, reason } => {
            out.push(tag::THREAD_RUN_REMOVED);
            run.put(out);
            reason.put(out);
        }
    }
}

fn take_thread(tag: u8, input: &mut Reader<'_>) -> Decoded<ThreadEvent> {
    Ok(match tag {
        tag::THREAD_CREATED => ThreadEvent::Created {
            thread: Field::take(input)?,
            metadata: Field::take(input)?,
            copied_from: Field::take(input)?,
        },
        tag::THREAD_METADATA => ThreadEvent::Metadata(Field::take(input)?),
        tag::THREAD_HEAD_MOVED => {
            ThreadEvent::HeadMoved { checkpoint: Field::take(input)?, by: Field::take(input)? }
        }
        tag::THREAD_RUN_REMOVED => {
            ThreadEvent::RunRemoved { run: Field::take(input)?, reason: Field::take(input)? }
        }
        _ => return Err(UNKNOWN_TAG),
    })
}
