//! Connections that carry bytes of others, such as the tunnels of hosted agents.

use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::address::{AddressClass, is_metadata};
use crate::client::Client;
use crate::error::Error;

/// The most addresses of a name that are tried.
const MAX_ATTEMPTS: usize = 4;

impl Client {
    /// Connects to a host for a program that is not trusted. The policy of the client decides about the addresses, and no policy allows the metadata service of a cloud.
    /// A name is resolved once, and the connection uses one of the addresses that were checked.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::RefusedName`], [`Error::UnknownName`], [`Error::TimedOut`] or [`Error::Failed`].
    pub async fn connect(&self, host: &str, port: u16) -> Result<TcpStream, Error> {
        let limit = self.options.connect_timeout;
        let is_unreached = true;
        let connecting = self.connect_checked(host, port);
        timeout(limit, connecting)
            .await
            .unwrap_or_else(|_| Err(Error::TimedOut { host: host.to_owned(), limit, is_unreached }))
    }

    /// Checks a host that is an address, as [`Self::connect`] does. A name passes: it is checked when it is resolved.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn check_literal(&self, host: &str) -> Result<(), Error> {
        let Ok(address) = host.parse::<IpAddr>() else { return Ok(()) };
        self.resolver.policy.check(host, address)?;
        let (host, class) = (host.to_owned(), AddressClass::CloudMetadata);
        match is_metadata(address) {
            true => Err(Error::Refused { host, address, class }),
            false => Ok(()),
        }
    }

    async fn connect_checked(&self, host: &str, port: u16) -> Result<TcpStream, Error> {
        let mut failed = None;
        let addresses = self.checked_addresses(host).await?;
        let count = addresses.len().clamp(1, MAX_ATTEMPTS);
        // Each has its share, so that one that does not answer leaves time for the others.
        let share = self.options.connect_timeout / u32::try_from(count).unwrap_or(1);
        for address in addresses.into_iter().take(count) {
            match timeout(share, TcpStream::connect(SocketAddr::new(address, port))).await {
                Ok(Ok(stream)) => {
                    // Small pieces are sent at once.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => failed = Some(error.to_string()),
                Err(_) => failed = Some("it did not answer in time".to_owned()),
            }
        }
        let reason = failed.unwrap_or_else(|| "its name has no address".to_owned());
        Err(Error::Failed { host: host.to_owned(), reason, is_unreached: true })
    }

    async fn checked_addresses(&self, host: &str) -> Result<Vec<IpAddr>, Error> {
        let policy = &self.resolver.policy;
        self.check_literal(host)?;
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![address]);
        }
        let found = (self.resolver.look_up)(host.to_owned()).await.map_err(|error| {
            Error::UnknownName { host: host.to_owned(), reason: error.to_string() }
        })?;
        policy.check_name(host, &found)?;
        let addresses: Vec<_> = found.iter().map(SocketAddr::ip).collect();
        match addresses.iter().find(|address| is_metadata(**address)) {
            Some(_) => Err(Error::RefusedName { host: host.to_owned() }),
            None => Ok(addresses),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use tokio::net::TcpListener;

    use super::*;
    use crate::client::Options;
    use crate::policy::Policy;
    use crate::resolver::{FoundAddresses, LookUp};

    fn client(policy: Policy, look_up: LookUp) -> Client {
        Client::with_look_up(policy, Options::default(), look_up).unwrap()
    }

    fn to_here(_: String) -> FoundAddresses {
        Box::pin(async { Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))]) })
    }

    fn to_metadata(_: String) -> FoundAddresses {
        Box::pin(async { Ok(vec![SocketAddr::from(([169, 254, 169, 254], 0))]) })
    }

    #[tokio::test]
    async fn a_connection_goes_to_an_allowed_address() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["name.example", "127.0.0.1"] {
            client(Policy::local(), to_here).connect(host, port).await.unwrap();
            listener.accept().await.unwrap();
            let refused = client(Policy::default(), to_here).connect(host, port).await;
            assert!(
                matches!(refused, Err(Error::RefusedName { .. } | Error::Refused { .. })),
                "{host}: {refused:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_name_whose_address_changes_is_resolved_once() {
        static LOOKED_UP: AtomicU8 = AtomicU8::new(0);
        // The first answer is allowed, each later one is not.
        fn rebinding(_: String) -> FoundAddresses {
            let first = if LOOKED_UP.fetch_add(1, Ordering::Relaxed) == 0 { 127 } else { 10 };
            Box::pin(async move { Ok(vec![SocketAddr::from(([first, 0, 0, 1], 0))]) })
        }
        fn mixed(_: String) -> FoundAddresses {
            let addresses = [[127, 0, 0, 1], [10, 0, 0, 1]];
            Box::pin(async move { Ok(addresses.map(|it| SocketAddr::from((it, 0))).to_vec()) })
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let rebound = client(Policy::local(), rebinding);
        let stream = rebound.connect("name.example", port).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
        assert_eq!(LOOKED_UP.load(Ordering::Relaxed), 1);
        let refused = rebound.connect("name.example", port).await;
        assert!(matches!(refused, Err(Error::RefusedName { .. })), "{refused:?}");
        let refused = client(Policy::local(), mixed).connect("name.example", port).await;
        assert!(matches!(refused, Err(Error::RefusedName { .. })), "{refused:?}");
    }

    #[tokio::test]
    async fn no_policy_allows_a_metadata_service() {
        for host in [
            "name.example",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "fd00:ec2::254",
            "168.63.129.16",
            "100.100.100.200",
            "192.0.0.192",
            "fd00:42::42",
            "fe80::a9fe:a9fe",
        ] {
            let refused = client(Policy::anywhere(), to_metadata).connect(host, 80).await;
            assert!(
                matches!(refused, Err(Error::RefusedName { .. } | Error::Refused { .. })),
                "{host}: {refused:?}"
            );
        }
    }
}
