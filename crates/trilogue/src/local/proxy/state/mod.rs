//! The proxy without its streams: lines go in, bytes for either side come out.

use std::collections::HashMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;
use trilogue_wire::agent_client::{self as wire, splice};
use trilogue_wire::jsonrpc::{
    self, Code, ErrorObject, Frame, Id, Incoming, Notification, Request, Response,
};
use trilogue_wire::native::Json;
use trilogue_wire::native::local::{ATTACH_METHOD, Control, Extras};

use super::asked::{Asked, Put};
use super::book::{Book, Call, Kind};
use super::held::Held;
use super::link::MAX_SENT_BYTES;
use super::sessions::Sessions;
use beginning::Beginning;
use ending::Ending;
use loss::Losses;

/// How notifications of the server begin. Nothing has to be read to pass one on.
const NOTIFICATION: &[u8] = br#"{"jsonrpc":"2.0","method":"#;
/// How the notification begins whose request has another number at the editor.
const CANCEL: &[u8] = br#"{"jsonrpc":"2.0","method":"$/cancel_request""#;
/// How long a server may take to end that has said that it is shutting down.
const PARK: Duration = Duration::from_secs(60);

/// What is known between the editor and the server.
#[derive(Debug)]
pub(super) struct Proxy {
    /// There is a connection.
    is_online: bool,
    to_server: BytesMut,
    to_editor: BytesMut,
    book: Book,
    asked: Asked,
    sessions: Sessions,
    held: Held,
    /// How the editor introduced itself.
    initialize: Option<Bytes>,
    /// Our own requests on this connection.
    own: HashMap<String, Own>,
    /// What our own ids begin with; no editor's do.
    own_prefix: String,
    own_next: u64,
    /// Sessions that the batch takes up, with what is still asked in them: what was asked before and is not in it is taken back.
    settling: Vec<String>,
    losses: Losses,
    /// A line of the server's was longer than this, and its editor does not know.
    too_long: Option<usize>,
    /// When the kept answers are passed on, because the server did not end after all.
    parked_until: Option<Instant>,
    ending: Ending,
    beginning: Beginning,
}

/// A request of our own.
#[derive(Debug)]
enum Own {
    Initialize,
    Attach(String),
}

/// The server does not keep to the rules of the door.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a batch of the server's messages is too large")]
pub(super) struct BatchTooLarge;

// === impl Proxy ===

impl Proxy {
    /// Nothing was said yet, and there is no connection.
    pub(super) fn new() -> Self {
        Self {
            is_online: false,
            to_server: BytesMut::new(),
            to_editor: BytesMut::new(),
            book: Book::default(),
            asked: Asked::default(),
            sessions: Sessions::default(),
            held: Held::new(MAX_SENT_BYTES),
            initialize: None,
            own: HashMap::new(),
            own_prefix: format!("trilogue-{}", uuid::Uuid::new_v4().simple()),
            own_next: 0,
            settling: Vec::new(),
            losses: Losses::default(),
            too_long: None,
            parked_until: None,
            ending: Ending::default(),
            beginning: Beginning::default(),
        }
    }

    /// What is to be written to the server. Bytes that were written are taken off its front.
    pub(super) fn server_bytes(&mut self) -> &mut BytesMut {
        &mut self.to_server
    }

    /// What is to be written to the editor.
    pub(super) fn editor_bytes(&mut self) -> &mut BytesMut {
        &mut self.to_editor
    }

    /// What is to be written to the server, and to the editor.
    pub(super) fn outgoing(&self) -> (&[u8], &[u8]) {
        (&self.to_server, &self.to_editor)
    }

    /// Takes a line of the editor.
    pub(super) fn take_editor(&mut self, frame: Frame) {
        let line = match frame {
            Frame::Line(line) | Frame::Noise(line) => line,
            Frame::Oversize(oversize) => return self.refuse(&oversize.invalid()),
        };
        let kept = line.clone();
        // What is nested deeply is the server's to judge.
        match jsonrpc::parse_within(&line, usize::MAX) {
            Ok(Incoming::Request(request)) => self.request(&request, kept),
            Ok(Incoming::Notification(notification)) => self.notification(&notification, kept),
            Ok(Incoming::Response(response)) => self.answer(&response.id, &kept),
            // No server is needed to say so.
            Err(invalid) => self.refuse(&invalid),
        }
    }

