//! A thread's history as references: faces show it, and the runtime compares it with a client's history.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, MessageEvent, RunEvent};
use trilogue_domain::{
    CheckpointId, CheckpointKey, Event, Json, MessageId, Reference, RunId, RunKey, Scope, ThreadId,
    lock,
};
use trilogue_store::rows::{CheckpointRow, ThreadRow};
use trilogue_store::{PathReader, Store};

use super::{client_entries, each_event, thread_row};

/// The most references that are cached for all threads together; others are read each time.
const MAX_REMEMBERED: usize = 50_000;

/// Caches the references to the messages of completed runs: they never change, and reading them takes all events of a run.
#[derive(Debug, Default)]
pub(crate) struct RunReferences(Mutex<RememberedRuns>);

#[derive(Debug, Default)]
struct RememberedRuns {
    runs: HashMap<RunKey, Arc<[Reference]>>,
    references: usize,
}

/// A thread's history as references, oldest first, and the location of its state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PathReferences {
    /// Messages from a client, then those of the runs on the path, in logged order. Incomplete messages are left out.
    pub(crate) entries: Vec<Reference>,
    pub(crate) state: Option<StateAt>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StateAt {
    /// The value of this checkpoint of the thread.
    Value { checkpoint: CheckpointId },
    /// At another server.
    Address(Arc<str>),
}

#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) head: Option<CheckpointKey>,
    pub(crate) references: PathReferences,
    pub(crate) value: Option<Json>,
}

/// Reads a thread's history as references, checkpoint by checkpoint: memory holds those of one.
#[derive(Debug)]
pub struct ReferenceReader {
    store: Arc<dyn Store>,
    runs: Arc<RunReferences>,
    steps: ReferenceSteps,
}

/// A path to a thread's head whose references are still to be read.
#[derive(Debug)]
struct ReferenceSteps {
    thread: ThreadRow,
    state: Option<StateAt>,
    /// The last set state, if it is in this store.
    value: Option<Json>,
    /// The client entries and the run of each checkpoint, newest first.
    path: Vec<(Vec<Reference>, Option<RunKey>)>,
}

/// References to a run's messages, collected from its events.
#[derive(Debug, Default)]
struct Collected {
    thread: Option<ThreadId>,
    run: Option<RunId>,
    /// In the order in which they began, with incomplete messages.
    entries: Vec<Reference>,
    /// The index of each incomplete message.
    open: HashMap<MessageId, usize>,
    has_ended: bool,
}

// === impl StateAt ===

impl StateAt {
    /// Returns the location of the state that a checkpoint itself sets.
    fn of(row: &CheckpointRow, has_value: bool) -> Option<Self> {
        if has_value {
            return Some(Self::Value { checkpoint: row.id.clone() });
        }
        let address = row.client_history.as_ref().and_then(|given| given.state.clone());
        address.map(Self::Address)
    }
}

// === impl Path ===

impl Path {
    /// Reads the path to the thread's head; fails with `thread_not_found`, or if the store cannot be read.
    pub(crate) async fn read(
        store: &dyn Store,
        runs: &RunReferences,
        scope: &Scope,
        thread: &ThreadId,
    ) -> Result<Self> {
        let mut steps = ReferenceSteps::open(store, scope, thread).await?;
        let (head, state, value) = (steps.thread.head, steps.state.take(), steps.value.take());
        let mut entries = Vec::new();
        while let Some(part) = steps.next(store, runs).await? {
            entries.extend(part);
        }
        Ok(Self { head, references: PathReferences { entries, state }, value })
    }
}

// === impl ReferenceSteps ===

impl ReferenceSteps {
    async fn open(store: &dyn Store, scope: &Scope, thread: &ThreadId) -> Result<Self> {
        let row = thread_row(store, scope, thread).await?;
        let (mut path, mut state, mut value) = (Vec::new(), None, None);
        let mut links = PathReader::new(store, scope, thread, row.head);
        while row.head.is_some()
            && let Some(mut link) = links.next().await?
        {
            let set = link.value.take();
            if state.is_none() {
                state = StateAt::of(&link, set.is_some());
                value = set;
            }
            let entries = client_entries(&link, thread).collect();
            path.push((entries, link.run));
        }
        Ok(Self { thread: row, state, value, path })
    }

