//! Sub-agents: follows the threads through which an agent works, next to the session's own.
//!
//! Each child has a pump of its own. Its parent's pump announces it, and starts it only when the announcement is in the outbox. During a
//! replay the parent waits until the child has sent its history, and the child sends nothing more until the replay has ended.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use trilogue_domain::error::Result;
use trilogue_domain::event::{Event, InterruptEvent, RunEvent, ToolEvent};
use trilogue_domain::{Body, Interrupt, RunId, RunStatus, ThreadId};
use trilogue_mapping::agent_client as mapping;
use trilogue_store::rows::{Page, RunFilter, RunRow, ThreadRow};
use trilogue_wire::agent_client::{SessionNotification, SessionUpdate, StateUpdate, splice};

use super::super::super::connection::command::{
    ChildPositions, MAX_COMMANDS, ParentReplay, PumpCommand, ReplayStart,
};
use super::folded::LastMessage;
use super::{ClientSession, OutgoingLines, Pump, READ_BYTES};
use crate::faces::common::thread_title::given_title;
use crate::stream::log_reader::LogReader;

/// How many sub-agents of an open session are followed at once, with those of sub-agents. Further ones stay tool calls.
pub(super) const MAX_FOLLOWED: usize = 64;
/// The most sub-agents of one thread that a pump remembers as shown.
const MAX_SHOWN: usize = 4_096;

/// What a pump needs to follow sub-agents.
#[derive(Debug)]
pub(in super::super) struct Followed {
    /// The session that the client has opened.
    pub(super) root: ThreadId,
    /// Shared by all pumps below that session.
    permits: Arc<Semaphore>,
    /// Cancelled when this pump ends: the children's pumps end with it.
    stop: CancellationToken,
    _stop_with_pump: DropGuard,
    /// The children that this pump has started, while their pumps may be at work.
    threads: Vec<ThreadId>,
    /// The sub-agents of a hosted agent that the client has, as their agent reports them.
    pub(super) shown: HashSet<ThreadId>,
    /// The children whose history is part of the replay in progress.
    replayed: HashSet<ThreadId>,
    /// Cancelled at the end of the replay in progress.
    replay_end: CancellationToken,
    /// How far the client has received sub-agents, if it continues.
    pub(super) positions: ChildPositions,
    /// The open calls before the cursor of a client that continues.
    pub(super) open_calls: Vec<(String, CalledAgent)>,
    /// The sub-agents for which the client has a tool call, as it shows them.
    pub(super) calls: HashMap<ThreadId, mapping::SubagentCall>,
}

/// What a pump needs if its session is a sub-agent's.
#[derive(Debug)]
pub(in super::super) struct ChildRole {
    /// The session on which the sub-agent is announced.
    parent: ThreadId,
    pub(super) form: ChildForm,
    /// Until this is cancelled, a replay above is in progress, and the pump waits.
    pub(super) held: Option<CancellationToken>,
    /// Dropped when the sub-agent's part of a replay is in the outbox.
    pub(super) caught_up: Option<oneshot::Sender<()>>,
    /// Whether a run has ended, so that the pump may have nothing left to do.
    has_ended_run: bool,
    _permit: OwnedSemaphorePermit,
}

/// What the client gets of a sub-agent.
#[derive(Debug)]
pub(in super::super) enum ChildForm {
    /// A session of its own, whose state follows from its runs. Its pump ends with the last of them.
    Called,
    /// A session of its own, whose state its agent reports.
    Reported,
    /// A tool call.
    Folded(LastMessage),
}

/// A call of another agent, as its caller's log has it.
#[derive(Clone, Debug)]
pub(super) struct CalledAgent {
    run: RunRow,
}

/// A child that can be followed.
pub(super) enum NewChild {
    /// The client has opened it itself.
    Opened,
    /// Its pump is at work.
    Known(ThreadId),
    New(Box<ThreadRow>, OwnedSemaphorePermit),
}

/// From where a child is followed.
#[derive(Clone, Copy)]
pub(super) enum ChildStart {
    /// Everything after this event, as it came.
    Live(u64),
    /// Only what comes from now on.
    Now,
}

// === impl Followed ===

