//! Copying a thread: the copy holds content, not references.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use trilogue_domain::content::BlobRef;
use trilogue_domain::error::Result;
use trilogue_domain::event::{MessageEvent, RunEvent, StateEvent, ThreadEvent, ToolEvent};
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{
    Body, CheckpointKey, Code, Error, Event, HeadMove, Json, MessageId, Outcome, Principal, Role,
    RunId, RunKey, RunStatus, TenantId, ThreadId, ThreadKey, Timestamp, limits,
};
use trilogue_store::rows::{CheckpointRow, MessageRow, RunRow, ThreadRow};
use trilogue_store::{Batch, Change, Draft, Frame, Range};

use crate::handle::Runtime;
use crate::history;
use crate::request::NewThread;
use crate::subagent_member::without_subagent;
use crate::subagent_report::{SubagentReport, newest_reports};
use crate::submit::check_editor_metadata;

/// The most sub-agents at work whose reports are kept during a copy. Of more, the ones with the oldest reports stay as they are.
const MAX_AT_WORK: usize = 1_024;

struct CopyTarget {
    thread: ThreadRow,
    last: u64,
    /// The keys of the source's checkpoints, and the keys of their copies.
    checkpoints: HashMap<CheckpointKey, CheckpointKey>,
    /// The newest copied reports about sub-agents that work by them.
    at_work: WorkingSubagents,
}

/// The newest reports about sub-agents that work by them, in the order of these.
#[derive(Default)]
struct WorkingSubagents(VecDeque<SubagentReport>);

struct CopyChunk {
    source: ThreadRow,
    /// The path, newest first.
    path: Vec<CheckpointRow>,
    /// Whether the path is the whole one to the source's head.
    is_whole: bool,
    /// Where the newest copied run ends, if that run is not copied whole.
    until: Option<CopyEnd>,
}

#[derive(Clone, Debug)]
enum CopyEnd {
    Message(MessageId),
    /// An event, by its number in its run.
    Event(u64),
}

struct CopiedRun {
    row: RunRow,
    portions: Vec<Portion>,
    messages: Vec<MessageRow>,
    /// The last state that its agent set, if the run was cut.
    cut: Option<Option<Json>>,
}

// === impl Runtime ===

impl Runtime {
    /// Copies the path to a thread's head into a new thread. Runs that are not on the path or are still open are not copied. Errors: `thread_not_found`,
    /// `already_exists`, and the store's errors; a failed copy leaves nothing behind.
    pub async fn copy_thread(
        &self,
        by: &Principal,
        id: &ThreadId,
        new: NewThread,
    ) -> Result<ThreadRow> {
        let (source, path) = self.copy_source(by, id).await?;
        self.copy(by, CopyChunk { source, path, is_whole: true, until: None }, new).await
    }

    /// Copies a thread's path up to a message on it, by the message's id or another id that its agent knows. Events of the message's run after the message are
    /// not copied, and the run counts as completed in the copy. Errors: `not_found` if no run on the path has the message; otherwise as
    /// [`Runtime::copy_thread`].
    pub async fn copy_thread_until(
        &self,
        by: &Principal,
        id: &ThreadId,
        until: &MessageId,
        new: NewThread,
    ) -> Result<ThreadRow> {
        let (source, mut path) = self.copy_source(by, id).await?;
        let store = self.services().store.as_ref();
        let row = store.message_in(source.key, until).await?;
        let place = row
            .as_ref()
            .and_then(|row| path.iter().position(|checkpoint| checkpoint.run == Some(row.run)));
        let (Some(row), Some(place)) = (row, place) else {
            let message =
                format!("message '{until}' not found in the history of the thread '{id}'");
            return Err(Error::new(Code::NotFound, message)
                .hint("name a message that was said by a run which has completed"));
        };
        path.drain(..place);
        let until = Some(CopyEnd::Message(row.id));
        self.copy(by, CopyChunk { source, path, is_whole: false, until }, new).await
    }

