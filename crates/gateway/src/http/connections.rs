//! The open connections: their limits, in total and for each peer, and which one gives way to a new one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Principal, lock};

use super::activity::Activity;
use crate::core::exposure::{Exposure, Proxies};
use crate::core::options::Options;
use trilogue_runtime::shares::{Shares, default_share};

/// How long a new connection waits before it makes another one give way.
const GIVE_WAY_PAUSE: Duration = Duration::from_millis(100);
/// How long a connection keeps its place without a request: one may be on its way.
const MIN_IDLE: Duration = Duration::from_secs(1);
/// The bits of an IPv6 address that identify a site. The site chooses the others itself.
const SITE_BITS: u32 = 64;

/// The open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    room: Arc<Semaphore>,
    /// `None` if one peer can have all.
    max_per_peer: Option<usize>,
    /// Proxies carry the connections of many clients, so they have no limit.
    proxies: Option<Proxies>,
    table: Mutex<Table>,
    /// The connections that each principal uses: fewer than one peer can have, so that others get in from its address.
    users: Arc<Shares>,
}

#[derive(Debug, Default)]
struct Table {
    next_id: u64,
    open: HashMap<u64, OpenConnection>,
    by_peer: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct OpenConnection {
    peer: IpAddr,
    activity: Arc<Activity>,
}

/// A connection's place among the open ones.
#[derive(Debug)]
pub(crate) struct ConnectionPlace {
    id: u64,
    connections: Arc<Connections>,
    pub(crate) activity: Arc<Activity>,
    _permit: OwnedSemaphorePermit,
}

/// The connection of a request, for which its principal needs a place.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionUse {
    connections: Arc<Connections>,
    activity: Arc<Activity>,
}

// === impl Connections ===

impl Connections {
    /// The connections of a server that can have `max` of them.
    pub(crate) fn new(max: usize, options: &Options) -> Arc<Self> {
        // One peer must not take every place, and one principal not every place of its peer.
        let max_per_peer =
            options.max_connections_per_peer.unwrap_or_else(|| default_share(max)).min(max);
        let fewer = default_share(max_per_peer).min(max_per_peer.saturating_sub(1)).max(1);
        let max_per_principal = options.max_connections_per_principal.unwrap_or(fewer);
        let proxies = match &options.exposure {
            Exposure::BehindProxy(proxies) => {
                Some(Proxies { blocks: proxies.blocks.clone(), loopback: false })
            }
            _ => None,
        };
        Arc::new(Self {
            room: Arc::new(Semaphore::new(max)),
            max_per_peer: Some(max_per_peer).filter(|share| *share < max),
            proxies,
            table: Mutex::default(),
            users: Shares::new(max_per_principal),
        })
    }

    /// Waits for a place for a connection of this peer. Returns `None` if the peer has used its share and none of its connections can give way.
    pub(crate) async fn place(self: &Arc<Self>, peer: SocketAddr) -> Option<ConnectionPlace> {
        let is_proxy = self.proxies.as_ref().is_some_and(|it| it.admit(peer.ip()));
        let peer = site(peer.ip());
        let share = self.max_per_peer.filter(|_| !is_proxy);
        if share.is_some_and(|share| self.count_of(peer) >= share)
            && !self.end_one(|it| it.peer == peer, Duration::ZERO)
        {
            return None;
        }
        let permit = self.permit().await?;
        let activity = Activity::begin();
        let mut table = lock(&self.table);
        let id = table.next_id;
        table.next_id += 1;
        *table.by_peer.entry(peer).or_default() += 1;
        table.open.insert(id, OpenConnection { peer, activity: Arc::clone(&activity) });
        Some(ConnectionPlace { id, connections: Arc::clone(self), activity, _permit: permit })
    }

    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() {
            return Some(permit);
        }
        loop {
            self.end_any();
            let permit = Arc::clone(&self.room).acquire_owned();
            if let Ok(permit) = timeout(GIVE_WAY_PAUSE, permit).await {
                return permit.ok();
            }
        }
    }

    /// Gives back the places that idle connections hold among those of their principals.
    fn release_idle_users(&self) {
        let open: Vec<_> =
            lock(&self.table).open.values().map(|it| Arc::clone(&it.activity)).collect();
        open.iter().for_each(|activity| activity.release_user());
    }

    fn count_of(&self, peer: IpAddr) -> usize {
        lock(&self.table).by_peer.get(&peer).copied().unwrap_or_default()
    }

    /// Asks the most expendable connection to end. Returns whether there is one.
    pub(crate) fn end_any(&self) -> bool {
        self.end_one(|_| true, MIN_IDLE)
    }

    fn end_one(&self, is_candidate: impl Fn(&OpenConnection) -> bool, min_idle: Duration) -> bool {
        let table = lock(&self.table);
        let candidates = table.open.values().filter(|it| is_candidate(it));
        let found = candidates
            .filter(|it| !it.activity.has_given_way())
            .filter_map(|it| Some((it.activity.close_priority(min_idle)?, it)))
            .max_by_key(|(expendable, _)| *expendable);
        if let Some((_, connection)) = found {
            connection.activity.give_way();
        }
        found.is_some()
    }
}

/// Returns the part of an address that identifies one peer.
fn site(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let mask = u128::MAX << (Ipv6Addr::BITS - SITE_BITS);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
        address => address,
    }
}

// === impl ConnectionUse ===

impl ConnectionUse {
    /// Counts the connection as used by this principal, until another one uses it or it ends.
    /// Errors: `overloaded` if the principal uses as many as it may.
    pub(crate) fn begin(&self, principal: &Principal) -> Result<()> {
        if self.activity.is_used_by(principal) {
            return Ok(());
        }
        let users = &self.connections.users;
        let share = users.take(principal).or_else(|| {
            self.connections.release_idle_users();
            users.take(principal)
        });
        let share = share.ok_or_else(|| {
            let most = users.max_each();
            let message =
                format!("{most} connections of yours are in use, which is the most for one principal");
            Error::new(Code::Overloaded, message).hint(
                "end a stream or a wait; an operator may raise `server.limits.max_connections_per_principal`",
            )
        })?;
        self.activity.set_user(share);
        Ok(())
    }
}

// === impl ConnectionPlace ===

impl ConnectionPlace {
    pub(crate) fn to_use(&self) -> ConnectionUse {
        let (connections, activity) = (Arc::clone(&self.connections), Arc::clone(&self.activity));
        ConnectionUse { connections, activity }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut table = lock(&self.connections.table);
        let Some(connection) = table.open.remove(&self.id) else { return };
        if let Some(count) = table.by_peer.get_mut(&connection.peer) {
            *count -= 1;
            if *count == 0 {
                table.by_peer.remove(&connection.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_one_peer() {
        let of = |text: &str| site(text.parse().unwrap()).to_string();
        for (peer, named) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("::1", "::1"),
        ] {
            assert_eq!(of(peer), named);
        }
    }
}
