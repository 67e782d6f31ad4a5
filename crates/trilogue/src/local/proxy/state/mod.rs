//! The proxy's state, without its streams: takes lines, produces bytes for both sides.

use std::collections::HashMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;
use trilogue_wire::agent_client::{self as wire, splice};
use trilogue_wire::jsonrpc::{
    self, Code, ErrorObject, Frame, Id, Incoming, Invalid, LinePiece, Notification, Reason,
    Request, Response,
};
use trilogue_wire::native::Json;
use trilogue_wire::native::local::{ATTACH_METHOD, Control, Extras};

use super::batch_buffer::BatchBuffer;
use super::questions::{EditorQuestions, QuestionRoute};
use super::request_journal::{EntryKind, RequestJournal, RequestKind};
use super::server_link::MAX_SENT_BYTES;
use super::sessions::EditorSessions;
use input_end::InputEnd;
use reconnect_failures::ReconnectFailures;
use startup::Startup;

/// How notifications of the server begin. They are relayed without parsing.
const NOTIFICATION: &[u8] = br#"{"jsonrpc":"2.0","method":"#;
/// How the notification begins that names a request, which has another number at the editor.
const CANCEL: &[u8] = br#"{"jsonrpc":"2.0","method":"$/cancel_request""#;
/// How long a server may take to end after it said that it is shutting down.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Proxy {
    is_online: bool,
    to_server: BytesMut,
    to_editor: BytesMut,
    journal: RequestJournal,
    questions: EditorQuestions,
    sessions: EditorSessions,
    batch: BatchBuffer,
    initialize: Option<Bytes>,
    /// Our own requests on this connection.
    own: HashMap<String, OwnRequest>,
    /// The prefix of our own request ids. No editor's id begins with it.
    own_prefix: String,
    own_next: u64,
    /// Sessions whose open questions are all in the current batch: earlier questions that are not in it are withdrawn.
    settling: Vec<String>,
    failures: ReconnectFailures,
    /// A line of the server was longer than this, and the user does not know.
    too_long: Option<usize>,
    /// When parked responses are sent to the editor, because the server did not end.
    parked_until: Option<Instant>,
    input_end: InputEnd,
    startup: Startup,
}

#[derive(Debug)]
enum OwnRequest {
    Initialize,
    Attach(String),
}

/// The server violates the local protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a batch of the server's messages is too large")]
pub(super) struct BatchTooLarge;

// === impl Proxy ===

impl Proxy {
    pub(super) fn new() -> Self {
        Self {
            is_online: false,
            to_server: BytesMut::new(),
            to_editor: BytesMut::new(),
            journal: RequestJournal::default(),
            questions: EditorQuestions::default(),
            sessions: EditorSessions::default(),
            batch: BatchBuffer::new(MAX_SENT_BYTES),
            initialize: None,
            own: HashMap::new(),
            own_prefix: format!("trilogue-{}", uuid::Uuid::new_v4().simple()),
            own_next: 0,
            settling: Vec::new(),
            failures: ReconnectFailures::default(),
            too_long: None,
            parked_until: None,
            input_end: InputEnd::default(),
            startup: Startup::default(),
        }
    }

    /// Bytes for the server. The caller removes those that it has written.
    pub(super) fn server_bytes(&mut self) -> &mut BytesMut {
        &mut self.to_server
    }

    /// Bytes for the editor. The caller removes those that it has written.
    pub(super) fn editor_bytes(&mut self) -> &mut BytesMut {
        &mut self.to_editor
    }

    pub(super) fn outgoing(&self) -> (&[u8], &[u8]) {
        (&self.to_server, &self.to_editor)
    }

    pub(super) fn on_editor_frame(&mut self, frame: Frame) {
        let line = match frame {
            Frame::Line(line) | Frame::Noise(line) => line,
            Frame::Oversize(oversize) => return self.refuse(&oversize.invalid()),
        };
        let Err(invalid) = self.take_message(&line) else { return };
        let may_recover = matches!(invalid.reason, Reason::NotUtf8 | Reason::NotJson);
        let recovered = may_recover.then(|| jsonrpc::recover(&line)).flatten();
        // A refusal needs no server.
        let Some(recovered) = recovered else { return self.refuse(&invalid) };
        for piece in recovered.pieces {
            if let LinePiece::Message(message) = piece
                && let Err(invalid) = self.take_message(&message)
            {
                self.refuse(&invalid);
            }
        }
    }

