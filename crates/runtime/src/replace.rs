use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::event::{StateEvent, ThreadEvent};
use trilogue_domain::{
    Body, ClientHistory, Code, Error, HeadMove, Json, Principal, Reference, Scope, ThreadId, limits,
};
use trilogue_store::Change;
use trilogue_store::rows::{CheckpointRow, ThreadRow};

use crate::handle::Runtime;
use crate::history::{Path, ReferenceReader, StateAt};
use crate::owner::unexpected;
use crate::request::NewThread;
use crate::step::{Command, Replace, Reply};

/// The attempts of a replacement while the head moves, or another caller creates the thread.
const TRIES: usize = 16;

// === impl Runtime ===

impl Runtime {
    /// Replaces a thread's history with the one that a client sent; creates the thread if it does not exist.
    ///
    /// If the sent history begins with the thread's own history, the rest is appended. Otherwise it replaces the thread's history, as a rewind. The change
    /// happens at once, even while a run has the turn: that run keeps its base. Errors: `too_many_parts` for more than [`limits::MAX_GIVEN_ENTRIES`] entries;
    /// `invalid_input`, naming the entry, for an invalid address or a reference that the caller cannot see; `agent_memory_not_rewindable`; `already_exists` if
    /// the id belongs to a thread that the caller cannot see; `thread_busy` if the head moves again and again; and the store's errors.
    pub async fn replace_history(
        &self,
        by: &Principal,
        thread: &ThreadId,
        given: ClientHistory,
    ) -> Result<ThreadRow> {
        self.replace_history_and_state(by, thread, given, None).await
    }

    /// Like [`Runtime::replace_history`], with the thread's new state itself instead of its address.
    pub async fn replace_history_and_state(
        &self,
        by: &Principal,
        thread: &ThreadId,
        given: ClientHistory,
        state: Option<Json>,
    ) -> Result<ThreadRow> {
        self.check_open()?;
        check_form(&given)?;
        let replacement = Replacement { given, state };
        for _ in 0..TRIES {
            let done = match self.services().store.named_thread(&by.scope(), thread).await? {
                Some(row) => self.try_replace(by, &row, &replacement).await?,
                None => self.try_create(by, thread, &replacement).await?,
            };
            if let Some(row) = done {
                return Ok(row);
            }
        }
        if self.services().store.named_thread(&by.scope(), thread).await?.is_none() {
            return Err(Error::new(Code::AlreadyExists, format!("the id '{thread}' is taken")));
        }
        Err(Error::new(
            Code::ThreadBusy,
            format!("the head of the thread '{thread}' moves while its history is replaced"),
        )
        .hint("send the request again"))
    }

    /// The history of a thread as references, to be read checkpoint by checkpoint; fails with `thread_not_found`, or as reading.
    pub async fn references(&self, scope: &Scope, thread: &ThreadId) -> Result<ReferenceReader> {
        let services = self.services();
        let (store, runs) = (Arc::clone(&services.store), Arc::clone(&services.run_references));
        ReferenceReader::open(store, runs, scope, thread).await
    }

    /// `None` when the head moved meanwhile.
    async fn try_replace(
        &self,
        by: &Principal,
        row: &ThreadRow,
        replacement: &Replacement,
    ) -> Result<Option<ThreadRow>> {
        let scope = by.scope();
        let services = self.services();
        let (store, runs) = (services.store.as_ref(), &services.run_references);
        let path = Path::read(store, runs, &scope, &row.id).await?;
        let rest = replacement.given.entries.strip_prefix(&path.references.entries[..]);
        let Replacement { given, state } = replacement.clone();
        let replace = match rest {
            Some(rest) => {
                let begin = given.entries.len() - rest.len();
                self.check_seen(&scope, rest, begin).await?;
                let (state, address) = changed_state(state, given.state, &path);
                if rest.is_empty() && state.is_none() && address.is_none() {
                    return Ok(Some(row.clone()));
                }
                let given = ClientHistory { entries: rest.to_vec(), state: address };
                Replace { expected: path.head, extends: true, given, state }
            }
            None => {
                self.check_seen(&scope, &given.entries, 0).await?;
                self.check_memory(&scope, row, &[], "the history that the thread has").await?;
                Replace { expected: path.head, extends: false, given, state }
            }
        };
        let checkpoint = self.services().new_checkpoint();
        let command = Command::Replace { replace: Box::new(replace), checkpoint };
        match self.change(row.key, command).await? {
            Reply::Thread(row) => Ok(Some(*row)),
            Reply::HeadMoved => Ok(None),
            _ => Err(unexpected()),
        }
    }

