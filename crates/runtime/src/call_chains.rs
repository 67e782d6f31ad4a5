//! Child runs: runs that another run's agent called.
//!
//! A child ends at the latest with the turn that called it. Its caller is remembered only here, in memory: a child that is loaded without one is cancelled.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::{
    AgentName, Answer, Code, Error, InterruptId, Json, ParentRun, Principal, RunKey, ThreadKey,
    lock,
};
use trilogue_store::rows::RunRow;

use crate::request::{ChildOf, RunRequest, Submitted};
use crate::session::{NewSubagent, SubagentThread, ThreadContext};

/// The services of the layer above owners that a call needs.
#[async_trait]
pub(crate) trait SubmitChild: Send + Sync + fmt::Debug {
    /// Submits a child run, like [`crate::Runtime::submit`].
    async fn submit(&self, by: &Principal, new: RunRequest, child: ChildOf) -> Result<Submitted>;

    /// Starts a run for the work of a thread's agent, like [`crate::Runtime::start_agent_run`].
    async fn start_agent_run(
        &self,
        thread: &ThreadContext,
        parent: Option<ParentRun>,
    ) -> Result<RunRow>;

    /// Opens the thread of a sub-agent, like [`crate::Runtime::subagent_thread`].
    async fn subagent_thread(
        &self,
        parent: &ThreadContext,
        new: NewSubagent,
    ) -> Result<SubagentThread>;

    /// Answers an interrupt, like [`crate::Runtime::answer_with`].
    async fn answer(
        &self,
        by: &Principal,
        interrupt: InterruptId,
        answer: Answer,
        extra: Option<Json>,
    ) -> Result<()>;
}

/// The callers of child runs, while they wait for them.
#[derive(Debug, Default)]
pub(crate) struct CallChains {
    by_child: Mutex<HashMap<RunKey, Arc<[CallingRun]>>>,
    submit: OnceLock<Arc<dyn SubmitChild>>,
}

/// One run of the chain that led to a child.
#[derive(Clone, Debug)]
pub(crate) struct CallingRun {
    pub(crate) run: RunKey,
    pub(crate) agent: AgentName,
    pub(crate) thread: ThreadKey,
}

/// Keeps the caller of a child registered until it is dropped.
#[derive(Debug)]
pub(crate) struct ChainGuard {
    chains: Arc<CallChains>,
    child: RunKey,
}

// === impl CallChains ===

impl CallChains {
    pub(crate) fn submit_with(&self, submit: Arc<dyn SubmitChild>) {
        if self.submit.set(submit).is_err() {
            tracing::error!("a second taker of calls was handed in and is not used");
        }
    }

    pub(crate) fn port(&self) -> Result<&Arc<dyn SubmitChild>> {
        self.submit
            .get()
            .ok_or_else(|| Error::new(Code::Internal, "nothing here takes calls of other agents"))
    }

    pub(crate) fn has_caller(&self, child: RunKey) -> bool {
        lock(&self.by_child).contains_key(&child)
    }

    /// Returns the runs that led to this one, the first caller first; empty for a run that no agent called.
    pub(crate) fn callers(&self, child: RunKey) -> Arc<[CallingRun]> {
        lock(&self.by_child).get(&child).cloned().unwrap_or_default()
    }

    /// Registers the chain of a child. Fails with `overloaded` if its caller, the last of the chain, has `most` children.
    pub(crate) fn note(
        self: &Arc<Self>,
        child: RunKey,
        chain: Arc<[CallingRun]>,
        most: usize,
    ) -> Result<ChainGuard> {
        let caller = |chain: &Arc<[CallingRun]>| chain.last().map(|caller| caller.run);
        let mut by_child = lock(&self.by_child);
        let siblings = by_child.values().filter(|other| caller(other) == caller(&chain)).count();
        if siblings >= most {
            let message = format!("{siblings} calls of the run have not ended; {most} is the most");
            return Err(Error::new(Code::Overloaded, message).hint("await one of them first"));
        }
        by_child.insert(child, chain);
        Ok(ChainGuard { chains: Arc::clone(self), child })
    }
}

// === impl ChainGuard ===

impl Drop for ChainGuard {
    fn drop(&mut self) {
        lock(&self.chains.by_child).remove(&self.child);
    }
}
