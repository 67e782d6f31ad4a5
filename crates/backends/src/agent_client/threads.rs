//! What is known of each thread: its open session, and what its client opened it with.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use trilogue_domain::{Json, ThreadId};

use super::lock;
use super::process::Process;
use super::session::Session;

/// How many threads without an open session are remembered.
const MAX_REMEMBERED: usize = 10_000;

/// The threads that an agent has or had sessions of.
#[derive(Debug, Default)]
pub(super) struct Threads(Mutex<HashMap<ThreadId, Arc<Thread>>>);

/// One thread. Its state is held by whoever opens its session.
#[derive(Debug, Default)]
pub(super) struct Thread {
    pub(super) state: tokio::sync::Mutex<State>,
}

/// See [`Thread`].
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) session: Option<Arc<Session>>,
    /// What its client opened it with. It may hold secrets, and is never stored.
    pub(super) opening: Option<Json>,
}

/// What a binding keeps beside the session's id.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Agreed {
    /// Where the session works.
    pub(super) cwd: Option<PathBuf>,
    /// Where it may work too, as JSON.
    pub(super) directories: Value,
}

// === impl Threads ===

impl Threads {
    pub(super) fn get(&self, id: &ThreadId) -> Arc<Thread> {
        let mut threads = lock(&self.0);
        if threads.len() >= MAX_REMEMBERED && !threads.contains_key(id) {
            threads.retain(|_, thread| {
                // One that somebody holds is at work.
                Arc::strong_count(thread) > 1
                    || thread.state.try_lock().map_or(true, |state| {
                        state.session.as_ref().is_some_and(|session| session.is_open())
                    })
            });
        }
        Arc::clone(threads.entry(id.clone()).or_default())
    }

    /// Lets go of the sessions of a process that has ended.
    pub(super) fn let_go(&self, process: &Arc<Process>) {
        let threads: Vec<_> = lock(&self.0).values().cloned().collect();
        for thread in threads {
            // One that is held is opened anew by whoever holds it.
            let Ok(mut state) = thread.state.try_lock() else { continue };
            drop(state.session.take_if(|session| Arc::ptr_eq(session.process(), process)));
        }
    }

    /// The thread, where it is known.
    pub(super) fn find(&self, id: &ThreadId) -> Option<Arc<Thread>> {
        lock(&self.0).get(id).cloned()
    }

    pub(super) fn remove(&self, id: &ThreadId) -> Option<Arc<Thread>> {
        lock(&self.0).remove(id)
    }
}

// === impl State ===

impl State {
    /// The session, where it can be spoken in.
    pub(super) fn open_session(&mut self) -> Option<Arc<Session>> {
        if self.session.as_ref().is_some_and(|session| !session.is_open())
            && let Some(session) = self.session.take()
        {
            session.close();
        }
        self.session.clone()
    }
}

// === impl Agreed ===

impl Agreed {
    pub(super) fn read(json: &Json) -> Self {
        let value = json.to_value();
        Self {
            cwd: value.get("cwd").and_then(Value::as_str).map(PathBuf::from),
            directories: value.get("additionalDirectories").cloned().unwrap_or_default(),
        }
    }

    pub(super) fn to_json(&self) -> Json {
        let mut value = serde_json::json!({ "cwd": self.cwd });
        if !self.directories.is_null() {
            value["additionalDirectories"] = self.directories.clone();
        }
        Json::from_value(&value)
    }
}