    /// `None` when another caller created a thread with the id meanwhile.
    async fn try_create(
        &self,
        by: &Principal,
        id: &ThreadId,
        replacement: &Replacement,
    ) -> Result<Option<ThreadRow>> {
        let Replacement { given, state } = replacement.clone();
        self.check_seen(&by.scope(), &given.entries, 0).await?;
        let new = NewThread { id: Some(id.clone()), metadata: None, ..NewThread::default() };
        let mut row = self.new_thread_row(by, &new, false)?;
        let mut events = vec![Body::Thread(ThreadEvent::Created {
            thread: row.id.clone(),
            metadata: row.metadata.clone(),
            copied_from: None,
        })];
        let mut changes = Vec::new();
        if given != ClientHistory::default() || state.is_some() {
            let (key, checkpoint) = self.services().new_checkpoint();
            events.extend(state.clone().map(|state| Body::State(StateEvent::Values(state))));
            events.push(Body::Thread(ThreadEvent::HeadMoved {
                checkpoint: checkpoint.clone(),
                by: HeadMove::Replacement,
            }));
            row.head = Some(key);
            changes.push(Change::Checkpoint(CheckpointRow {
                key,
                id: checkpoint,
                thread: row.key,
                parent: None,
                run: None,
                position: events.len() as u64,
                value: state,
                created_at: row.created_at,
                client_history: Some(given),
            }));
        }
        match self.append_new(&row, &events, changes).await {
            Ok(()) => Ok(Some(row)),
            Err(error) if error.code() == Code::AlreadyExists => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Checks that the caller sees every message and result that is referred to. `begin` is the index of the first.
    async fn check_seen(&self, scope: &Scope, entries: &[Reference], begin: usize) -> Result<()> {
        let store = self.services().store.as_ref();
        for (place, entry) in entries.iter().enumerate() {
            let place = begin + place;
            let (seen, what) = match entry {
                Reference::Message { thread: Some(thread), id } => {
                    (store.message(scope, thread, id).await?.is_some(), id.as_str())
                }
                Reference::Message { thread: None, id } => (false, id.as_str()),
                Reference::Result(id) => (store.run(scope, id).await?.is_some(), id.as_str()),
                Reference::Address(_) => continue,
            };
            if !seen {
                return Err(invalid(&format!("history[{place}]"), &format!("'{what}' not found")));
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct Replacement {
    given: ClientHistory,
    state: Option<Json>,
}

/// The state and its address, where they are not what the path has.
fn changed_state(
    state: Option<Json>,
    address: Option<Arc<str>>,
    path: &Path,
) -> (Option<Json>, Option<Arc<str>>) {
    let state = state.filter(|state| path.value.as_ref() != Some(state));
    let known = match &path.references.state {
        Some(StateAt::Address(known)) => Some(known),
        _ => None,
    };
    let address = address.filter(|address| known != Some(address));
    (state, address)
}

/// Checks what needs no look-up.
fn check_form(given: &ClientHistory) -> Result<()> {
    if given.entries.len() > limits::MAX_GIVEN_ENTRIES {
        return Err(Error::new(
            Code::TooManyParts,
            format!(
                "the history has {} entries; {} is the most",
                given.entries.len(),
                limits::MAX_GIVEN_ENTRIES
            ),
        ));
    }
    for (place, entry) in given.entries.iter().enumerate() {
        if let Reference::Address(address) = entry {
            check_address(address, || format!("history[{place}]"))?;
        }
    }
    given.state.as_ref().map_or(Ok(()), |address| check_address(address, || "state".to_owned()))
}

fn check_address(address: &str, place: impl FnOnce() -> String) -> Result<()> {
    if address.len() > limits::MAX_ADDRESS_BYTES {
        let why = format!("the address has more than {} bytes", limits::MAX_ADDRESS_BYTES);
        return Err(invalid(&place(), &why));
    }
    let scheme = address.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    if !matches!(scheme.as_deref(), Some("http" | "https")) {
        return Err(invalid(&place(), "expected an absolute http or https address"));
    }
    Ok(())
}

fn invalid(place: &str, why: &str) -> Error {
    Error::new(Code::InvalidInput, format!("{place}: {why}"))
}
