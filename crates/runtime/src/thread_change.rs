//! Changes a thread as a whole, reads its state at a checkpoint, and erases it.

use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::{CheckpointId, CheckpointKey, Code, Error, Json, Principal, Scope, ThreadId};
use trilogue_store::rows::{CheckpointRow, Page, RunFilter, ThreadRow};

use crate::backend::{Backend, Rewind};
use crate::handle::Runtime;
use crate::history::states::{self, FoundState};
use crate::history::{self, ConversationReader, HistorySource, StateReader};
use crate::owner::unexpected;
use crate::request::{StateContent, ThreadPatch};
use crate::step::{Command, Reply};
use crate::subagent_member::is_subagent;
use crate::submit::check_editor_metadata;

// === impl Runtime ===

impl Runtime {
    /// Returns a thread's state at one of its checkpoints, or at its head. Fails if the store cannot be read.
    pub async fn state_at(
        &self,
        thread: &ThreadRow,
        at: Option<CheckpointKey>,
    ) -> Result<StateContent> {
        let scope = Scope { tenant: thread.tenant.clone(), owner: None };
        self.found_state(&scope, thread, at).await?.read(self.source(&scope)).await
    }

    /// Like [`Self::state_at`]; returns `None` if the state has more than `max_bytes`.
    pub async fn state_within(
        &self,
        thread: &ThreadRow,
        at: Option<CheckpointKey>,
        max_bytes: usize,
    ) -> Result<Option<StateContent>> {
        let scope = Scope { tenant: thread.tenant.clone(), owner: None };
        self.found_state(&scope, thread, at).await?.within(self.source(&scope), max_bytes).await
    }

    /// Like [`Self::state_at`], but to be read message by message.
    pub async fn read_state(
        &self,
        thread: &ThreadRow,
        at: Option<CheckpointKey>,
    ) -> Result<StateReader> {
        let scope = Scope { tenant: thread.tenant.clone(), owner: None };
        Ok(match self.found_state(&scope, thread, at).await? {
            FoundState::Value(value) => StateReader::Value(value),
            FoundState::Messages(messages) => {
                let services = self.services();
                let (store, external) =
                    (Arc::clone(&services.store), Arc::clone(&services.external));
                StateReader::Messages(ConversationReader::new(store, external, scope, messages))
            }
        })
    }

    /// Returns the states at the first of these checkpoints of a thread, in order, as many as have at most `max_bytes` together: a page of its history in one read. Fails if the store cannot be read.
    pub async fn states(
        &self,
        thread: &ThreadRow,
        checkpoints: &[CheckpointRow],
        max_bytes: usize,
    ) -> Result<Vec<StateContent>> {
        let scope = Scope { tenant: thread.tenant.clone(), owner: None };
        states::of(self.source(&scope), self.registry(), thread, checkpoints, max_bytes).await
    }

    async fn found_state(
        &self,
        scope: &Scope,
        thread: &ThreadRow,
        at: Option<CheckpointKey>,
    ) -> Result<FoundState> {
        states::at(self.source(scope), self.registry(), thread, at.or(thread.head)).await
    }

    /// Changes a thread's metadata, state or head.
    /// Errors: `thread_not_found`, `checkpoint_not_found`, `agent_memory_not_rewindable`, `thread_state_schema_violation`, `thread_busy` if the change requires an idle thread, and the store's errors.
    pub async fn patch_thread(
        &self,
        by: &Principal,
        id: &ThreadId,
        patch: ThreadPatch,
    ) -> Result<ThreadRow> {
        self.check_open()?;
        check_editor_metadata(by, patch.metadata.as_ref(), patch.has_checked_settings)?;
        let scope = by.scope();
        let thread = self.thread_row(&scope, id).await?;
        let from = match &patch.from {
            Some(checkpoint) => Some(self.rewind_point(&scope, &thread, checkpoint).await?),
            None => None,
        };
        if let Some(values) = &patch.values {
            let follows = patch.only_where_set.then_some(from);
            self.check_values(&thread, values, follows).await?;
        }
        let checkpoint = self.services().new_checkpoint();
        let command = Command::Patch { patch: Box::new(patch), from, checkpoint };
        match self.change(thread.key, command).await? {
            Reply::Thread(row) => Ok(*row),
            _ => Err(unexpected()),
        }
    }

    /// Erases a whole thread. Its runs are stopped first; a damaged thread is removed unread. Fails with `thread_not_found`, or if the store fails.
    pub async fn erase_thread(&self, by: &Principal, id: &ThreadId) -> Result<()> {
        self.erase(by, id, false).await
    }

    /// Erases a thread without queued, scheduled or active runs; waiting runs are erased with it. Fails with `thread_busy`, and as [`Runtime::erase_thread`].
    pub async fn erase_idle_thread(&self, by: &Principal, id: &ThreadId) -> Result<()> {
        self.erase(by, id, true).await
    }

