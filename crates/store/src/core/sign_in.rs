//! Sign-in links of a store that one process holds. They are lost when the process ends.

use std::collections::HashMap;
use std::sync::Mutex;

use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::limits::{MAX_SIGN_IN_LINKS, MAX_SIGN_IN_LINKS_PER_TOKEN};
use trilogue_domain::{Timestamp, lock};

use crate::rows::SignInLinkRow;

#[derive(Debug, Default)]
pub(crate) struct SignInLinks(Mutex<HashMap<[u8; 32], SignInLinkRow>>);

// === impl SignInLinks ===

impl SignInLinks {
    pub(crate) fn put(&self, link: SignInLinkRow, now: Timestamp) -> Result<()> {
        let mut links = lock(&self.0);
        links.retain(|_, link| now < link.expires_at);
        let of_token = links.values().filter(|other| other.token == link.token).count();
        if links.len() >= MAX_SIGN_IN_LINKS || of_token >= MAX_SIGN_IN_LINKS_PER_TOKEN {
            return Err(too_many_links());
        }
        links.insert(link.code, link);
        Ok(())
    }

    pub(crate) fn get(&self, code: &[u8; 32], now: Timestamp) -> Option<SignInLinkRow> {
        lock(&self.0).get(code).filter(|link| now < link.expires_at).cloned()
    }

    pub(crate) fn take(&self, code: &[u8; 32], now: Timestamp) -> Option<SignInLinkRow> {
        lock(&self.0).remove(code).filter(|link| now < link.expires_at)
    }
}

pub(crate) fn too_many_links() -> Error {
    Error::new(Code::Overloaded, "too many links for signing in wait to be used")
        .hint("use one of them, or try again in ten minutes")
}