    /// Takes a line of the server.
    ///
    /// # Errors
    /// When the connection cannot be used any more.
    pub(super) fn take_server(&mut self, frame: Frame) -> Result<(), BatchTooLarge> {
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
        if self.held.add(line) { Ok(()) } else { Err(BatchTooLarge) }
    }

    /// There is a connection: introduces itself, takes the sessions up, and says again what is not settled. `max_line_bytes` is the longest line that comes on it.
    pub(super) fn online(&mut self, max_line_bytes: usize, now: Instant) {
        self.is_online = true;
        self.losses.begin(now);
        self.ending.meet(now);
        self.held = Held::new(max_line_bytes);
        if let Some(line) = self.initialize.clone() {
            let id = self.own(Own::Initialize);
            let text = std::str::from_utf8(&line).unwrap_or_default();
            if let Some(line) = splice::set(text, &["id"], id.as_str()) {
                self.write_server(line.as_bytes());
            }
        }
        for (session, params) in self.sessions.take_up() {
            let Ok(params) = Json::parse(params) else { continue };
            let id = self.own(Own::Attach(session));
            let mut line = Vec::new();
            jsonrpc::write_request(&mut line, &id, ATTACH_METHOD, &params);
            self.write_server(&line);
        }
        for item in self.book.say_again() {
            self.write_server(&item.line);
        }
    }

    /// The connection is gone, and with it what was not complete. Gives how many were lost soon, one after the other, on which nothing was told.
    pub(super) fn offline(&mut self, now: Instant) -> u32 {
        self.is_online = false;
        self.blame(now);
        self.to_server.clear();
        self.held.clear();
        self.own.clear();
        self.settling.clear();
        self.parked_until = None;
        for number in self.asked.disconnect() {
            self.take_back(number);
        }
        let unknown = ErrorObject::new(
            Code::INTERNAL_ERROR,
            "the server ended while this was at work; whether it was done is not known",
        );
        for id in self.book.unsend() {
            self.write_error(&id, &unknown);
        }
        self.losses.in_vain()
    }

    /// There will be no connection: answers what is open.
    pub(super) fn give_up(&mut self, error: &ErrorObject) {
        for id in self.book.drain() {
            self.write_error(&id, error);
        }
    }

