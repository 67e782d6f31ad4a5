//! The editor's lines that may have to be sent again.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::{Id, Request};
use trilogue_wire::native::local::Extras;

const MAX_ENTRIES: usize = 4_096;
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// Lines of the editor, in order. They are sent again on the next connection.
#[derive(Debug, Default)]
pub(super) struct RequestJournal {
    entries: BTreeMap<u64, JournalEntry>,
    /// The open requests by their ids, as JSON.
    by_id: HashMap<String, u64>,
    next: u64,
    bytes: usize,
}

#[derive(Clone, Debug)]
pub(super) struct JournalEntry {
    /// The line, with its key, without its end.
    pub(super) line: Bytes,
    pub(super) kind: EntryKind,
    /// Whether it was written to the current connection.
    pub(super) is_sent: bool,
    /// The response that the server is shutting down: the next server gets the request again.
    pub(super) parked: Option<Bytes>,
    /// Whether this is a prompt whose turn is stored and continues without this connection.
    is_accepted: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum EntryKind {
    /// A request. Kept until its response.
    Request(Id<'static>, RequestKind),
    /// `session/cancel`. Kept while an earlier prompt is open.
    Cancel(String),
    /// `$/cancel_request`. Kept while its request is open.
    CancelRequest(Id<'static>),
    /// Any other message. Kept until it is written.
    Once,
}

/// A request, by the way in which it is sent again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RequestKind {
    Initialize,
    /// `session/new` or `session/fork`, with the id that the session gets.
    New(String),
    Load(String),
    Resume(String),
    Prompt(String),
    /// `session/close`, `session/delete` or `session/archive` of a session.
    Leave(String),
    Repeatable,
    /// Not known to be safe to send twice.
    Unrepeatable,
}

// === impl RequestKind ===

impl RequestKind {
    /// Reads a request. Adds the key to its line under which it can be sent again.
    pub(super) fn of(request: &Request<'_>, line: Bytes) -> (Self, Bytes) {
        let params = request.params.map_or("", |params| params.get());
        let session = || splice::get_text(params, &["sessionId"]).unwrap_or_default().into_owned();
        match &*request.method {
            "initialize" => (Self::Initialize, line),
            "session/new" | "session/fork" => {
                let session = uuid::Uuid::now_v7().to_string();
                let extras = Extras { session: Some(session.clone()), ..Extras::default() };
                (Self::New(session), with_extras(line, params, &extras))
            }
            "session/prompt" => {
                let key = Some(uuid::Uuid::new_v4().to_string());
                let extras = Extras { key, ..Extras::default() };
                (Self::Prompt(session()), with_extras(line, params, &extras))
            }
            "session/load" => (Self::Load(session()), line),
            "session/resume" => (Self::Resume(session()), line),
            "session/close" | "session/delete" | "session/archive" => {
                (Self::Leave(session()), line)
            }
            "authenticate"
            | "logout"
            | "session/list"
            | "session/set_mode"
            | "session/set_config_option"
            | "session/status"
            | "session/set_title"
            | "session/unarchive"
            | "session/options" => (Self::Repeatable, line),
            _ => (Self::Unrepeatable, line),
        }
    }
}

fn with_extras(line: Bytes, params: &str, extras: &Extras) -> Bytes {
    if !params.starts_with('{') {
        // The server reports the error.
        return line;
    }
    let keyed = std::str::from_utf8(&line)
        .ok()
        .and_then(|text| splice::set(text, &["params"], &extras.put(params)));
    keyed.map_or(line, Bytes::from)
}

// === impl JournalEntry ===

impl JournalEntry {
    fn is_prompt(&self) -> bool {
        matches!(self.kind, EntryKind::Request(_, RequestKind::Prompt(_)))
    }
}

// === impl RequestJournal ===

impl RequestJournal {
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.entries.len() < MAX_ENTRIES && self.bytes.saturating_add(bytes) <= MAX_BYTES
    }

    pub(super) fn is_open(&self, id: &Id<'_>) -> bool {
        self.by_id.contains_key(id.as_str())
    }

    pub(super) fn add(&mut self, line: Bytes, kind: EntryKind, is_sent: bool) {
        let number = self.next;
        self.next += 1;
        self.bytes += line.len();
        if let EntryKind::Request(id, _) = &kind {
            self.by_id.insert(id.as_str().to_owned(), number);
        }
        self.entries
            .insert(number, JournalEntry { line, kind, is_sent, parked: None, is_accepted: false });
    }

    pub(super) fn line(&self, id: &Id<'_>) -> Option<Bytes> {
        Some(self.entries.get(self.by_id.get(id.as_str())?)?.line.clone())
    }

    pub(super) fn call(&self, id: &Id<'_>) -> Option<&RequestKind> {
        match &self.entries.get(self.by_id.get(id.as_str())?)?.kind {
            EntryKind::Request(_, call) => Some(call),
            _ => None,
        }
    }

    pub(super) fn close(&mut self, id: &Id<'_>) -> Option<RequestKind> {
        let number = self.by_id.remove(id.as_str())?;
        let EntryKind::Request(_, call) = self.remove(number)?.kind else { return None };
        self.drop_settled();
        Some(call)
    }

    /// Keeps the response of a request until the server is gone.
    pub(super) fn park(&mut self, id: &Id<'_>, answer: Bytes) {
        let number = self.by_id.get(id.as_str());
        if let Some(entry) = number.and_then(|number| self.entries.get_mut(number)) {
            entry.parked = Some(answer);
        }
    }

    /// The first request that was written and has no response.
    pub(super) fn first_sent(&self) -> Option<(u64, Id<'static>)> {
        let of = |(number, entry): (&u64, &JournalEntry)| match &entry.kind {
            EntryKind::Request(id, _) if entry.is_sent && entry.parked.is_none() => {
                Some((*number, id.clone()))
            }
            _ => None,
        };
        self.entries.iter().find_map(of)
    }

    pub(super) fn parked_requests(&self) -> Vec<(Id<'static>, Bytes)> {
        let of = |entry: &JournalEntry| match &entry.kind {
            EntryKind::Request(id, _) => Some((id.clone(), entry.parked.clone()?)),
            _ => None,
        };
        self.entries.values().filter_map(of).collect()
    }

    pub(super) fn accept(&mut self, id: &str) {
        let entry = self.by_id.get(id).and_then(|number| self.entries.get_mut(number));
        if let Some(entry) = entry.filter(|entry| entry.is_prompt()) {
            entry.is_accepted = true;
        }
    }

    /// Returns the requests whose responses an editor that has closed its output still waits for. A stored turn is not
    /// among them: it continues without the editor.
    pub(super) fn awaited_requests(&self) -> impl Iterator<Item = &Id<'static>> {
        self.entries.values().filter(|entry| !entry.is_accepted).filter_map(|entry| {
            match &entry.kind {
                EntryKind::Request(id, _) => Some(id),
                _ => None,
            }
        })
    }

