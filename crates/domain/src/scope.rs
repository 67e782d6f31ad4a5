//! Callers and their visibility.

use crate::error::{Code, Error};
use crate::id::{PrincipalId, TenantId};

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
    pub fn sees(&self, tenant: &TenantId, creator: &PrincipalId) -> bool {
        self.tenant == *tenant && self.owner.as_ref().is_none_or(|owner| owner == creator)
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
    pub fn beyond(self, other: Self) -> impl Iterator<Item = Right> {
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
