use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Code, Error};
use trilogue_wire::agent_connect::{StreamMode, StreamModes};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Modes {
    /// The output so far.
    pub values: bool,
    pub updates: bool,
}

/// Returns the modes of a stream for a request, and a requested mode that is left out because the agent does not have it.
/// Without a mode in the request: the output, or the custom updates of an agent that has only those.
/// Errors: `stream_mode_not_supported` if no mode remains.
pub fn modes(card: &AgentCard, asked: Option<&StreamModes>) -> Result<(Modes, Option<StreamMode>)> {
    let has = streamed(card);
    let Some(asked) = asked.filter(|modes| !modes.as_slice().is_empty()) else {
        let Modes { values, updates } = has;
        return match values || updates {
            true => Ok((Modes { values, updates: updates && !values }, None)),
            false => Err(unsupported(card, has, "")),
        };
    };
    let values = has.values && asked.has(StreamMode::Values);
    let updates = has.updates && asked.has(StreamMode::Custom);
    let missing = missing(card, asked.as_slice());
    match missing {
        Some(mode) if !values && !updates => {
            Err(unsupported(card, has, &format!(" \"{}\"", mode.as_str())))
        }
        missing => Ok((Modes { values, updates }, missing)),
    }
}

/// Returns the first of these modes that the agent does not stream.
pub fn missing(card: &AgentCard, modes: &[StreamMode]) -> Option<StreamMode> {
    let has = streamed(card);
    let is_missing = |mode: &StreamMode| match mode {
        StreamMode::Values => !has.values,
        StreamMode::Custom => !has.updates,
    };
    modes.iter().copied().find(is_missing)
}

/// Returns what the agent streams: its output unless its author forbids it, its updates if its author declares them.
pub(super) fn streamed(card: &AgentCard) -> Modes {
    Modes {
        values: card.abilities.streams_values != Some(false),
        updates: card.abilities.streams_updates == Some(true),
    }
}

fn unsupported(card: &AgentCard, has: Modes, what: &str) -> Error {
    let hint = match has {
        Modes { values: true, .. } => "it streams \"values\"",
        Modes { updates: true, .. } => "it streams \"custom\"",
        _ => "it declares no streaming: wait for its output instead",
    };
    let message = format!("the agent '{}' does not stream{what}", card.name);
    Error::new(Code::StreamModeNotSupported, message).hint(hint)
}