    async fn erase(&self, by: &Principal, id: &ThreadId, if_idle: bool) -> Result<()> {
        let erased = match self.thread_row(&by.scope(), id).await {
            Ok(thread) if is_subagent(&thread.metadata) => {
                self.erase_subagent(&thread, if_idle).await
            }
            Ok(thread) => self.change(thread.key, Command::Erase { if_idle }).await.map(drop),
            Err(error) => Err(error),
        };
        match erased {
            // The owner cannot load a damaged thread; the store removes it unread.
            Err(error) if error.code() == Code::ThreadQuarantined => {
                let scope = by.scope();
                let Some(key) = self.services().store.erase_quarantined(&scope, id).await? else {
                    return Err(error);
                };
                self.services().monitor.loaded(key, std::iter::empty());
                self.registry().forget(self.services(), (key, id, &scope.tenant)).await;
                Ok(())
            }
            other => other,
        }
    }

    /// Erases the thread of a sub-agent. Its parent's log does not show it at work after that.
    async fn erase_subagent(&self, thread: &ThreadRow, if_idle: bool) -> Result<()> {
        let clear = async || {
            if let Err(error) = self.clear_state_of(thread).await {
                tracing::warn!(thread = %thread.id, %error, "a parent's log still shows its erased sub-agent at work");
            }
        };
        // Before the erasure, which a crash could follow. An idle one that works is not erased.
        if !if_idle {
            clear().await;
        }
        self.change(thread.key, Command::Erase { if_idle }).await?;
        // It may have reported something in between.
        clear().await;
        Ok(())
    }

    fn source<'a>(&'a self, scope: &'a Scope) -> HistorySource<'a> {
        let services = self.services();
        HistorySource { store: services.store.as_ref(), external: &services.external, scope }
    }

    /// Checks a new state against the agent of the thread's newest run. `follows` is the checkpoint before it, if a state derived from messages must not be replaced.
    /// Fails with `thread_state_schema_violation`, or if the store cannot be read.
    async fn check_values(
        &self,
        thread: &ThreadRow,
        values: &Json,
        follows: Option<Option<CheckpointKey>>,
    ) -> Result<()> {
        let services = self.services();
        let declares = |agent: &dyn Backend| agent.card().state_schema.is_some();
        if follows.is_none() && !self.registry().iter().any(|agent| declares(agent.as_ref())) {
            return Ok(());
        }
        let scope = Scope { tenant: thread.tenant.clone(), owner: None };
        let filter = RunFilter { thread: Some(thread.id.clone()), ..RunFilter::default() };
        let page = Page { limit: 1, ..Page::default() };
        let newest = services.store.runs(&scope, &filter, &page).await?.rows.into_iter().next();
        let Some(agent) = newest.and_then(|run| self.registry().get(&run.agent)) else {
            return Ok(());
        };
        if declares(agent.as_ref()) {
            return agent.check_state(values);
        }
        let Some(at) = follows.filter(|_| states::is_of_messages(agent.card())) else {
            return Ok(());
        };
        // Such an agent may still have set a state.
        match self.state_at(thread, at).await? {
            StateContent::Value(_) => Ok(()),
            StateContent::Messages(_) => Err(Error::new(
                Code::StateInvalid,
                format!(
                    "the state of the thread '{}' is what was said in it, and cannot be set",
                    thread.id
                ),
            )
            .hint("copy the thread, or go back to a checkpoint")),
        }
    }

    /// Returns the checkpoint to branch from, if every agent that knows the thread can follow.
    async fn rewind_point(
        &self,
        scope: &Scope,
        thread: &ThreadRow,
        id: &CheckpointId,
    ) -> Result<CheckpointKey> {
        let store = self.services().store.as_ref();
        let row = store.checkpoint(scope, &thread.id, id).await?.ok_or_else(|| {
            Error::new(
                Code::CheckpointNotFound,
                format!("checkpoint '{id}' not found in the thread '{}'", thread.id),
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

    /// Checks that no agent with its own memory has seen more than the checkpoints that stay on the path. `what` names such memory in the error.
    /// Fails with `agent_memory_not_rewindable`, naming the agent.
    pub(crate) async fn check_memory(
        &self,
        scope: &Scope,
        thread: &ThreadRow,
        kept: &[CheckpointRow],
        what: &str,
    ) -> Result<()> {
        let store = self.services().store.as_ref();
        for agent in self.registry().iter() {
            let name = &agent.card().name;
            if agent.rewind() != Rewind::Refuse {
                continue;
            }
            let Some(binding) = store.binding(scope, &thread.id, name).await? else { continue };
            let remembers_more = binding
                .last_seen
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
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trilogue_domain::port::SystemClock;
    use trilogue_domain::{Json, PrincipalId, Rights, TenantId};
    use trilogue_store::record::NoOriginals;

    use super::*;
    use crate::request::{NewThread, Options};

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
