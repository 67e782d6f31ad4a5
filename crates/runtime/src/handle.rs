//! The runtime's handle: what faces call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::port::{CheckOutput, Clock, Deliver, Fetch, ReadOriginal};
use trilogue_domain::{
    AgentCard, AgentName, Answer, Body, CheckpointKey, Code, Error, InterruptId, Principal,
    PrincipalId, RunId, RunStatus, Scope, ThreadId, ThreadKey,
};
use trilogue_store::rows::{CheckpointRow, InterruptRow, RunRow, ThreadRow};
use trilogue_store::{Batch, Change, Draft, Store};

use crate::backend::{Backend, Rewind};
use crate::owner::Envelope;
use crate::part::check_metadata;
use crate::request::{AnswerTo, DrainReport, NewThread, Options, RuntimeStatus, ThreadPatch};
use crate::services::{Presence, Services};
use crate::shown::Shown;
use crate::step::{Command, Reply, Target, gone};
use crate::submit::stopped;
use crate::{history, workers};

/// Owners of threads, and the workers beside them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Runtime(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    services: Arc<Services>,
    shown: Shown,
    /// Ends the workers.
    closing: CancellationToken,
}

// === impl Runtime ===

impl Runtime {
    /// Recovers what a previous life left, and starts the workers.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn start(
        options: Options,
        store: Arc<dyn Store>,
        agents: Vec<Arc<dyn Backend>>,
        clock: Arc<dyn Clock>,
        originals: Arc<dyn ReadOriginal>,
    ) -> Result<Self> {
        let services = Services::new(options, store, agents, clock, originals);
        for thread in services.store.open_threads().await? {
            let (reply, looked_at) = oneshot::channel();
            let request = Envelope::Settled { run: trilogue_domain::RunKey(0), reply };
            services.send(thread, request).await?;
            // A damaged thread stays as it is and does not keep the others from starting.
            if let Ok(Err(error)) = looked_at.await {
                tracing::error!(%thread, %error, "a thread could not be recovered");
            }
        }
        services.set_recovered();
        let closing = CancellationToken::new();
        let runtime = Self(Arc::new(Inner { services, shown: Shown::default(), closing }));
        workers::start(&runtime);
        Ok(runtime)
    }

    /// Starts the worker that delivers callbacks; it ends when the runtime drains.
    pub fn deliver_with(&self, sender: Arc<dyn Deliver>) {
        crate::callback::start(self, sender);
    }

    /// Has addresses in histories that clients bring read by this. Hand it in right after the start: without it they are refused.
    pub fn fetch_with(&self, fetch: Arc<dyn Fetch>) {
        self.services().outside.set_fetch(fetch);
    }

    /// Has the output of runs with rules checked by this. Hand it in right after the start: without it such runs are refused.
    pub fn check_output_with(&self, check: Arc<dyn CheckOutput>) {
        self.services().outside.set_check(check);
    }

    /// The agents, by name.
    #[must_use]
    pub fn agents(&self) -> Vec<&AgentCard> {
        let mut cards: Vec<_> = self.services().agents.values().map(|agent| agent.card()).collect();
        cards.sort_by(|one, other| one.name.cmp(&other.name));
        cards
    }

    /// One agent.
    ///
    /// # Errors
    /// `agent_not_found`, naming the agents there are.
    pub fn agent(&self, name: &AgentName) -> Result<&AgentCard> {
        Ok(self.services().backend(name)?.card())
    }

    /// Creates a thread.
    ///
    /// # Errors
    /// `already_exists`, and what storing can fail with.
    pub async fn create_thread(&self, by: &Principal, new: NewThread) -> Result<ThreadRow> {
        self.check_open()?;
        let row = self.new_thread_row(by, &new, false)?;
        let event = trilogue_domain::event::ThreadEvent::Created {
            thread: row.id.clone(),
            metadata: row.metadata.clone(),
            copied_from: None,
        };
        self.append_new(&row, &[Body::Thread(event)], Vec::new()).await?;
        Ok(row)
    }

    /// Changes a thread's metadata, state or head.
    ///
    /// # Errors
    /// `thread_not_found`, `agent_memory_not_rewindable`, and what storing can fail with.
    pub async fn patch_thread(
        &self,
        by: &Principal,
        id: &ThreadId,
        patch: ThreadPatch,
    ) -> Result<ThreadRow> {
        self.check_open()?;
        let scope = by.scope();
        let thread = self.thread_row(&scope, id).await?;
        let from = match &patch.from {
            Some(checkpoint) => Some(self.rewind_point(&scope, &thread, checkpoint).await?),
            None => None,
        };
        let checkpoint = self.services().new_checkpoint();
        let command = Command::Patch { patch: Box::new(patch), from, checkpoint };
        match self.change(thread.key, command).await? {
            Reply::Thread(row) => Ok(*row),
            _ => Err(unexpected()),
        }
    }

    /// Erases a thread with everything of it. Its runs are stopped first; a damaged thread is removed unread.
    ///
    /// # Errors
    /// `thread_not_found`, and what storing can fail with.
    pub async fn erase_thread(&self, by: &Principal, id: &ThreadId) -> Result<()> {
        let erased = match self.thread_row(&by.scope(), id).await {
            Ok(thread) => self.change(thread.key, Command::Erase).await.map(drop),
            Err(error) => Err(error),
        };
        match erased {
            // Its owner cannot load what is damaged; the store removes it unread.
            Err(error) if error.code() == Code::ThreadQuarantined => {
                match self.services().store.erase_quarantined(&by.scope(), id).await? {
                    true => Ok(()),
                    false => Err(error),
                }
            }
            other => other,
        }
    }

    /// Waits until a run has ended or waits for an answer.
    ///
    /// # Errors
    /// `run_not_found`; `shutting_down` when the server stops first.
    pub async fn settled(&self, by: &Principal, id: &RunId) -> Result<RunRow> {
        let row = self.run_row(&by.scope(), id).await?;
        self.settled_row(row).await
    }

    /// Asks a run to stop. Returns when that is durable, which may be before the agent has stopped.
    ///
    /// # Errors
    /// `run_not_found`, `run_ended`, and what storing can fail with.
    pub async fn cancel(&self, by: &Principal, id: &RunId) -> Result<RunRow> {
        let row = self.run_row(&by.scope(), id).await?;
        match self.change(row.thread, Command::Cancel { run: row.key, reason: None }).await? {
            Reply::Run(row) => Ok(*row),
            _ => Err(unexpected()),
        }
    }

    /// Removes a run that has ended, with its events.
    ///
    /// # Errors
    /// `run_not_found`, `run_not_ended`, and what storing can fail with.
    pub async fn remove_run(&self, by: &Principal, id: &RunId) -> Result<()> {
        let row = self.run_row(&by.scope(), id).await?;
        let command = Command::RemoveRun { run: row.key, id: row.id, reason: "deleted" };
        self.change(row.thread, command).await.map(drop)
    }

    /// Answers an interrupt. The thread's owner orders answers: the second is told.
    ///
    /// # Errors
    /// `interrupt_not_found`, `run_not_found`, `interrupt_resolved`, `interrupt_mismatch`, `answer_invalid`, and what storing can fail with.
    pub async fn answer(
        &self,
        by: &Principal,
        to: AnswerTo,
        answer: Answer,
    ) -> Result<InterruptRow> {
        let scope = by.scope();
        if let Answer::Message(parts) = &answer {
            check_metadata(parts, self.services().options.max_part_metadata_bytes)?;
        }
        let store = &self.services().store;
        let (thread, run, target) = match to {
            AnswerTo::Interrupt(id) => {
                let row = store.interrupt(&scope, &id).await?.ok_or_else(|| {
                    Error::new(Code::InterruptNotFound, format!("there is no interrupt '{id}'"))
                })?;
                self.check_answer(&row, &answer)?;
                (row.thread, row.run_id, Target::Interrupt(id))
            }
            AnswerTo::Run(id) => {
                let row = self.run_row(&scope, &id).await?;
                let target = match self.0.shown.last(&by.id, &id) {
                    Some(shown) => Target::Interrupt(shown),
                    None => Target::FirstOf(row.key),
                };
                (row.thread, id, target)
            }
        };
        let command = Command::Answer { to: target, answer, by: by.clone() };
        match self.change(thread, command).await {
            Ok(Reply::Interrupt(row)) => Ok(*row),
            Ok(_) => Err(unexpected()),
            Err(error) if error.code() == Code::InterruptResolved => {
                Err(self.name_pending(&scope, &run, error).await)
            }
            Err(error) => Err(error),
        }
    }

    /// Notes that this principal was shown this interrupt of this run: an answer of theirs without a name is for it.
    pub fn shown(&self, to: &PrincipalId, run: &RunId, interrupt: &InterruptId) {
        self.0.shown.note(to, run, interrupt);
    }

    /// The interrupt of this run that this principal was last shown, as far as that is remembered.
    #[must_use]
    pub fn last_shown(&self, to: &PrincipalId, run: &RunId) -> Option<InterruptId> {
        self.0.shown.last(to, run)
    }

    /// Notes that somebody who may answer is connected to the thread, until the guard is dropped.
    #[must_use]
    pub fn present(&self, thread: &ThreadRow) -> Presence {
        self.services().present(thread.key)
    }

    /// What the runtime is doing.
    #[must_use]
    pub fn status(&self) -> RuntimeStatus {
        let services = self.services();
        RuntimeStatus {
            running: services.tasks.load(Ordering::Acquire),
            owners: services.owner_count(),
            draining: services.draining.load(Ordering::Acquire),
        }
    }

    /// Takes no new runs, lets running ones end until the deadline, ends the rest as `agent_lost`, and keeps what waits.
    pub async fn drain(&self, deadline: Duration) -> DrainReport {
        let services = self.services();
        services.draining.store(true, Ordering::Release);
        self.0.closing.cancel();
        for thread in services.owned() {
            // An owner that has left by itself has nothing to drain.
            drop(self.change(thread, Command::Drain).await);
        }
        let all_ended = async {
            loop {
                let ended = services.task_ended.notified();
                if services.tasks.load(Ordering::Acquire) == 0 {
                    return;
                }
                ended.await;
            }
        };
        // What is left at the deadline is reported below.
        drop(tokio::time::timeout(deadline, all_ended).await);
        let mut report = DrainReport::default();
        for thread in services.owned() {
            let (reply, done) = oneshot::channel();
            if services.send(thread, Envelope::Shutdown { reply }).await.is_ok() {
                let rows = done.await.unwrap_or_default();
                report.abandoned.extend(rows.into_iter().map(|row| row.id));
            }
        }
        report.waiting = self.waiting().await;
        report
    }

    pub(crate) fn services(&self) -> &Arc<Services> {
        &self.0.services
    }

    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.0.closing
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.services().draining.load(Ordering::Acquire) {
            return Err(Error::new(Code::ShuttingDown, "the server is shutting down")
                .hint("send the request again when it is back"));
        }
        Ok(())
    }

    /// Has a thread's owner carry out a command.
    pub(crate) async fn change(&self, thread: ThreadKey, command: Command) -> Result<Reply> {
        let (reply, done) = oneshot::channel();
        let request = Envelope::Change { command: Box::new(command), reply };
        self.services().send(thread, request).await?;
        done.await.map_err(|_| stopped())?
    }

    pub(crate) async fn settled_row(&self, row: RunRow) -> Result<RunRow> {
        if row.status.is_terminal() {
            return Ok(row);
        }
        let (reply, settled) = oneshot::channel();
        self.services().send(row.thread, Envelope::Settled { run: row.key, reply }).await?;
        match settled.await.map_err(|_| stopped())?? {
            Some(row) => Ok(row),
            None => {
                let scope = Scope { tenant: row.tenant.clone(), owner: None };
                self.run_row(&scope, &row.id).await
            }
        }
    }

    pub(crate) async fn thread_row(&self, scope: &Scope, id: &ThreadId) -> Result<ThreadRow> {
        self.services()
            .store
            .thread(scope, id)
            .await?
            .ok_or_else(|| Error::new(Code::ThreadNotFound, format!("there is no thread '{id}'")))
    }

    pub(crate) async fn run_row(&self, scope: &Scope, id: &RunId) -> Result<RunRow> {
        self.services()
            .store
            .run(scope, id)
            .await?
            .ok_or_else(|| Error::new(Code::RunNotFound, format!("there is no run '{id}'")))
    }

    /// Stores a new thread with its first events, and what else belongs to it.
    pub(crate) async fn append_new(
        &self,
        row: &ThreadRow,
        events: &[Body],
        others: Vec<Change>,
    ) -> Result<()> {
        let services = self.services();
        let mut draft = Draft::default();
        for event in events {
            draft.push(row.created_at, event, None)?;
        }
        let mut changes = vec![Change::Thread(row.clone())];
        changes.extend(others);
        services
            .store
            .append(Batch {
                thread: row.key,
                epoch: row.epoch,
                expected_last: 0,
                frames: draft.seal(row.key, None, 1, 0, &services.originals),
                changes,
                blobs: Vec::new(),
                vital: false,
            })
            .await
    }

    fn check_answer(&self, row: &InterruptRow, answer: &Answer) -> Result<()> {
        row.interrupt.check(answer)?;
        match self.services().backend(&row.agent) {
            Ok(backend) => backend.check_answer(&row.interrupt, answer),
            // The agent is not configured any more; the run will say so.
            Err(_) => Ok(()),
        }
    }

    /// Adds the interrupt that is pending now to the error of an answer that missed.
    async fn name_pending(&self, scope: &Scope, run: &RunId, error: Error) -> Error {
        let filter = trilogue_store::rows::InterruptFilter {
            thread: None,
            run: Some(run.clone()),
            pending: true,
        };
        match self
            .services()
            .store
            .interrupts(scope, &filter, &trilogue_store::rows::Page::default())
            .await
        {
            Ok(listing) => listing.rows.last().map_or(error, |row| gone(Some(&row.interrupt.id))),
            Err(_) => error,
        }
    }

    /// The checkpoint to branch from, where every agent that knows the thread can follow.
    async fn rewind_point(
        &self,
        scope: &Scope,
        thread: &ThreadRow,
        id: &trilogue_domain::CheckpointId,
    ) -> Result<CheckpointKey> {
        let store = self.services().store.as_ref();
        let row = store.checkpoint(scope, &thread.id, id).await?.ok_or_else(|| {
            Error::new(
                Code::NotFound,
                format!("the thread '{}' has no checkpoint '{id}'", thread.id),
            )
        })?;
        if thread.head == Some(row.key) {
            return Ok(row.key);
        }
        let kept = history::path(store, scope, &thread.id, Some(row.key)).await?;
        self.check_memory(scope, thread, &kept, &format!("what lies behind the checkpoint '{id}'"))
            .await?;
        Ok(row.key)
    }

    /// Passes when no agent with a memory of its own knows more of the thread than the checkpoints that stay on its path. `what` is what such an agent remembers.
    ///
    /// # Errors
    /// `agent_memory_not_rewindable`, naming the agent.
    pub(crate) async fn check_memory(
        &self,
        scope: &Scope,
        thread: &ThreadRow,
        kept: &[CheckpointRow],
        what: &str,
    ) -> Result<()> {
        let store = self.services().store.as_ref();
        for (name, agent) in &self.services().agents {
            if agent.rewind() != Rewind::Refuse {
                continue;
            }
            let Some(binding) = store.binding(scope, &thread.id, name).await? else { continue };
            let remembers_more = binding
                .told
                .is_some_and(|told| kept.iter().all(|checkpoint| checkpoint.key != told));
            if remembers_more {
                return Err(Error::new(
                    Code::AgentMemoryNotRewindable,
                    format!("the agent '{name}' remembers {what}"),
                )
                .hint("copy the thread and go back in the copy: no agent remembers it"));
            }
        }
        Ok(())
    }

    /// The runs that wait for an answer, for the report of a drain.
    async fn waiting(&self) -> Vec<RunId> {
        let mut waiting = Vec::new();
        let store = &self.services().store;
        for thread in store.open_threads().await.unwrap_or_default() {
            let Ok(Some(row)) = store.thread_by_key(thread).await else { continue };
            let scope = Scope { tenant: row.tenant.clone(), owner: None };
            let filter = trilogue_store::rows::RunFilter {
                thread: Some(row.id),
                status: Some(RunStatus::Interrupted),
                ..Default::default()
            };
            let Ok(listing) =
                store.runs(&scope, &filter, &trilogue_store::rows::Page::default()).await
            else {
                continue;
            };
            waiting.extend(listing.rows.into_iter().map(|row| row.id));
        }
        waiting
    }
}

