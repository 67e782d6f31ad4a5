//! What a client was asked in words when it said something: only what is said behind a question can answer it.

use trilogue_domain::{InterruptId, ThreadId, Timestamp};
use trilogue_store::rows::InterruptRow;

use super::lane::Lane;
use super::link::Link;

/// What a client was asked in words when its prompt came.
#[derive(Clone, Debug)]
pub(super) enum Heard {
    /// This, or nothing.
    Asked(Option<InterruptId>),
    /// Whatever was asked by then: the session was not shown to it yet.
    By(Timestamp),
}

// === impl Heard ===

impl Heard {
    /// As it is now in the session of a lane.
    pub(super) fn in_lane(link: &Link, lane: &Lane) -> Self {
        lane.session().map_or_else(
            || Self::by_now(link),
            |session| {
                let state = session.state();
                match state.knows_asked {
                    true => Self::Asked(state.asked.as_ref().map(|asked| asked.id.clone())),
                    false => Self::by_now(link),
                }
            },
        )
    }

    /// Likewise in a session that may have no lane yet.
    pub(super) fn in_session(link: &Link, session: &ThreadId) -> Self {
        let lane = link.known_lane(session);
        lane.map_or_else(|| Self::by_now(link), |lane| Self::in_lane(link, &lane))
    }

    fn by_now(link: &Link) -> Self {
        Self::By(link.state.clock.now())
    }

    /// Whether a prompt can be the answer to this.
    pub(super) fn has(&self, row: &InterruptRow) -> bool {
        match self {
            Self::Asked(asked) => asked.as_ref() == Some(&row.interrupt.id),
            Self::By(time) => row.raised_at <= *time,
        }
    }
}
