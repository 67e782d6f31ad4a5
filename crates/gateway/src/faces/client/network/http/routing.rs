//! Which stream of a connection carries a message.
//!
//! A session with a stream of its own gets its messages there, and any other on the stream of the connection. While a request of a session is
//! open, the session keeps the stream that it had when the request arrived: a client can open the session's stream in the middle of a
//! replay, and two streams have no common order.

use std::collections::HashMap;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, ThreadId};
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::{Id, Incoming, parse};

use super::super::mailbox::{KeptBudget, Mailbox};

/// The most requests of one connection without a response.
const MAX_OPEN_REQUESTS: usize = 4_096;
/// The most streams of one connection for sessions that it does not know yet.
const MAX_UNKNOWN_SESSIONS: usize = 16;
/// The most sessions of one connection that had a stream of their own.
const MAX_SESSION_STREAMS: usize = 256;

/// One stream of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum StreamKey {
    Connection,
    Session(ThreadId),
}

/// The streams of a connection, and what decides where a message goes.
#[derive(Debug)]
pub(super) struct Routing {
    kept_budget: Option<KeptBudget>,
    connection: Mailbox,
    /// The streams that were opened for a session.
    sessions: HashMap<ThreadId, Mailbox>,
    /// The session of each open request, if it has one.
    requests: HashMap<Id<'static>, Option<ThreadId>>,
    pins: HashMap<ThreadId, Pin>,
    /// Receives the response to the first request.
    pub(super) initialize: Option<oneshot::Sender<Bytes>>,
    readers: u64,
    pub(super) is_closed: bool,
}

/// The stream of a session while its requests are open.
#[derive(Debug)]
struct Pin {
    stream: StreamKey,
    requests: usize,
}

/// How many messages may wait in one stream, and how many bytes in all streams of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct MailboxLimits {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

// === impl Routing ===

impl Routing {
    /// The streams of a new connection, whose sent messages count in this budget.
    pub(super) fn new(kept_budget: Option<KeptBudget>) -> Self {
        Self {
            connection: Mailbox::new(kept_budget.as_ref()),
            kept_budget,
            sessions: HashMap::new(),
            requests: HashMap::new(),
            pins: HashMap::new(),
            initialize: None,
            readers: 0,
            is_closed: false,
        }
    }

    /// Records a request of the client.
    /// Errors: `overloaded` if too many are open.
    pub(super) fn on_request(&mut self, id: &Id<'_>, session: Option<ThreadId>) -> Result<()> {
        if self.requests.len() >= MAX_OPEN_REQUESTS {
            let message = format!(
                "{MAX_OPEN_REQUESTS} requests of this connection are open, which is the most"
            );
            return Err(Error::new(Code::Overloaded, message).hint("wait for responses"));
        }
        if let Some(session) = &session {
            let stream = self.usual_stream(session);
            if let Some(mailbox) = self.sessions.get_mut(session) {
                mailbox.is_confirmed = true;
            }
            let pin = self.pins.entry(session.clone());
            pin.or_insert(Pin { stream, requests: 0 }).requests += 1;
        }
        if let Some(Some(replaced)) = self.requests.insert(id.clone().into_owned(), session) {
            // Two open requests with one id: the face refuses the second, and gives one response to each.
            self.unpin(&replaced);
        }
        Ok(())
    }

    /// Adds a line of the face to its stream. Returns it if the stream is full.
    pub(super) fn push(&mut self, line: Bytes, limits: MailboxLimits) -> Option<Bytes> {
        let (stream, response) = self.stream_of(&line);
        if response.is_some()
            && let Some(initialize) = self.initialize.take()
        {
            // The client may be gone.
            drop(initialize.send(line));
            return None;
        }
        let waiting = |mailbox: &Mailbox| mailbox.waiting_size().1;
        let all = self.sessions.values().chain([&self.connection]).map(waiting).sum::<usize>();
        let (messages, _) = self.mailbox(&stream)?.waiting_size();
        // A line above the limit goes when nothing else waits.
        let is_too_much = all > 0 && all.saturating_add(line.len()) > limits.bytes;
        if messages >= limits.messages.max(1) || is_too_much {
            return Some(line);
        }
        if let Some(Some(session)) = response.and_then(|id| self.requests.remove(&id)) {
            self.unpin(&session);
        }
        if let Some(mailbox) = self.mailbox(&stream) {
            // The face sends only about sessions that it knows. The numbers must outlive the reader.
            mailbox.is_confirmed = true;
            mailbox.push(line);
        }
        None
    }

