//! Who may call: peers, host and origin checks, tokens and their secrets.

pub(crate) mod cors;
pub(crate) mod guard;
pub(crate) mod peers;
pub(crate) mod schemes;
pub(crate) mod secret;
pub(crate) mod tokens;
