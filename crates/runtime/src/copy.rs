//! Copying a thread: the copy holds content, not references.

use std::collections::HashMap;

use trilogue_domain::error::Result;
use trilogue_domain::event::{RunEvent, ThreadEvent};
use trilogue_domain::{
    Body, CheckpointKey, Event, HeadMove, Principal, RunId, RunKey, ThreadId, Timestamp, limits,
};
use trilogue_store::rows::{CheckpointRow, RunRow, ThreadRow};
use trilogue_store::{Batch, Change, Draft, Frame};

use crate::handle::Runtime;
use crate::history;
use crate::request::NewThread;

/// A copy in the making.
struct Copy {
    thread: ThreadRow,
    last: u64,
    /// Checkpoints of the source, and what they became.
    checkpoints: HashMap<CheckpointKey, CheckpointKey>,
}

// === impl Runtime ===

impl Runtime {
    /// Copies the path to a thread's head into a new thread. Runs beside the path stay behind.
    ///
    /// # Errors
    /// `thread_not_found`, `already_exists`, and what storing can fail with; nothing of the copy is left then.
    pub async fn copy_thread(
        &self,
        by: &Principal,
        id: &ThreadId,
        new: NewThread,
    ) -> Result<ThreadRow> {
        self.check_open()?;
        let source = self.thread_row(&by.scope(), id).await?;
        let new = NewThread {
            metadata: Some(new.metadata.unwrap_or_else(|| source.metadata.clone())),
            ..new
        };
        let thread = self.new_thread_row(by, &new, false)?;
        let event = ThreadEvent::Created {
            thread: thread.id.clone(),
            metadata: thread.metadata.clone(),
            copied_from: Some(source.id.clone()),
        };
        self.append_new(&thread, &[Body::Thread(event)], Vec::new()).await?;
        let copied = self.copy_path(by, &source, thread).await;
        match copied {
            Ok(thread) => Ok(thread),
            Err((thread, error)) => {
                // Half a copy is no copy.
                if let Err(error) = self.erase_thread(by, &thread.id).await {
                    tracing::warn!(thread = %thread.id, %error, "half a copy could not be removed");
                }
                Err(error)
            }
        }
    }

    async fn copy_path(
        &self,
        by: &Principal,
        source: &ThreadRow,
        thread: ThreadRow,
    ) -> Result<ThreadRow, (ThreadRow, trilogue_domain::Error)> {
        let mut copy = Copy { thread, last: 1, checkpoints: HashMap::new() };
        match self.copy_checkpoints(by, source, &mut copy).await {
            Ok(()) => Ok(copy.thread),
            Err(error) => Err((copy.thread, error)),
        }
    }

    async fn copy_checkpoints(
        &self,
        by: &Principal,
        source: &ThreadRow,
        copy: &mut Copy,
    ) -> Result<()> {
        let store = self.services().store.as_ref();
        let path = history::path(store, &by.scope(), &source.id, source.head).await?;
        for checkpoint in path.iter().rev() {
            let mut changes = Vec::new();
            let mut frames = Vec::new();
            let mut blobs = Vec::new();
            let run = match checkpoint.run {
                Some(run) => match store.run_by_key(run).await? {
                    Some(row) => {
                        Some(self.copy_run(source, row, copy, &mut frames, &mut blobs).await?)
                    }
                    None => None,
                },
                None => None,
            };
            let (key, id) = self.services().new_checkpoint();
            copy.checkpoints.insert(checkpoint.key, key);
            if let Some(row) = &run {
                changes.push(Change::Run(Box::new(row.clone())));
            }
            changes.push(Change::Checkpoint(CheckpointRow {
                key,
                id: id.clone(),
                thread: copy.thread.key,
                parent: checkpoint.parent.and_then(|parent| copy.checkpoints.get(&parent).copied()),
                run: run.as_ref().map(|row| row.key),
                position: copy.last,
                value: checkpoint.value.clone(),
                created_at: checkpoint.created_at,
                given: checkpoint.given.clone(),
            }));
            let expected_last = copy.last
                - frames
                    .iter()
                    .map(|frame: &std::sync::Arc<Frame>| frame.last() - frame.first() + 1)
                    .sum::<u64>();
            if checkpoint.key == path.first().map_or(checkpoint.key, |head| head.key) {
                let moved = ThreadEvent::HeadMoved { checkpoint: id, by: HeadMove::Copy };
                let mut draft = Draft::default();
                draft.push(self.services().clock.now(), &Body::Thread(moved), None)?;
                copy.last += 1;
                frames.extend(draft.seal(
                    copy.thread.key,
                    None,
                    copy.last,
                    0,
                    &self.services().originals,
                ));
            }
            copy.thread.head = Some(key);
            changes.push(Change::Thread(copy.thread.clone()));
            store
                .append(Batch {
                    thread: copy.thread.key,
                    epoch: copy.thread.epoch,
                    expected_last,
                    frames,
                    changes,
                    blobs,
                    vital: false,
                })
                .await?;
        }
        Ok(())
    }

