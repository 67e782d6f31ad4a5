//! Serves a connection over HTTP, beside the requests that use it.

use std::sync::Arc;

use trilogue_domain::AgentName;
use trilogue_wire::jsonrpc::Decoder;

use super::super::admission::Admission;
use super::super::mailbox::KeptBudget;
use super::connection::{HttpConnection, PostedMessages, StreamSink};
use crate::access::authenticator::Caller;
use crate::faces::client::connection::ClientConnection;
use crate::faces::client::connection::origin::{ClientOrigin, ClientTransport};
use crate::faces::client::serve::serve;
use crate::faces::client::state::State;

/// Begins a connection. It ends some time after its last use, when it is closed, or when the server stops.
pub(super) fn begin(
    state: &Arc<State>,
    caller: &Caller,
    agent: AgentName,
    admission: Admission,
) -> Arc<HttpConnection> {
    let origin = ClientOrigin::Network(caller.clone());
    let mut client = ClientConnection::new(Arc::clone(state), origin, agent.clone());
    state.list(&mut client, ClientTransport::Http);
    let (kept_budget, closed) =
        (KeptBudget::new(&state.kept_budget, caller), client.closed.clone());
    let (connection, messages) =
        HttpConnection::new(agent, caller.clone(), &state.options, kept_budget, closed);
    client.attach = Some(state.attach_capability(Some(&connection.id)));
    state.http_connections.add(&connection);
    let (state, serving) = (Arc::clone(state), Arc::clone(&connection));
    tokio::spawn(async move {
        serve_connection(&serving, &state, client, messages).await;
        state.http_connections.remove(&serving);
        drop(admission);
    });
    connection
}

async fn serve_connection(
    connection: &Arc<HttpConnection>,
    state: &State,
    client: ClientConnection,
    mut messages: PostedMessages,
) {
    let client = Arc::new(client);
    let decoder = Decoder::new(state.options.max_line_bytes);
    let sink = StreamSink(Arc::clone(connection));
    let serving = serve(&client, &mut messages, sink, decoder, &state.streams_end);
    let serving = async {
        tokio::pin!(serving);
        tokio::select! {
            _ = &mut serving => {}
            () = connection.unused_for(state.options.idle_timeout) => {
                tracing::debug!(agent = %connection.agent, "a connection was not used any more");
                connection.close();
                serving.await;
            }
        }
    };
    Box::pin(serving).await;
    connection.end_streams();
}
