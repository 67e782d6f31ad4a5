//! The clients of the Agent Client Protocol that are connected now.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use trilogue_domain::lock;
use trilogue_wire::native::ConnectedClient;

/// How many characters of a client's name and version are kept.
const MAX_NAME_CHARS: usize = 100;

/// The connected clients, in the order in which they connected.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectedClients(Arc<Mutex<ClientTable>>);

#[derive(Debug, Default)]
struct ClientTable {
    next: u64,
    clients: BTreeMap<u64, ConnectedClient>,
}

/// Lists a client until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectedClientGuard {
    clients: ConnectedClients,
    id: u64,
}

// === impl ConnectedClients ===

impl ConnectedClients {
    pub(crate) fn list(&self) -> Vec<ConnectedClient> {
        lock(&self.0).clients.values().cloned().collect()
    }

    pub(crate) fn add(&self, client: ConnectedClient) -> ConnectedClientGuard {
        let mut table = lock(&self.0);
        let id = table.next;
        table.next += 1;
        table.clients.insert(id, client);
        ConnectedClientGuard { clients: self.clone(), id }
    }
}

// === impl ConnectedClientGuard ===

impl ConnectedClientGuard {
    /// Sets the name and version that the client reports.
    pub(crate) fn set_name(&self, name: &str, version: &str) {
        let cut = |text: &str| text.chars().take(MAX_NAME_CHARS).collect::<String>();
        if let Some(client) = lock(&self.clients.0).clients.get_mut(&self.id) {
            client.name = Some(cut(name)).filter(|name| !name.is_empty());
            client.version = Some(cut(version)).filter(|version| !version.is_empty());
        }
    }
}

impl Drop for ConnectedClientGuard {
    fn drop(&mut self) {
        lock(&self.clients.0).clients.remove(&self.id);
    }
}
