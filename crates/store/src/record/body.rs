//! Records: one event each, as head and body, or as head and original.

use std::sync::Arc;

use trilogue_domain::content::BlobRef;
use trilogue_domain::event::{
    Body, InterruptEvent, MessageEvent, Original, PlanContent, PlanEntry, RunEvent, StateEvent,
    Subagent, SubagentState, ThreadEvent, ToolEvent, ToolStatus,
};
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{Answer, Content, HeadMove, Part, Resolution, RuleOrigin};

use super::codec::{Damage, DecodeResult, FieldReader};
use super::content::blobs_of;
use super::field::{Field, fields, text, variants};
use super::frame::RawOriginal;
use super::subject::RecordSubject;

fields!(PlanEntry { content, status });
variants!(PlanContent: 0 = Entries(entries), 1 = Markdown { text, path });
fields!(Subagent { thread, title, description, state, can_cancel });
variants!(SubagentState: 0 = Running, 1 = Idle { stop_reason }, 2 = RequiresAction, 3 = Unknown);
variants!(RuleOrigin: 0 = Settings, 1 = Run);
variants!(ToolStatus: 0 = Completed, 1 = Failed);
variants!(HeadMove: 0 = Completion, 1 = Patch, 2 = Rollback, 3 = Copy, 4 = Replacement);

/// The tag of a record that holds an original.
const ORIGINAL: u8 = 0;
/// The tag of a record without content.
const OPAQUE: u8 = 1;
/// The tag of a record that holds an original, and the references to the blobs with the large content of its parts.
const ORIGINAL_WITH_BLOBS: u8 = 2;
/// The tag of text that continues a message.
const DELTA: u8 = 33;

// The tags of all events are one set: the first digit, in base 16, names the family.
variants!(RunEvent:
    16 = Created { run, agent, input; audit },
    17 = Started,
    18 = Resumed,
    19 = Cancelling { reason },
    20 = Result(json),
    21 = Ended(outcome),
);
variants!(ToolEvent:
    48 = Started { call, tool, title, input, message },
    49 = Updated { call, content },
    50 = Ended { call, status, output },
);
variants!(InterruptEvent:
    64 = Raised(interrupt),
    65 = Resolved { interrupt, resolution },
    66 = RuleApplied { rule, allowed; origin },
);
variants!(StateEvent:
    80 = Values(json),
    81 = Plan(entries),
    82 = Custom { kind, data },
    83 = Output(json),
    84 = PlanUpdated { plan, content },
    85 = PlanRemoved { plan },
    86 = Subagent(subagent),
);
variants!(ThreadEvent:
    96 = Created { thread, metadata, copied_from },
    97 = Metadata(json),
    98 = HeadMoved { checkpoint, by },
    99 = RunRemoved { run, reason },
);

pub(super) fn put_body(body: &Body, out: &mut Vec<u8>) {
    match body {
        Body::Run(event) => event.put(out),
        Body::Message(event) => event.put(out),
        Body::Tool(event) => event.put(out),
        Body::Interrupt(event) => event.put(out),
        Body::State(event) => event.put(out),
        Body::Thread(event) => event.put(out),
        Body::Opaque => out.push(OPAQUE),
    }
}

/// Adds an original with the head's id instead of a body. The original's bytes come last and without a length.
///
/// The content that the body has as blobs is in the original too: peers that get the original need all of it. Returns whether there are blobs.
pub(super) fn put_original(original: &Original, body: &Body, out: &mut Vec<u8>) -> bool {
    let blobs = outlined_parts(body);
    out.push(if blobs.is_empty() { ORIGINAL } else { ORIGINAL_WITH_BLOBS });
    RecordSubject::of(body).put(out);
    if !blobs.is_empty() {
        blobs.put(out);
    }
    original.dialect.put(out);
    original.version.put(out);
    out.extend_from_slice(&original.bytes);
    !blobs.is_empty()
}

/// Takes a body, or reads it from the stored original.
pub(super) fn take_body(
    input: &mut FieldReader<'_>,
    originals: &dyn ReadOriginal,
) -> DecodeResult<(Body, Option<Original>)> {
    let body = match input.peek()? {
        tag @ (ORIGINAL | ORIGINAL_WITH_BLOBS) => {
            input.byte()?;
            let subject = RecordSubject::take(input)?;
            let blobs = take_blobs(tag, input)?;
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
            let mut body = subject.restore(body)?;
            outline(&mut body, blobs);
            return Ok((body, Some(original)));
        }
        OPAQUE => {
            input.byte()?;
            Body::Opaque
        }
        16..32 => Body::Run(Field::take(input)?),
        32..48 => Body::Message(Field::take(input)?),
        48..64 => Body::Tool(Field::take(input)?),
        64..80 => Body::Interrupt(Field::take(input)?),
        80..96 => Body::State(Field::take(input)?),
        96..112 => Body::Thread(Field::take(input)?),
        _ => return Err(UNKNOWN_EVENT),
    };
    Ok((body, None))
}

