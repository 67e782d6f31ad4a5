//! Estimates the memory of a waiting request: the content in it from clients. Small members are not counted.

use trilogue_domain::{Answer, Input, Interrupt, Json, Message, Part, Reference};

use super::Envelope;
use crate::part::part_bytes;
use crate::step::{Command, Replace, Submit};
use crate::turn::Ending;

// === impl Envelope ===

impl Envelope {
    /// Returns an estimate in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Submit { submit, .. } => submit_bytes(submit),
            Self::Change { command, .. } => command_bytes(command),
            Self::Raise { interrupt, .. } => interrupt_bytes(interrupt),
            Self::Finish { ending, .. } => match &**ending {
                Ok(Ending::Suspended { interrupt, saved }) => {
                    interrupt_bytes(interrupt) + json(saved)
                }
                Ok(Ending::Completed) | Err(_) => 0,
            },
            Self::Progress { .. }
            | Self::Flush { .. }
            | Self::Withdraw { .. }
            | Self::Settled { .. }
            | Self::Wake
            | Self::HandOver(_)
            | Self::EndAsking { .. }
            | Self::CompleteAnswered { .. }
            | Self::SettleAnswered { .. }
            | Self::Shutdown { .. } => 0,
        }
    }
}

fn submit_bytes(submit: &Submit) -> usize {
    let input = match &submit.input {
        Input::Messages(messages) => messages_bytes(messages),
        Input::Value(value) => json(value),
    };
    let row = &submit.row;
    input
        + messages_bytes(&submit.said)
        + json(&row.metadata)
        + optional(row.config.as_ref())
        + optional(row.request.as_ref())
}

fn command_bytes(command: &Command) -> usize {
    match command {
        Command::Answer { answer, extra, said, .. } => {
            let answer = match answer {
                Answer::Json(value) => json(value),
                Answer::Message(parts) => parts_bytes(parts),
                Answer::Option(option) => option.len(),
            };
            answer
                + optional(extra.as_ref())
                + said.as_ref().map_or(0, |said| parts_bytes(&said.parts))
        }
        Command::Patch { patch, .. } => {
            optional(patch.metadata.as_ref()) + optional(patch.values.as_ref())
        }
        Command::Replace { replace, .. } => replace_bytes(replace),
        Command::AppendOutsideRun { draft, bound, .. } => {
            draft.bytes() + bound.as_ref().map_or(0, |bound| json(&bound.capabilities))
        }
        // These come from the owner's tasks, or contain only ids.
        _ => 0,
    }
}

fn replace_bytes(replace: &Replace) -> usize {
    let entries = replace.given.entries.iter().map(Reference::text_bytes);
    entries.map(|bytes| bytes + size_of::<Reference>()).sum::<usize>()
        + optional(replace.state.as_ref())
}

fn interrupt_bytes(interrupt: &Interrupt) -> usize {
    parts_bytes(&interrupt.prompt) + json(&interrupt.payload) + optional(interrupt.schema.as_ref())
}

fn messages_bytes(messages: &[Message]) -> usize {
    messages.iter().map(|message| parts_bytes(&message.parts)).sum()
}

fn parts_bytes(parts: &[Part]) -> usize {
    parts.iter().map(|part| size_of::<Part>() + part_bytes(part)).sum()
}

fn optional(value: Option<&Json>) -> usize {
    value.map_or(0, json)
}

fn json(value: &Json) -> usize {
    value.as_bytes().len()
}