impl Followed {
    pub(in super::super) fn below(
        root: &ThreadId,
        permits: Arc<Semaphore>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            root: root.clone(),
            permits,
            _stop_with_pump: stop.clone().drop_guard(),
            stop,
            threads: Vec::new(),
            shown: HashSet::new(),
            replayed: HashSet::new(),
            replay_end: CancellationToken::new(),
            positions: None,
            open_calls: Vec::new(),
            calls: HashMap::new(),
        }
    }

    pub(in super::super) fn permits() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(MAX_FOLLOWED))
    }

    /// Returns from where a client that continues gets a child: it can know the child without having any of its events.
    pub(super) fn start_of(&self, thread: &ThreadId) -> ChildStart {
        let position = self.positions.as_ref().and_then(|it| it.get(thread.as_str()));
        position.map_or(ChildStart::Now, |number| ChildStart::Live(*number))
    }

    /// Begins a replay. The children of an earlier one continue.
    pub(super) fn begin_replay(&mut self, parent: Option<&ParentReplay>) {
        if parent.is_none() {
            self.replay_end.cancel();
        }
        self.replay_end = parent.map_or_else(CancellationToken::new, |parent| parent.ended.clone());
        self.replayed.clear();
        self.open_calls.clear();
        self.calls.clear();
        self.shown.clear();
    }

    /// Notes that the client has a sub-agent.
    pub(super) fn record_shown(&mut self, thread: &ThreadId) {
        if self.shown.len() < MAX_SHOWN {
            self.shown.insert(thread.clone());
        }
    }
}

// === impl CalledAgent ===

impl CalledAgent {
    pub(super) fn thread(&self) -> &ThreadId {
        &self.run.thread_id
    }
}

// === impl ChildRole ===

impl ChildRole {
    const fn new(parent: ThreadId, form: ChildForm, permit: OwnedSemaphorePermit) -> Self {
        Self { parent, form, held: None, caught_up: None, has_ended_run: false, _permit: permit }
    }
}

// === impl Pump ===

impl Pump {
    /// Whether a replay above must end first.
    pub(super) fn is_held(&self) -> bool {
        let held = self.role.as_ref().and_then(|role| role.held.as_ref());
        self.replay.is_none() && held.is_some_and(|ended| !ended.is_cancelled())
    }

    /// The replay of this pump has ended and its lines are in the outbox.
    pub(super) fn release_replay(&mut self) {
        self.followed.replayed.clear();
        match &mut self.role {
            Some(role) => drop(role.caught_up.take()),
            None => self.followed.replay_end.cancel(),
        }
    }

    /// Continues after a replay above.
    pub(super) async fn resume_after_hold(&mut self) -> Result<()> {
        if let Some(role) = &mut self.role {
            role.held = None;
        }
        let pending = self.pending_interrupts().await?;
        let mut lines = OutgoingLines::default();
        self.ask_pending(pending, true, &mut lines).await?;
        self.send(lines).await;
        Ok(())
    }

    /// Whether the pump of a sub-agent has nothing left to do: its runs have ended, and the client has read them.
    pub(super) async fn has_finished(&mut self) -> Result<bool> {
        let Some(role) = &mut self.role else { return Ok(false) };
        if !std::mem::take(&mut role.has_ended_run) {
            return Ok(false);
        }
        let calls = self.session.state().calls;
        let has_open = !self.open_runs().await?.is_empty();
        let mut state = self.session.state();
        // A call that came meanwhile needs this pump.
        state.is_over = !has_open && state.calls == calls;
        Ok(state.is_over)
    }

    /// Returns the call of another agent that this event begins. The called run itself names its caller, so that no other tool's input counts.
    pub(super) async fn called_agent(
        &self,
        event: &Event,
        run: Option<&RunId>,
    ) -> Result<Option<CalledAgent>> {
        let (Body::Tool(ToolEvent::Started { input: Some(input), .. }), Some(caller)) =
            (&event.body, run)
        else {
            return Ok(None);
        };
        if !self.renderer.shows_subagents() || event.original.is_some() {
            return Ok(None);
        }
        let named = splice::get_text(input.as_str(), &["run_id"]);
        let Some(id) = named.and_then(|id| RunId::parse(&id).ok()) else { return Ok(None) };
        let row = self.connection.read().run(&self.session.scope(), &id).await?;
        let is_called = |row: &RunRow| row.parent.as_ref().is_some_and(|it| it.run == *caller);
        Ok(row.filter(is_called).map(|run| CalledAgent { run }))
    }

    /// Remembers a call that a client that continues has to learn about.
    pub(super) async fn note_call(&mut self, event: &Event, run: Option<&RunId>) -> Result<()> {
        match &event.body {
            Body::Tool(ToolEvent::Started { call, .. }) => {
                if let Some(called) = self.called_agent(event, run).await? {
                    self.followed.open_calls.push((call.clone(), called));
                }
            }
            Body::Tool(ToolEvent::Ended { call, .. }) => {
                self.followed.open_calls.retain(|(open, _)| open != call);
            }
            _ => {}
        }
        Ok(())
    }

