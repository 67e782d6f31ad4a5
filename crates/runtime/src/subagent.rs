//! Sub-agents: conversations that an agent has started itself. Each has a thread of its own, on which only the agent's own work runs.

use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::event::ThreadEvent;
use trilogue_domain::thread::AGENT_TITLE_MEMBER;
use trilogue_domain::{AgentName, Body, Code, Error, Json, Principal, Scope, ThreadId, ThreadKey};
use trilogue_store::Draft;
use trilogue_store::rows::{Page, ThreadFilter, ThreadRow};

use crate::client::ClientProfile;
use crate::handle::Runtime;
use crate::request::NewThread;
use crate::session::{NewSubagent, SubagentThread, ThreadContext};
use crate::step::Command;
use crate::subagent_member::{
    PARENT_AGENT_MEMBER, PARENT_RUN_MEMBER, PARENT_THREAD_MEMBER, SUBAGENT_KEY_MEMBER,
    SUBAGENT_MEMBER, is_subagent,
};

// === impl Runtime ===

impl Runtime {
    /// The thread of a sub-agent; creates it if it does not exist. It belongs to the owner of its parent's thread.
    /// Errors: `thread_not_found` if the parent's thread was erased, `shutting_down`, and what storing can fail with.
    pub(crate) async fn subagent_thread(
        &self,
        parent: &ThreadContext,
        new: NewSubagent,
    ) -> Result<SubagentThread> {
        self.check_open()?;
        let store = &self.services().store;
        let owner = store.thread_of(&parent.scope, parent.thread).await?.ok_or_else(|| {
            Error::new(Code::ThreadNotFound, format!("thread '{}' not found", parent.id))
        })?;
        let key = new.key.to_string();
        let filter = ThreadFilter {
            metadata: vec![
                (SUBAGENT_KEY_MEMBER.to_owned(), format!("\"{key}\"")),
                (SUBAGENT_MEMBER.to_owned(), "true".to_owned()),
            ],
            ..ThreadFilter::default()
        };
        let scope = Scope { tenant: owner.tenant.clone(), owner: Some(owner.owner.clone()) };
        let page = Page { limit: 1, ..Page::default() };
        // An erased thread is not found, and its sub-agent gets a new one.
        if let Some(known) = store.threads(&scope, &filter, &page).await?.rows.into_iter().next() {
            if known.owner_node != self.services().node {
                store.take_for_agent(&known, &parent.agent).await?;
            }
            return Ok(SubagentThread { context: self.below(parent, &known), is_new: false });
        }
        let mut metadata = serde_json::json!({
            SUBAGENT_MEMBER: true,
            SUBAGENT_KEY_MEMBER: key,
            PARENT_THREAD_MEMBER: parent.id.as_str(),
            PARENT_AGENT_MEMBER: parent.agent.as_str(),
        });
        if let Some(run) = &new.run {
            metadata[PARENT_RUN_MEMBER] = run.as_str().into();
        }
        if let Some(title) = new.title.as_deref().and_then(trilogue_domain::thread::title) {
            metadata[AGENT_TITLE_MEMBER] = title.into();
        }
        let metadata = Json::from_value(&metadata);
        let by = Principal {
            tenant: owner.tenant.clone(),
            id: owner.owner.clone(),
            rights: std::iter::empty().collect(),
            own: true,
        };
        let thread = NewThread { metadata: Some(metadata.clone()), ..NewThread::default() };
        let row = self.new_thread_row(&by, &thread, false)?;
        store.check_takes(row.key).await?;
        let created = ThreadEvent::Created { thread: row.id.clone(), metadata, copied_from: None };
        self.append_new(&row, &[Body::Thread(created)], Vec::new()).await?;
        Ok(SubagentThread { context: self.below(parent, &row), is_new: true })
    }

    /// Says in the log of the parent that the state of its sub-agent is not known, if this thread is a sub-agent's and the log shows it at work. The agent need not be configured any more.
    /// Fails if the logs cannot be read or written.
    pub(crate) async fn record_lost_subagent(&self, thread: ThreadKey) -> Result<()> {
        match self.services().store.thread_by_key(thread).await? {
            Some(row) => self.clear_state_of(&row).await,
            None => Ok(()),
        }
    }

    /// As [`Self::record_lost_subagent`], for a thread that may have been erased since this row was read.
    pub(crate) async fn clear_state_of(&self, row: &ThreadRow) -> Result<()> {
        if !is_subagent(&row.metadata) {
            return Ok(());
        }
        let metadata = row.metadata.to_value();
        let text = |member: &str| metadata.get(member).and_then(serde_json::Value::as_str);
        let parent = text(PARENT_THREAD_MEMBER).and_then(|id| ThreadId::parse(id).ok());
        let agent = text(PARENT_AGENT_MEMBER).and_then(|name| AgentName::parse(name).ok());
        let (Some(parent), Some(agent)) = (parent, agent) else { return Ok(()) };
        let scope = Scope { tenant: row.tenant.clone(), owner: Some(row.owner.clone()) };
        // An erased parent's log needs nothing.
        let Some(parent) = self.services().store.thread(&scope, &parent).await? else {
            return Ok(());
        };
        self.thread_context(&parent, &agent).clear_subagent_state(&row.id).await
    }

    fn below(&self, parent: &ThreadContext, thread: &ThreadRow) -> ThreadContext {
        let context = self.thread_context(thread, &parent.agent);
        ThreadContext { parent: Some(Arc::new(parent.clone())), ..context }
    }
}

// === impl ThreadContext ===

impl ThreadContext {
    /// Opens the thread of a sub-agent of this thread's agent, and creates it if it does not exist.
    /// Errors: `thread_not_found`, `shutting_down`, and what storing can fail with.
    pub async fn subagent(&self, new: NewSubagent) -> Result<SubagentThread> {
        self.services.call_chains.port()?.subagent_thread(self, new).await
    }

    /// The thread of the parent, if this is a sub-agent's.
    #[must_use]
    pub fn parent(&self) -> Option<&Self> {
        self.parent.as_deref()
    }

    /// The number of threads above this one: 0 for a thread that is not a sub-agent's.
    #[must_use]
    pub fn depth(&self) -> usize {
        std::iter::successors(self.parent.as_deref(), |above| above.parent.as_deref()).count()
    }

    /// The most threads in a chain of sub-agents, with the first one.
    #[must_use]
    pub fn max_depth(&self) -> usize {
        self.services.options.max_call_depth
    }

    /// Sets or clears the agent's title of the thread, without an event.
    /// Fails if the thread was removed or the store fails.
    pub async fn set_title(&self, title: Option<&str>) -> Result<()> {
        let title = Some(title.and_then(trilogue_domain::thread::title));
        let draft = Draft::default();
        self.change(Command::AppendOutsideRun { draft, bound: None, title, begun: None }).await
    }

    /// Like [`RunContext::wait_for_client`].
    pub async fn wait_for_client(&self, limit: std::time::Duration) -> Option<ClientProfile> {
        self.services.controllers.wait(self.thread, limit).await
    }
}
