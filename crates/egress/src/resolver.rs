//! Resolves names to checked addresses.

use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::error::Error;
use crate::policy::Policy;

/// Resolves a name and returns its addresses only if the policy allows all of them.
/// The connection uses these addresses, so an attacker cannot replace them in between.
#[derive(Debug)]
pub(crate) struct CheckedResolver {
    pub(crate) policy: Policy,
}

// === impl CheckedResolver ===

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.policy.clone();
        Box::pin(async move {
            let host = name.as_str();
            let unknown = |reason: String| Error::UnknownName { host: host.to_owned(), reason };
            let found = tokio::net::lookup_host((host, 0)).await;
            let found: Vec<SocketAddr> =
                found.map_err(|error| unknown(error.to_string()))?.collect();
            if found.is_empty() {
                return Err(unknown("its name has no address".to_owned()).into());
            }
            policy.check_name(host, &found)?;
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}
