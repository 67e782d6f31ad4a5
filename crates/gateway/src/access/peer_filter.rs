//! Which peers may connect to a listener that only proxies should reach.
//!
//! A peer's address lets it connect and nothing more: the token alone says who calls.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use trilogue_domain::lock;

use crate::core::exposure::{Exposure, Proxies};
use crate::core::meters::Meters;

/// How often refused peers are mentioned in the log.
const MENTION_EVERY: Duration = Duration::from_secs(60);

/// Closes connections from peers that are no proxies, counts them, and mentions them now and then.
#[derive(Debug)]
pub(crate) struct PeerFilter {
    proxies: Proxies,
    unmentioned: Mutex<Unmentioned>,
}

/// What the log has not said yet.
#[derive(Debug, Default)]
struct Unmentioned {
    refused: u64,
    mentioned_at: Option<Instant>,
}

// === impl PeerFilter ===

impl PeerFilter {
    pub(crate) fn of(exposure: &Exposure) -> Option<Arc<Self>> {
        let Exposure::BehindProxy(proxies) = exposure else { return None };
        Some(Arc::new(Self { proxies: proxies.clone(), unmentioned: Mutex::default() }))
    }

    /// Whether this peer may connect; counts and mentions one that may not.
    pub(crate) fn admits(&self, peer: SocketAddr, meters: &Meters) -> bool {
        if self.proxies.admit(peer.ip()) {
            return true;
        }
        meters.refused_peers.increment(1);
        if let Some(refused) = self.to_mention(Instant::now()) {
            tracing::warn!(
                peer = %peer.ip().to_canonical(),
                refused,
                "connections were closed: they came from outside `server.trusted_proxies`"
            );
        }
        false
    }

    /// Notes one more refused peer; gives how many the log has not mentioned when it is time to.
    fn to_mention(&self, now: Instant) -> Option<u64> {
        let mut state = lock(&self.unmentioned);
        state.refused += 1;
        if state.mentioned_at.is_some_and(|at| now.duration_since(at) < MENTION_EVERY) {
            return None;
        }
        state.mentioned_at = Some(now);
        Some(std::mem::take(&mut state.refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_mentions_refused_peers_once_a_minute() {
        let filter =
            PeerFilter::of(&Exposure::BehindProxy(Proxies { blocks: Vec::new(), loopback: true }))
                .unwrap();
        let begun = Instant::now();
        let after = |seconds| filter.to_mention(begun + Duration::from_secs(seconds));
        assert_eq!(after(0), Some(1));
        assert_eq!((after(1), after(59)), (None, None));
        assert_eq!(after(60), Some(3));
        assert_eq!(after(61), None);
    }
}
