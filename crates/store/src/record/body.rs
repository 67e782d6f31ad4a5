//! Records: one event each, as head and body, or as head and original.

use std::sync::Arc;

use trilogue_domain::content::BlobRef;
use trilogue_domain::event::{
    Body, InterruptEvent, MessageEvent, Original, PlanEntry, RunEvent, StateEvent, ThreadEvent,
    ToolEvent, ToolStatus,
};
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{Answer, HeadMove, Resolution, RuleOrigin};

use super::codec::{Damage, DecodeResult, FieldReader};
use super::content::blobs_of;
use super::field::{Field, fields, text, variants};
use super::frame::RawOriginal;
use super::subject::RecordSubject;

fields!(PlanEntry { content, status });
variants!(RuleOrigin: 0 = Settings, 1 = Run);
variants!(ToolStatus: 0 = Completed, 1 = Failed);
variants!(HeadMove: 0 = Completion, 1 = Patch, 2 = Rollback, 3 = Copy, 4 = Replacement);

/// The tag of a record that holds an original.
const ORIGINAL: u8 = 0;
/// The tag of a record without content.
const OPAQUE: u8 = 1;
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
pub(super) fn put_original(original: &Original, body: &Body, out: &mut Vec<u8>) {
    out.push(ORIGINAL);
    RecordSubject::of(body).put(out);
    original.dialect.put(out);
    original.version.put(out);
    out.extend_from_slice(&original.bytes);
}

/// Takes a body, or reads it from the stored original.
pub(super) fn take_body(
    input: &mut FieldReader<'_>,
    originals: &dyn ReadOriginal,
) -> DecodeResult<(Body, Option<Original>)> {
    let body = match input.peek()? {
        ORIGINAL => {
            input.byte()?;
            let subject = RecordSubject::take(input)?;
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
            return Ok((subject.restore(body)?, Some(original)));
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
    if input.byte()? != ORIGINAL {
        return Ok(None);
    }
    let (message, call) = match RecordSubject::take(input)? {
        RecordSubject::Message(id) => (Some(id), None),
        RecordSubject::Tool(id) => (None, Some(id)),
        RecordSubject::ToolOf(id, message) => (Some(message), Some(id)),
        RecordSubject::None | RecordSubject::Interrupt(_) => (None, None),
    };
    let (dialect, version) = (text(input)?, Field::take(input)?);
    Ok(Some(RawOriginal { dialect, version, message, call, bytes: input.rest() }))
}

const UNKNOWN_EVENT: Damage = Damage("it holds an unknown kind of event");

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
