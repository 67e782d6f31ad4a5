//! The connections that outlive the requests or the sockets of their clients.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, lock};

use crate::access::authenticator::Caller;

/// A connection that its client names by an id.
pub(in crate::faces::client) trait LastingConnection {
    fn id(&self) -> &str;
    fn agent(&self) -> &AgentName;
    /// The caller that opened the connection.
    fn caller(&self) -> &Caller;
    fn is_closed(&self) -> bool;
}

/// Connections by their ids.
#[derive(Debug)]
pub(in crate::faces::client) struct LastingConnections<C>(Mutex<HashMap<String, Arc<C>>>);

// === impl LastingConnections ===

impl<C> Default for LastingConnections<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C: LastingConnection> LastingConnections<C> {
    pub(super) fn add(&self, connection: &Arc<C>) {
        lock(&self.0).insert(connection.id().to_owned(), Arc::clone(connection));
    }

    pub(super) fn remove(&self, connection: &C) {
        lock(&self.0).remove(connection.id());
    }

    /// Returns a connection of this caller to this agent.
    /// Errors: `not_found`, also for connections of others.
    pub(super) fn find(&self, id: &str, caller: &Caller, agent: &AgentName) -> Result<Arc<C>> {
        let found = lock(&self.0).get(id).cloned();
        // The token belongs to the connection, with its rights, and is named with what its client does.
        let is_own = |it: &Arc<C>| {
            let known = it.caller();
            it.agent() == agent
                && known.principal == caller.principal
                && known.token == caller.token
                && !it.is_closed()
        };
        found.filter(is_own).ok_or_else(|| {
            Error::new(Code::NotFound, "the connection is not known, or has ended")
                .hint("begin another one with 'initialize', and load the sessions again")
        })
    }
}