    fn take_message<'a>(&mut self, line: &'a Bytes) -> Result<(), Invalid<'a>> {
        // The server limits the nesting.
        match jsonrpc::parse_within(line, usize::MAX)? {
            Incoming::Request(request) => self.on_request(&request, line.clone()),
            Incoming::Notification(notification) => {
                self.on_notification(&notification, line.clone())
            }
            Incoming::Response(response) => self.on_reply(&response.id, line),
        }
        Ok(())
    }

    /// Takes a line of the server.
    pub(super) fn on_server_frame(&mut self, frame: Frame) -> Result<(), BatchTooLarge> {
        let line = match frame {
            Frame::Line(line) => line,
            Frame::Noise(line) => {
                self.control(&line);
                return Ok(());
            }
            Frame::Oversize(oversize) => {
                self.too_long(&oversize);
                return Ok(());
            }
        };
        if self.batch.add(line) { Ok(()) } else { Err(BatchTooLarge) }
    }

    /// A new connection to the server with this life: repeats `initialize`, continues the sessions, and repeats open requests. `max_line_bytes` is the longest line that it brings.
    pub(super) fn on_connect(&mut self, max_line_bytes: usize, life: &str, now: Instant) {
        self.is_online = true;
        self.failures.begin(life, now);
        self.input_end.on_connect(now);
        self.batch = BatchBuffer::new(max_line_bytes);
        if let Some(line) = self.initialize.clone() {
            let id = self.register_own_request(OwnRequest::Initialize);
            let text = std::str::from_utf8(&line).unwrap_or_default();
            if let Some(line) = splice::set(text, &["id"], id.as_str()) {
                self.write_server(line.as_bytes());
            }
        }
        for (session, params) in self.sessions.attach_params() {
            let Ok(params) = Json::parse(params) else { continue };
            let id = self.register_own_request(OwnRequest::Attach(session));
            let mut line = Vec::new();
            jsonrpc::write_request(&mut line, &id, ATTACH_METHOD, &params);
            self.write_server(&line);
        }
        for item in self.journal.resend() {
            self.write_server(&item.line);
        }
    }

    /// The connection is lost, with any incomplete batch. Returns how many connections in a row were lost early without any message.
    pub(super) fn on_disconnect(&mut self, now: Instant) -> u32 {
        self.is_online = false;
        self.blame(now);
        self.to_server.clear();
        self.batch.clear();
        self.own.clear();
        self.settling.clear();
        self.parked_until = None;
        for number in self.questions.disconnect() {
            self.withdraw(number);
        }
        let unknown = ErrorObject::new(
            Code::INTERNAL_ERROR,
            "the server ended while it processed this; whether it was done is unknown",
        );
        for id in self.journal.disconnect() {
            self.write_error(&id, &unknown);
        }
        self.failures.count()
    }

    /// There will be no connection: fails all open requests.
    /// Whether a request of the editor waits for its response.
    pub(super) fn has_requests(&self) -> bool {
        self.journal.has_requests()
    }

    pub(super) fn fail_all(&mut self, error: &ErrorObject) {
        for id in self.journal.drain() {
            self.write_error(&id, error);
        }
    }

    /// If the server did not end in time, sends its parked responses.
    pub(super) fn on_deadline(&mut self, now: Instant) {
        if self.parked_until.is_some_and(|at| at <= now) {
            self.parked_until = None;
            for (id, line) in self.journal.parked_requests() {
                self.close_request(&id, None);
                self.write_editor(&line);
            }
        }
    }

    fn on_request(&mut self, request: &Request<'_>, line: Bytes) {
        // A response to a null or duplicate id could not be assigned.
        if request.id.is_null() || self.journal.is_open(&request.id) {
            return self.forward(line, EntryKind::Once);
        }
        if !self.journal.has_room(line.len()) {
            let error = ErrorObject::new(Code::INTERNAL_ERROR, "too many requests are open");
            return self.write_error(&request.id, &error);
        }
        let (call, line) = RequestKind::of(request, line);
        let id = request.id.clone().into_owned();
        if let RequestKind::Load(session) = &call {
            self.sessions.load(session, id.clone());
        }
        self.forward(line, EntryKind::Request(id, call));
    }

    fn on_notification(&mut self, notification: &Notification<'_>, line: Bytes) {
        let params = notification.params.map_or("", |params| params.get());
        let kind = match &*notification.method {
            "session/cancel" => splice::get_text(params, &["sessionId"])
                .filter(|session| self.journal.has_prompt(session))
                .map(|session| EntryKind::Cancel(session.into_owned())),
            "$/cancel_request" => splice::get(params, &["requestId"])
                .and_then(Id::of)
                .filter(|id| self.journal.is_open(id))
                .map(|id| EntryKind::CancelRequest(id.into_owned())),
            _ => None,
        };
        self.forward(line, kind.unwrap_or(EntryKind::Once));
    }

    fn on_reply(&mut self, id: &Id<'_>, line: &Bytes) {
        if let Some(line) = self.questions.reply(id, line)
            && self.is_online
        {
            self.write_server(line.as_bytes());
        }
    }

    /// Writes a line to the server, now or when there is a connection. Keeps it while it may have to be repeated.
    fn forward(&mut self, line: Bytes, kind: EntryKind) {
        let is_once = kind == EntryKind::Once;
        if self.is_online {
            self.write_server(&line);
        }
        // A line that needs no response is dropped if nothing more can be kept.
        if is_once && (self.is_online || !self.journal.has_room(line.len())) {
            return;
        }
        self.journal.add(line, kind, self.is_online);
    }

    fn refuse(&mut self, invalid: &jsonrpc::Invalid<'_>) {
        if let Some(id) = invalid.answers() {
            let mut line = Vec::new();
            jsonrpc::write_error(&mut line, id, &invalid.error());
            self.on_reply(id, &Bytes::from(line));
        } else if let Some((id, error)) = invalid.reply() {
            self.write_error(&id, &error);
        }
    }

    fn control(&mut self, line: &[u8]) {
        let Some(control) = std::str::from_utf8(line).ok().and_then(Control::parse) else { return };
        match control {
            Control::Boundary => self.deliver_batch(true),
            Control::Position { session, number } => {
                self.deliver_batch(false);
                self.sessions.set_position(&session, number);
            }
            Control::Question { request, interrupt } => {
                self.batch.announce(request.into_owned(), interrupt.into_owned());
            }
            Control::Accepted { request } => self.journal.accept(&request),
        }
    }

    /// Sends the complete batch to the editor. `is_history`: it moves no position.
    fn deliver_batch(&mut self, is_history: bool) {
        for entry in self.batch.take() {
            if entry.line.starts_with(NOTIFICATION)
                && !entry.line.starts_with(CANCEL)
                && !self.sessions.is_loading()
            {
                self.failures.has_message = true;
                self.write_editor(&entry.line);
                continue;
            }
            match jsonrpc::parse_within(&entry.line, usize::MAX) {
                Ok(Incoming::Request(request)) => {
                    self.on_question(&request, &entry.line, entry.question);
                }
                Ok(Incoming::Notification(it)) => {
                    self.on_server_notification(&it, &entry.line, is_history);
                }
                Ok(Incoming::Response(response)) => self.on_response(&response, &entry.line),
                // The server does not write such lines.
                Err(_) => {}
            }
        }
        for session in std::mem::take(&mut self.settling) {
            self.settle(&session);
        }
    }

    fn on_question(&mut self, asks: &Request<'_>, line: &[u8], about: Option<(String, String)>) {
        self.failures.has_message = true;
        let params = asks.params.map_or("", |params| params.get());
        let session = splice::get_text(params, &["sessionId"]).map(|it| it.into_owned());
        let interrupt = about.filter(|(request, _)| request == asks.id.as_str());
        let interrupt = interrupt.map(|(_, interrupt)| interrupt);
        let text = std::str::from_utf8(line).unwrap_or_default();
        match self.questions.ask(text, &asks.id, interrupt, session) {
            Some(QuestionRoute::Editor(line)) => self.write_editor(line.as_bytes()),
            Some(QuestionRoute::Server(line)) => self.write_server(line.as_bytes()),
            Some(QuestionRoute::AlreadyOpen) | None => {}
        }
    }

    fn on_server_notification(&mut self, told: &Notification<'_>, line: &[u8], is_history: bool) {
        self.failures.has_message = true;
        let params = told.params.map_or("", |params| params.get());
        match &*told.method {
            "$/cancel_request" => {
                let request = splice::get(params, &["requestId"]).unwrap_or_default();
                if let Some(number) = self.questions.withdraw(request) {
                    self.withdraw(number);
                }
            }
            "session/update" => {
                let session = splice::get_text(params, &["sessionId"]).unwrap_or_default();
                if self.sessions.is_new(&session, is_history) {
                    self.write_editor(line);
                }
            }
            // Notifications outside of the protocol are part of the history too.
            name if wire::method(name).is_none() => {
                let session = splice::get_text(params, &["sessionId"]);
                if session.is_none_or(|it| self.sessions.is_new(&it, is_history)) {
                    self.write_editor(line);
                }
            }
            _ => self.write_editor(line),
        }
    }

    fn on_response(&mut self, response: &Response<'_>, line: &Bytes) {
        if let Some(own) = self.own.remove(response.id.as_str()) {
            return self.on_own_response(own, response.outcome.is_ok());
        }
        if let Err(error) = &response.outcome
            && is_shutting_down(error)
            && self.journal.is_open(&response.id)
        {
            self.parked_until.get_or_insert_with(|| Instant::now() + SHUTDOWN_LIMIT);
            return self.journal.park(&response.id, line.clone());
        }
        self.failures.has_message = true;
        if let Some(call) = self.journal.call(&response.id) {
            self.startup.on_response(call, response.outcome.as_ref().err());
        }
        self.close_request(&response.id, response.outcome.as_ref().ok().map(|raw| raw.get()));
        self.write_editor(line);
    }

    fn on_own_response(&mut self, own: OwnRequest, is_ok: bool) {
        match own {
            OwnRequest::Attach(session) => {
                if !is_ok {
                    self.sessions.remove(&session);
                }
                self.settling.push(session);
            }
            OwnRequest::Initialize => {}
        }
    }

    /// A request has its response: this result, or an error.
    fn close_request(&mut self, id: &Id<'_>, result: Option<&str>) {
        let line = self.journal.line(id).filter(|_| result.is_some());
        match self.journal.close(id) {
            Some(RequestKind::Initialize) if line.is_some() => self.initialize = line,
            Some(RequestKind::New(wanted)) => {
                let got = result.and_then(|result| splice::get_text(result, &["sessionId"]));
                match got {
                    Some(got) => {
                        self.sessions.set_attached(&got, line.as_deref().and_then(open_params))
                    }
                    None => self.sessions.remove(&wanted),
                }
            }
            Some(RequestKind::Load(session)) => {
                self.sessions.finish_load(&session, id, line.as_deref().and_then(open_params));
                self.settling.push(session);
            }
            Some(RequestKind::Resume(session)) if line.is_some() => {
                self.sessions.set_attached(&session, line.as_deref().and_then(open_params));
                self.settling.push(session);
            }
            Some(RequestKind::Leave(session)) if line.is_some() => self.sessions.remove(&session),
            Some(RequestKind::Prompt(session)) => self.settle(&session),
            _ => {}
        }
    }

    fn fail(&mut self, id: &Id<'_>, error: &ErrorObject) {
        if self.own.remove(id.as_str()).is_none() && self.journal.is_open(id) {
            self.close_request(id, None);
            self.write_error(id, error);
        }
    }

    /// The server has repeated all open questions of this session.
    fn settle(&mut self, session: &str) {
        for number in self.questions.drop_unrepeated(session) {
            self.withdraw(number);
        }
    }

    fn withdraw(&mut self, number: u64) {
        let params = serde_json::json!({ "requestId": number });
        let mut line = Vec::new();
        jsonrpc::write_notification(&mut line, "$/cancel_request", &params);
        self.write_editor(&line);
    }

    fn register_own_request(&mut self, own: OwnRequest) -> Id<'static> {
        let id = Id::text(&format!("{}-{}", self.own_prefix, self.own_next));
        self.own_next += 1;
        self.own.insert(id.as_str().to_owned(), own);
        id
    }

    fn write_error(&mut self, id: &Id<'_>, error: &ErrorObject) {
        let mut line = Vec::new();
        jsonrpc::write_error(&mut line, id, error);
        self.write_editor(&line);
    }

    fn write_editor(&mut self, line: &[u8]) {
        self.to_editor.extend_from_slice(line);
        self.to_editor.extend_from_slice(b"\n");
    }

    fn write_server(&mut self, line: &[u8]) {
        self.to_server.extend_from_slice(line);
        self.to_server.extend_from_slice(b"\n");
    }
}

/// The parameters that opened a session, without extras.
fn open_params(line: &[u8]) -> Option<String> {
    let params = splice::get(std::str::from_utf8(line).ok()?, &["params"])?;
    params.starts_with('{').then(|| Extras::take(params).0.into_owned())
}

/// Whether the server refused a request because it is shutting down. The next one gets it again.
fn is_shutting_down(error: &ErrorObject) -> bool {
    let code = error.data.as_ref().and_then(|data| splice::get_text(data.as_str(), &["code"]));
    code.is_some_and(|code| code == trilogue_domain::Code::ShuttingDown.as_str())
}

mod input_end;
mod reconnect_failures;
mod startup;
#[cfg(test)]
mod tests;
