//! Routes an agent's updates and requests to the session they belong to, or to the client whose call they are about.

mod calls;
mod ignored_lines;
mod inbox;
mod router;

pub(super) use calls::CallOrigin;
pub(super) use inbox::{
    AnsweredTurn, IgnoredLine, NetworkDecision, NetworkQuestion, NewSubagentSession, OversizeLine,
    SessionInbox, SessionItem, TurnEnd, TurnSummary, WorkStop,
};
pub(super) use router::{Router, cancelled_elicitation, cancelled_permission, is_of_workspace};
