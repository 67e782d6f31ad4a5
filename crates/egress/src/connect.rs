//! Connections that carry bytes of others, such as the tunnels of hosted agents.

use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::address::{AddressClass, is_metadata};
use crate::client::Client;
use crate::error::Error;

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
        for address in self.checked_addresses(host).await? {
            match TcpStream::connect(SocketAddr::new(address, port)).await {
                Ok(stream) => {
                    // Each write of the program is sent at once.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(error) => failed = Some(error.to_string()),
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
    async fn no_policy_allows_a_metadata_service() {
        for host in [
            "name.example",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "fd00:ec2::254",
            "168.63.129.16",
            "100.100.100.200",
        ] {
            let refused = client(Policy::anywhere(), to_metadata).connect(host, 80).await;
            assert!(
                matches!(refused, Err(Error::RefusedName { .. } | Error::Refused { .. })),
                "{host}: {refused:?}"
            );
        }
    }
}