    /// Copies a thread's path up to an event of a run on it, by the event's number in the thread. As with [`Runtime::copy_thread_until`], the run counts as
    /// completed in the copy. Errors: `not_found` if no run on the path has the event, or the event is in the middle of something; otherwise as
    /// [`Runtime::copy_thread`].
    pub async fn copy_thread_until_event(
        &self,
        by: &Principal,
        id: &ThreadId,
        number: u64,
        new: NewThread,
    ) -> Result<ThreadRow> {
        let (source, mut path) = self.copy_source(by, id).await?;
        let store = self.services().store.as_ref();
        let range = Range { run: None, after: number.saturating_sub(1), max_bytes: 1 };
        let frames = store.frames(source.key, range).await?;
        let frame = frames.first().filter(|frame| (frame.first()..=frame.last()).contains(&number));
        let events = frame.map(|frame| frame.events()).transpose()?;
        let event = events.iter().flat_map(|events| events.iter()).find(|it| it.number == number);
        let frame = frame.filter(|_| event.is_some_and(|event| ends_something(&event.body)));
        let run = frame.and_then(|frame| frame.run());
        let place = run.and_then(|run| path.iter().position(|link| link.run == Some(run)));
        let (Some(frame), Some(place)) = (frame, place) else {
            let message = format!("event {number} not found in the history of the thread '{id}'");
            return Err(Error::new(Code::NotFound, message)
                .hint("name an event of a run that has completed"));
        };
        let until = Some(CopyEnd::Event(frame.first_run() + (number - frame.first())));
        path.drain(..place);
        self.copy(by, CopyChunk { source, path, is_whole: false, until }, new).await
    }

    /// Returns the thread and the path to its head, newest first, without a run that is still open. A turn whose agent has answered counts as over.
    async fn copy_source(
        &self,
        by: &Principal,
        id: &ThreadId,
    ) -> Result<(ThreadRow, Vec<CheckpointRow>)> {
        self.check_open()?;
        let scope = by.scope();
        let mut source = self.thread_row(&scope, id).await?;
        if self.services().settle_answered(source.key).await {
            // It may have been erased during the wait.
            source = self.thread_row(&scope, id).await?;
        }
        let store = self.services().store.as_ref();
        let mut path = history::path(store, &scope, &source.id, source.head).await?;
        // A run that its agent has started is on the path from its beginning. It has the turn, so only the newest run can be one.
        let newest = path.iter().enumerate().find_map(|(place, link)| Some((place, link.run?)));
        let Some((place, run)) = newest else { return Ok((source, path)) };
        let row = store.run_by_key(run).await?;
        if row.is_some_and(|row| !row.status.is_terminal()) {
            let open = path.remove(place);
            // The checkpoint after it, which a client has added meanwhile, continues at the one before it.
            if let Some(next) = place.checked_sub(1).and_then(|place| path.get_mut(place)) {
                next.parent = open.parent;
            }
        }
        Ok((source, path))
    }

    async fn copy(&self, by: &Principal, of: CopyChunk, new: NewThread) -> Result<ThreadRow> {
        check_editor_metadata(by, new.metadata.as_ref(), new.has_checked_settings)?;
        self.check_own_name(by, &new).await?;
        let new = NewThread {
            // The copy is an ordinary thread: no agent has started it.
            metadata: Some(new.metadata.unwrap_or_else(|| without_subagent(&of.source.metadata))),
            ..new
        };
        let thread = self.new_thread_row(by, &new, false)?;
        let event = ThreadEvent::Created {
            thread: thread.id.clone(),
            metadata: thread.metadata.clone(),
            copied_from: Some(of.source.id.clone()),
        };
        self.append_new(&thread, &[Body::Thread(event)], Vec::new()).await?;
        let (checkpoints, at_work) = (HashMap::new(), WorkingSubagents::default());
        let mut copy = CopyTarget { thread, last: 1, checkpoints, at_work };
        let copied = async {
            self.copy_checkpoints(&of, &mut copy).await?;
            self.end_work_of_subagents(&of, &mut copy).await?;
            // What was erased meanwhile is not copied.
            self.check_exists(&of.source).await
        };
        match copied.await {
            Ok(()) => Ok(copy.thread),
            Err(error) => {
                // A partial copy is removed.
                let id = &copy.thread.id;
                if let Err(error) = self.erase_thread(by, id).await {
                    tracing::warn!(thread = %id, %error, "half a copy could not be removed");
                }
                Err(error)
            }
        }
    }

    async fn copy_checkpoints(&self, of: &CopyChunk, copy: &mut CopyTarget) -> Result<()> {
        for (place, checkpoint) in of.path.iter().enumerate().rev() {
            let until = of.until.as_ref().filter(|_| place == 0);
            let expected_last = copy.last;
            let run = match checkpoint.run {
                Some(run) => self.services().store.run_by_key(run).await?,
                None => None,
            };
            let run = match run {
                Some(row) => Some(self.copy_run(&of.source, row, until, copy).await?),
                None => None,
            };
            self.append_checkpoint(checkpoint, run, place == 0, expected_last, copy).await?;
        }
        Ok(())
    }