    /// Returns the entries of the next checkpoint, oldest first, or `None` after the last.
    async fn next(
        &mut self,
        store: &dyn Store,
        runs: &RunReferences,
    ) -> Result<Option<Vec<Reference>>> {
        let Some((mut entries, run)) = self.path.pop() else { return Ok(None) };
        if let Some(run) = run {
            entries.extend(runs.of(store, &self.thread, run).await?.iter().cloned());
        }
        Ok(Some(entries))
    }
}

// === impl ReferenceReader ===

impl ReferenceReader {
    /// Opens the history. Fails with `thread_not_found`, or if the store cannot be read.
    pub(crate) async fn open(
        store: Arc<dyn Store>,
        runs: Arc<RunReferences>,
        scope: &Scope,
        thread: &ThreadId,
    ) -> Result<Self> {
        let steps = ReferenceSteps::open(store.as_ref(), scope, thread).await?;
        Ok(Self { store, runs, steps })
    }

    /// Returns the location of the thread's state.
    #[must_use]
    pub fn state(&self) -> Option<&StateAt> {
        self.steps.state.as_ref()
    }

    /// Returns the entries of the next checkpoint, oldest first, or `None` after the last. Fails if the store cannot be read.
    pub async fn next(&mut self) -> Result<Option<Vec<Reference>>> {
        self.steps.next(self.store.as_ref(), &self.runs).await
    }
}

// === impl RunReferences ===

impl RunReferences {
    /// Returns the references to a run's messages, in the order in which they began; fails if the store cannot be read.
    async fn of(
        &self,
        store: &dyn Store,
        thread: &ThreadRow,
        run: RunKey,
    ) -> Result<Arc<[Reference]>> {
        let known = lock(&self.0).runs.get(&run).cloned();
        // A run that was removed meanwhile has no messages.
        if let Some(known) = known
            && store.run_by_key(run).await?.is_some()
        {
            return Ok(known);
        }
        let mut collected = Collected { thread: Some(thread.id.clone()), ..Collected::default() };
        each_event(store, thread.key, run, |event| collected.push(event)).await?;
        if !collected.has_ended {
            // Only a run that its agent started is in the history before its end. Its open messages are named too.
            collected.open.clear();
            return Ok(collected.into_entries().collect());
        }
        let references: Arc<[Reference]> = collected.into_entries().collect();
        lock(&self.0).insert(run, Arc::clone(&references));
        Ok(references)
    }
}

// === impl RememberedRuns ===

impl RememberedRuns {
    fn insert(&mut self, run: RunKey, references: Arc<[Reference]>) {
        if self.references + references.len() > MAX_REMEMBERED || self.runs.len() >= MAX_REMEMBERED
        {
            *self = Self::default();
        }
        if references.len() <= MAX_REMEMBERED {
            self.references += references.len();
            let before = self.runs.insert(run, references);
            self.references -= before.map_or(0, |before| before.len());
        }
    }
}

// === impl Collected ===

impl Collected {
    fn push(&mut self, event: &Event) {
        match &event.body {
            Body::Run(RunEvent::Created { run, .. }) => self.run = Some(run.clone()),
            Body::Run(RunEvent::Ended(_)) => self.has_ended = true,
            Body::Run(RunEvent::Result(_)) => {
                self.entries.extend(self.run.clone().map(Reference::Result));
            }
            Body::Message(MessageEvent::Started { message, .. }) => {
                self.open.insert(message.clone(), self.entries.len());
                let (thread, id) = (self.thread.clone(), message.clone());
                self.entries.push(Reference::Message { thread, id });
            }
            Body::Message(MessageEvent::Completed { message }) => {
                self.open.remove(message);
            }
            _ => {}
        }
    }

    fn into_entries(self) -> impl Iterator<Item = Reference> {
        let open: std::collections::HashSet<usize> = self.open.into_values().collect();
        let entries = self.entries.into_iter().enumerate();
        entries.filter(move |(place, _)| !open.contains(place)).map(|(_, entry)| entry)
    }
}
