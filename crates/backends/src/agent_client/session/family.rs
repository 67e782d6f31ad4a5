//! The place of a session among the sessions of its agent: its sub-agents, and its parent if it is a sub-agent itself.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use trilogue_domain::{ThreadId, ThreadKey, lock};
use trilogue_mapping::agent_client::{InvalidDescription, SESSION_MESSAGE, SubagentDescription};
use trilogue_runtime::ThreadContext;
use trilogue_wire::agent_client::splice;

use super::answer::WorkRun;
use super::binding::SessionBinding;
use super::session::{ParentSession, Session};
use crate::agent_client::process::Process;
use crate::agent_client::routing::SessionItem;

/// The most sub-agents of one session that are open at a time.
const MAX_SUBAGENTS: usize = 64;
/// The most sub-agents of a whole tree that are open at a time.
const MAX_OF_TREE: usize = 512;
/// The most sessions of a tree whose threads are known. References to others are left out of the log.
const MAX_KNOWN_THREADS: usize = 4_096;
/// The most messages from other sessions that are remembered while their content arrives.
const MAX_RECEIVED: usize = 256;
/// The number of open sub-agents from which the registry is cleaned up.
const CLEANED_FROM: usize = 1_024;

/// The open sessions of sub-agents, by thread.
#[derive(Debug, Default)]
pub(crate) struct OpenSubagents(Mutex<RegisteredSessions>);

#[derive(Debug, Default)]
struct RegisteredSessions {
    by_thread: HashMap<ThreadKey, Weak<Session>>,
    /// The number of sessions after the last clean-up.
    kept: usize,
}

/// The threads of all sessions of a tree, by the agent's ids. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct TreeThreads(Arc<Mutex<HashMap<String, ThreadId>>>);

/// What is known of a sub-agent: its parent's actor and its own share it.
pub(super) type SharedDescription = Arc<Mutex<SubagentDescription>>;

/// The sub-agents of a session, by the agent's ids. They are closed with it.
#[derive(Debug, Default)]
pub(crate) struct Subagents(Mutex<HashMap<String, OpenSubagent>>);

#[derive(Debug)]
pub(super) struct OpenSubagent {
    pub(super) session: Arc<Session>,
    pub(super) thread: ThreadContext,
    pub(super) description: SharedDescription,
    /// Whether its parent's log has it.
    pub(super) is_logged: bool,
    /// Its place in the tree.
    pub(super) _place: OwnedSemaphorePermit,
}

/// What a session needs to open those of its sub-agents.
#[derive(Clone, Debug)]
pub(super) struct FamilyParts {
    pub(super) process: Weak<Process>,
    pub(super) open: Arc<OpenSubagents>,
    pub(super) threads: TreeThreads,
    pub(super) subagents: Arc<Subagents>,
    /// The agent's id of this session.
    pub(super) remote: Arc<str>,
    pub(super) parent: Option<ParentSession>,
    /// What is known of this session, if it is a sub-agent's.
    pub(super) description: Option<SharedDescription>,
    /// The places for sub-agents of the whole tree.
    pub(super) places: Arc<Semaphore>,
    /// The thread of the first session, which editors have open.
    pub(super) root: ThreadContext,
}

/// The sessions around one, as its actor knows them.
#[derive(Debug)]
pub(super) struct Family {
    parts: FamilyParts,
    /// The messages whose recipient is this session.
    received: VecDeque<String>,
}

/// The reasons for which an update about a sub-agent is ignored.
const UNKNOWN: &str = "unknown_subagent";
pub(super) const TOO_LARGE: &str = "subagent_too_large";

// === impl OpenSubagents ===

impl OpenSubagents {
    pub(super) fn insert(&self, thread: ThreadKey, session: &Arc<Session>) {
        let mut open = lock(&self.0);
        // A clean-up costs as much as the insertions since the last one.
        if open.by_thread.len() >= (open.kept * 2).max(CLEANED_FROM) {
            open.by_thread.retain(|_, session| session.strong_count() > 0);
            open.kept = open.by_thread.len();
        }
        open.by_thread.insert(thread, Arc::downgrade(session));
    }

