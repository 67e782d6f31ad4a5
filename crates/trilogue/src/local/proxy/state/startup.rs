//! The beginning: whether the editor ever got the agent, or a session of it.

use trilogue_domain::{Code, Error};
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::{self, ErrorObject};

use super::super::book::Call;
use super::Proxy;

/// How far the editor came.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    /// It had a session, or got what it asked for without one.
    has_come: bool,
    /// Why there was no agent, the last time that it was asked for.
    refused: Option<Error>,
    /// The user does not know it yet.
    is_news: bool,
}

// === impl Beginning ===

impl Beginning {
    /// A request of the editor's is answered: with an error, where there is one.
    pub(super) fn answered(&mut self, call: &Call, error: Option<&ErrorObject>) {
        match (call, error) {
            (Call::New(_) | Call::Load(_) | Call::Resume(_), None) => {
                self.has_come = true;
                self.refused = None;
            }
            (Call::Initialize, None) => self.refused = None,
            // What the editor did wrong, or can do about it itself, is between the two.
            (Call::Initialize | Call::New(_) | Call::Load(_) | Call::Resume(_), Some(error))
                if error.code == jsonrpc::Code::INTERNAL_ERROR && !self.has_come =>
            {
                let error = refusal(error);
                self.is_news |= self.refused.as_ref() != Some(&error);
                self.refused = Some(error);
            }
            _ => {}
        }
    }
}

// === impl Proxy ===

impl Proxy {
    /// Why there is no agent, where the user does not know it yet.
    pub(in crate::local::proxy) fn take_refusal(&mut self) -> Option<Error> {
        let is_news = std::mem::take(&mut self.beginning.is_news);
        self.beginning.refused.clone().filter(|_| is_news)
    }

    /// Passes where the editor got the agent.
    ///
    /// # Errors
    /// Why it did not.
    pub(in crate::local::proxy) fn came_to_be(&mut self) -> Result<(), Error> {
        self.beginning.refused.take().map_or(Ok(()), Err)
    }
}

/// What the editor was told, in our words. The server itself can be reached.
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
