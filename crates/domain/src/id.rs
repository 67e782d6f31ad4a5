//! Identifiers: opaque strings on the wire, integers in the store.
//!
//! A string id is 1 to [`limits::MAX_ID_BYTES`] bytes of text without control characters.
//! Ids that Trilogue makes are UUIDv7. Ids that a peer chose are kept unchanged. They are unique per tenant; message ids are unique per thread.

use std::fmt;
use std::sync::Arc;

use crate::error::{Code, Error};
use crate::limits;

macro_rules! string_id {
    ($(#[$meta:meta])* $name:ident, $words:literal) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks an id and keeps it unchanged.
            ///
            /// # Errors
            /// [`Code::InvalidId`] if it is empty, longer than [`limits::MAX_ID_BYTES`] or contains a control character.
            pub fn parse(text: &str) -> Result<Self, Error> {
                check(text, $words)?;
                Ok(Self(Arc::from(text)))
            }

            /// Returns a new time-ordered id (UUIDv7).
            #[must_use]
            pub fn generate() -> Self {
                Self::from_uuid(uuid::Uuid::now_v7())
            }

            /// Returns the id with this UUID in its lower-case hyphenated form.
            #[must_use]
            pub fn from_uuid(uuid: uuid::Uuid) -> Self {
                let mut buffer = uuid::Uuid::encode_buffer();
                Self(Arc::from(&*uuid.hyphenated().encode_lower(&mut buffer)))
            }

            /// Returns the id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

macro_rules! integer_key {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

string_id! {
    /// Names a tenant: the boundary of visibility.
    TenantId, "tenant id"
}
string_id! {
    /// Names the holder of a token.
    PrincipalId, "principal id"
}
string_id! {
    /// Names a thread: a conversation with one log.
    ThreadId, "thread id"
}
string_id! {
    /// Names a run: one execution of an agent.
    RunId, "run id"
}
string_id! {
    /// Names a message.
    MessageId, "message id"
}
string_id! {
    /// Names an interrupt: a decision or data that a run waits for.
    InterruptId, "interrupt id"
}
string_id! {
    /// Names a checkpoint: a state of a thread.
    CheckpointId, "checkpoint id"
}
string_id! {
    /// Names a configured instance of an agent.
    ConfigurationId, "configuration id"
}
string_id! {
    /// Names a callback delivery.
    DeliveryId, "delivery id"
}
string_id! {
    /// Names a token's row; never the secret itself.
    TokenId, "token id"
}

integer_key! {
    /// The store's integer for a thread.
    ThreadKey
}
integer_key! {
    /// The store's integer for a run.
    RunKey
}
integer_key! {
    /// The store's integer for a checkpoint.
    CheckpointKey
}

/// The configured name of an agent: letters, digits, `_`, `-` and `.`, at most 63 bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentName(Arc<str>);

impl AgentName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`Code::InvalidId`] if it is empty, too long or contains another character.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let fits = !text.is_empty() && text.len() <= limits::MAX_AGENT_NAME_BYTES;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if fits && text.bytes().all(allowed) {
            return Ok(Self(Arc::from(text)));
        }
        Err(Error::new(Code::InvalidId, format!("'{}' is not an agent name", text.escape_debug()))
            .hint("an agent name is 1 to 63 letters, digits, '_', '-' or '.'"))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentName({})", self.0)
    }
}

// === impl InterruptId ===

impl InterruptId {
    /// Returns the id under which another run asks this question too: the one that called the run that asks, or the next one of its thread. A reader of both
    /// questions can so tell that they are one.
    #[must_use]
    pub fn passed_up(&self, other: &RunId) -> Self {
        let namespace = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, other.as_str().as_bytes());
        Self::from_uuid(uuid::Uuid::new_v5(&namespace, self.as_str().as_bytes()))
    }
}

fn check(text: &str, what: &str) -> Result<(), Error> {
    let problem = if text.is_empty() {
        "is empty".to_owned()
    } else if text.len() > limits::MAX_ID_BYTES {
        format!("has {} bytes", text.len())
    } else if has_control(text) {
        "holds a control character".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::new(Code::InvalidId, format!("the {what} {problem}"))
        .hint("an id is 1 to 256 bytes of text without control characters"))
}

/// Returns `true` if the text contains a control character. Every parsed id passes here, so bytes are checked first, without a branch for each.
fn has_control(text: &str) -> bool {
    let is_suspect = |byte: &u8| *byte < 0x20 || *byte >= 0x7f;
    let suspects = text.as_bytes().iter().fold(false, |any, byte| any | is_suspect(byte));
    suspects && text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_bounded_text() {
        assert!(RunId::parse("a").is_ok());
        assert!(RunId::parse(&"a".repeat(limits::MAX_ID_BYTES)).is_ok());
        assert!(RunId::parse("ä€").is_ok());
        for bad in ["", "a\nb", "\u{7f}", "\u{85}", &"a".repeat(limits::MAX_ID_BYTES + 1)] {
            assert_eq!(RunId::parse(bad).map_err(|error| error.code()), Err(Code::InvalidId));
        }
    }

    #[test]
    fn what_is_wrong_with_an_id_is_said_in_words() {
        let said = |error: Error| error.message().to_owned();
        assert_eq!(ThreadId::parse("").map_err(said), Err("the thread id is empty".to_owned()));
        assert_eq!(
            ConfigurationId::parse("a\n").map_err(said),
            Err("the configuration id holds a control character".to_owned())
        );
    }

    #[test]
    fn agent_names_fit_a_path_segment() {
        assert!(AgentName::parse("org.agntcy.mail-composer_2").is_ok());
        for bad in ["", "a/b", "ä", "a b", &"a".repeat(64)] {
            assert!(AgentName::parse(bad).is_err(), "{bad}");
        }
    }
}
