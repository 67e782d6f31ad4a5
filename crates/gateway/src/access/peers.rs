//! Which peers may connect to a listener that only proxies should reach.
//!
//! A peer's address opens the door and nothing more: who calls is told by the token alone.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use trilogue_domain::lock;
use trilogue_egress::Cidr;

use crate::metrics::Meters;
use crate::options::Exposure;

/// How often refused peers are mentioned in the log.
const MENTION_EVERY: Duration = Duration::from_secs(60);

/// Proxies that end TLS in front of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proxies {
    /// Where they connect from.
    pub blocks: Vec<Cidr>,
    /// Whether programs on this machine may connect too.
    pub loopback: bool,
}

/// Closes connections from peers that are no proxies, counts them, and mentions them now and then.
#[derive(Debug)]
pub(crate) struct Doorkeeper {
    proxies: Proxies,
    unmentioned: Mutex<Unmentioned>,
}

/// What the log has not said yet.
#[derive(Debug, Default)]
struct Unmentioned {
    refused: u64,
    mentioned_at: Option<Instant>,
}

// === impl Proxies ===

impl Proxies {
    /// Whether a connection from this address is let in.
    #[must_use]
    pub fn admit(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        (self.loopback && peer.is_loopback()) || self.blocks.iter().any(|it| it.contains(peer))
    }
}

// === impl Doorkeeper ===

impl Doorkeeper {
    /// `None` where everybody who reaches a listener may connect.
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

    fn proxies(loopback: bool) -> Proxies {
        let blocks = ["10.0.0.0/8", "fd00::/8"].map(|block| block.parse().unwrap()).to_vec();
        Proxies { blocks, loopback }
    }

    #[test]
    fn proxies_and_this_machine_are_let_in_and_nobody_else() {
        for (peer, open, closed) in [
            ("10.1.2.3", true, true),
            ("::ffff:10.1.2.3", true, true),
            ("fd12::1", true, true),
            ("127.0.0.2", true, false),
            ("::1", true, false),
            ("::ffff:127.0.0.1", true, false),
            ("192.168.0.1", false, false),
            ("::ffff:192.168.0.1", false, false),
            ("fe80::1", false, false),
        ] {
            let peer: IpAddr = peer.parse().unwrap();
            assert_eq!(proxies(true).admit(peer), open, "{peer}");
            assert_eq!(proxies(false).admit(peer), closed, "{peer}");
        }
    }

    #[test]
    fn the_log_mentions_refused_peers_once_a_minute() {
        let keeper = Doorkeeper::of(&Exposure::BehindProxy(proxies(true))).unwrap();
        let begun = Instant::now();
        let after = |seconds| keeper.to_mention(begun + Duration::from_secs(seconds));
        assert_eq!(after(0), Some(1));
        assert_eq!((after(1), after(59)), (None, None));
        assert_eq!(after(60), Some(3));
        assert_eq!(after(61), None);
    }
}