    /// Returns the stream for a line, and the id of the request to which it is the response.
    fn stream_of(&self, line: &[u8]) -> (StreamKey, Option<Id<'static>>) {
        let params = match parse(line) {
            Ok(Incoming::Request(request)) => request.params,
            Ok(Incoming::Notification(notification)) => notification.params,
            Ok(Incoming::Response(response)) => {
                let id = response.id.into_owned();
                let session = self.requests.get(&id).and_then(Option::as_ref);
                return (self.stream_for(session), Some(id));
            }
            Err(_) => return (StreamKey::Connection, None),
        };
        let session = params.and_then(|params| session_in(params.get()));
        (self.stream_for(session.as_ref()), None)
    }

    fn stream_for(&self, session: Option<&ThreadId>) -> StreamKey {
        let Some(session) = session else { return StreamKey::Connection };
        match self.pins.get(session) {
            Some(pin) => pin.stream.clone(),
            None => self.usual_stream(session),
        }
    }

    fn usual_stream(&self, session: &ThreadId) -> StreamKey {
        match self.sessions.contains_key(session) {
            true => StreamKey::Session(session.clone()),
            false => StreamKey::Connection,
        }
    }

    fn unpin(&mut self, session: &ThreadId) {
        if let Some(pin) = self.pins.get_mut(session) {
            pin.requests -= 1;
            if pin.requests == 0 {
                self.pins.remove(session);
            }
        }
    }

    pub(super) fn mailbox(&mut self, stream: &StreamKey) -> Option<&mut Mailbox> {
        match stream {
            StreamKey::Connection => Some(&mut self.connection),
            StreamKey::Session(session) => self.sessions.get_mut(session),
        }
    }

    /// Opens a stream for a reader. Returns the number of the reader.
    /// Errors: as [`Mailbox::attach`]; `overloaded` if too many sessions with a stream are unknown.
    pub(super) fn attach(&mut self, stream: &StreamKey, after: Option<u64>) -> Result<u64> {
        if let StreamKey::Session(session) = stream
            && !self.sessions.contains_key(session)
        {
            let is_confirmed = self.pins.contains_key(session);
            let unknown = self.sessions.values().filter(|it| !it.is_confirmed).count();
            if !is_confirmed && unknown >= MAX_UNKNOWN_SESSIONS {
                let message = format!(
                    "{MAX_UNKNOWN_SESSIONS} streams of this connection are for sessions without a request, which is the most"
                );
                return Err(
                    Error::new(Code::Overloaded, message).hint("load a session, or end a stream")
                );
            }
            if self.sessions.len() >= MAX_SESSION_STREAMS {
                let message = format!(
                    "this connection had streams for {MAX_SESSION_STREAMS} sessions, which is the most"
                );
                return Err(Error::new(Code::Overloaded, message).hint("use another connection"));
            }
            let mut mailbox = Mailbox::new(self.kept_budget.as_ref());
            mailbox.is_confirmed = is_confirmed;
            self.sessions.insert(session.clone(), mailbox);
        }
        self.readers += 1;
        let reader = self.readers;
        let Some(mailbox) = self.mailbox(stream) else { return Ok(reader) };
        mailbox.attach(reader, after)?;
        Ok(reader)
    }

    pub(super) fn detach(&mut self, stream: &StreamKey, reader: u64) {
        let Some(mailbox) = self.mailbox(stream) else { return };
        mailbox.detach(reader);
        if let StreamKey::Session(session) = stream
            && !mailbox.is_confirmed
            && !mailbox.has_reader()
            && mailbox.waiting_size().0 == 0
        {
            self.sessions.remove(session);
        }
    }

