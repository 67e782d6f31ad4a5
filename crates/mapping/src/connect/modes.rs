use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Code, Error};
use trilogue_wire::agent_connect::{StreamMode, StreamModes};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Modes {
    /// The output so far.
    pub values: bool,
    pub updates: bool,
}

/// The modes of a stream for a request: without one, the output, or the custom updates of an agent that has only those.
/// `literal` offers only the modes that the agent's author declares.
/// Errors: `stream_mode_not_supported`.
pub fn modes(card: &AgentCard, asked: Option<&StreamModes>, literal: bool) -> Result<Modes> {
    let (values, custom) = streamed(card, literal);
    let refused = |what: &str| {
        let hint = match (values, custom) {
            (false, false) => "it declares no streaming: wait for its output instead",
            (true, _) => "it streams \"values\"",
            (false, true) => "it streams \"custom\"",
        };
        let message = format!("the agent '{}' does not stream{what}", card.name);
        Err(Error::new(Code::StreamModeNotSupported, message).hint(hint))
    };
    match asked.filter(|modes| !modes.as_slice().is_empty()) {
        Some(modes) if modes.has(StreamMode::Values) && !values => refused(" \"values\""),
        Some(modes) if modes.has(StreamMode::Custom) && !custom => refused(" \"custom\""),
        Some(modes) => Ok(Modes {
            values: modes.has(StreamMode::Values),
            updates: modes.has(StreamMode::Custom),
        }),
        None if values => Ok(Modes { values: true, updates: false }),
        None if custom => Ok(Modes { values: false, updates: true }),
        None => refused(""),
    }
}

pub(super) fn streamed(card: &AgentCard, literal: bool) -> (bool, bool) {
    let abilities = card.abilities;
    let custom = abilities.streams_updates == Some(true);
    match literal {
        true => (abilities.streams_values == Some(true), custom),
        false => (abilities.streams_values != Some(false), custom),
    }
}
