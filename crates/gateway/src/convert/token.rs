//! Tokens to the wire, and rights both ways.

use trilogue_domain::Right;
use trilogue_store::rows::TokenRow;
use trilogue_wire::native::{RightName, Token};

pub(crate) fn token(row: &TokenRow) -> Token {
    Token {
        id: row.id.as_str().to_owned(),
        label: row.label.clone(),
        principal: row.principal.as_str().to_owned(),
        rights: row.rights.iter().map(right).collect(),
        own: row.own,
        created_at: row.created_at.to_string(),
        expires_at: row.expires_at.map(|at| at.to_string()),
    }
}

pub(crate) fn right(right: Right) -> RightName {
    match right {
        Right::Read => RightName::Read,
        Right::Run => RightName::Run,
        Right::Answer => RightName::Answer,
        Right::Admin => RightName::Admin,
    }
}

pub(crate) fn read_right(right: RightName) -> Right {
    match right {
        RightName::Read => Right::Read,
        RightName::Run => Right::Run,
        RightName::Answer => Right::Answer,
        RightName::Admin => Right::Admin,
    }
}