    /// Removes sent messages that are old.
    pub(super) fn trim(&mut self, now: Instant) {
        self.sessions.values_mut().chain([&mut self.connection]).for_each(|it| it.trim(now));
    }

    /// Whether a stream has a reader.
    pub(super) fn has_readers(&self) -> bool {
        self.connection.has_reader() || self.sessions.values().any(Mailbox::has_reader)
    }

    /// Lets all readers end when they have sent what waits.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.initialize = None;
        for mailbox in self.sessions.values().chain([&self.connection]) {
            mailbox.changed.notify_one();
        }
    }
}

/// Returns the session of a message's params.
pub(super) fn session_in(params: &str) -> Option<ThreadId> {
    ThreadId::parse(&splice::get_text(params, &["sessionId"])?).ok()
}

#[cfg(test)]
mod tests {
    use super::super::super::mailbox::MailboxRead;
    use super::*;

    const LIMITS: MailboxLimits = MailboxLimits { messages: 100, bytes: 10_000 };

    fn push(routing: &mut Routing, line: &str) {
        assert_eq!(routing.push(Bytes::copy_from_slice(line.as_bytes()), LIMITS), None);
    }

    fn take_count(routing: &mut Routing, stream: &StreamKey, reader: u64) -> usize {
        match routing.mailbox(stream).unwrap().take(reader, Instant::now()) {
            MailboxRead::Events(events) => {
                String::from_utf8(events.to_vec()).unwrap().matches("data: ").count()
            }
            _ => 0,
        }
    }

    const UPDATE: &str =
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{}}}"#;

    #[test]
    fn a_session_keeps_its_stream_while_a_request_is_open() {
        let session = ThreadId::parse("s").unwrap();
        let stream = StreamKey::Session(session.clone());
        let mut routing = Routing::new(None);
        let whole = routing.attach(&StreamKey::Connection, None).unwrap();
        push(&mut routing, UPDATE);
        assert_eq!(take_count(&mut routing, &StreamKey::Connection, whole), 1);
        routing.on_request(&Id::number(1), Some(session.clone())).unwrap();
        // The client opens the stream in the middle of a replay.
        let own = routing.attach(&stream, None).unwrap();
        push(&mut routing, UPDATE);
        push(&mut routing, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert_eq!(take_count(&mut routing, &StreamKey::Connection, whole), 2);
        push(&mut routing, UPDATE);
        assert_eq!(take_count(&mut routing, &stream, own), 1);
        routing.on_request(&Id::number(2), Some(session)).unwrap();
        routing.on_request(&Id::number(3), None).unwrap();
        push(&mut routing, r#"{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"x"}}"#);
        push(&mut routing, r#"{"jsonrpc":"2.0","id":3,"result":{}}"#);
        assert_eq!(take_count(&mut routing, &stream, own), 1);
        assert_eq!(take_count(&mut routing, &StreamKey::Connection, whole), 1);
        assert!(routing.requests.is_empty() && routing.pins.is_empty());
    }

    #[test]
    fn streams_for_unknown_sessions_and_waiting_messages_are_limited() {
        let mut routing = Routing::new(None);
        let stream =
            |name: usize| StreamKey::Session(ThreadId::parse(&format!("s{name}")).unwrap());
        let first = routing.attach(&stream(0), None).unwrap();
        for name in 1..MAX_UNKNOWN_SESSIONS {
            routing.attach(&stream(name), None).unwrap();
        }
        assert_eq!(routing.attach(&stream(99), None).unwrap_err().code(), Code::Overloaded);
        routing.detach(&stream(0), first);
        routing.attach(&stream(99), None).unwrap();
        let limits = MailboxLimits { messages: 2, bytes: 10_000 };
        let line = Bytes::from_static(UPDATE.as_bytes());
        assert_eq!(routing.push(line.clone(), limits), None);
        assert_eq!(routing.push(line.clone(), limits), None);
        assert_eq!(routing.push(line.clone(), limits), Some(line));
    }
}