    /// Fails with `thread_not_found` if the thread has been erased.
    async fn check_exists(&self, thread: &ThreadRow) -> Result<()> {
        let store = &self.services().store;
        match store.thread_by_key(thread.key).await? {
            Some(_) => Ok(()),
            None => {
                let message = format!("thread '{}' not found", thread.id);
                Err(Error::new(Code::ThreadNotFound, message))
            }
        }
    }

    /// Ends the copy with what is known of the sub-agents that work by its events: no agent works on a copy. The path does not have what their agent reported after its run.
    async fn end_work_of_subagents(&self, of: &CopyChunk, copy: &mut CopyTarget) -> Result<()> {
        let services = self.services();
        let at_work = std::mem::take(&mut copy.at_work).0;
        if at_work.is_empty() {
            return Ok(());
        }
        let mut ended = Vec::new();
        if of.is_whole {
            let threads: Vec<_> = at_work.iter().map(|it| it.subagent.thread.clone()).collect();
            ended = newest_reports(services.store.as_ref(), of.source.key, &threads).await?;
            ended.retain(|report| !report.works());
        }
        let (mut draft, mut reports) = (Draft::default(), at_work.into_iter().peekable());
        while let Some(report) = reports.next() {
            let known = ended.iter().find(|it| it.subagent.thread == report.subagent.thread);
            let report =
                known.cloned().unwrap_or_else(|| report.without_state(&services.originals));
            let (body, original) = report.into_event();
            draft.push(services.clock.now(), &body, original.as_ref())?;
            let is_enough = draft.len() >= limits::MAX_FRAME_EVENTS || draft.is_full();
            if reports.peek().is_some() && !is_enough {
                continue;
            }
            let (last, draft) = (copy.last, std::mem::take(&mut draft));
            copy.last += draft.len() as u64;
            let frames = draft.seal(copy.thread.key, None, last + 1, 0, &services.originals);
            let portion = Portion::of(frames, Vec::new());
            let batch = portion.batch(&copy.thread, &mut { last }, Vec::new());
            services.append(batch, Some(&copy.thread)).await?;
        }
        Ok(())
    }

    async fn append_checkpoint(
        &self,
        checkpoint: &CheckpointRow,
        run: Option<CopiedRun>,
        is_head: bool,
        expected_last: u64,
        copy: &mut CopyTarget,
    ) -> Result<()> {
        let services = self.services();
        let (key, id) = services.new_checkpoint();
        copy.checkpoints.insert(checkpoint.key, key);
        let mut changes = Vec::new();
        let (mut expected_last, mut portion) = (expected_last, Portion::default());
        // A path holds no values.
        let stored = services.store.checkpoint_by_key(checkpoint.key).await?;
        let (mut value, mut of_run) = (stored.and_then(|row| row.value), None);
        if let Some(run) = run {
            of_run = Some(run.row.key);
            value = run.cut.unwrap_or(value);
            changes.push(Change::Run(Box::new(run.row)));
            changes.extend(run.messages.into_iter().map(Change::Message));
            for more in run.portions {
                if portion.bytes >= limits::MAX_FRAME_BYTES {
                    // The run's own rows are written with the last of its events.
                    let enough = std::mem::take(&mut portion);
                    let batch = enough.batch(&copy.thread, &mut expected_last, Vec::new());
                    services.append(batch, Some(&copy.thread)).await?;
                }
                portion.join(more);
            }
        }
        changes.push(Change::Checkpoint(CheckpointRow {
            key,
            id: id.clone(),
            thread: copy.thread.key,
            parent: checkpoint.parent.and_then(|parent| copy.checkpoints.get(&parent).copied()),
            run: of_run,
            position: copy.last,
            value,
            created_at: checkpoint.created_at,
            client_history: checkpoint.client_history.clone(),
        }));
        if is_head {
            let moved = ThreadEvent::HeadMoved { checkpoint: id, by: HeadMove::Copy };
            let mut draft = Draft::default();
            draft.push(services.clock.now(), &Body::Thread(moved), None)?;
            copy.last += 1;
            let frames = draft.seal(copy.thread.key, None, copy.last, 0, &services.originals);
            portion.join(Portion::of(frames, Vec::new()));
        }
        copy.thread.head = Some(key);
        changes.push(Change::Thread(copy.thread.clone()));
        let batch = portion.batch(&copy.thread, &mut expected_last, changes);
        services.append(batch, Some(&copy.thread)).await
    }

