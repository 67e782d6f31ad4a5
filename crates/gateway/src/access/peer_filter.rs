//! Decides which peers may connect to a listener that only proxies should reach.
//!
//! A peer's address lets it connect and nothing more: only the token identifies the caller.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::core::exposure::{Exposure, Proxies};
use crate::core::log_throttle::LogThrottle;
use crate::core::meters::Meters;

/// Closes connections from peers that are not trusted proxies, counts them, and logs them now and
/// then.
#[derive(Debug)]
pub(crate) struct PeerFilter {
    proxies: Proxies,
    refused: LogThrottle,
}

// === impl PeerFilter ===

impl PeerFilter {
    pub(crate) fn of(exposure: &Exposure) -> Option<Arc<Self>> {
        let Exposure::BehindProxy(proxies) = exposure else { return None };
        Some(Arc::new(Self { proxies: proxies.clone(), refused: LogThrottle::default() }))
    }

    /// Returns whether this peer may connect; counts and logs a peer that may not.
    pub(crate) fn admits(&self, peer: SocketAddr, meters: &Meters) -> bool {
        if self.proxies.admit(peer.ip()) {
            return true;
        }
        meters.refused_peers.increment(1);
        if let Some(refused) = self.refused.count() {
            tracing::warn!(
                peer = %peer.ip().to_canonical(),
                refused,
                "connections were closed: they came from outside `server.trusted_proxies`"
            );
        }
        false
    }
}
