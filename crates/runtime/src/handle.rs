//! The runtime's handle: what faces call.

use std::sync::Arc;
use std::time::Duration;

use trilogue_domain::error::Result;
use trilogue_domain::port::Clock;
use trilogue_domain::{
    AgentCard, AgentName, Answer, InterruptId, Principal, PrincipalId, RunId, ThreadId,
};
use trilogue_store::Store;
use trilogue_store::rows::{InterruptRow, RunRow, ThreadRow};

use crate::backend::Backend;
use crate::request::{
    AnswerTo, DrainReport, NewRun, NewThread, Options, Presence, RuntimeStatus, Submitted,
    ThreadPatch,
};

/// Owners of threads, and the workers beside them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Runtime {
    _todo: (),
}

#[allow(missing_docs, unused_variables, clippy::unused_async)]
impl Runtime {
    /// Recovers what a previous life left and starts the workers.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn start(
        options: Options,
        store: Arc<dyn Store>,
        agents: Vec<Arc<dyn Backend>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        unimplemented!()
    }

    /// The agents, by name.
    pub fn agents(&self) -> Vec<&AgentCard> {
        unimplemented!()
    }
    /// One agent.
    ///
    /// # Errors
    /// `agent_not_found`, naming the nearest one.
    pub fn agent(&self, name: &AgentName) -> Result<&AgentCard> {
        unimplemented!()
    }

    pub async fn create_thread(&self, by: &Principal, new: NewThread) -> Result<ThreadRow> {
        unimplemented!()
    }
    pub async fn patch_thread(
        &self,
        by: &Principal,
        id: &ThreadId,
        patch: ThreadPatch,
    ) -> Result<ThreadRow> {
        unimplemented!()
    }
    pub async fn copy_thread(
        &self,
        by: &Principal,
        id: &ThreadId,
        new: NewThread,
    ) -> Result<ThreadRow> {
        unimplemented!()
    }
    /// Erases a thread with everything of it. Its open runs are cancelled first.
    pub async fn erase_thread(&self, by: &Principal, id: &ThreadId) -> Result<()> {
        unimplemented!()
    }

    pub async fn submit(&self, by: &Principal, new: NewRun) -> Result<Submitted> {
        unimplemented!()
    }
    /// Waits until the run has ended or waits for an answer.
    pub async fn settled(&self, by: &Principal, id: &RunId) -> Result<RunRow> {
        unimplemented!()
    }
    pub async fn cancel(&self, by: &Principal, id: &RunId) -> Result<RunRow> {
        unimplemented!()
    }
    /// Removes a run that has ended, with its events.
    pub async fn remove_run(&self, by: &Principal, id: &RunId) -> Result<()> {
        unimplemented!()
    }
    /// Answers an interrupt. The owner orders answers: the second is told `interrupt_resolved`.
    pub async fn answer(
        &self,
        by: &Principal,
        to: AnswerTo,
        answer: Answer,
    ) -> Result<InterruptRow> {
        unimplemented!()
    }
    /// Notes that this principal was shown this interrupt of this run.
    pub fn shown(&self, to: &PrincipalId, run: &RunId, interrupt: &InterruptId) {
        unimplemented!()
    }
    /// Notes that somebody who may answer is connected to the thread, until the guard is dropped.
    pub fn present(&self, thread: &ThreadRow) -> Presence {
        unimplemented!()
    }

    pub fn status(&self) -> RuntimeStatus {
        unimplemented!()
    }
    /// Takes no new runs, lets running ones end until the deadline, ends the rest as `agent_lost`, keeps what waits.
    pub async fn drain(&self, deadline: Duration) -> DrainReport {
        unimplemented!()
    }
}
