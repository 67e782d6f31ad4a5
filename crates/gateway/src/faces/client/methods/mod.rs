//! The methods of the protocol.

pub(crate) mod backlog;
mod cancel;
mod close;
pub(crate) mod dispatch;
mod extension;
mod fork;
mod initial_options;
mod initialize;
mod list;
mod network_params;
mod open;
mod option;
mod prompt;
pub(crate) mod request;
mod rights;
mod upkeep;