    /// Announces a called agent. Returns the child to follow once the announcement is sent; `None` if there are too many.
    pub(super) async fn announce_call(
        &mut self,
        called: &CalledAgent,
        state: Option<StateUpdate>,
        lines: &mut OutgoingLines,
    ) -> Result<Option<NewChild>> {
        let thread = called.thread();
        let Some(child) = self.new_child(thread).await? else { return Ok(None) };
        self.connection.children.announce(thread, &self.followed.root, true);
        let update = mapping::called_agent(called.run.agent.as_str(), thread, state);
        self.push_update(self.session.id(), update, lines);
        Ok(Some(child))
    }

    /// Announces the agents that are being called, to a client that continues, and follows them from now on.
    pub(super) async fn announce_open_calls(&mut self) -> Result<()> {
        for (_, called) in std::mem::take(&mut self.followed.open_calls) {
            let mut lines = OutgoingLines::default();
            let state = self.state_of(called.thread()).await?;
            if let Some(child) = self.announce_call(&called, state, &mut lines).await? {
                self.send(lines).await;
                let start = self.followed.start_of(called.thread());
                self.follow(child, ChildForm::Called, start).await?;
            }
        }
        Ok(())
    }

    /// Follows a called agent from its run's first event.
    pub(super) async fn follow_call(
        &mut self,
        called: &CalledAgent,
        child: NewChild,
    ) -> Result<()> {
        let (read, run) = (self.connection.read().as_ref(), &called.run);
        let mut log = LogReader::new(read, run.thread, Some(run.key)).pages_of(READ_BYTES);
        let first = log.next().await?.and_then(|page| page.frames.first().map(|it| it.first()));
        let start = ChildStart::Live(first.unwrap_or(1).saturating_sub(1));
        self.follow(child, ChildForm::Called, start).await
    }

    /// Returns the child with this thread; `None` if it cannot be followed.
    pub(super) async fn new_child(&mut self, thread: &ThreadId) -> Result<Option<NewChild>> {
        let connection = &self.connection;
        if connection.queues.get(thread).is_some_and(|queue| queue.session().is_some()) {
            return Ok(Some(NewChild::Opened));
        }
        if let Some(session) = connection.children.session(thread) {
            let mut state = session.state();
            if !state.is_over {
                state.calls += 1;
                drop(state);
                return Ok(Some(NewChild::Known(thread.clone())));
            }
        }
        let Ok(permit) = Arc::clone(&self.followed.permits).try_acquire_owned() else {
            tracing::debug!(session = self.session.id(), child = %thread, "sub-agent not followed: too many");
            return Ok(None);
        };
        let row = connection.read().named_thread(&self.session.scope(), thread).await?;
        // A child belongs to the owner of its parent.
        let row = row.filter(|row| row.owner == self.session.thread.owner);
        Ok(row.map(|row| NewChild::New(Box::new(row), permit)))
    }

    /// Sends the updates of a child whose announcement is in the outbox. During a replay, returns when its history is there too.
    pub(super) async fn follow(
        &mut self,
        child: NewChild,
        form: ChildForm,
        start: ChildStart,
    ) -> Result<()> {
        let is_history = self.renderer.is_replay;
        let (session, is_known) = match child {
            NewChild::Opened => return Ok(()),
            NewChild::Known(thread) => match self.connection.children.session(&thread) {
                Some(session) if is_history && !self.followed.replayed.contains(&thread) => {
                    (session, true)
                }
                _ => return Ok(()),
            },
            NewChild::New(row, permit) => {
                if self.followed.replayed.contains(&row.id) {
                    return Ok(());
                }
                (self.attach(*row, form, permit), false)
            }
        };
        let thread = &session.thread;
        let (caught_up, received) = oneshot::channel();
        let is_replaying = self.replay.is_some();
        let parent = is_replaying
            .then(|| ParentReplay { caught_up, ended: self.followed.replay_end.clone() });
        let start = match start {
            _ if is_history => ReplayStart {
                from: Some(0),
                until: self.connection.last_event(thread).await?,
                is_replay: true,
                parent,
                ..ReplayStart::live(0, 0)
            },
            ChildStart::Now => ReplayStart {
                from: None,
                until: self.connection.last_event(thread).await?,
                parent,
                ..ReplayStart::live(0, 0)
            },
            ChildStart::Live(from) => {
                // Up to now, so that a question follows what was said before it.
                let until = self.connection.last_event(thread).await?;
                ReplayStart { parent, ..ReplayStart::live(from.min(until), until) }
            }
        };
        if is_history {
            self.followed.replayed.insert(thread.id.clone());
        }
        if !is_known {
            let children = &self.connection.children;
            self.followed.threads.retain(|known| children.session(known).is_some());
            self.followed.threads.push(thread.id.clone());
        }
        session.begin();
        if session.command(PumpCommand::Replay(start)).await && is_replaying {
            // Fails when the child has caught up, or its pump has ended.
            drop(received.await);
        }
        Ok(())
    }