    pub(super) fn has_prompt(&self, session: &str) -> bool {
        self.prompts(session).next().is_some()
    }

    /// Every line, for a new connection. Lines that need no response are forgotten then.
    pub(super) fn resend(&mut self) -> Vec<JournalEntry> {
        let lines = self.entries.values().cloned().collect();
        for entry in self.entries.values_mut() {
            entry.is_sent = true;
        }
        let once: Vec<u64> = self.numbers(|entry| entry.kind == EntryKind::Once).collect();
        for number in once {
            self.remove(number);
        }
        self.drop_settled();
        lines
    }

    /// The connection is lost. Removes and returns the requests that cannot be sent again.
    pub(super) fn disconnect(&mut self) -> Vec<Id<'static>> {
        let is_lost = |entry: &JournalEntry| {
            entry.is_sent
                && entry.parked.is_none()
                && matches!(entry.kind, EntryKind::Request(_, RequestKind::Unrepeatable))
        };
        let lost: Vec<u64> = self.numbers(is_lost).collect();
        let lost = lost.into_iter().filter_map(|number| match self.remove(number)?.kind {
            EntryKind::Request(id, _) => self.by_id.remove(id.as_str()).map(|_| id),
            _ => None,
        });
        let lost = lost.collect();
        for entry in self.entries.values_mut() {
            entry.is_sent = false;
            entry.parked = None;
        }
        self.drop_settled();
        lost
    }

    pub(super) fn has_requests(&self) -> bool {
        self.entries.values().any(|entry| matches!(entry.kind, EntryKind::Request(..)))
    }

    pub(super) fn drain(&mut self) -> Vec<Id<'static>> {
        self.by_id.clear();
        self.bytes = 0;
        let ids =
            std::mem::take(&mut self.entries).into_values().filter_map(|entry| match entry.kind {
                EntryKind::Request(id, _) => Some(id),
                _ => None,
            });
        ids.collect()
    }

    fn prompts<'a>(&'a self, session: &'a str) -> impl Iterator<Item = u64> + 'a {
        self.numbers(
            move |entry| matches!(&entry.kind, EntryKind::Request(_, RequestKind::Prompt(of)) if of == session),
        )
    }

    fn numbers<'a>(
        &'a self,
        is: impl Fn(&JournalEntry) -> bool + 'a,
    ) -> impl Iterator<Item = u64> + 'a {
        self.entries.iter().filter(move |(_, entry)| is(entry)).map(|(number, _)| *number)
    }

    /// Forgets written cancellations whose requests are closed.
    fn drop_settled(&mut self) {
        let is_settled = |number: u64, entry: &JournalEntry| match &entry.kind {
            EntryKind::Cancel(session) => self.prompts(session).next().is_none_or(|it| it > number),
            EntryKind::CancelRequest(id) => !self.by_id.contains_key(id.as_str()),
            EntryKind::Request(..) | EntryKind::Once => false,
        };
        let sent = self.entries.iter().filter(|(_, entry)| entry.is_sent);
        let settled = sent.filter(|(number, entry)| is_settled(**number, entry));
        let settled: Vec<u64> = settled.map(|(number, _)| *number).collect();
        for number in settled {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) -> Option<JournalEntry> {
        let entry = self.entries.remove(&number)?;
        self.bytes -= entry.line.len();
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trilogue_wire::jsonrpc::{Incoming, parse};

    fn call(line: &str) -> (RequestKind, String) {
        let Ok(Incoming::Request(request)) = parse(line.as_bytes()) else { panic!("{line}") };
        let (call, line) = RequestKind::of(&request, Bytes::copy_from_slice(line.as_bytes()));
        (call, String::from_utf8(line.to_vec()).unwrap())
    }

    #[test]
    fn requests_get_keys_and_no_other_byte_changes() {
        let plain = r#"{"jsonrpc":"2.0", "id":1,"method":"session/prompt","params":{"sessionId":"s", "x":[1]}}"#;
        let (asks, line) = call(plain);
        assert_eq!(asks, RequestKind::Prompt("s".to_owned()));
        let Ok(Incoming::Request(request)) = parse(line.as_bytes()) else { panic!("{line}") };
        let (params, extras) = Extras::take(request.params.unwrap().get());
        assert!(uuid::Uuid::parse_str(&extras.key.unwrap()).is_ok());
        assert_eq!(splice::set(&line, &["params"], &params).unwrap(), plain);
        for method in ["session/new", "session/fork"] {
            let request =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{}}}}"#);
            let (asks, line) = call(&request);
            let RequestKind::New(session) = asks else { panic!("{asks:?}") };
            let extras = format!(r#"{{"trilogue":{{"session":"{session}"}}}}"#);
            assert!(line.contains(&extras), "{line}");
        }
        let odd = r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":[1]}"#;
        assert_eq!(call(odd).1, odd);
    }

    #[test]
    fn a_cancellation_is_kept_while_an_earlier_prompt_is_open() {
        let mut journal = RequestJournal::default();
        let line = Bytes::from_static(b"x");
        let session = || "s".to_owned();
        let prompt = |id| EntryKind::Request(Id::number(id), RequestKind::Prompt(session()));
        journal.add(line.clone(), prompt(1), true);
        journal.add(line.clone(), EntryKind::Cancel(session()), true);
        journal.add(line.clone(), prompt(2), true);
        assert_eq!(journal.disconnect(), []);
        let kinds: Vec<_> = journal.resend().into_iter().map(|entry| entry.kind).collect();
        assert_eq!(kinds, [prompt(1), EntryKind::Cancel(session()), prompt(2)]);
        assert_eq!(journal.close(&Id::number(1)), Some(RequestKind::Prompt(session())));
        assert_eq!(journal.entries.len(), 1);
        // A request made without a connection is sent once.
        journal.disconnect();
        journal.add(line.clone(), EntryKind::Cancel("other".to_owned()), false);
        journal.add(line.clone(), EntryKind::Once, false);
        assert_eq!(journal.resend().len(), 3);
        assert_eq!(journal.entries.len(), 1);
        journal.add(line, EntryKind::Request(Id::number(7), RequestKind::Unrepeatable), true);
        assert_eq!(journal.disconnect(), [Id::number(7)]);
        assert_eq!(journal.drain(), [Id::number(2)]);
        assert_eq!(journal.bytes, 0);
    }
}
