//! What the editor said that is not settled yet.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::{Id, Request};
use trilogue_wire::native::local::Extras;

/// The most requests of an editor that are open at once.
const MAX_OPEN: usize = 4_096;
/// The most bytes of an editor's lines that are kept.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// Lines of the editor, in order, that are said again on the next connection.
#[derive(Debug, Default)]
pub(super) struct Book {
    items: BTreeMap<u64, Item>,
    /// The open requests by their ids, as JSON.
    by_id: HashMap<String, u64>,
    next: u64,
    bytes: usize,
}

/// A line of the editor.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// The line, with its key, without its end.
    pub(super) line: Bytes,
    /// What it is.
    pub(super) kind: Kind,
    /// It has been written to the connection that there is now.
    pub(super) is_sent: bool,
    /// The answer that says that the server is shutting down: the next server is asked again.
    pub(super) parked: Option<Bytes>,
    /// It is a prompt whose turn has begun, and goes on without us.
    is_accepted: bool,
}

/// What a line of the editor is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A request, which stays until it is answered.
    Request(Id<'static>, Call),
    /// `session/cancel`, which stays while a prompt from before it is open.
    Cancel(String),
    /// `$/cancel_request`, which stays while its request is open.
    CancelRequest(Id<'static>),
    /// Anything else, which stays until it is written.
    Once,
}

/// What a request asks for, as far as asking again goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Call {
    /// `initialize`.
    Initialize,
    /// `session/new`, with the id that the session gets.
    New(String),
    /// `session/load` of a session.
    Load(String),
    /// `session/resume` of a session.
    Resume(String),
    /// `session/prompt` in a session.
    Prompt(String),
    /// `session/close` or `session/delete` of a session.
    Leave(String),
    /// One that does the same when it is done twice.
    Again,
    /// One of which nobody knows what doing it twice does.
    Other,
}

// === impl Call ===

impl Call {
    /// Reads a request, and gives its line the key under which it can be asked again.
    pub(super) fn of(request: &Request<'_>, line: Bytes) -> (Self, Bytes) {
        let params = request.params.map_or("", |params| params.get());
        let session = || splice::get_text(params, &["sessionId"]).unwrap_or_default().into_owned();
        match &*request.method {
            "initialize" => (Self::Initialize, line),
            "session/new" => {
                let session = uuid::Uuid::now_v7().to_string();
                let extras = Extras { session: Some(session.clone()), ..Extras::default() };
                (Self::New(session), keyed(line, params, &extras))
            }
            "session/prompt" => {
                let key = Some(uuid::Uuid::new_v4().to_string());
                let extras = Extras { key, ..Extras::default() };
                (Self::Prompt(session()), keyed(line, params, &extras))
            }
            "session/load" => (Self::Load(session()), line),
            "session/resume" => (Self::Resume(session()), line),
            "session/close" | "session/delete" => (Self::Leave(session()), line),
            "authenticate"
            | "logout"
            | "session/list"
            | "session/set_mode"
            | "session/set_config_option" => (Self::Again, line),
            _ => (Self::Other, line),
        }
    }
}

/// A request's line with extras.
fn keyed(line: Bytes, params: &str, extras: &Extras) -> Bytes {
    if !params.starts_with('{') {
        // The server says what is wrong with it.
        return line;
    }
    let keyed = std::str::from_utf8(&line)
        .ok()
        .and_then(|text| splice::set(text, &["params"], &extras.put(params)));
    keyed.map_or(line, Bytes::from)
}

// === impl Item ===

impl Item {
    fn is_prompt(&self) -> bool {
        matches!(self.kind, Kind::Request(_, Call::Prompt(_)))
    }
}

// === impl Book ===