    /// Attaches the client to the thread of a sub-agent. The pump starts with its first command.
    fn attach(
        &self,
        row: ThreadRow,
        form: ChildForm,
        permit: OwnedSemaphorePermit,
    ) -> Arc<ClientSession> {
        let followed = &self.followed;
        let stop = followed.stop.child_token();
        let permits = Arc::clone(&followed.permits);
        let mut below = Followed::below(&followed.root, permits, stop.child_token());
        below.positions.clone_from(&followed.positions);
        // A client that shows no sub-agents is asked in the session that it has open.
        let asks_in = match form {
            ChildForm::Called | ChildForm::Reported => row.id.clone(),
            ChildForm::Folded(_) => followed.root.clone(),
        };
        let role = ChildRole::new(self.session.thread.id.clone(), form, permit);
        let (commands, received) = mpsc::channel(MAX_COMMANDS);
        let connection = Arc::clone(&self.connection);
        let presence = connection.presence(&row, None);
        let mut session = ClientSession::new(row, commands, None, presence);
        (session.asks_in, session.stop) = (asks_in, stop);
        let session = Arc::new(session);
        let client = &self.client;
        let pump =
            Pump::new(Arc::clone(&connection), Arc::clone(&session), client, below, Some(role));
        connection.tasks.spawn(pump.run(received));
        connection.children.follow(&session);
        session
    }

    /// Adds what the sub-agent does now, if this event of its log changes it.
    pub(super) fn push_state(
        &mut self,
        event: &Event,
        result: Option<&str>,
        lines: &mut OutgoingLines,
    ) {
        let Some(role) = &mut self.role else { return };
        if !matches!(role.form, ChildForm::Called) {
            return;
        }
        let state = match &event.body {
            Body::Run(RunEvent::Started | RunEvent::Resumed) => mapping::running_state(),
            Body::Interrupt(InterruptEvent::Raised(_)) => mapping::waiting_state(),
            Body::Run(RunEvent::Ended(outcome)) => {
                role.has_ended_run = true;
                mapping::idle_state(outcome, result)
            }
            _ => return,
        };
        let update = mapping::subagent_state(&self.session.thread.id, state);
        let parent = role.parent.clone();
        self.push_update(parent.as_str(), update, lines);
    }

    pub(super) fn push_update(
        &self,
        session: &str,
        update: SessionUpdate,
        lines: &mut OutgoingLines,
    ) {
        let params = SessionNotification::new(session, update);
        lines.notification("session/update", &params);
    }

    /// Returns what the agent of a thread does now.
    async fn state_of(&self, thread: &ThreadId) -> Result<Option<StateUpdate>> {
        let filter = RunFilter { thread: Some(thread.clone()), ..RunFilter::default() };
        let page = Page { limit: 1, ..Page::default() };
        let newest = self.connection.read().runs(&self.session.scope(), &filter, &page).await?;
        Ok(newest.rows.first().map(|run| match (&run.outcome, run.status) {
            (Some(outcome), _) => mapping::idle_state(outcome, None),
            (None, RunStatus::Interrupted) => mapping::waiting_state(),
            (None, _) => mapping::running_state(),
        }))
    }

    /// Returns how this client is asked.
    pub(super) async fn question_for_client(
        &self,
        interrupt: &Interrupt,
    ) -> mapping::ClientQuestion {
        let asked_in = self.session.asks_in.as_str();
        let question = mapping::client_question(interrupt, asked_in, &self.client);
        if !self.is_folded() {
            return question;
        }
        // The agent can have named it after its thread was created.
        let thread = self.connection.thread(self.session.id()).await.ok();
        let title = thread.as_ref().and_then(given_title);
        mapping::question_of_subagent(question, title.as_deref())
    }

    /// Whether the client is asked this question. Not if a child that it follows asks it too, and not as text about a child, because a prompt cannot answer it there.
    pub(super) async fn asks(
        &self,
        run: Option<&RunId>,
        interrupt: &Interrupt,
        asking: &mapping::ClientQuestion,
    ) -> Result<bool> {
        if matches!(asking, mapping::ClientQuestion::Text(_)) {
            return Ok(self.role.is_none());
        }
        let Some(run) = run else { return Ok(true) };
        for thread in &self.followed.threads {
            let Some(session) = self.connection.children.session(thread) else { continue };
            if session.state().is_over {
                continue;
            }
            let pending = self.pending_interrupts_of(thread).await?;
            if pending.iter().any(|row| row.interrupt.id.passed_up(run) == interrupt.id) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
