//! Callers and their visibility.

use sha2::{Digest, Sha256};

use crate::error::{Code, Error};
use crate::id::{PrincipalId, TenantId, ThreadId};

/// The visibility of a look-up: one tenant, and within it optionally the resources of one principal.
///
/// Every look-up takes a scope. A resource outside of it is *not found*.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Scope {
    /// The tenant.
    pub tenant: TenantId,
    /// If set, only resources that this principal created are visible.
    pub owner: Option<PrincipalId>,
}

// === impl Scope ===

impl Scope {
    /// Returns the scope of a whole tenant.
    #[must_use]
    pub fn of_tenant(tenant: &TenantId) -> Self {
        Self { tenant: tenant.clone(), owner: None }
    }
}

/// The caller of a request, after authentication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Principal {
    /// The tenant of the principal.
    pub tenant: TenantId,
    /// The name of the principal.
    pub id: PrincipalId,
    /// The rights of the principal.
    pub rights: Rights,
    /// Whether the principal sees and answers only resources that it created.
    pub own: bool,
}

/// One right.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Right {
    /// See agents, threads, runs, events and interrupts.
    Read,
    /// Create and change threads and runs.
    Run,
    /// Answer interrupts.
    Answer,
    /// Create and revoke tokens, erase threads and redeliver callbacks, in one tenant.
    Admin,
    /// Back up the store of all tenants, and see the server's settings. A principal that is limited to its own resources never has it.
    Server,
}

/// A set of rights.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rights(u8);

// === impl Scope ===

impl Scope {
    /// Returns `true` if a resource of this tenant and creator is visible.
    #[must_use]
    pub fn can_see(&self, tenant: &TenantId, creator: &PrincipalId) -> bool {
        self.tenant == *tenant && self.owner.as_ref().is_none_or(|owner| owner == creator)
    }

    /// The id of the thread that a caller calls by this name, if it sees only its own threads. Each such caller has its own names: otherwise a name that is taken would tell of another caller's thread.
    /// `None` if the id means itself: the caller sees all threads, or the id is a random UUID, which cannot be guessed.
    #[must_use]
    pub fn own_thread_id(&self, name: &ThreadId) -> Option<ThreadId> {
        let owner = self.owner.as_ref().filter(|_| !is_random_uuid(name.as_str()))?;
        let mut hash = Sha256::new_with_prefix("trilogue thread name\0");
        // An id has no control characters: nothing else gives the same bytes.
        hash.update(owner.as_str());
        hash.update([0]);
        hash.update(name.as_str());
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(hash.finalize()).for_each(|(byte, hashed)| *byte = hashed);
        Some(ThreadId::from_uuid(uuid::Builder::from_custom_bytes(bytes).into_uuid()))
    }

    /// Passes if the caller may choose this id for an object that has no names of its own for each caller.
    ///
    /// # Errors
    /// [`Code::InvalidId`] if the caller sees only its own objects and the id is not a random UUID.
    pub fn check_chosen_id(&self, id: &str) -> Result<(), Error> {
        if self.owner.is_none() || is_random_uuid(id) {
            return Ok(());
        }
        let message = "a token that sees only its own may choose only a random UUID as an id";
        Err(Error::new(Code::InvalidId, message)
            .hint("send a UUID of version 4 or 7 in lower case, or leave the id out"))
    }
}

// === impl Principal ===

impl Principal {
    /// Returns the scope of this principal's look-ups.
    #[must_use]
    pub fn scope(&self) -> Scope {
        Scope { tenant: self.tenant.clone(), owner: self.own.then(|| self.id.clone()) }
    }

    /// Checks that the principal has the right.
    ///
    /// # Errors
    /// [`Code::Forbidden`] with the name of the right.
    pub fn require(&self, right: Right) -> Result<(), Error> {
        if self.rights.has(right) && !(self.own && right == Right::Server) {
            return Ok(());
        }
        Err(Error::new(Code::Forbidden, format!("this token lacks the right '{}'", right.as_str()))
            .hint("make one that has it: trilogue token create --label NAME --right RIGHT"))
    }
}

