use serde::Deserialize;

use super::super::{Message, MessagePart, Role, When};
use super::given::Given;
use super::leaf::{List, Moment, Object, Text};
use super::{At, Read, Violation};

/// A message as it was sent.
#[derive(Debug, Deserialize)]
pub struct Draft {
    #[serde(default)]
    role: Given<Text>,
    #[serde(default)]
    parts: Given<List<<MessagePart as Read>::Draft>>,
    #[serde(default)]
    created_at: Given<Moment>,
    #[serde(default)]
    completed_at: Given<Moment>,
}

// === impl Message ===

impl Read for Message {
    type Draft = Object<Draft>;
    fn finish(Object(draft): Object<Draft>, at: &At<'_>) -> Result<Self, Violation> {
        let role_at = at.key("role");
        if at.is_strict() && matches!(draft.role, Given::Absent) {
            return Err(role_at.violation("is missing; every message has a role"));
        }
        let role = match draft.role.unless_absent(&role_at)? {
            Some(Text(text)) => Role::parse_at(&text, &role_at)?,
            None => Role::User,
        };
        let parts = at.key("parts");
        Ok(Self {
            role,
            parts: each(draft.parts.required(&parts)?, &parts)?,
            created_at: when(&draft.created_at),
            completed_at: when(&draft.completed_at),
        })
    }
}

fn when(given: &Given<Moment>) -> When {
    match given {
        Given::Absent => When::Absent,
        Given::Null => When::Null,
        Given::Value(moment) => When::At(moment.0),
    }
}

/// Holds each item of an array to the rules.
pub(super) fn each<T: Read>(list: List<T::Draft>, at: &At<'_>) -> Result<Vec<T>, Violation> {
    list.0.into_iter().enumerate().map(|(place, item)| T::finish(item, &at.index(place))).collect()
}
