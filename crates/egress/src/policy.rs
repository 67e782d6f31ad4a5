//! Which addresses may be reached.

use std::net::{IpAddr, SocketAddr};

use url::{Host, Url};

use crate::address::{AddressClass, inner};
use crate::cidr::Cidr;
use crate::error::Error;

/// Which addresses may be reached: public ones, and what the operator allows beside them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// Blocks that may be reached although they are not public. Loopback is not among them by default.
    pub allow: Vec<Cidr>,
}

// === impl Policy ===

impl Policy {
    /// For a client whose addresses the operator chose: none is refused.
    pub fn anywhere() -> Self {
        let all = ["0.0.0.0/0", "::/0"].iter().filter_map(|block| block.parse().ok());
        Self { allow: all.collect() }
    }

    /// For a client that talks to a server of its own user on this machine: loopback is allowed too.
    pub fn local() -> Self {
        Self { allow: vec![Cidr::v4(127, 0, 0, 0, 8), Cidr::LOOPBACK_V6] }
    }

    /// Checks an address that `host` is.
    ///
    /// # Errors
    /// [`Error::Refused`], naming the address.
    pub fn check(&self, host: &str, address: IpAddr) -> Result<(), Error> {
        match self.refusal(address) {
            None => Ok(()),
            Some(class) => Err(Error::Refused { host: host.to_owned(), address, class }),
        }
    }

    /// Checks the addresses that a name stands for.
    ///
    /// # Errors
    /// [`Error::RefusedName`] when one of them may not be reached, which the log names.
    pub(crate) fn check_name(&self, host: &str, found: &[SocketAddr]) -> Result<(), Error> {
        let refused = found.iter().find_map(|it| Some((it.ip(), self.refusal(it.ip())?)));
        let Some((address, class)) = refused else { return Ok(()) };
        tracing::warn!(host, %address, %class, "a name stands for an address that may not be reached");
        Err(Error::RefusedName { host: host.to_owned() })
    }

    /// Why an address may not be reached.
    fn refusal(&self, address: IpAddr) -> Option<AddressClass> {
        let allowed = |block: &Cidr| block.contains(address) || block.contains(inner(address));
        AddressClass::of(address).filter(|_| !self.allow.iter().any(allowed))
    }

    /// Checks what can be checked of an address before a name is resolved: scheme, absence of credentials, and a host that is an address.
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