    pub(crate) fn get(&self, thread: ThreadKey) -> Option<Arc<Session>> {
        lock(&self.0).by_thread.get(&thread)?.upgrade()
    }
}

// === impl TreeThreads ===

impl TreeThreads {
    pub(super) fn insert(&self, remote: &str, thread: &ThreadId) {
        let mut threads = lock(&self.0);
        if threads.len() < MAX_KNOWN_THREADS {
            threads.insert(remote.to_owned(), thread.clone());
        }
    }

    pub(super) fn get(&self, remote: &str) -> Option<ThreadId> {
        lock(&self.0).get(remote).cloned()
    }
}

/// The places for the sub-agents of a new tree.
pub(super) fn tree_places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_OF_TREE))
}

// === impl Subagents ===

impl Subagents {
    /// Whether one more fits. If all places are taken, the one that has been idle for longest is closed: its thread stays, and a new announcement opens it again.
    pub(super) fn make_room(&self) -> bool {
        let mut subagents = lock(&self.0);
        if subagents.len() < MAX_SUBAGENTS {
            return true;
        }
        let idle = subagents.iter().filter(|(_, one)| !one.is_at_work());
        let oldest = idle.min_by_key(|(_, one)| one.session.last_used());
        let oldest = oldest.map(|(remote, _)| remote.clone());
        let closed = oldest.and_then(|remote| subagents.remove(&remote));
        // Closing it takes other locks.
        drop(subagents);
        closed.iter().for_each(|one| one.session.close());
        closed.is_some()
    }

    /// Whether one of them works, or one below them.
    pub(super) fn are_at_work(&self) -> bool {
        lock(&self.0).values().any(OpenSubagent::is_at_work)
    }

    pub(super) fn insert(&self, remote: String, subagent: OpenSubagent) {
        lock(&self.0).insert(remote, subagent);
    }

    fn sessions(&self) -> Vec<Arc<Session>> {
        lock(&self.0).values().map(|one| Arc::clone(&one.session)).collect()
    }

    /// Notes that the updates of all sub-agents after this are no replay.
    pub(crate) async fn end_replay(&self) {
        for session in self.sessions() {
            session.inbox().put(SessionItem::ReplayOver).await;
        }
    }

    /// Ends the replay of all sub-agents as that of their parent ends.
    pub(super) async fn record_reopened(&self, may_still_replay: bool) {
        for session in self.sessions() {
            session.inbox().put(SessionItem::Reopened { may_still_replay }).await;
        }
    }

    /// Closes the sessions. Their open work ends as cancelled.
    pub(super) fn close(&self) {
        let closed = std::mem::take(&mut *lock(&self.0));
        for one in closed.into_values() {
            one.session.inbox().parent_closed();
            one.session.close();
        }
    }
}

// === impl OpenSubagent ===

impl OpenSubagent {
    /// Whether it works, its run is about to start, or a sub-agent of its own works: closing it would end that work.
    fn is_at_work(&self) -> bool {
        let session = &self.session;
        lock(&self.description).works()
            || session.has_leases_beyond(0)
            || session.inbox().has_unhandled()
            || session.has_working_subagents()
    }
}

// === impl Family ===

impl Family {
    pub(super) fn new(parts: FamilyParts) -> Self {
        Self { parts, received: VecDeque::new() }
    }

    pub(super) fn parts(&self) -> &FamilyParts {
        &self.parts
    }

    pub(super) fn subagents(&self) -> &Arc<Subagents> {
        &self.parts.subagents
    }

    pub(super) fn thread_of(&self, remote: &str) -> Option<ThreadId> {
        self.parts.threads.get(remote)
    }

    pub(super) fn is_subagent(&self) -> bool {
        self.parts.parent.is_some()
    }

    /// The run in which the session's parent works now.
    pub(super) fn parent_run(&self) -> Option<WorkRun> {
        self.parts.parent.as_ref()?.work.borrow().clone()
    }

