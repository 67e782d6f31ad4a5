//! One request of a client: reads its parameters and responds to it.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use trilogue_domain::{Error, Json, ThreadId};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::Backend;
use trilogue_wire::agent_client::{self as wire, Read, splice};
use trilogue_wire::jsonrpc::{Code, ErrorObject, Id};
use trilogue_wire::native::local::{ATTACH_METHOD, Extras};

use super::super::asking::agent_calls::on_behalf_of;
use super::super::asking::snapshot::QuestionSnapshot;
use super::super::connection::ClientConnection;
use super::super::wire::lines::MethodResult;
use crate::http::receive::HeldBytes;

#[derive(Debug)]
pub(crate) struct IncomingRequest {
    pub(crate) id: Id<'static>,
    pub(crate) method: String,
    /// JSON.
    pub(crate) params: String,
    pub(crate) extras: Extras,
    /// The length of its line, in bytes.
    pub(crate) bytes: usize,
    /// The question that the client knew when the request arrived, if it had to wait in the backlog.
    pub(crate) snapshot: Option<QuestionSnapshot>,
    /// Counts its line among those of all clients of the network, if it came from one.
    pub(crate) held: Option<HeldBytes>,
}

impl IncomingRequest {
    /// Counts a line of this many bytes among those of all clients. A program on this machine is the server's user, and counts for nothing.
    /// Errors: `overloaded`.
    pub(crate) fn hold(
        connection: &ClientConnection,
        bytes: usize,
    ) -> Result<Option<HeldBytes>, ErrorObject> {
        if connection.origin.is_local() {
            return Ok(None);
        }
        let budget = &connection.state.open_request_budget;
        let held = HeldBytes::of_waiting(budget, &connection.principal, bytes);
        held.map(Some).map_err(|spent| mapping::error_object(&spent.to_error()))
    }
}

/// Processes a request and responds to it, even if the work panics.
///
/// The work is boxed first: passing a future by value costs its size again in each caller.
pub(crate) fn respond_when_done<'a>(
    connection: &'a Arc<ClientConnection>,
    id: Id<'static>,
    cancelled: CancellationToken,
    work: impl Future<Output = Option<MethodResult>> + Send + 'a,
) -> impl Future<Output = ()> + Send + 'a {
    let work = AssertUnwindSafe(on_behalf_of(id.clone(), Box::pin(work))).catch_unwind();
    async move {
        let result = tokio::select! {
            done = work => done.unwrap_or_else(|_| {
                connection.state.panics.increment(1);
                tracing::error!("the work for a client's request panicked");
                Some(Err(ErrorObject::of(Code::INTERNAL_ERROR)))
            }),
            () = cancelled.cancelled() => Some(Err(ErrorObject::of(Code::REQUEST_CANCELLED))),
        };
        if let Some(result) = result {
            connection.respond(&id, result).await;
        }
    }
}

pub(crate) fn backend_of(connection: &ClientConnection) -> Result<&Arc<dyn Backend>, ErrorObject> {
    connection.backend().map_err(|error| mapping::error_object(&error))
}

/// Returns the session that the parameters name, if its id is valid.
pub(crate) fn session_in(params: &str) -> Option<ThreadId> {
    splice::get_text(params, &["sessionId"]).and_then(|id| ThreadId::parse(&id).ok())
}

pub(crate) fn read<T: Read>(connection: &ClientConnection, params: &str) -> Result<T, ErrorObject> {
    wire::read(params.as_bytes(), connection.rules()).map_err(|violation| violation.error())
}

pub(crate) fn to_json(params: &str) -> Result<Json, ErrorObject> {
    Json::parse_mended(params.to_owned()).map_err(|error| mapping::error_object(&error))
}

pub(crate) fn session_error(error: &Error, session: &ThreadId) -> ErrorObject {
    mapping::session_error(error, session.as_str())
}

pub(crate) fn invalid_params(path: &str, message: impl Into<String>) -> ErrorObject {
    wire::Violation::new(path, message).error()
}

/// Whether this is our proxy's request to continue a session after a reconnect.
pub(super) fn is_attach(connection: &ClientConnection, name: &str) -> bool {
    connection.numbered && name == ATTACH_METHOD
}