    /// The run's events under a new key and id, numbered anew; up to the end of the named message, if there is one.
    async fn copy_run(
        &self,
        source: &ThreadRow,
        mut row: RunRow,
        until: Option<&CopyEnd>,
        copy: &mut CopyTarget,
    ) -> Result<CopiedRun> {
        let services = self.services();
        let (store, old) = (services.store.as_ref(), row.key);
        row.key = services.store.next_run_key();
        row.id = RunId::generate();
        row.thread = copy.thread.key;
        row.thread_id = copy.thread.id.clone();
        // Its callbacks were about the source.
        row.callback = None;
        row.principal = copy.thread.owner.clone();
        row.base = row.base.and_then(|base| copy.checkpoints.get(&base).copied());
        let mut renumbered = Renumbered::new(&row, copy.last + 1, until, &services.originals);
        renumbered.at_work = std::mem::take(&mut copy.at_work);
        match until {
            Some(CopyEnd::Message(until)) => {
                renumbered.last = history::end_of_thought(store, source.key, old, until).await?;
            }
            Some(CopyEnd::Event(number)) => renumbered.last = Some(*number),
            None => {}
        }
        let mut failed = None;
        history::each_event(store, source.key, old, |event| {
            if failed.is_none() {
                failed = renumbered.take(event).err();
            }
        })
        .await?;
        if let Some(error) = failed {
            return Err(error);
        }
        copy.at_work = std::mem::take(&mut renumbered.at_work);
        let mut copied = renumbered.close(row)?;
        copy.last += copied.row.last_run_number;
        for message in &mut copied.messages {
            message.alias =
                store.message_in(source.key, &message.id).await?.and_then(|row| row.alias);
        }
        Ok(copied)
    }
}

/// Whether something ends with this event. A copy that ended elsewhere would have half a message or half a tool call.
fn ends_something(body: &Body) -> bool {
    matches!(
        body,
        Body::Message(MessageEvent::Completed { .. })
            | Body::Tool(ToolEvent::Ended { .. })
            | Body::State(StateEvent::Custom { .. })
    )
}

/// Events of a copied run on their way into frames.
struct Renumbered<'a> {
    id: RunId,
    row: MessagesOf,
    run_number: u64,
    draft: Draft,
    /// The thread number of the draft's first event.
    first: u64,
    originals: &'a Arc<dyn ReadOriginal>,
    portions: Vec<Portion>,
    bytes: usize,
    messages: Vec<MessageRow>,
    /// Incomplete messages: the role, and the event number at which each begins.
    open: HashMap<MessageId, (Role, u64)>,
    until: Option<&'a CopyEnd>,
    /// The last event to copy, by its number in the source's run, unless `until` is a message.
    last: Option<u64>,
    values: Option<Json>,
    at_work: WorkingSubagents,
    has_begun: bool,
    is_over: bool,
}

/// Frames of a copy that are appended together, with the blobs that they name.
#[derive(Default)]
struct Portion {
    frames: Vec<Arc<Frame>>,
    blobs: Vec<BlobRef>,
    bytes: usize,
}

/// The fields that the rows of a run's messages share.
struct MessagesOf {
    tenant: TenantId,
    thread: ThreadKey,
    run: RunKey,
}

// === impl WorkingSubagents ===

impl WorkingSubagents {
    fn note(&mut self, event: &Event) {
        let Some(report) = SubagentReport::of(event) else { return };
        self.0.retain(|known| known.subagent.thread != report.subagent.thread);
        if report.works() {
            if self.0.len() >= MAX_AT_WORK {
                self.0.pop_front();
            }
            self.0.push_back(report);
        }
    }
}

// === impl Portion ===

impl Portion {
    fn of(frames: Vec<Arc<Frame>>, blobs: Vec<BlobRef>) -> Self {
        let bytes = frames.iter().map(|frame| frame.bytes().len()).sum();
        Self { frames, blobs, bytes }
    }

    fn join(&mut self, more: Self) {
        self.frames.extend(more.frames);
        self.blobs.extend(more.blobs);
        self.bytes += more.bytes;
    }

    /// Builds the batch that appends this portion after event number `last`, and advances `last`.
    fn batch(self, thread: &ThreadRow, last: &mut u64, changes: Vec<Change>) -> Batch {
        let expected_last = *last;
        *last = self.frames.last().map_or(expected_last, |frame| frame.last());
        Batch {
            thread: thread.key,
            epoch: thread.epoch,
            expected_last,
            frames: self.frames,
            changes,
            blobs: self.blobs,
            vital: false,
        }
    }
}

// === impl Renumbered ===

