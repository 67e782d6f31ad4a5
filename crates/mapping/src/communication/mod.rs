//! The Agent Communication Protocol, in both directions.
//!
//! A run's log becomes wire events in [`Projection`], the one stateful piece: a fold without IO.
//! [`RemoteRun`] is the opposite direction: the wire events of a remote agent become a run's log.
//! Data without a counterpart in the protocol is carried under its extension key [`EXTENSION`].

mod agent;
mod answer;
mod await_message;
mod input;
mod outcome;
mod part;
mod projection;
mod remote;
pub mod strict;

use serde_json::{Map, Value};
use trilogue_domain::AgentName;
use trilogue_wire::agent_communication::{Role, Uuid};

pub use agent::{agent, card};
pub use answer::{answer, named_interrupt};
pub(crate) use answer::{answer_of_parts, is_words, parse_consent, truth_property};
pub use input::{input, read_message};
pub use outcome::{error, status};
pub use part::has_invalid_base64;
pub use projection::{Kind, Projection, ProjectionOptions, RunMessage};
pub use remote::{
    RemoteProgress, RemoteRun, is_contradiction, remote_answer, remote_failure, remote_input,
    remote_interrupt,
};

/// The key of parts and manifests for data that the protocol does not have.
pub const EXTENSION: &str = "x_trilogue";
/// The namespace of UUIDs for ids that are not UUIDs: UUIDv5 of this and the id.
const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x6f1d_3c52_9f0b_4d5e_8a77_21c4_0be6_93d1);

/// Returns the agent's name on this face, where it must fit a role: every `.` becomes `-`.
pub fn face_name(name: &AgentName) -> String {
    name.as_str().replace('.', "-")
}

/// Returns the UUID for an id of a session or a run: the id itself in the canonical form, which lookups use, otherwise a derived UUID.
pub fn uuid_of(id: &str) -> Uuid {
    let itself = uuid::Uuid::parse_str(id).ok().filter(|uuid| {
        let mut buffer = uuid::Uuid::encode_buffer();
        *id == *uuid.hyphenated().encode_lower(&mut buffer)
    });
    itself.unwrap_or_else(|| uuid::Uuid::new_v5(&NAMESPACE, id.as_bytes())).into()
}

/// A message's further members, without those that the protocol declares.
fn further_members(members: Map<String, Value>) -> impl Iterator<Item = (String, Value)> {
    const DECLARED: [&str; 5] = ["role", "parts", "created_at", "completed_at", EXTENSION];
    members.into_iter().filter(|(name, _)| !DECLARED.contains(&name.as_str()))
}

fn role_of(name: &AgentName) -> Role {
    Role::Named(face_name(name))
}

fn wire_role(role: &trilogue_domain::Role) -> Role {
    match role {
        trilogue_domain::Role::User => Role::User,
        trilogue_domain::Role::Agent => Role::Agent,
        // A name from another face can contain dots.
        trilogue_domain::Role::NamedAgent(name) => Role::Named(name.replace('.', "-")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_are_uuids_stay_and_others_get_one_of_their_own() {
        let text = "01890a5d-ac96-774b-bcce-b302099a8057";
        assert_eq!(uuid_of(text).to_string(), text);
        assert_eq!(uuid_of("mail"), uuid_of("mail"));
        assert_ne!(uuid_of("mail"), uuid_of("mails"));
        assert_ne!(uuid_of(&text.to_ascii_uppercase()), uuid_of(text));
    }

    #[test]
    fn names_fit_a_role() {
        let name = AgentName::parse("org.agntcy.mail-composer_2").unwrap();
        assert_eq!(face_name(&name), "org-agntcy-mail-composer_2");
        assert!(Role::is_name(&face_name(&name)));
    }
}