    /// The run's events under a new key and id, numbered anew.
    async fn copy_run(
        &self,
        source: &ThreadRow,
        mut row: RunRow,
        copy: &mut Copy,
        frames: &mut Vec<std::sync::Arc<Frame>>,
        blobs: &mut Vec<trilogue_domain::content::BlobRef>,
    ) -> Result<RunRow> {
        let services = self.services();
        let (old, key, id) = (row.key, services.store.next_run_key(), RunId::generate());
        let mut renumbered =
            Renumbered { key, run_number: 0, draft: Draft::default(), first: copy.last + 1 };
        let mut failed = None;
        let thread = copy.thread.key;
        let originals = &services.originals;
        history::each_event(services.store.as_ref(), source, old, |event| {
            let body = match &event.body {
                Body::Run(RunEvent::Created { agent, input, .. }) => Body::Run(RunEvent::Created {
                    run: id.clone(),
                    agent: agent.clone(),
                    input: input.clone(),
                }),
                other => other.clone(),
            };
            if renumbered.draft.len() >= limits::MAX_FRAME_EVENTS || renumbered.draft.is_full() {
                renumbered.seal(thread, originals, frames, blobs);
            }
            if let Err(error) = renumbered.push(event.at, &body, event) {
                failed = Some(error);
            }
        })
        .await?;
        if let Some(error) = failed {
            return Err(error);
        }
        renumbered.seal(thread, originals, frames, blobs);
        copy.last = renumbered.first - 1;
        row.key = key;
        row.id = id;
        row.thread = thread;
        row.thread_id = copy.thread.id.clone();
        // What its client wanted to be called back of was told of the source.
        row.callback = None;
        row.principal = copy.thread.owner.clone();
        row.base = row.base.and_then(|base| copy.checkpoints.get(&base).copied());
        row.last_run_number = renumbered.run_number;
        Ok(row)
    }
}

/// Events of a copied run on their way into frames.
struct Renumbered {
    key: RunKey,
    run_number: u64,
    draft: Draft,
    /// The thread number of the draft's first event.
    first: u64,
}

// === impl Renumbered ===

impl Renumbered {
    fn push(&mut self, at: Timestamp, body: &Body, event: &Event) -> Result<()> {
        self.draft.push(at, body, event.original.as_ref())
    }

    fn seal(
        &mut self,
        thread: trilogue_domain::ThreadKey,
        originals: &std::sync::Arc<dyn trilogue_domain::port::ReadOriginal>,
        frames: &mut Vec<std::sync::Arc<Frame>>,
        blobs: &mut Vec<trilogue_domain::content::BlobRef>,
    ) {
        let draft = std::mem::take(&mut self.draft);
        if draft.is_empty() {
            return;
        }
        let count = draft.len() as u64;
        blobs.extend_from_slice(draft.blobs());
        frames.extend(draft.seal(
            thread,
            Some(self.key),
            self.first,
            self.run_number + 1,
            originals,
        ));
        self.first += count;
        self.run_number += count;
    }
}