impl<'a> Renumbered<'a> {
    fn new(
        row: &RunRow,
        first: u64,
        until: Option<&'a CopyEnd>,
        originals: &'a Arc<dyn ReadOriginal>,
    ) -> Self {
        Self {
            id: row.id.clone(),
            row: MessagesOf { tenant: row.tenant.clone(), thread: row.thread, run: row.key },
            run_number: 0,
            draft: Draft::default(),
            first,
            originals,
            portions: Vec::new(),
            bytes: 0,
            messages: Vec::new(),
            open: HashMap::new(),
            until,
            last: None,
            values: None,
            at_work: WorkingSubagents::default(),
            has_begun: false,
            is_over: false,
        }
    }

    /// Takes the run's next event, unless it comes after the last message.
    fn take(&mut self, event: &Event) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        // A run begins with its creation and cannot end there.
        let is_last = self.last == Some(event.run_number);
        match &event.body {
            Body::Run(RunEvent::Created { agent, input, .. }) => {
                let (run, agent, input) = (self.id.clone(), agent.clone(), input.clone());
                let created = RunEvent::Created { run, agent, input, audit: None };
                return self.push(event.at, &Body::Run(created), event);
            }
            Body::Run(RunEvent::Started) => self.has_begun = true,
            Body::Run(RunEvent::Ended(_)) if self.until.is_some() => {
                // The last message was never completed: the run is copied whole, and ends as one that was cut.
                self.is_over = true;
                return Ok(());
            }
            Body::State(StateEvent::Values(values)) => self.values = Some(values.clone()),
            Body::State(StateEvent::Subagent(_)) => self.at_work.note(event),
            Body::Message(MessageEvent::Started { message, role, .. }) => {
                let begins = self.first + self.draft.len() as u64;
                self.open.insert(message.clone(), (role.clone(), begins));
            }
            Body::Message(MessageEvent::Thought { message: Some(message), .. }) => {
                let begins = self.first + self.draft.len() as u64;
                self.open.entry(message.clone()).or_insert((Role::Agent, begins));
            }
            Body::Message(MessageEvent::Completed { message }) => {
                self.complete(message);
            }
            _ => {}
        }
        self.is_over |= is_last;
        self.push(event.at, &event.body, event)
    }

    fn complete(&mut self, message: &MessageId) {
        if let Some((role, begins)) = self.open.remove(message) {
            self.point_at(message.clone(), role, begins);
        }
        self.is_over = matches!(self.until, Some(CopyEnd::Message(until)) if until == message);
    }

    fn point_at(&mut self, id: MessageId, role: Role, position: u64) {
        let MessagesOf { tenant, thread, run } = &self.row;
        let (tenant, thread, run) = (tenant.clone(), *thread, *run);
        self.messages.push(MessageRow { id, tenant, thread, run, role, position, alias: None });
    }

    fn push(&mut self, at: Timestamp, body: &Body, event: &Event) -> Result<()> {
        if self.draft.len() >= limits::MAX_FRAME_EVENTS || self.draft.is_full() {
            self.seal();
        }
        if self.bytes > limits::MAX_COPIED_RUN_BYTES {
            let most = limits::MAX_COPIED_RUN_BYTES;
            let message = format!("a run of the thread has more than {most} bytes of events");
            return Err(Error::new(Code::InvalidRequest, message));
        }
        self.draft.push(at, body, event.original.as_ref())
    }

    fn seal(&mut self) {
        let draft = std::mem::take(&mut self.draft);
        if draft.is_empty() {
            return;
        }
        let count = draft.len() as u64;
        let blobs = draft.blobs().to_vec();
        let MessagesOf { thread, run, .. } = self.row;
        let first_run = self.run_number + 1;
        let frames = draft.seal(thread, Some(run), self.first, first_run, self.originals);
        let portion = Portion::of(frames, blobs);
        self.bytes += portion.bytes;
        self.portions.push(portion);
        self.first += count;
        self.run_number += count;
    }

    /// Returns the copied run. A run that was cut ends after its last message.
    fn close(mut self, mut row: RunRow) -> Result<CopiedRun> {
        if self.until.is_some() {
            let at = row.ended_at.unwrap_or(row.created_at);
            (row.status, row.outcome) = (RunStatus::Completed, Some(Outcome::Completed));
            let ended = RunEvent::Ended(Outcome::Completed);
            let begun = (!self.has_begun).then_some(RunEvent::Started);
            for event in begun.into_iter().chain([ended]) {
                self.draft.push(at, &Body::Run(event), None)?;
            }
        }
        for (message, (role, begins)) in std::mem::take(&mut self.open) {
            self.point_at(message, role, begins);
        }
        self.seal();
        row.last_run_number = self.run_number;
        let cut = self.until.map(|_| self.values);
        Ok(CopiedRun { row, portions: self.portions, messages: self.messages, cut })
    }
}
