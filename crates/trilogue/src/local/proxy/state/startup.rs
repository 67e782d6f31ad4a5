//! The startup: whether the editor got the agent, or a session of it.

use trilogue_domain::{Code, Error};
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::{self, ErrorObject};

use super::super::request_journal::RequestKind;
use super::Proxy;

#[derive(Debug, Default)]
pub(super) struct Startup {
    is_done: bool,
    refused: Option<Error>,
    /// Whether the user does not know the error yet.
    is_new: bool,
}

// === impl Startup ===

impl Startup {
    pub(super) fn on_response(&mut self, call: &RequestKind, error: Option<&ErrorObject>) {
        match (call, error) {
            (RequestKind::New(_) | RequestKind::Load(_) | RequestKind::Resume(_), None) => {
                self.is_done = true;
                self.refused = None;
            }
            (RequestKind::Initialize, None) => self.refused = None,
            // The editor can correct other errors itself.
            (
                RequestKind::Initialize
                | RequestKind::New(_)
                | RequestKind::Load(_)
                | RequestKind::Resume(_),
                Some(error),
            ) if error.code == jsonrpc::Code::INTERNAL_ERROR && !self.is_done => {
                let error = refusal(error);
                self.is_new |= self.refused.as_ref() != Some(&error);
                self.refused = Some(error);
            }
            _ => {}
        }
    }
}

// === impl Proxy ===

impl Proxy {
    /// The startup's error, if the user does not know it yet.
    pub(in crate::local::proxy) fn take_refusal(&mut self) -> Option<Error> {
        let is_new = std::mem::take(&mut self.startup.is_new);
        self.startup.refused.clone().filter(|_| is_new)
    }

    /// Whether the editor got the agent.
    pub(in crate::local::proxy) fn startup_result(&mut self) -> Result<(), Error> {
        self.startup.refused.take().map_or(Ok(()), Err)
    }
}

/// The editor's error response as an error. The server itself is reachable.
fn refusal(error: &ErrorObject) -> Error {
    let data = error.data.as_ref().map_or("", |data| data.as_str());
    let code = splice::get_text(data, &["code"]).and_then(|code| Code::from_text(&code));
    let code = code.filter(|code| *code != Code::PeerUnavailable).unwrap_or(Code::AgentFailed);
    let told = Error::new(code, error.message.clone());
    match splice::get_text(data, &["hint"]) {
        Some(hint) => told.hint(hint.into_owned()),
        None => told,
    }
}
