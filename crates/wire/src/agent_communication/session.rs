use serde::Serialize;

use super::Uuid;

/// A conversation: references to its messages and to its state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Session {
    /// Its id. A session that is brought without one gets a new one.
    pub id: Uuid,
    /// Absolute http or https URLs of its messages, oldest first.
    pub history: Vec<String>,
    /// The absolute http or https URL of its state.
    pub state: Option<String>,
}
