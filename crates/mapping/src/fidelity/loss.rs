//! The concepts that a run lost on the way to its agent, as an event of its log.

use std::collections::BTreeSet;

use serde_json::json;
use trilogue_domain::event::StateEvent;
use trilogue_domain::{Body, Input, Json, Message, Part, PartMetadata};

use crate::message_members::split_further;

/// The kind of the event: an agent's own update, which every face shows like other updates.
pub const LOST: &str = "fidelity.lost";

/// A concept of the table that a run has lost on the way to its agent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FidelityLoss {
    concept: &'static str,
    /// The agent's protocol.
    protocol: &'static str,
    because: &'static str,
}

// === impl FidelityLoss ===

impl FidelityLoss {
    /// Earlier messages that do not fit into a prompt.
    pub const HISTORY: Self = Self {
        concept: "conversation",
        protocol: "client",
        because: "all earlier messages together are longer than a prompt may be; the first ones are left out",
    };
    /// Earlier messages that do not fit into a request to a server of the Agent Communication Protocol.
    pub const COMMUNICATION_HISTORY: Self = Self { protocol: "communication", ..Self::REMOTE };
    /// Earlier messages that do not fit into a request to a server of the Agent Connect Protocol.
    pub const CONNECT_HISTORY: Self = Self { protocol: "connect", ..Self::REMOTE };
    const REMOTE: Self = Self {
        concept: "conversation",
        protocol: "",
        because: "the earlier messages that the agent has not seen are more than a run sends to another server; the first ones are left out",
    };
    /// The settings of a run whose agent is behind a server that does not accept any.
    pub const SETTINGS: Self = Self {
        concept: "settings of a run",
        protocol: "communication",
        because: "the agent's server is another than Trilogue, and the protocol has no member for them",
    };
    const THOUGHT: Self = Self {
        concept: "thought",
        protocol: "client",
        because: "a prompt has no block for a thought of an earlier message",
    };
    const TOOL_CALL: Self = Self {
        concept: "tool call",
        protocol: "client",
        because: "a prompt has no block for a tool call of an earlier message",
    };
    const ANNOTATIONS: Self = Self {
        concept: "annotations",
        protocol: "client",
        because: "a prompt's block has no member for metadata of another protocol",
    };
    const FURTHER_MEMBERS: Self = Self {
        concept: "further members of a message",
        protocol: "client",
        because: "a prompt has no member for those of another protocol's message",
    };
    #[cfg(test)]
    const ALL: [Self; 8] = [
        Self::HISTORY,
        Self::COMMUNICATION_HISTORY,
        Self::CONNECT_HISTORY,
        Self::SETTINGS,
        Self::THOUGHT,
        Self::TOOL_CALL,
        Self::ANNOTATIONS,
        Self::FURTHER_MEMBERS,
    ];

    /// Returns the event that names it.
    #[must_use]
    pub fn event(self) -> Body {
        let data = json!({
            "concept": self.concept,
            "direction": "to_agent",
            "protocol": self.protocol,
            "because": self.because,
        });
        Body::State(StateEvent::Custom { kind: LOST.to_owned(), data: Json::from_value(&data) })
    }
}

/// Returns what a prompt of the Agent Client Protocol loses of an input and of the messages before it.
#[must_use]
pub fn lost_by_prompt(input: &Input, missed: &[Message]) -> BTreeSet<FidelityLoss> {
    let own = match input {
        Input::Messages(messages) => messages.as_slice(),
        Input::Value(_) => &[],
    };
    let parts = missed.iter().chain(own).flat_map(|message| &message.parts);
    let further = |part: &&Part| split_further(part).is_some();
    let further = parts.clone().filter(further).map(|_| FidelityLoss::FURTHER_MEMBERS);
    parts.clone().filter_map(lost_of).chain(further).collect()
}

fn lost_of(part: &Part) -> Option<FidelityLoss> {
    match part.metadata.as_ref()? {
        PartMetadata::Trajectory(step) if step.tool_name.is_some() => Some(FidelityLoss::TOOL_CALL),
        PartMetadata::Trajectory(_) => Some(FidelityLoss::THOUGHT),
        PartMetadata::Other(_) => Some(FidelityLoss::ANNOTATIONS),
        PartMetadata::Citation(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use trilogue_domain::{Citation, Role, Trajectory};

    use super::super::TABLE;
    use super::*;

    fn annotation_message(metadata: PartMetadata) -> Message {
        Message::new(Role::Agent, vec![Part::annotation(metadata)], None)
    }

    #[test]
    fn what_is_lost_is_a_concept_of_the_table() {
        for loss in FidelityLoss::ALL {
            assert!(TABLE.iter().any(|row| row.concept == loss.concept), "{loss:?}");
        }
    }

    #[test]
    fn a_prompt_names_each_concept_once() {
        let thought = Trajectory { message: Some("Hm.".to_owned()), ..Trajectory::default() };
        let call = Trajectory { tool_name: Some("look".to_owned()), ..Trajectory::default() };
        let missed = [
            annotation_message(PartMetadata::Trajectory(thought.clone())),
            annotation_message(PartMetadata::Trajectory(thought)),
            annotation_message(PartMetadata::Citation(Citation::default())),
        ];
        let own = vec![
            annotation_message(PartMetadata::Trajectory(call)),
            annotation_message(PartMetadata::Other(Json::empty_object())),
        ];
        let lost = lost_by_prompt(&Input::Messages(own), &missed);
        let concepts: Vec<_> = lost.iter().map(|loss| loss.concept).collect();
        assert_eq!(concepts, ["annotations", "thought", "tool call"]);
        assert!(lost_by_prompt(&Input::Value(Json::null()), &[]).is_empty());

        let further = Json::parse(r#"{"trilogue":{"message":{"members":{"zzz":1}}}}"#).unwrap();
        let part = Part { extra: Some(further), ..Part::text("x") };
        let own = vec![Message::new(Role::User, vec![part], None)];
        let lost = lost_by_prompt(&Input::Messages(own), &[]);
        assert_eq!(lost.into_iter().collect::<Vec<_>>(), [FidelityLoss::FURTHER_MEMBERS]);
    }
}
