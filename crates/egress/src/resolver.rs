//! Names to checked addresses.

use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::policy::Policy;

/// Resolves a name and gives its addresses only if the policy allows every one of them.
/// The connection goes to what is given here, so nothing can be swapped in between.
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
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            policy.check_name(host, &found)?;
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}