    /// Does what is due: the server did not end after all, so its refusals are answers.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.parked_until.is_some_and(|at| at <= now) {
            self.parked_until = None;
            for (id, line) in self.book.parked() {
                self.answered(&id, None);
                self.write_editor(&line);
            }
        }
    }

    fn request(&mut self, request: &Request<'_>, line: Bytes) {
        // An id that is no name, or is taken, names no answer.
        if request.id.is_null() || self.book.is_open(&request.id) {
            return self.say(line, Kind::Once);
        }
        if !self.book.has_room(line.len()) {
            let error = ErrorObject::new(Code::INTERNAL_ERROR, "too many requests are open");
            return self.write_error(&request.id, &error);
        }
        let (call, line) = Call::of(request, line);
        let id = request.id.clone().into_owned();
        if let Call::Load(session) = &call {
            self.sessions.load(session, id.clone());
        }
        self.say(line, Kind::Request(id, call));
    }

    fn notification(&mut self, notification: &Notification<'_>, line: Bytes) {
        let params = notification.params.map_or("", |params| params.get());
        let kind = match &*notification.method {
            "session/cancel" => splice::get_text(params, &["sessionId"])
                .filter(|session| self.book.has_prompt(session))
                .map(|session| Kind::Cancel(session.into_owned())),
            "$/cancel_request" => splice::get(params, &["requestId"])
                .and_then(Id::of)
                .filter(|id| self.book.is_open(id))
                .map(|id| Kind::CancelRequest(id.into_owned())),
            _ => None,
        };
        self.say(line, kind.unwrap_or(Kind::Once));
    }

    /// The editor answers a question.
    fn answer(&mut self, id: &Id<'_>, line: &Bytes) {
        if let Some(line) = self.asked.answer(id, line)
            && self.is_online
        {
            self.write_server(line.as_bytes());
        }
    }

    /// Writes a line to the server now, or when there is one; and keeps it as long as it may have to be said again.
    fn say(&mut self, line: Bytes, kind: Kind) {
        let is_once = kind == Kind::Once;
        if self.is_online {
            self.write_server(&line);
        }
        // A line that answers nothing is let go by where nothing more can be kept.
        if is_once && (self.is_online || !self.book.has_room(line.len())) {
            return;
        }
        self.book.add(line, kind, self.is_online);
    }

    /// A line that nobody can read.
    fn refuse(&mut self, invalid: &jsonrpc::Invalid<'_>) {
        if let Some(id) = invalid.answers() {
            let mut line = Vec::new();
            jsonrpc::write_error(&mut line, id, &invalid.error());
            self.answer(id, &Bytes::from(line));
        } else if let Some((id, error)) = invalid.reply() {
            self.write_error(&id, &error);
        }
    }

    fn control(&mut self, line: &[u8]) {
        let Some(control) = std::str::from_utf8(line).ok().and_then(Control::parse) else { return };
        match control {
            Control::Boundary => self.pass_on(true),
            Control::Position { session, number } => {
                self.pass_on(false);
                self.sessions.passed(&session, number);
            }
            Control::Question { request, interrupt } => {
                self.held.announce(request.into_owned(), interrupt.into_owned());
            }
            Control::Accepted { request } => self.book.accept(&request),
        }
    }

    /// The batch is complete: the editor gets it. What moves no position is history.
    fn pass_on(&mut self, is_history: bool) {
        for entry in self.held.take() {
            if entry.line.starts_with(NOTIFICATION)
                && !entry.line.starts_with(CANCEL)
                && !self.sessions.is_loading()
            {
                self.losses.has_told = true;
                self.write_editor(&entry.line);
                continue;
            }
            match jsonrpc::parse_within(&entry.line, usize::MAX) {
                Ok(Incoming::Request(request)) => {
                    self.question(&request, &entry.line, entry.question);
                }
                Ok(Incoming::Notification(it)) => self.told(&it, &entry.line, is_history),
                Ok(Incoming::Response(response)) => self.response(&response, &entry.line),
                // The server does not write such lines.
                Err(_) => {}
            }
        }
        for session in std::mem::take(&mut self.settling) {
            self.settle(&session);
        }
    }

    /// The server asks the editor.
    fn question(&mut self, asks: &Request<'_>, line: &[u8], about: Option<(String, String)>) {
        self.losses.has_told = true;
        let params = asks.params.map_or("", |params| params.get());
        let session = splice::get_text(params, &["sessionId"]).map(|it| it.into_owned());
        let interrupt = about.filter(|(request, _)| request == asks.id.as_str());
        let interrupt = interrupt.map(|(_, interrupt)| interrupt);
        let text = std::str::from_utf8(line).unwrap_or_default();
        match self.asked.ask(text, &asks.id, interrupt, session) {
            Some(Put::Ask(line)) => self.write_editor(line.as_bytes()),
            Some(Put::Answered(line)) => self.write_server(line.as_bytes()),
            Some(Put::Again) | None => {}
        }
    }

    /// The server tells the editor something.
    fn told(&mut self, told: &Notification<'_>, line: &[u8], is_history: bool) {
        self.losses.has_told = true;
        let params = told.params.map_or("", |params| params.get());
        match &*told.method {
            "$/cancel_request" => {
                let request = splice::get(params, &["requestId"]).unwrap_or_default();
                if let Some(number) = self.asked.withdraw(request) {
                    self.take_back(number);
                }
            }
            "session/update" => {
                let session = splice::get_text(params, &["sessionId"]).unwrap_or_default();
                if self.sessions.is_news(&session, is_history) {
                    self.write_editor(line);
                }
            }
            // What an agent says in words of its own is a part of the history too.
            name if wire::method(name).is_none() => {
                let session = splice::get_text(params, &["sessionId"]);
                if session.is_none_or(|it| self.sessions.is_news(&it, is_history)) {
                    self.write_editor(line);
                }
            }
            _ => self.write_editor(line),
        }
    }

    /// The server answers.
    fn response(&mut self, response: &Response<'_>, line: &Bytes) {
        if let Some(own) = self.own.remove(response.id.as_str()) {
            return self.own_answer(own, response.outcome.is_ok());
        }
        if let Err(error) = &response.outcome
            && is_shutting_down(error)
            && self.book.is_open(&response.id)
        {
            self.parked_until.get_or_insert_with(|| Instant::now() + PARK);
            return self.book.park(&response.id, line.clone());
        }
        self.losses.has_told = true;
        if let Some(call) = self.book.call(&response.id) {
            self.beginning.answered(call, response.outcome.as_ref().err());
        }
        self.answered(&response.id, response.outcome.as_ref().ok().map(|raw| raw.get()));
        self.write_editor(line);
    }

    fn own_answer(&mut self, own: Own, is_ok: bool) {
        match own {
            Own::Attach(session) => {
                if !is_ok {
                    self.sessions.left(&session);
                }
                self.settling.push(session);
            }
            Own::Initialize => {}
        }
    }

    /// A request is answered: with this result, or with an error.
    fn answered(&mut self, id: &Id<'_>, result: Option<&str>) {
        let line = self.book.line(id).filter(|_| result.is_some());
        match self.book.close(id) {
            Some(Call::Initialize) if line.is_some() => self.initialize = line,
            Some(Call::New(wanted)) => {
                let got = result.and_then(|result| splice::get_text(result, &["sessionId"]));
                match got {
                    Some(got) => self.sessions.attached(&got, line.as_deref().and_then(opening)),
                    None => self.sessions.left(&wanted),
                }
            }
            Some(Call::Load(session)) => {
                self.sessions.loaded(&session, id, line.as_deref().and_then(opening));
                self.settling.push(session);
            }
            Some(Call::Resume(session)) if line.is_some() => {
                self.sessions.attached(&session, line.as_deref().and_then(opening));
                self.settling.push(session);
            }
            Some(Call::Leave(session)) if line.is_some() => self.sessions.left(&session),
            Some(Call::Prompt(session)) => self.settle(&session),
            _ => {}
        }
    }

    /// The request fails here.
    fn fail(&mut self, id: &Id<'_>, error: &ErrorObject) {
        if self.own.remove(id.as_str()).is_none() && self.book.is_open(id) {
            self.answered(id, None);
            self.write_error(id, error);
        }
    }

    /// Nothing more is asked again in this session.
    fn settle(&mut self, session: &str) {
        for number in self.asked.settle(session) {
            self.take_back(number);
        }
    }

    /// Tells the editor that no answer is needed.
    fn take_back(&mut self, number: u64) {
        let params = serde_json::json!({ "requestId": number });
        let mut line = Vec::new();
        jsonrpc::write_notification(&mut line, "$/cancel_request", &params);
        self.write_editor(&line);
    }

    fn own(&mut self, own: Own) -> Id<'static> {
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

/// What a session was opened with, without what is only for the server.
fn opening(line: &[u8]) -> Option<String> {
    let params = splice::get(std::str::from_utf8(line).ok()?, &["params"])?;
    params.starts_with('{').then(|| Extras::take(params).0.into_owned())
}

/// Whether the server refused something because it ends: the next one will take it.
fn is_shutting_down(error: &ErrorObject) -> bool {
    let code = error.data.as_ref().and_then(|data| splice::get_text(data.as_str(), &["code"]));
    code.is_some_and(|code| code == trilogue_domain::Code::ShuttingDown.as_str())
}

mod beginning;
mod ending;
mod loss;
#[cfg(test)]
mod tests;
