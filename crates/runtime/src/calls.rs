//! Connects the calls of agents to the runtime.

use std::sync::Arc;

use async_trait::async_trait;
use trilogue_domain::error::Result;
use trilogue_domain::{Answer, InterruptId, Json, ParentRun, Principal};
use trilogue_store::rows::RunRow;

use crate::call_chains::SubmitChild;
use crate::handle::{Runtime, WeakRuntime};
use crate::owner::stopped_error;
use crate::request::{AnswerTo, ChildOf, RunRequest, Submitted};
use crate::session::{NewSubagent, SubagentThread, ThreadContext};

// === impl Runtime ===

impl Runtime {
    /// Lets agents call each other.
    pub(crate) fn take_calls(&self) {
        self.services().call_chains.submit_with(Arc::new(self.downgrade()));
    }
}

#[async_trait]
impl SubmitChild for WeakRuntime {
    async fn submit(&self, by: &Principal, new: RunRequest, child: ChildOf) -> Result<Submitted> {
        self.upgrade().ok_or_else(stopped_error)?.submit_child(by, new, child).await
    }

    async fn start_agent_run(
        &self,
        thread: &ThreadContext,
        parent: Option<ParentRun>,
    ) -> Result<RunRow> {
        self.upgrade().ok_or_else(stopped_error)?.start_agent_run(thread, parent).await
    }

    async fn subagent_thread(
        &self,
        parent: &ThreadContext,
        new: NewSubagent,
    ) -> Result<SubagentThread> {
        self.upgrade().ok_or_else(stopped_error)?.subagent_thread(parent, new).await
    }

    async fn answer(
        &self,
        by: &Principal,
        interrupt: InterruptId,
        answer: Answer,
        extra: Option<Json>,
    ) -> Result<()> {
        let runtime = self.upgrade().ok_or_else(stopped_error)?;
        runtime.answer_with(by, AnswerTo::Interrupt(interrupt), answer, extra).await.map(drop)
    }
}
