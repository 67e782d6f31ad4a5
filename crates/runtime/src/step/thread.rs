//! Changes the thread itself: metadata, state, removal.

use trilogue_domain::error::Result;
use trilogue_domain::event::{Body, StateEvent, ThreadEvent};
use trilogue_domain::thread::AGENT_TITLE_MEMBER;
use trilogue_domain::{
    CheckpointId, CheckpointKey, Code, Error, HeadMove, Json, RunId, RunKey, limits,
};
use trilogue_store::rows::{BindingRow, CheckpointRow, MessageRow};
use trilogue_store::{Change, Draft};

use super::output::StepOutput;
use super::{Effect, Replace, Reply};
use crate::request::ThreadPatch;

// === impl StepOutput ===

impl StepOutput<'_> {
    /// Merges metadata and sets state as a new checkpoint after `from`, or after the head.
    pub(super) fn patch(
        &mut self,
        patch: ThreadPatch,
        from: Option<CheckpointKey>,
        (key, id): (CheckpointKey, CheckpointId),
    ) -> Result<()> {
        if patch.if_idle && (patch.values.is_some() || from.is_some()) {
            self.check_idle()?;
        }
        let metadata =
            patch.metadata.map(|patch| merged(&self.state.thread.metadata, &patch)).transpose()?;
        if let Some(metadata) = metadata {
            self.log(None, &Body::Thread(ThreadEvent::Metadata(metadata.clone())));
            self.state.thread.metadata = metadata;
        }
        if patch.values.is_some() || from.is_some() {
            let parent = from.or(self.state.thread.head);
            let checkpoint = self.checkpoint(key, id, parent, patch.values);
            self.move_head(HeadMove::Patch, checkpoint);
        }
        self.save_thread();
        self.reply(Reply::Thread(Box::new(self.state.thread.clone())));
        Ok(())
    }

    /// Logs an event outside of runs, and records the agent's new binding and title.
    pub(super) fn note(
        &mut self,
        draft: Draft,
        bound: Option<BindingRow>,
        title: Option<Option<String>>,
        begun: Option<Box<MessageRow>>,
    ) {
        let position = self.state.last + 1;
        self.log_draft(None, draft);
        self.set_title(title);
        if let Some(begun) = begun {
            // The message does not end with a run, so its row is written at its beginning.
            self.point_at(MessageRow { position, ..*begun });
        }
        let Some(bound) = bound else { return };
        for run in self.state.runs.values_mut().filter(|run| run.row.agent == bound.agent) {
            // The run's own binding would refer to the old session at its end.
            run.bound = Some(Box::new(bound.clone()));
        }
        self.change(Change::Binding(bound));
    }

    /// Sets or clears an agent's title of the thread. Metadata has limited room, but the log always has the title.
    pub(super) fn set_title(&mut self, title: Option<Option<String>>) {
        let Some(title) = title.filter(|_| !self.state.thread.ephemeral) else { return };
        let title = title.map(|title| Json::from_value(&title.into()));
        let before = &self.state.thread.metadata;
        // Members of other agents and clients stay unchanged.
        let metadata = before.with_member(AGENT_TITLE_MEMBER, title.as_ref());
        match metadata.filter(|metadata| metadata.as_bytes().len() <= limits::MAX_METADATA_BYTES) {
            Some(metadata) if metadata != *before => {
                self.state.thread.metadata = metadata;
                self.save_thread();
            }
            Some(_) => {}
            None => {
                let thread = &self.state.thread.id;
                tracing::debug!(%thread, "what an agent calls its thread is not kept: no room");
            }
        }
    }

    /// Continues the history with a client's, or replaces it. The run with the turn keeps its base.
    pub(super) fn replace(&mut self, replace: Replace, (key, id): (CheckpointKey, CheckpointId)) {
        if self.state.thread.head != replace.expected {
            self.reply(Reply::HeadMoved);
            return;
        }
        let parent = self.state.thread.head.filter(|_| replace.extends);
        let checkpoint = self.checkpoint(key, id, parent, replace.state);
        let client_history = Some(replace.given);
        self.move_head(HeadMove::Replacement, CheckpointRow { client_history, ..checkpoint });
        self.save_thread();
        self.reply(Reply::Thread(Box::new(self.state.thread.clone())));
    }

    /// Creates a checkpoint without a run.
    fn checkpoint(
        &self,
        key: CheckpointKey,
        id: CheckpointId,
        parent: Option<CheckpointKey>,
        value: Option<Json>,
    ) -> CheckpointRow {
        CheckpointRow {
            key,
            id,
            thread: self.state.thread.key,
            parent,
            run: None,
            position: self.state.last,
            value,
            created_at: self.now,
            client_history: None,
        }
    }

    fn move_head(&mut self, by: HeadMove, mut checkpoint: CheckpointRow) {
        if let Some(values) = &checkpoint.value {
            self.log(None, &Body::State(StateEvent::Values(values.clone())));
        }
        let moved = ThreadEvent::HeadMoved { checkpoint: checkpoint.id.clone(), by };
        self.log(None, &Body::Thread(moved));
        checkpoint.position = self.state.last;
        self.state.thread.head = Some(checkpoint.key);
        self.change(Change::Checkpoint(checkpoint));
    }

    pub(super) fn remove_run(
        &mut self,
        run: RunKey,
        id: RunId,
        reason: &'static str,
    ) -> Result<()> {
        if let Some(state) = self.state.runs.get(&run) {
            return Err(Error::new(
                Code::RunNotEnded,
                format!("the run '{}' is {}", state.row.id, state.row.status.as_str()),
            )
            .hint("cancel it first"));
        }
        self.mark_vital();
        self.remove_run_now(run, id, reason);
        Ok(())
    }

    pub(super) fn remove_run_now(&mut self, run: RunKey, id: RunId, reason: &'static str) {
        if self.state.thread.ephemeral && self.state.runs.is_empty() {
            // An ephemeral thread is removed with its run.
            self.erase();
            return;
        }
        let event = ThreadEvent::RunRemoved { run: id, reason: reason.to_owned() };
        self.log(None, &Body::Thread(event));
        self.change(Change::RemoveRun(run));
    }

    /// Removes the thread; with `if_idle`, only if it is idle.
    pub(super) fn erase_command(&mut self, if_idle: bool) -> Result<()> {
        if if_idle {
            self.check_idle()?;
        }
        self.erase();
        Ok(())
    }

    /// Checks that no run is queued, scheduled or active. Waiting runs are allowed.
    fn check_idle(&self) -> Result<()> {
        match self.state.runs.values().find(|run| run.is_in_flight()) {
            Some(run) => Err(self.thread_busy(&run.row).hint("wait for that run, or cancel it")),
            None => Ok(()),
        }
    }

    /// Removes the thread; its tasks are dropped without a reply.
    pub(super) fn erase(&mut self) {
        self.mark_vital();
        let runs: Vec<RunKey> = self.state.runs.keys().copied().collect();
        for run in runs {
            self.effect(Effect::Abort { run });
        }
        self.state.runs.clear();
        self.state.queue.clear();
        self.state.turn = None;
        self.change(Change::RemoveThread);
        self.effect(Effect::Gone);
    }
}

fn merged(metadata: &Json, patch: &Json) -> Result<Json> {
    if !patch.is_object() {
        return Err(Error::new(Code::InvalidRequest, "'metadata' is not a JSON object"));
    }
    let merged = metadata.merged(patch);
    if merged.as_bytes().len() > limits::MAX_METADATA_BYTES {
        return Err(Error::new(
            Code::InvalidRequest,
            format!("the metadata has more than {} bytes", limits::MAX_METADATA_BYTES),
        ));
    }
    Ok(merged)
}