pub(crate) fn unexpected() -> Error {
    Error::new(Code::Internal, "the thread's owner answered something else")
}

#[cfg(test)]
mod tests {
    use trilogue_domain::port::SystemClock;
    use trilogue_domain::{Json, PrincipalId, Rights, TenantId};
    use trilogue_store::record::NoOriginals;

    use super::*;

    #[tokio::test]
    async fn a_patch_that_was_overtaken_keeps_the_path_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("t.db").display());
        let options = trilogue_store::Options::new(Arc::new(NoOriginals));
        let store = trilogue_store::open(&url, options).await.unwrap();
        let (clock, originals) = (Arc::new(SystemClock), Arc::new(NoOriginals));
        let runtime =
            Runtime::start(Options::default(), store.clone(), Vec::new(), clock, originals)
                .await
                .unwrap();
        let by = Principal {
            id: PrincipalId::parse("alice").unwrap(),
            tenant: TenantId::parse("tenant").unwrap(),
            rights: Rights::all(),
            own: false,
        };
        let thread = runtime.create_thread(&by, NewThread::default()).await.unwrap();
        let patch = || ThreadPatch { values: Some(Json::null()), ..ThreadPatch::default() };
        let early = runtime.services().new_checkpoint();
        runtime.patch_thread(&by, &thread.id, patch()).await.unwrap();
        let late = Command::Patch { patch: Box::new(patch()), from: None, checkpoint: early };
        runtime.change(thread.key, late).await.unwrap();
        let path = store.path(&by.scope(), &thread.id, None, 10).await.unwrap();
        assert_eq!(path.len(), 2, "{path:?}");
    }
}
