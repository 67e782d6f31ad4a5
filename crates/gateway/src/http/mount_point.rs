//! Where a protocol is served: its prefix, and its address for clients.

use std::sync::Arc;

use super::request::Request;
use crate::core::options::Options;

/// The place of a mounted protocol.
#[derive(Clone, Debug)]
pub struct MountPoint {
    /// The beginning of every path, without a slash at its end: empty for the root, or such as `/communication`.
    pub prefix: Arc<str>,
    /// The absolute address for content that many readers share. It does not depend on the host of one request.
    pub base: Arc<str>,
    /// Whether the operator configured the address that all clients use.
    is_public: bool,
}

// === impl MountPoint ===

impl MountPoint {
    /// Creates the place of a mount. `address` is the server's address for all clients, without a slash at its end.
    pub(crate) fn new(prefix: &str, address: &str, options: &Options) -> Self {
        Self {
            prefix: Arc::from(prefix),
            base: Arc::from(format!("{address}{prefix}")),
            is_public: options.public_url.is_some(),
        }
    }

    /// Returns the absolute address of the mount for this client, without a slash at its end: the host of its request, unless the operator configured a public address.
    pub fn base_for(&self, request: &Request) -> String {
        match request.host() {
            Some(host) if !self.is_public => format!("http://{host}{}", self.prefix),
            _ => self.base.to_string(),
        }
    }
}
