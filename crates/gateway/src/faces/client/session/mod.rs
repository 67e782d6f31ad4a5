//! The client's copy of a session: the thread's log, rendered by a pump.

pub(crate) mod agent_session;
pub(crate) mod cursors;
mod deferred;
mod prompt_echo;
mod pump;
mod renderer;

use std::sync::Arc;

use tokio::sync::mpsc;
use trilogue_domain::{Right, RunStatus};
use trilogue_runtime::Client;
use trilogue_store::rows::ThreadRow;

use self::pump::Pump;
use self::pump::children::Followed;
use super::asking::agent_calls::AgentCalls;
use super::connection::command::MAX_COMMANDS;
use super::connection::session::ClientSession;
use super::connection::{ClientConnection, Handshake};

/// The statuses of runs that have not ended.
pub(crate) const OPEN_STATUSES: [RunStatus; 4] =
    [RunStatus::Queued, RunStatus::Running, RunStatus::Interrupted, RunStatus::Cancelling];

/// Attaches the client to a thread that it may see. The pump starts with its first command.
pub(crate) fn attach_session(
    connection: &Arc<ClientConnection>,
    handshake: &Handshake,
    thread: ThreadRow,
) -> Arc<ClientSession> {
    let (commands, received) = mpsc::channel(MAX_COMMANDS);
    // The agent of an observer's session calls other clients.
    let attached = connection.may(Right::Run).then(|| {
        let calls = AgentCalls::in_session(connection, handshake, &thread.id);
        let client: Arc<dyn Client> = Arc::new(calls);
        connection.runtime().attach(&thread, client)
    });
    let presence = connection.presence(&thread, attached.as_ref());
    let session = Arc::new(ClientSession::new(thread, commands, attached, presence));
    let stop = session.stop.child_token();
    let followed = Followed::below(&session.thread.id, Followed::permits(), stop);
    let (connection, client) = (Arc::clone(connection), &handshake.client);
    let pump = Pump::new(Arc::clone(&connection), Arc::clone(&session), client, followed, None);
    connection.tasks.spawn(pump.run(received));
    session
}

/// Returns the idempotency key of a client's prompt: it names a client that can reconnect, so that the client recognises its own messages later.
pub(crate) fn own_key(client: Option<&str>, key: &str) -> String {
    match client {
        Some(client) => format!("{client}/{key}"),
        None => key.to_owned(),
    }
}
