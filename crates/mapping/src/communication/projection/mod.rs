//! Folds one run's log into wire events.
//!
//! The wire has one message open at a time and no ids on its parts, so a message that begins while another is open is held back until that one is complete.
//! Each part is rendered once, and spliced afterwards. Copies share their data.

mod events;
mod list;
mod message;
mod step;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use trilogue_domain::content::BlobRef;
use trilogue_domain::event::Event;
use trilogue_domain::{Interrupt, MessageId, ThreadId};
use trilogue_wire::agent_communication::{
    ErrorBody, EventKind, Role, RunStatus, Time, Uuid, splice, sse,
};

use list::SharedList;
pub use message::Kind;
use message::RenderedMessage;
use step::UnendedCall;

#[derive(Clone, Debug)]
pub struct ProjectionOptions {
    /// Whether required members are filled in.
    pub strict: bool,
    /// The base address of links to large content: an absolute address with the mount's prefix, without a slash at its end.
    pub base: Arc<str>,
    /// The most stored content of one run that is inlined, in bytes; the rest becomes links.
    pub max_inline_bytes: u64,
    /// Whether [`Projection::messages`] also returns the run's input.
    pub input: bool,
}

/// One run's log in this protocol's form, up to the last pushed event.
#[derive(Clone, Debug)]
pub struct Projection {
    show: ProjectionOptions,
    head: Head,
    /// Whether the agent has started: earlier messages are input.
    has_started: bool,
    /// Complete messages, and at the end of a run the unfinished ones.
    messages: SharedList<RunMessage>,
    open: Option<RenderedMessage>,
    /// A user's answer in the run, which streams do not show.
    answer_message: Option<RenderedMessage>,
    /// Messages that wait until the open one is complete.
    queued_messages: VecDeque<RenderedMessage>,
    /// Pending interrupts, oldest first.
    pending: Vec<Arc<AwaitedInterrupt>>,
    /// Tool calls that have not ended, oldest first.
    calls: Vec<UnendedCall>,
    inlined: u64,
}

#[derive(Clone, Debug)]
struct Head {
    run_id: Uuid,
    session_id: Uuid,
    agent_name: Arc<str>,
    role: Role,
    status: RunStatus,
    error: Option<ErrorBody>,
    created_at: Time,
    finished_at: Option<Time>,
}

#[derive(Debug)]
struct AwaitedInterrupt {
    interrupt: Interrupt,
    message: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct RunMessage {
    /// Its id; `None` for a result and for steps.
    pub id: Option<MessageId>,
    pub kind: Kind,
    pub json: Bytes,
    pub complete: bool,
}

// === impl Projection ===

impl Projection {
    pub fn new(show: ProjectionOptions) -> Self {
        Self {
            show,
            head: Head {
                run_id: Uuid::from(uuid::Uuid::nil()),
                session_id: Uuid::from(uuid::Uuid::nil()),
                agent_name: Arc::from(""),
                role: Role::Agent,
                status: RunStatus::Created,
                error: None,
                created_at: Time::from_micros(0),
                finished_at: None,
            },
            has_started: false,
            messages: SharedList::default(),
            open: None,
            answer_message: None,
            queued_messages: VecDeque::new(),
            pending: Vec::new(),
            calls: Vec::new(),
            inlined: 0,
        }
    }

    /// Folds the next event of the run, and returns its wire events: JSON that fits one line of a stream.
    pub fn push(&mut self, event: &Event, thread: &ThreadId) -> Vec<Bytes> {
        let mut out = Vec::new();
        self.fold(event, thread, &mut out);
        out
    }

    /// Whether this blob should be inlined in its part before the event is pushed: if there is room, and a client sees the part.
    pub fn can_inline(&self, blob: &BlobRef) -> bool {
        let room = self.show.max_inline_bytes.saturating_sub(self.inlined);
        (self.has_started || self.show.input) && blob.length <= room
    }

    pub fn run(&self) -> Vec<u8> {
        let head = splice::RunHead {
            run_id: self.head.run_id,
            agent_name: &self.head.agent_name,
            session_id: Some(self.head.session_id),
            status: self.head.status,
            awaits: self.pending.first().map(|waiting| waiting.message.as_slice()),
            error: self.head.error.as_ref(),
            created_at: self.head.created_at,
            finished_at: self.head.finished_at,
        };
        let mut out = Vec::with_capacity(512);
        splice::run(&mut out, &head, self.output());
        out
    }

    /// Returns the oldest pending interrupt.
    pub fn awaiting(&self) -> Option<&Interrupt> {
        self.pending.first().map(|waiting| &waiting.interrupt)
    }

    pub fn has_ended(&self) -> bool {
        self.head.status.is_terminal()
    }

    /// Returns its messages in order: the input if it is kept, then the agent's and, with the input, the answers. Incomplete messages come last, up to their last piece.
    pub fn messages(&self) -> Vec<RunMessage> {
        let mut messages: Vec<_> = self.messages.items().into_iter().cloned().collect();
        let open = self.open.iter().chain(&self.queued_messages);
        messages.extend(open.map(|open| RunMessage {
            id: open.id.clone(),
            kind: open.kind,
            json: open.whole(None),
            complete: false,
        }));
        messages
    }

    fn output(&self) -> Vec<Bytes> {
        let kept = self.messages.items().into_iter().filter(|message| message.kind != Kind::Input);
        let mut output: Vec<Bytes> = kept.map(|message| message.json.clone()).collect();
        output.extend(self.open.as_ref().map(|open| open.whole(None)));
        output
    }

    /// Adds an event with the current run.
    fn push_run_event(&self, kind: EventKind, out: &mut Vec<Bytes>) {
        let mut event = Vec::with_capacity(512);
        splice::event(&mut event, kind, &self.run());
        sse::safe(&mut event);
        out.push(Bytes::from(event));
    }
}

/// Returns an event about rendered JSON that fits a stream.
fn render_event(kind: EventKind, what: &[u8]) -> Bytes {
    let mut event = Vec::with_capacity(what.len() + 48);
    splice::event(&mut event, kind, what);
    Bytes::from(event)
}

#[cfg(test)]
mod tests;
