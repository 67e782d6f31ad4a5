//! Requests that wait because too many are being processed.
//!
//! The server reads all other messages meanwhile: a turn may need a reply that follows the waiting requests.

use std::collections::VecDeque;
use std::sync::Arc;

use trilogue_domain::{Code as DomainCode, Error, ThreadId};
use trilogue_mapping::agent_client as mapping;
use trilogue_wire::agent_client::{CancelRequestNotification, Rules, read};
use trilogue_wire::jsonrpc::{Code, ErrorObject};

use super::super::asking::snapshot::QuestionSnapshot;
use super::super::connection::ClientConnection;
use super::dispatch::dispatch;
use super::prompt::cancelled_result;
use super::request::{IncomingRequest, session_in};

/// The most memory that a waiting request uses in addition to its line, in bytes.
const OVERHEAD_BYTES: usize = 512;

/// Requests that wait until fewer are being processed, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    waiting: VecDeque<IncomingRequest>,
    bytes: usize,
}

// === impl Backlog ===

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes a request and processes it after the waiting ones. Refuses it if those already use as much as a line of the greatest length.
    pub(crate) async fn take(
        &mut self,
        connection: &Arc<ClientConnection>,
        request: IncomingRequest,
    ) {
        if self.bytes > connection.options().max_line_bytes {
            let error = Error::new(DomainCode::Overloaded, "too many requests are open")
                .hint("wait for responses before you send more");
            let error = mapping::error_object(&error);
            return connection.respond_unadmitted(&request.id, Err(error)).await;
        }
        let refused = match self.is_empty() {
            true => dispatch(connection, request).await,
            false => Some(request),
        };
        if let Some(request) = refused {
            self.push(connection, request);
        }
    }

    fn push(&mut self, connection: &ClientConnection, mut request: IncomingRequest) {
        if request.method == "session/prompt" {
            let session = session_in(&request.params);
            request.snapshot =
                session.map(|session| QuestionSnapshot::of_session(connection, &session));
        }
        self.bytes += size(&request);
        self.waiting.push_back(request);
    }

    /// Dispatches waiting requests while there is room.
    pub(crate) async fn admit(&mut self, connection: &Arc<ClientConnection>) {
        while let Some(request) = self.waiting.pop_front() {
            let bytes = size(&request);
            if let Some(refused) = dispatch(connection, request).await {
                self.waiting.push_front(refused);
                return;
            }
            self.bytes -= bytes;
        }
    }

    /// Checks each notification first, so that a waiting request that it cancels never begins.
    pub(crate) async fn on_notification(
        &mut self,
        connection: &Arc<ClientConnection>,
        name: &str,
        params: &str,
    ) {
        match name {
            "session/cancel" => {
                if let Some(session) = session_in(params) {
                    self.cancel(connection, |request| is_prompt_in(request, &session)).await;
                }
            }
            "$/cancel_request" => {
                let told = read::<CancelRequestNotification>(params.as_bytes(), Rules::Lenient);
                if let Ok(told) = told {
                    self.cancel(connection, |request| request.id == told.request_id).await;
                }
            }
            _ => {}
        }
    }

    async fn cancel(
        &mut self,
        connection: &Arc<ClientConnection>,
        is_meant: impl Fn(&IncomingRequest) -> bool,
    ) {
        let (cancelled, waiting): (VecDeque<_>, VecDeque<_>) =
            self.waiting.drain(..).partition(is_meant);
        self.waiting = waiting;
        if cancelled.is_empty() {
            return;
        }
        for request in cancelled {
            self.bytes -= size(&request);
            let result = match request.method.as_str() {
                "session/prompt" => cancelled_result(),
                _ => Err(ErrorObject::of(Code::REQUEST_CANCELLED)),
            };
            connection.respond_unadmitted(&request.id, result).await;
        }
        // Requests after the cancelled ones may fit now.
        self.admit(connection).await;
    }
}

fn size(request: &IncomingRequest) -> usize {
    request.bytes + OVERHEAD_BYTES
}

fn is_prompt_in(request: &IncomingRequest, session: &ThreadId) -> bool {
    request.method == "session/prompt" && session_in(&request.params).as_ref() == Some(session)
}