/// Takes the original of a record without interpreting it. For any other record, takes only its tag.
pub(super) fn take_original<'a>(
    input: &mut FieldReader<'a>,
) -> DecodeResult<Option<RawOriginal<'a>>> {
    let tag = input.byte()?;
    if !matches!(tag, ORIGINAL | ORIGINAL_WITH_BLOBS) {
        return Ok(None);
    }
    let (message, call) = match RecordSubject::take(input)? {
        RecordSubject::Message(id) => (Some(id), None),
        RecordSubject::Tool(id) => (None, Some(id)),
        RecordSubject::ToolOf(id, message) => (Some(message), Some(id)),
        RecordSubject::None | RecordSubject::Interrupt(_) => (None, None),
    };
    take_blobs(tag, input)?;
    let (dialect, version) = (text(input)?, Field::take(input)?);
    Ok(Some(RawOriginal { dialect, version, message, call, bytes: input.rest() }))
}

/// A part of an event whose content is a blob.
#[derive(Debug)]
struct OutlinedPart {
    index: u64,
    blob: BlobRef,
}

fields!(OutlinedPart { index, blob });

fn take_blobs(tag: u8, input: &mut FieldReader<'_>) -> DecodeResult<Vec<OutlinedPart>> {
    if tag == ORIGINAL_WITH_BLOBS { Field::take(input) } else { Ok(Vec::new()) }
}

fn outlined_parts(body: &Body) -> Vec<OutlinedPart> {
    let blob = |(part, index): (&Part, u64)| match &part.content {
        Content::Blob(blob) => Some(OutlinedPart { index, blob: blob.clone() }),
        _ => None,
    };
    parts_of(body).iter().zip(0..).filter_map(blob).collect()
}

/// Puts blobs in the place of the content that an original has in full.
fn outline(body: &mut Body, blobs: Vec<OutlinedPart>) {
    let parts = match body {
        Body::Message(MessageEvent::Part { part, .. }) => std::slice::from_mut(part),
        Body::Tool(ToolEvent::Updated { content, .. }) => content,
        _ => return,
    };
    for OutlinedPart { index, blob } in blobs {
        let part = usize::try_from(index).ok().and_then(|index| parts.get_mut(index));
        if let Some(part) = part {
            part.content = Content::Blob(blob);
        }
    }
}

/// The parts of an event of a peer.
fn parts_of(body: &Body) -> &[Part] {
    match body {
        Body::Message(MessageEvent::Part { part, .. }) => std::slice::from_ref(part),
        Body::Tool(ToolEvent::Updated { content, .. }) => content,
        _ => &[],
    }
}

const UNKNOWN_EVENT: Damage = Damage("it holds an unknown kind of event");

pub(crate) fn blobs_in(body: &Body, blobs: &mut Vec<BlobRef>) {
    match body {
        Body::Message(MessageEvent::Part { .. }) | Body::Tool(ToolEvent::Updated { .. }) => {
            blobs_of(parts_of(body), blobs);
        }
        Body::Interrupt(InterruptEvent::Raised(interrupt)) => blobs_of(&interrupt.prompt, blobs),
        Body::Interrupt(InterruptEvent::Resolved {
            resolution: Resolution::Answered { answer: Answer::Message(parts), .. },
            ..
        }) => blobs_of(parts, blobs),
        _ => {}
    }
}

// === impl MessageEvent ===

impl Field for MessageEvent {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Started { message, role, times } => {
                out.push(32);
                message.put(out);
                role.put(out);
                times.put(out);
            }
            Self::Delta { message, text } => {
                // The text comes last and without a length, so that a draft can extend it.
                out.push(DELTA);
                message.put(out);
                out.extend_from_slice(text.as_bytes());
            }
            Self::Part { message, part } => {
                out.push(34);
                message.put(out);
                part.put(out);
            }
            Self::Completed { message } => {
                out.push(35);
                message.put(out);
            }
            Self::Thought { message: None, text } => {
                out.push(36);
                text.put(out);
            }
            Self::Thought { message: Some(message), text } => {
                out.push(37);
                message.put(out);
                text.put(out);
            }
        }
    }

    fn take(input: &mut FieldReader<'_>) -> DecodeResult<Self> {
        Ok(match input.byte()? {
            32 => Self::Started {
                message: Field::take(input)?,
                role: Field::take(input)?,
                times: Field::take(input)?,
            },
            DELTA => {
                let message = Field::take(input)?;
                let text = input.rest();
                let text = std::str::from_utf8(&text)
                    .map_err(|_| Damage("it holds text that is not UTF-8"))?;
                Self::Delta { message, text: Arc::from(text) }
            }
            34 => Self::Part { message: Field::take(input)?, part: Field::take(input)? },
            35 => Self::Completed { message: Field::take(input)? },
            // The first version stored no id of a thought.
            36 => Self::Thought { message: None, text: Field::take(input)? },
            37 => Self::Thought { message: Some(Field::take(input)?), text: Field::take(input)? },
            _ => return Err(UNKNOWN_EVENT),
        })
    }
}