    pub(super) fn process(&self) -> Option<Arc<Process>> {
        self.parts.process.upgrade()
    }

    /// Whether a message between sessions is the input of this one. `thread` is this session's.
    pub(super) fn receives(&mut self, kind: &str, params: &str, thread: &ThreadId) -> bool {
        if !self.is_subagent() {
            return false;
        }
        let Some(id) = splice::get_text(params, &["update", "messageId"]) else { return false };
        if self.received.iter().any(|known| *known == id) {
            return true;
        }
        let recipient = splice::get_text(params, &["update", "recipientSessionId"]);
        if kind != SESSION_MESSAGE || recipient.as_deref() != Some(thread.as_str()) {
            return false;
        }
        if self.received.len() >= MAX_RECEIVED {
            self.received.pop_front();
        }
        self.received.push_back(id.into_owned());
        true
    }

    /// Whether an update about a sub-agent is the first that the log gets.
    pub(super) fn is_new(&self, params: &str) -> bool {
        let Some(remote) = splice::get_text(params, &["update", "sessionId"]) else { return false };
        lock(&self.parts.subagents.0).get(&*remote).is_some_and(|one| !one.is_logged)
    }

    /// Applies an update about a sub-agent. Returns it with the whole description and the id of a thread. Fails with the reason why it is ignored.
    pub(super) async fn describe(&self, params: &str) -> Result<String, &'static str> {
        let update = splice::get(params, &["update"]).ok_or(UNKNOWN)?;
        let remote = splice::get_text(update, &["sessionId"]).ok_or(UNKNOWN)?;
        let (thread, title, binding, described) = {
            let mut subagents = lock(&self.parts.subagents.0);
            let one = subagents.get_mut(&*remote).ok_or(UNKNOWN)?;
            let mut known = lock(&one.description);
            let before = (known.to_json(), known.title().map(str::to_owned));
            known.apply(update).map_err(|InvalidDescription| TOO_LARGE)?;
            one.is_logged = true;
            one.session.set_can_cancel(known.can_cancel());
            let thread = one.thread.clone();
            let described = known.to_params(params, thread.thread()).ok_or(TOO_LARGE)?;
            let (kept, title) = (known.to_json(), known.title());
            let title = (title != before.1.as_deref()).then(|| title.map(str::to_owned));
            let binding = (kept != before.0).then(|| SessionBinding::of_subagent(kept).to_json());
            (thread, title, binding, described)
        };
        if let Some(title) = title
            && let Err(error) = thread.set_title(title.as_deref()).await
        {
            tracing::debug!(thread = %thread.thread(), %error, "the title of a sub-agent was not stored");
        }
        if let Some(binding) = binding
            && thread.bind(&remote, binding).await.is_err()
        {
            tracing::debug!(thread = %thread.thread(), "the description of a sub-agent was not stored");
        }
        Ok(described)
    }

    /// Clears the states of the sub-agents that worked, because their process has ended. Returns the threads of these, with the updates that say so.
    pub(super) fn clear_states(&self) -> Vec<(ThreadId, String)> {
        let subagents = lock(&self.parts.subagents.0);
        let cleared = subagents.values().filter_map(|one| {
            let thread = one.thread.thread();
            Some((thread.clone(), clear_state_of_work(&mut lock(&one.description), thread)?))
        });
        cleared.collect()
    }

    /// Clears the state of this sub-agent if it worked. Returns the update of its parent that says so.
    pub(super) fn clear_own_state(&self, thread: &ThreadId) -> Option<String> {
        let description = self.parts.description.as_ref()?;
        clear_state_of_work(&mut lock(description), thread)
    }
}

/// Clears the state of a sub-agent that worked. Returns the update that says so. Only a logged update makes one work.
fn clear_state_of_work(description: &mut SubagentDescription, thread: &ThreadId) -> Option<String> {
    if !description.works() {
        return None;
    }
    description.apply(r#"{"state":null}"#).ok()?;
    description.to_params(r#"{"sessionId":"","update":{}}"#, thread)
}
