//! What is known of each thread: its open session, and what its client opened it with.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use trilogue_domain::{Json, ThreadKey};

use super::lock;
use super::process::Process;
use super::session::Session;
use super::trouble::Trouble;
use super::working::Working;

/// How many threads without an open session are remembered.
const MAX_REMEMBERED: usize = 10_000;

/// The threads that an agent has or had sessions of.
#[derive(Debug, Default)]
pub(super) struct Threads(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    threads: HashMap<ThreadKey, Arc<Thread>>,
    /// How many of them there were when they were looked through last.
    kept: usize,
}

/// One thread. Its state is held by whoever opens its session.
#[derive(Debug, Default)]
pub(super) struct Thread {
    pub(super) state: tokio::sync::Mutex<State>,
    /// Cancelled when the thread is erased: nothing is opened for it any more.
    pub(super) gone: CancellationToken,
}

/// See [`Thread`].
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) session: Option<Arc<Session>>,
    /// What its client opened it with. It may hold secrets, and is never stored.
    pub(super) opening: Option<Json>,
    /// Likewise, when the session was opened.
    pub(super) opened_with: Option<Json>,
}

/// A state that is opened otherwise, as its client wants it; as it was wanted before where that does not come off.
#[derive(Debug)]
pub(super) struct Otherwise<'a> {
    state: &'a mut State,
    /// What it was opened with before; nothing once it is done.
    before: Option<Option<Json>>,
}

/// What a binding keeps beside the session's id.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Agreed {
    /// Where the session works.
    pub(super) cwd: Option<PathBuf>,
    /// Where it may work too, as JSON.
    pub(super) directories: Value,
    /// The way by which the agent was authenticated with.
    pub(super) auth_method: Option<String>,
}

// === impl Threads ===

impl Threads {
    pub(super) fn get(&self, key: ThreadKey) -> Arc<Thread> {
        let mut known = lock(&self.0);
        // Looking through them costs as much as what has come since the last time.
        if known.threads.len() >= (known.kept * 2).max(MAX_REMEMBERED)
            && !known.threads.contains_key(&key)
        {
            known.threads.retain(|_, thread| {
                // One that somebody holds is at work.
                Arc::strong_count(thread) > 1
                    || thread.state.try_lock().map_or(true, |state| {
                        state.session.as_ref().is_some_and(|session| session.is_open())
                    })
            });
            known.kept = known.threads.len();
        }
        Arc::clone(known.threads.entry(key).or_default())
    }

    /// Lets go of the sessions of a process that has ended.
    pub(super) fn let_go(&self, process: &Arc<Process>) {
        for key in process.served() {
            let Some(thread) = self.find(key) else { continue };
            // One that is held is opened anew by whoever holds it.
            let Ok(mut state) = thread.state.try_lock() else { continue };
            drop(state.session.take_if(|session| Arc::ptr_eq(session.process(), process)));
        }
    }

    /// The thread, where it is known.
    pub(super) fn find(&self, key: ThreadKey) -> Option<Arc<Thread>> {
        lock(&self.0).threads.get(&key).cloned()
    }

    pub(super) fn remove(&self, key: ThreadKey) -> Option<Arc<Thread>> {
        lock(&self.0).threads.remove(&key)
    }
}

// === impl Thread ===

impl Thread {
    /// Does something that the thread's owner may be waited for in, until the thread is erased: its owner waits for that.
    pub(super) async fn while_there<T>(
        &self,
        work: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.gone.cancelled() => {
                Err(Trouble::ours(trilogue_domain::Code::ThreadNotFound, "the thread is erased"))
            }
        }
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

    /// The session to work with, where it can be spoken in and the agent knows it by this id.
    pub(super) fn working(&mut self, remote: &str) -> Option<Working> {
        let session = self.open_session().filter(|session| session.remote() == remote)?;
        Working::with(&session)
    }
}

// === impl Otherwise ===

impl<'a> Otherwise<'a> {
    /// From now on the session is to be opened with this, until it turns out that it cannot.
    pub(super) fn with(state: &'a mut State, opening: Json) -> Self {
        let before = Some(state.opening.replace(opening));
        Self { state, before }
    }

    pub(super) fn state(&mut self) -> &mut State {
        self.state
    }

    /// It was opened.
    pub(super) fn done(mut self) {
        self.before = None;
    }
}

impl Drop for Otherwise<'_> {
    fn drop(&mut self) {
        // Others use the thread too, and what cannot be opened must not stand in their way.
        if let Some(before) = self.before.take() {
            self.state.opening = before;
        }
    }
}

// === impl Agreed ===

impl Agreed {
    pub(super) fn read(json: &Json) -> Self {
        let value = json.to_value();
        Self {
            cwd: value.get("cwd").and_then(Value::as_str).map(PathBuf::from),
            directories: value.get("additionalDirectories").cloned().unwrap_or_default(),
            auth_method: value.get("authMethod").and_then(Value::as_str).map(str::to_owned),
        }
    }

    pub(super) fn to_json(&self) -> Json {
        let mut value = serde_json::json!({ "cwd": self.cwd });
        if !self.directories.is_null() {
            value["additionalDirectories"] = self.directories.clone();
        }
        if let Some(method) = &self.auth_method {
            value["authMethod"] = method.as_str().into();
        }
        Json::from_value(&value)
    }
}
