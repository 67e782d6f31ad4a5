//! The policy for outbound addresses.

use std::net::{IpAddr, SocketAddr};

use url::{Host, Url};

use crate::address::{AddressClass, inner};
use crate::cidr::Cidr;
use crate::error::Error;

/// The allowed addresses: public ones, and those that the operator adds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// Allowed blocks of addresses that are not public. By default loopback is not allowed.
    pub allow: Vec<Cidr>,
}

// === impl Policy ===

impl Policy {
    /// Returns a policy that allows every address, for a client whose addresses the operator chose.
    pub fn anywhere() -> Self {
        let all = ["0.0.0.0/0", "::/0"].iter().filter_map(|block| block.parse().ok());
        Self { allow: all.collect() }
    }

    /// Returns a policy that also allows loopback, for a client of the user's own server on this machine.
    pub fn local() -> Self {
        Self { allow: vec![Cidr::v4(127, 0, 0, 0, 8), Cidr::LOOPBACK_V6] }
    }

    /// Checks the address of `host`.
    ///
    /// # Errors
    /// [`Error::Refused`] with the address.
    pub fn check(&self, host: &str, address: IpAddr) -> Result<(), Error> {
        match self.refusal(address) {
            None => Ok(()),
            Some(class) => Err(Error::Refused { host: host.to_owned(), address, class }),
        }
    }

    /// Checks the addresses of a name.
    ///
    /// # Errors
    /// [`Error::RefusedName`] if one of them is not allowed. The log names that address.
    pub(crate) fn check_name(&self, host: &str, found: &[SocketAddr]) -> Result<(), Error> {
        let refused = found.iter().find_map(|it| Some((it.ip(), self.refusal(it.ip())?)));
        let Some((address, class)) = refused else { return Ok(()) };
        tracing::warn!(host, %address, %class, "a name stands for an address that may not be reached");
        Err(Error::RefusedName { host: host.to_owned() })
    }

    /// Returns why an address is not allowed; `None` if it is allowed.
    fn refusal(&self, address: IpAddr) -> Option<AddressClass> {
        let allowed = |block: &Cidr| block.contains(address) || block.contains(inner(address));
        AddressClass::of(address).filter(|_| !self.allow.iter().any(allowed))
    }

    /// Checks everything that needs no name resolution: the scheme, the absence of credentials, and a host that is an address.
    ///
    /// # Errors
    /// [`Error::BadUrl`] or [`Error::Refused`].
    pub fn check_url(&self, url: &Url) -> Result<(), Error> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::BadUrl(format!(
                "the scheme '{}' is not http or https",
                url.scheme().escape_debug()
            )));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::BadUrl("the address holds credentials".to_owned()));
        }
        match url.host() {
            Some(Host::Ipv4(address)) => self.check(&address.to_string(), address.into()),
            Some(Host::Ipv6(address)) => self.check(&address.to_string(), address.into()),
            Some(Host::Domain(_)) => Ok(()),
            None => Err(Error::BadUrl("the address has no host".to_owned())),
        }
    }
}