impl Book {
    /// Whether there is room for one more line of this many bytes.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.items.len() < MAX_OPEN && self.bytes.saturating_add(bytes) <= MAX_BYTES
    }

    /// Whether a request of this id is open.
    pub(super) fn is_open(&self, id: &Id<'_>) -> bool {
        self.by_id.contains_key(id.as_str())
    }

    /// Adds a line behind all others.
    pub(super) fn add(&mut self, line: Bytes, kind: Kind, is_sent: bool) {
        let number = self.next;
        self.next += 1;
        self.bytes += line.len();
        if let Kind::Request(id, _) = &kind {
            self.by_id.insert(id.as_str().to_owned(), number);
        }
        self.items.insert(number, Item { line, kind, is_sent, parked: None, is_accepted: false });
    }

    /// The line of an open request.
    pub(super) fn line(&self, id: &Id<'_>) -> Option<Bytes> {
        Some(self.items.get(self.by_id.get(id.as_str())?)?.line.clone())
    }

    /// What an open request asks for.
    pub(super) fn call(&self, id: &Id<'_>) -> Option<&Call> {
        match &self.items.get(self.by_id.get(id.as_str())?)?.kind {
            Kind::Request(_, call) => Some(call),
            _ => None,
        }
    }

    /// Takes out a request that is answered, with what was said about it.
    pub(super) fn close(&mut self, id: &Id<'_>) -> Option<Call> {
        let number = self.by_id.remove(id.as_str())?;
        let Kind::Request(_, call) = self.remove(number)?.kind else { return None };
        self.drop_settled();
        Some(call)
    }

    /// Keeps the answer of a request until the server is gone.
    pub(super) fn park(&mut self, id: &Id<'_>, answer: Bytes) {
        let number = self.by_id.get(id.as_str());
        if let Some(item) = number.and_then(|number| self.items.get_mut(number)) {
            item.parked = Some(answer);
        }
    }

    /// The first open request that was written and has no answer.
    pub(super) fn first_sent(&self) -> Option<(u64, Id<'static>)> {
        let of = |(number, item): (&u64, &Item)| match &item.kind {
            Kind::Request(id, _) if item.is_sent && item.parked.is_none() => {
                Some((*number, id.clone()))
            }
            _ => None,
        };
        self.items.iter().find_map(of)
    }

    /// The answers that were kept.
    pub(super) fn parked(&self) -> Vec<(Id<'static>, Bytes)> {
        let of = |item: &Item| match &item.kind {
            Kind::Request(id, _) => Some((id.clone(), item.parked.clone()?)),
            _ => None,
        };
        self.items.values().filter_map(of).collect()
    }

    /// The turn of a prompt has begun.
    pub(super) fn accept(&mut self, id: &str) {
        let item = self.by_id.get(id).and_then(|number| self.items.get_mut(number));
        if let Some(item) = item.filter(|item| item.is_prompt()) {
            item.is_accepted = true;
        }
    }

    /// The requests that somebody who says nothing more still waits for. A turn that has begun goes on without them.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &Id<'static>> {
        self.items.values().filter(|item| !item.is_accepted).filter_map(|item| match &item.kind {
            Kind::Request(id, _) => Some(id),
            _ => None,
        })
    }

    /// Whether a prompt is open in a session.
    pub(super) fn has_prompt(&self, session: &str) -> bool {
        self.prompts(session).next().is_some()
    }

    /// Every line, to be written to a new connection; those that are settled by that are gone.
    pub(super) fn say_again(&mut self) -> Vec<Item> {
        let lines = self.items.values().cloned().collect();
        for item in self.items.values_mut() {
            item.is_sent = true;
        }
        let once: Vec<u64> = self.numbers(|item| item.kind == Kind::Once).collect();
        for number in once {
            self.remove(number);
        }
        self.drop_settled();
        lines
    }

    /// The connection is gone. Gives the requests that cannot be asked again, which are closed.
    pub(super) fn unsend(&mut self) -> Vec<Id<'static>> {
        let is_lost = |item: &Item| {
            item.is_sent
                && item.parked.is_none()
                && matches!(item.kind, Kind::Request(_, Call::Other))
        };
        let lost: Vec<u64> = self.numbers(is_lost).collect();
        let lost = lost.into_iter().filter_map(|number| match self.remove(number)?.kind {
            Kind::Request(id, _) => self.by_id.remove(id.as_str()).map(|_| id),
            _ => None,
        });
        let lost = lost.collect();
        for item in self.items.values_mut() {
            item.is_sent = false;
            item.parked = None;
        }
        self.drop_settled();
        lost
    }

    /// Takes every open request out.
    pub(super) fn drain(&mut self) -> Vec<Id<'static>> {
        self.by_id.clear();
        self.bytes = 0;
        let ids =
            std::mem::take(&mut self.items).into_values().filter_map(|item| match item.kind {
                Kind::Request(id, _) => Some(id),
                _ => None,
            });
        ids.collect()
    }

    fn prompts<'a>(&'a self, session: &'a str) -> impl Iterator<Item = u64> + 'a {
        self.numbers(
            move |item| matches!(&item.kind, Kind::Request(_, Call::Prompt(of)) if of == session),
        )
    }

    fn numbers<'a>(&'a self, is: impl Fn(&Item) -> bool + 'a) -> impl Iterator<Item = u64> + 'a {
        self.items.iter().filter(move |(_, item)| is(item)).map(|(number, _)| *number)
    }

    /// Drops what was written and has nothing left to act on.
    fn drop_settled(&mut self) {
        let is_settled = |number: u64, item: &Item| match &item.kind {
            Kind::Cancel(session) => self.prompts(session).next().is_none_or(|it| it > number),
            Kind::CancelRequest(id) => !self.by_id.contains_key(id.as_str()),
            Kind::Request(..) | Kind::Once => false,
        };
        let sent = self.items.iter().filter(|(_, item)| item.is_sent);
        let settled = sent.filter(|(number, item)| is_settled(**number, item));
        let settled: Vec<u64> = settled.map(|(number, _)| *number).collect();
        for number in settled {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) -> Option<Item> {
        let item = self.items.remove(&number)?;
        self.bytes -= item.line.len();
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trilogue_wire::jsonrpc::{Incoming, parse};

    fn call(line: &str) -> (Call, String) {
        let Ok(Incoming::Request(request)) = parse(line.as_bytes()) else { panic!("{line}") };
        let (call, line) = Call::of(&request, Bytes::copy_from_slice(line.as_bytes()));
        (call, String::from_utf8(line.to_vec()).unwrap())
    }

    #[test]
    fn requests_get_keys_and_no_other_byte_changes() {
        let plain = r#"{"jsonrpc":"2.0", "id":1,"method":"session/prompt","params":{"sessionId":"s", "x":[1]}}"#;
        let (asks, line) = call(plain);
        assert_eq!(asks, Call::Prompt("s".to_owned()));
        let Ok(Incoming::Request(request)) = parse(line.as_bytes()) else { panic!("{line}") };
        let (params, extras) = Extras::take(request.params.unwrap().get());
        assert!(uuid::Uuid::parse_str(&extras.key.unwrap()).is_ok());
        assert_eq!(splice::set(&line, &["params"], &params).unwrap(), plain);
        let (asks, line) = call(r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}"#);
        let Call::New(session) = asks else { panic!("{asks:?}") };
        assert!(line.contains(&format!(r#"{{"trilogue":{{"session":"{session}"}}}}"#)), "{line}");
        let odd = r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":[1]}"#;
        assert_eq!(call(odd).1, odd);
    }

    #[test]
    fn a_cancel_stays_as_long_as_a_prompt_before_it() {
        let mut book = Book::default();
        let line = Bytes::from_static(b"x");
        let session = || "s".to_owned();
        let prompt = |id| Kind::Request(Id::number(id), Call::Prompt(session()));
        book.add(line.clone(), prompt(1), true);
        book.add(line.clone(), Kind::Cancel(session()), true);
        book.add(line.clone(), prompt(2), true);
        assert_eq!(book.unsend(), []);
        let kinds: Vec<_> = book.say_again().into_iter().map(|item| item.kind).collect();
        assert_eq!(kinds, [prompt(1), Kind::Cancel(session()), prompt(2)]);
        assert_eq!(book.close(&Id::number(1)), Some(Call::Prompt(session())));
        assert_eq!(book.items.len(), 1);
        // Said while nobody listens: it is said once, whatever it finds.
        book.unsend();
        book.add(line.clone(), Kind::Cancel("other".to_owned()), false);
        book.add(line.clone(), Kind::Once, false);
        assert_eq!(book.say_again().len(), 3);
        assert_eq!(book.items.len(), 1);
        book.add(line, Kind::Request(Id::number(7), Call::Other), true);
        assert_eq!(book.unsend(), [Id::number(7)]);
        assert_eq!(book.drain(), [Id::number(2)]);
        assert_eq!(book.bytes, 0);
    }
}
