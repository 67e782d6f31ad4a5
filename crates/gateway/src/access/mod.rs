//! Who may call: host and origin checks, tokens.

pub(crate) mod guard;
pub(crate) mod tokens;
