//! The clients of the Agent Client Protocol that are connected now, and the sessions that each of them has open.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use trilogue_domain::{ThreadId, ThreadKey, lock};
use trilogue_runtime::ControlView;
use trilogue_wire::native::{ConnectedClient, OpenSession, ThreadClient};

/// How many characters of a client's name and version are kept.
const MAX_NAME_CHARS: usize = 100;
/// How many sessions of a client, and clients of a thread, are shown.
const MAX_SHOWN: usize = 100;

/// The connected clients, in the order in which they connected.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectedClients(Arc<Mutex<ClientTable>>);

#[derive(Debug, Default)]
struct ClientTable {
    next: u64,
    clients: BTreeMap<u64, ListedClient>,
}

#[derive(Debug)]
struct ListedClient {
    client: ConnectedClient,
    sessions: BTreeMap<u64, ListedSession>,
}

#[derive(Debug)]
struct ListedSession {
    key: ThreadKey,
    thread: ThreadId,
    /// Absent for a client that only observes.
    control: Option<ControlView>,
}

/// Lists a client until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectedClientGuard {
    clients: ConnectedClients,
    id: u64,
}

/// Lists a session of a client until it is dropped.
#[derive(Debug)]
pub(crate) struct ListedSessionGuard {
    clients: ConnectedClients,
    client: u64,
    id: u64,
}

// === impl ConnectedClients ===

impl ConnectedClients {
    pub(crate) fn list(&self) -> Vec<ConnectedClient> {
        let table = lock(&self.0);
        let list = table.clients.values().map(|listed| ConnectedClient {
            sessions: listed
                .sessions
                .values()
                .take(MAX_SHOWN)
                .map(ListedSession::to_wire)
                .collect(),
            ..listed.client.clone()
        });
        list.collect()
    }

    /// Returns the clients that have this thread open.
    pub(crate) fn of_thread(&self, thread: ThreadKey) -> Vec<ThreadClient> {
        let table = lock(&self.0);
        let with_thread = table.clients.values().filter_map(|listed| {
            let mut sessions = listed.sessions.values().filter(|it| it.key == thread).peekable();
            sessions.peek()?;
            let client = &listed.client;
            Some(ThreadClient {
                name: client.name.clone(),
                version: client.version.clone(),
                transport: client.transport.clone(),
                principal: client.principal.clone(),
                controls: sessions.any(ListedSession::controls),
                since: client.since.clone(),
            })
        });
        with_thread.take(MAX_SHOWN).collect()
    }

    pub(crate) fn add(&self, client: ConnectedClient) -> ConnectedClientGuard {
        let mut table = lock(&self.0);
        let id = table.next;
        table.next += 1;
        table.clients.insert(id, ListedClient { client, sessions: BTreeMap::new() });
        ConnectedClientGuard { clients: self.clone(), id }
    }
}

// === impl ListedSession ===

impl ListedSession {
    fn controls(&self) -> bool {
        self.control.as_ref().is_some_and(ControlView::is_in_control)
    }

    fn to_wire(&self) -> OpenSession {
        OpenSession { thread_id: self.thread.as_str().to_owned(), controls: self.controls() }
    }
}

// === impl ConnectedClientGuard ===

impl ConnectedClientGuard {
    /// Sets the name and version that the client reports.
    pub(crate) fn set_name(&self, name: &str, version: &str) {
        let cut = |text: &str| text.chars().take(MAX_NAME_CHARS).collect::<String>();
        if let Some(listed) = lock(&self.clients.0).clients.get_mut(&self.id) {
            listed.client.name = Some(cut(name)).filter(|name| !name.is_empty());
            listed.client.version = Some(cut(version)).filter(|version| !version.is_empty());
        }
    }

    /// Lists a session that the client opens. `control` is absent for a client that only observes.
    pub(crate) fn add_session(
        &self,
        key: ThreadKey,
        thread: ThreadId,
        control: Option<ControlView>,
    ) -> ListedSessionGuard {
        let mut table = lock(&self.clients.0);
        let id = table.next;
        table.next += 1;
        if let Some(listed) = table.clients.get_mut(&self.id) {
            listed.sessions.insert(id, ListedSession { key, thread, control });
        }
        ListedSessionGuard { clients: self.clients.clone(), client: self.id, id }
    }
}

impl Drop for ConnectedClientGuard {
    fn drop(&mut self) {
        lock(&self.clients.0).clients.remove(&self.id);
    }
}

// === impl ListedSessionGuard ===

impl Drop for ListedSessionGuard {
    fn drop(&mut self) {
        if let Some(listed) = lock(&self.clients.0).clients.get_mut(&self.client) {
            listed.sessions.remove(&self.id);
        }
    }
}
