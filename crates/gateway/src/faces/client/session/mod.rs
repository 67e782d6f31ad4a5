//! The client's copy of a session: the thread's log, rendered by a pump.

pub(crate) mod agent_session;
pub(crate) mod cursors;
mod deferred;
mod prompt_echo;
mod pump;
mod renderer;

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use trilogue_domain::{RunStatus, ThreadId};
use trilogue_runtime::Client;
use trilogue_store::rows::ThreadRow;
use trilogue_wire::agent_client::ClientCapabilities;

use self::pump::Pump;
use self::pump::children::{ChildRole, Followed};
use super::asking::agent_calls::AgentCalls;
use super::connection::session::ClientSession;
use super::connection::{ClientConnection, Handshake};

/// How many commands may wait for a pump.
const MAX_COMMANDS: usize = 64;
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
    let calls = AgentCalls::in_session(connection, handshake, &thread.id);
    let client: Arc<dyn Client> = Arc::new(calls);
    let runtime = connection.runtime();
    let (attached, presence) = (runtime.attach(&thread, client), runtime.active(thread.key));
    let guard = connection.state.open_sessions.open(thread.key);
    let session = Arc::new(ClientSession::new(thread, commands, Some(attached), presence, guard));
    let stop = session.stop.child_token();
    let followed = Followed::below(&session.thread.id, Followed::permits(), stop);
    let (connection, client) = (Arc::clone(connection), &handshake.client);
    let pump = Pump::new(Arc::clone(&connection), Arc::clone(&session), client, followed, None);
    connection.tasks.spawn(pump.run(received));
    session
}

/// The thread of a sub-agent, as a client has it open.
struct ChildThread {
    row: ThreadRow,
    /// The session in which its questions are asked.
    asks_in: ThreadId,
    /// Ends its pump.
    stop: CancellationToken,
}

/// Attaches the client to the thread of a sub-agent. The pump starts with its first command.
fn attach_child(
    connection: &Arc<ClientConnection>,
    client: &ClientCapabilities,
    child: ChildThread,
    followed: Followed,
    role: ChildRole,
) -> Arc<ClientSession> {
    let (commands, received) = mpsc::channel(MAX_COMMANDS);
    let ChildThread { row, asks_in, stop } = child;
    let presence = connection.runtime().active(row.key);
    let guard = connection.state.open_sessions.open(row.key);
    let mut session = ClientSession::new(row, commands, None, presence, guard);
    (session.asks_in, session.stop) = (asks_in, stop);
    let session = Arc::new(session);
    let (connection, role) = (Arc::clone(connection), Some(role));
    let pump = Pump::new(Arc::clone(&connection), Arc::clone(&session), client, followed, role);
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