/// Whether an id is a UUID of version 4 or 7 in its usual form.
fn is_random_uuid(id: &str) -> bool {
    let is_random = |uuid: &uuid::Uuid| {
        matches!(uuid.get_version_num(), 4 | 7) && uuid.get_variant() == uuid::Variant::RFC4122
    };
    let uuid = uuid::Uuid::try_parse(id).ok().filter(is_random);
    uuid.is_some_and(|uuid| {
        let mut buffer = uuid::Uuid::encode_buffer();
        *id == *uuid.hyphenated().encode_lower(&mut buffer)
    })
}

// === impl Right ===

impl Right {
    /// Every right.
    pub const ALL: [Self; 5] = [Self::Read, Self::Run, Self::Answer, Self::Admin, Self::Server];

    /// Returns the name of the right.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Answer => "answer",
            Self::Admin => "admin",
            Self::Server => "server",
        }
    }

    /// Returns the right with this name.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|right| right.as_str() == text)
    }

    fn bit(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Run => 2,
            Self::Answer => 4,
            Self::Admin => 8,
            Self::Server => 16,
        }
    }
}

// === impl Rights ===

impl Rights {
    /// Returns every right.
    #[must_use]
    pub fn all() -> Self {
        Right::ALL.into_iter().collect()
    }

    /// Returns `true` if the set contains this right.
    #[must_use]
    pub fn has(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }

    /// Returns the rights of this set that the other one lacks, in the order of [`Right::ALL`].
    pub fn difference(self, other: Self) -> impl Iterator<Item = Right> {
        self.iter().filter(move |right| !other.has(*right))
    }

    /// Returns the rights of the set, in the order of [`Right::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.has(*right))
    }

    /// Returns the set as bits, for the persisted form.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns the set from its persisted bits. Drops unknown bits.
    #[must_use]
    pub fn from_bits(bits: u8) -> Self {
        Self(bits & Self::all().0)
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        Self(rights.into_iter().fold(0, |bits, right| bits | right.bit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(owner: Option<&str>) -> Scope {
        let id = |text| PrincipalId::parse(text).unwrap();
        Scope { tenant: TenantId::parse("t").unwrap(), owner: owner.map(id) }
    }

    fn own(owner: Option<&str>, name: &str) -> Option<ThreadId> {
        scope(owner).own_thread_id(&ThreadId::parse(name).unwrap())
    }

    #[test]
    fn each_caller_that_sees_only_its_own_has_its_own_names() {
        let alice = own(Some("alice"), "notes").unwrap();
        assert_eq!(own(Some("alice"), "notes"), Some(alice.clone()));
        assert_ne!(own(Some("bob"), "notes"), Some(alice.clone()));
        assert_ne!(own(Some("alice"), "notes2"), Some(alice.clone()));
        assert_ne!(own(Some("alicenotes"), "x"), own(Some("alice"), "notesx"));
        // A caller cannot choose the calculated id of another caller.
        assert_ne!(own(Some("bob"), alice.as_str()), None);
        assert_eq!(own(None, "notes"), None);
    }

    #[test]
    fn only_a_random_uuid_means_itself() {
        for (id, is_random) in [
            ("9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d", true),
            ("019ac27e-8d7c-7b3e-9d1f-3a5c7e9b1d2f", true),
            ("9B1DEB4D-3B7D-4BAD-9BDD-2B0D7B3DCB6D", false),
            ("9b1deb4d3b7d4bad9bdd2b0d7b3dcb6d", false),
            ("00000000-0000-0000-0000-000000000000", false),
            ("2c5ea4c0-4067-11e9-8bad-9b1deb4d3b7d", false),
            ("886313e1-3b8a-5372-9b90-0c9aee199e5d", false),
            ("notes", false),
        ] {
            assert_eq!(own(Some("alice"), id).is_none(), is_random, "{id}");
            assert_eq!(scope(Some("alice")).check_chosen_id(id).is_ok(), is_random, "{id}");
            assert!(scope(None).check_chosen_id(id).is_ok(), "{id}");
        }
    }
}
