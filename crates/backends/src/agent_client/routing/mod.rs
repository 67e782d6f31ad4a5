//! Routes an agent's updates and requests to the session they belong to, or to the client whose call they are about.

mod calls;
mod inbox;
mod router;

pub(super) use calls::CallOrigin;
pub(super) use inbox::{OversizeLine, SessionInbox, SessionItem, TurnEnd, TurnSummary};
pub(super) use router::{Router, cancelled_elicitation, cancelled_permission};
