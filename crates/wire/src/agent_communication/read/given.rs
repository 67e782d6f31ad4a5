use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Visitor};

use super::{At, Violation};

/// A member as it was sent: an absent one is something else than `null`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Given<T> {
    #[default]
    Absent,
    Null,
    Value(T),
}

// === impl Given ===

impl<T> Given<T> {
    /// The value of a member that may be `null`.
    pub(super) fn optional(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }

    /// The value of a member that has a default when it is absent; a peer may say `null` for it too.
    pub(super) fn unless_absent(self, at: &At<'_>) -> Result<Option<T>, Violation> {
        match self {
            Self::Value(value) => Ok(Some(value)),
            Self::Null if !at.is_peer() => {
                Err(at.violation("must not be null; it may be left out"))
            }
            Self::Absent | Self::Null => Ok(None),
        }
    }

    /// The value of a member that has to be there.
    pub(super) fn required(self, at: &At<'_>) -> Result<T, Violation> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Null => Err(at.violation("must not be null")),
            Self::Absent => Err(at.violation("is missing")),
        }
    }

    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Given<U> {
        match self {
            Self::Absent => Given::Absent,
            Self::Null => Given::Null,
            Self::Value(value) => Given::Value(change(value)),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_option(GivenVisitor(PhantomData))
    }
}

struct GivenVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for GivenVisitor<T> {
    type Value = Given<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E>(self) -> Result<Given<T>, E> {
        Ok(Given::Null)
    }

    fn visit_unit<E>(self) -> Result<Given<T>, E> {
        Ok(Given::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Given<T>, D::Error> {
        T::deserialize(from).map(Given::Value)
    }
}
