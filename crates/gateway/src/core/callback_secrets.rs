//! The keys that sign callbacks. Each key is derived for one tenant, one principal and one target, so a receiver cannot pass a callback off as one for another target.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::Uri;
use sha2::Sha256;
use trilogue_domain::{Principal, PrincipalId, TenantId};

/// The domain of this key derivation: it keeps the keys apart from everything else that uses the server's secrets.
const CONTEXT: &[u8] = b"trilogue callback key 1";

/// The server's secrets: two during a rotation. They sign nothing themselves.
#[derive(Clone, Default)]
pub struct CallbackSecrets(Arc<[Bytes]>);

/// The owner of a callback.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallbackOwner {
    pub tenant: TenantId,
    pub principal: PrincipalId,
}

/// Returns the part of an address that a key is valid for: scheme, host, port and path. The query is left out, so that it can differ for each run.
fn callback_target(url: &str) -> Option<String> {
    let url: Uri = url.parse().ok()?;
    let scheme = url.scheme_str()?.to_ascii_lowercase();
    let host = url.host()?.to_ascii_lowercase();
    let port = match url.port_u16() {
        Some(port) => port,
        None if scheme == "https" => 443,
        None => 80,
    };
    Some(format!("{scheme}://{host}:{port}{}", url.path()))
}

// === impl CallbackSecrets ===

impl CallbackSecrets {
    #[must_use]
    pub fn new(secrets: impl IntoIterator<Item = Bytes>) -> Self {
        Self(secrets.into_iter().collect())
    }

    /// Returns the keys that sign this owner's callbacks to an address, one for each secret; none if the address is not a web address.
    #[must_use]
    pub fn keys(&self, owner: &CallbackOwner, url: &str) -> Vec<[u8; 32]> {
        let Some(target) = callback_target(url) else { return Vec::new() };
        self.0.iter().filter_map(|secret| derived(secret, owner, &target)).collect()
    }
}

impl From<&Principal> for CallbackOwner {
    fn from(principal: &Principal) -> Self {
        Self { tenant: principal.tenant.clone(), principal: principal.id.clone() }
    }
}

fn derived(secret: &[u8], owner: &CallbackOwner, target: &str) -> Option<[u8; 32]> {
    // HMAC takes keys of any length.
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
    mac.update(CONTEXT);
    // The length prefixes keep different names from concatenating to the same bytes.
    for part in [owner.tenant.as_str(), owner.principal.as_str(), target] {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    Some(mac.finalize().into_bytes().into())
}

/// Omits the secrets.
impl fmt::Debug for CallbackSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackSecrets").field("secrets", &self.0.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(tenant: &str, principal: &str) -> CallbackOwner {
        CallbackOwner {
            tenant: TenantId::parse(tenant).unwrap(),
            principal: PrincipalId::parse(principal).unwrap(),
        }
    }

    #[test]
    fn each_tenant_principal_and_target_has_a_key_of_its_own() {
        let secrets =
            CallbackSecrets::new([Bytes::from_static(b"one"), Bytes::from_static(b"two")]);
        let url = "https://hooks.example.com/a";
        let keys = secrets.keys(&owner("t", "p"), url);
        assert_eq!(keys.len(), 2);
        let mut all = keys.clone();
        for (tenant, principal, url) in [
            ("u", "p", url),
            ("t", "q", url),
            ("tp", "p", url),
            ("t", "p", "https://hooks.example.com/b"),
            ("t", "p", "http://hooks.example.com/a"),
            ("t", "p", "https://hooks.example.com:8443/a"),
            ("t", "p", "https://example.com/a"),
        ] {
            all.extend(secrets.keys(&owner(tenant, principal), url));
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 16);
        for same in ["HTTPS://Hooks.Example.com:443/a", "https://hooks.example.com/a?run=1"] {
            assert_eq!(secrets.keys(&owner("t", "p"), same), keys, "{same}");
        }
        assert!(secrets.keys(&owner("t", "p"), "hooks").is_empty());
    }
}
