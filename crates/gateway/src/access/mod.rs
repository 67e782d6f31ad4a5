//! Who may call: which peers may connect, which hosts and pages are served, and whose token it is.

pub(crate) mod admission;
pub(crate) mod agent_check;
pub(crate) mod authenticator;
pub(crate) mod failed_sign_ins;
pub(crate) mod logins;
pub(crate) mod origin_guard;
pub(crate) mod page_session;
pub(crate) mod peer_filter;
pub(crate) mod schemes;
pub(crate) mod secret;
pub(crate) mod tickets;
