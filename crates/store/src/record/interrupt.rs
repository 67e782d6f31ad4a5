//! Interrupts, answers, resolutions, and how runs end.

use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{Answer, Failure, Interrupt, InterruptKind, Outcome, Resolution, Survives};

use super::codec::{Damage, Decoded, Reader, put_bytes};
use super::field::{Field, fields, plain_enum, text};

/// The tag of an answer that carried something beyond it, since version 4.
const ANSWERED_WITH_EXTRA: u8 = 4;

fields!(Interrupt { id, kind, prompt, payload, options, schema, survives, patience });
fields!(PermissionOption { id, name, effect, always });
fields!(Failure { code, message, transient, data });
plain_enum!(Effect: 0 = Allow, 1 = Reject);
plain_enum!(Survives: 0 = Process, 1 = Restart);

// === impl Field ===

impl Field for InterruptKind {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Permission => out.push(0),
            Self::Message => out.push(1),
            Self::Form => out.push(2),
            Self::Url => out.push(3),
            Self::Custom(name) => {
                out.push(4);
                put_bytes(out, name.as_bytes());
            }
        }
    }

    fn take(input: &mut Reader<'_>) -> Decoded<Self> {
        match input.byte()? {
            0 => Ok(Self::Permission),
            1 => Ok(Self::Message),
            2 => Ok(Self::Form),
            3 => Ok(Self::Url),
            4 => Ok(Self::Custom(text(input)?.to_owned())),
            _ => Err(Damage("it holds an unknown kind of interrupt")),
        }
    }
}

impl Field for Answer {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Option(id) => {
                out.push(0);
                id.put(out);
            }
            Self::Json(json) => {
                out.push(1);
                json.put(out);
            }
            Self::Message(parts) => {
                out.push(2);
                parts.put(out);
            }
        }
    }

    fn take(input: &mut Reader<'_>) -> Decoded<Self> {
        match input.byte()? {
            0 => Field::take(input).map(Self::Option),
            1 => Field::take(input).map(Self::Json),
            2 => Field::take(input).map(Self::Message),
            _ => Err(Damage("it holds an unknown kind of answer")),
        }
    }
}

impl Field for Resolution {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Answered { by, answer, digest, extra } => {
                out.push(if extra.is_some() { ANSWERED_WITH_EXTRA } else { 0 });
                by.put(out);
                answer.put(out);
                digest.put(out);
                if let Some(extra) = extra {
                    extra.put(out);
                }
            }
            Self::TimedOut { option } => {
                out.push(1);
                option.put(out);
            }
            Self::Cancelled => out.push(2),
            Self::Withdrawn { reason } => {
                out.push(3);
                reason.put(out);
            }
        }
    }

    fn take(input: &mut Reader<'_>) -> Decoded<Self> {
        match input.byte()? {
            tag @ (0 | ANSWERED_WITH_EXTRA) => Ok(Self::Answered {
                by: Field::take(input)?,
                answer: Field::take(input)?,
                digest: Field::take(input)?,
                extra: (tag == ANSWERED_WITH_EXTRA).then(|| Field::take(input)).transpose()?,
            }),
            1 => Ok(Self::TimedOut { option: Field::take(input)? }),
            2 => Ok(Self::Cancelled),
            3 => Ok(Self::Withdrawn { reason: Field::take(input)? }),
            _ => Err(Damage("it holds an unknown resolution")),
        }
    }
}

impl Field for Outcome {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Completed => out.push(0),
            Self::Failed(failure) => {
                out.push(1);
                failure.put(out);
            }
            Self::Cancelled { reason } => {
                out.push(2);
                reason.put(out);
            }
            Self::TimedOut { reason } => {
                out.push(3);
                reason.put(out);
            }
        }
    }

    fn take(input: &mut Reader<'_>) -> Decoded<Self> {
        match input.byte()? {
            0 => Ok(Self::Completed),
            1 => Field::take(input).map(Self::Failed),
            2 => Ok(Self::Cancelled { reason: Field::take(input)? }),
            3 => Ok(Self::TimedOut { reason: Field::take(input)? }),
            _ => Err(Damage("it holds an unknown outcome")),
        }
    }
}
