//! Tokens to the wire, and rights both ways.

use trilogue_domain::{PrincipalId, Right, Rights, Timestamp, TokenId};
use trilogue_wire::native::{RightName, Token};

/// What the face shows of a stored token.
#[derive(Clone, Copy, Debug)]
pub struct TokenFacts<'a> {
    /// Its id.
    pub id: &'a TokenId,
    /// What people call it.
    pub label: &'a str,
    /// The principal in whose name it acts.
    pub principal: &'a PrincipalId,
    /// What it may do.
    pub rights: Rights,
    /// Whether it sees only what its principal created.
    pub own: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stops to work.
    pub expires_at: Option<Timestamp>,
}

/// A token without its secret.
#[must_use]
pub fn token(token: &TokenFacts<'_>) -> Token {
    Token {
        id: token.id.as_str().to_owned(),
        label: token.label.to_owned(),
        principal: token.principal.as_str().to_owned(),
        rights: token.rights.iter().map(right).collect(),
        own: token.own,
        created_at: token.created_at.to_string(),
        expires_at: token.expires_at.map(|at| at.to_string()),
    }
}

/// A right's name.
#[must_use]
pub fn right(right: Right) -> RightName {
    match right {
        Right::Read => RightName::Read,
        Right::Run => RightName::Run,
        Right::Answer => RightName::Answer,
        Right::Admin => RightName::Admin,
    }
}

/// The right of a name.
#[must_use]
pub fn read_right(right: RightName) -> Right {
    match right {
        RightName::Read => Right::Read,
        RightName::Run => Right::Run,
        RightName::Answer => Right::Answer,
        RightName::Admin => Right::Admin,
    }
}
