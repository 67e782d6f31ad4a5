//! Requests that wait until fewer are worked on.
//!
//! What else the client says is heard meanwhile: an answer that a turn waits for may stand behind them.

use std::collections::VecDeque;
use std::sync::Arc;

use trilogue_domain::{Code as Ours, Error, ThreadId};
use trilogue_mapping::agent_client as mapping;
use trilogue_wire::agent_client::{CancelRequestNotification, Rules, read};
use trilogue_wire::jsonrpc::{Code, ErrorObject, Id};

use super::connection::session_in;
use super::heard::Heard;
use super::link::Link;
use super::prompt::not_begun;
use super::request::{self, Asked};

/// What a request that waits takes up beyond its line, in bytes, at most.
const OVERHEAD_BYTES: usize = 512;

/// Requests that wait until fewer are worked on, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    waiting: VecDeque<(Asked, String)>,
    bytes: usize,
}

// === impl Crowd ===

impl Crowd {
    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether so much waits that nothing more may: as much as a line of the longest kind.
    fn is_full(&self, link: &Link) -> bool {
        self.bytes > link.options().max_line_bytes
    }

    /// Takes a request, which is worked on behind those that wait. It is refused where too much waits already.
    pub(super) async fn take(&mut self, link: &Arc<Link>, asked: Asked, params: String) {
        if self.is_full(link) {
            let error = Error::new(Ours::Overloaded, "too many requests are open")
                .hint("wait for answers before asking more");
            return link.answer_at_once(&asked.id, Err(mapping::error_object(&error))).await;
        }
        let back = match self.is_empty() {
            true => request::take(link, asked, params).await,
            false => Some((asked, params)),
        };
        if let Some((asked, params)) = back {
            self.push(link, asked, params);
        }
    }

    fn push(&mut self, link: &Link, mut asked: Asked, params: String) {
        if asked.method == "session/prompt" {
            asked.heard = session_in(&params).map(|session| Heard::in_session(link, &session));
        }
        self.bytes += taken_up(&asked);
        self.waiting.push_back((asked, params));
    }

    /// Has those worked on that can be.
    pub(super) async fn admit(&mut self, link: &Arc<Link>) {
        while let Some((asked, params)) = self.waiting.pop_front() {
            let bytes = taken_up(&asked);
            if let Some(back) = request::take(link, asked, params).await {
                self.waiting.push_front(back);
                return;
            }
            self.bytes -= bytes;
        }
    }

    /// Hears a notification before it is dealt with: what it cancels is not begun.
    pub(super) async fn told(&mut self, link: &Arc<Link>, name: &str, params: &str) {
        match name {
            "session/cancel" => {
                if let Some(session) = session_in(params) {
                    self.cancel(link, |asked, params| is_prompt_in(asked, params, &session)).await;
                }
            }
            "$/cancel_request" => {
                let told = read::<CancelRequestNotification>(params.as_bytes(), Rules::Lenient);
                if let Ok(told) = told {
                    self.cancel(link, |asked, _| asked.id == told.request_id).await;
                }
            }
            _ => {}
        }
    }

    async fn cancel(&mut self, link: &Arc<Link>, is_meant: impl Fn(&Asked, &str) -> bool) {
        let (meant, waiting): (VecDeque<_>, VecDeque<_>) =
            self.waiting.drain(..).partition(|(asked, params)| is_meant(asked, params));
        self.waiting = waiting;
        if meant.is_empty() {
            return;
        }
        for (asked, _) in meant {
            self.bytes -= taken_up(&asked);
            let answer = match asked.method.as_str() {
                "session/prompt" => not_begun(),
                _ => Err(ErrorObject::of(Code::REQUEST_CANCELLED)),
            };
            let id: Id<'static> = asked.id;
            link.answer_at_once(&id, answer).await;
        }
        // There may be room for what stood behind it.
        self.admit(link).await;
    }
}

/// What a request that waits takes up, in bytes.
fn taken_up(asked: &Asked) -> usize {
    asked.bytes + OVERHEAD_BYTES
}

fn is_prompt_in(asked: &Asked, params: &str, session: &ThreadId) -> bool {
    asked.method == "session/prompt" && session_in(params).as_ref() == Some(session)
}
