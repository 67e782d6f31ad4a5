//! The pump: renders a session's log for a client.

pub(super) mod children;
mod close;
mod folded;
mod replay;
mod reported;
mod settings;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::event::{
    Event, InterruptEvent, MessageEvent, RunEvent, StateEvent, ThreadEvent,
};
use trilogue_domain::{Body, Interrupt, Json, Outcome, Role, RunId, RunKey};
use trilogue_mapping::agent_client as mapping;
use trilogue_store::{Frame, RawOriginal, Tail};
use trilogue_wire::agent_client::{ClientCapabilities, SessionNotification};
use trilogue_wire::native::local::Control;

use self::children::{ChildRole, Followed};
use self::reported::is_about_subagent;
use self::settings::is_setting;
use super::super::asking::question::{self, AskOutcome};
use super::super::connection::ClientConnection;
use super::super::connection::command::{PumpCommand, ReplayStart};
use super::super::connection::session::{ClientSession, OpenPrompt, RunEnd};
use super::super::wire::lines::OutgoingLines;
use super::agent_session::{AgentSession, Visibility};
use super::cursors::Cursors;
use super::renderer::LineRenderer;
use crate::core::not_found::no_thread;
use crate::stream::log_reader::{LogPage, LogReader};

/// How much of the log is read at once, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// How many run ids a pump remembers.
const MAX_RUN_IDS: usize = 1_024;

/// Reads a session's log and sends it to the client. All updates of a session come from here.
pub(super) struct Pump {
    connection: Arc<ClientConnection>,
    session: Arc<ClientSession>,
    client: ClientCapabilities,
    tail: Tail,
    /// The number of the last event that was rendered.
    cursor: u64,
    /// The last position that the proxy received.
    sent_position: u64,
    renderer: LineRenderer,
    agent_session: AgentSession,
    /// For clients that can copy a session at a cursor.
    cursors: Option<Cursors>,
    run_ids: HashMap<RunKey, RunId>,
    /// Prompt responses of hosted agents whose runs have not ended.
    results: HashMap<RunKey, String>,
    /// Runs that are being cancelled.
    cancelling: HashSet<RunKey>,
    /// The replay in progress.
    replay: Option<ReplayStart>,
    /// Further replays, oldest first.
    next_replays: VecDeque<ReplayStart>,
    /// Whether anything was rendered.
    is_started: bool,
    /// The configuration of the thread's runs, once it is known.
    config: Option<Option<Json>>,
    /// Runs that ended in the current batch and for which no prompt waited.
    unclaimed_ends: Vec<(RunKey, RunEnd)>,
    /// The same for runs that were removed.
    unclaimed_removals: Vec<RunId>,
    /// Whether the current batch contains only new runs.
    only_new_runs: bool,
    followed: Followed,
    /// For the session of a sub-agent.
    role: Option<ChildRole>,
}

/// Why a waiting pump continues.
enum PumpWake {
    Committed,
    ThreadRemoved,
    Command(Option<PumpCommand>),
    /// The replay above has ended.
    Released,
    Stopping,
}

// === impl Pump ===

impl Pump {
    pub(super) fn new(
        connection: Arc<ClientConnection>,
        session: Arc<ClientSession>,
        client: &ClientCapabilities,
        followed: Followed,
        role: Option<ChildRole>,
    ) -> Self {
        let client = client.clone();
        Self {
            // Before the first read of the log, so that no commit is missed.
            tail: connection.read().tail(session.thread.key),
            cursor: 0,
            sent_position: u64::MAX,
            renderer: LineRenderer::new(&session.thread.id, connection.id_format(), &client),
            agent_session: AgentSession::default(),
            cursors: None,
            run_ids: HashMap::new(),
            results: HashMap::new(),
            cancelling: HashSet::new(),
            replay: None,
            next_replays: VecDeque::new(),
            is_started: false,
            config: None,
            unclaimed_ends: Vec::new(),
            unclaimed_removals: Vec::new(),
            only_new_runs: false,
            followed,
            role,
            client,
            session,
            connection,
        }
    }

    /// Runs until the session is closed, its thread is removed, or the client disconnects.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<PumpCommand>) {
        let (stop, closed) = (self.session.stop.clone(), self.connection.closed.clone());
        // A pump that is dropped halfway loses only lines for a closed session or connection.
        let pumped = tokio::select! {
            // A closed connection cannot take responses, so nothing is left to do.
            () = closed.cancelled() => return,
            () = stop.cancelled() => Ok(()),
            pumped = self.pump(&mut commands) => pumped,
        };
        let error = match &pumped {
            Ok(()) if !stop.is_cancelled() => return,
            Ok(()) => None,
            Err(error) => {
                tracing::debug!(thread = %self.session.thread.id, %error, "session pump failed");
                Some(error)
            }
        };
        // Replays that were requested still need responses. Close first, so that no command is accepted and then lost.
        commands.close();
        while let Ok(command) = commands.try_recv() {
            if let PumpCommand::Replay(start) = command {
                self.next_replays.push_back(start);
            }
        }
        self.close(error).await;
    }

    async fn pump(&mut self, commands: &mut mpsc::Receiver<PumpCommand>) -> Result<()> {
        // The tail of a thread that was removed before the client attached never ends, so check that the thread still exists.
        let thread = self.connection.thread(self.session.id()).await?;
        if thread.key != self.session.thread.key {
            return Err(no_thread(self.session.id()));
        }
        loop {
            while self.is_started && !self.is_held() && self.step().await? {
                // Between steps, so that a long replay does not delay commands.
                while let Ok(command) = commands.try_recv() {
                    self.execute(command).await?;
                }
                self.start_next_replay().await?;
            }
            if self.start_next_replay().await? {
                continue;
            }
            if self.has_finished().await? {
                return Ok(());
            }
            match self.wait(commands).await {
                PumpWake::Committed => {}
                PumpWake::Command(Some(command)) => self.execute(command).await?,
                PumpWake::Command(None) => return Ok(()),
                PumpWake::Released => self.resume_after_hold().await?,
                PumpWake::ThreadRemoved => return Err(no_thread(self.session.id())),
                PumpWake::Stopping => {
                    // Render the events that the shutdown itself logged.
                    while self.is_started && self.step().await? {}
                    return Ok(());
                }
            }
        }
    }

    async fn wait(&mut self, commands: &mut mpsc::Receiver<PumpCommand>) -> PumpWake {
        let held = self.role.as_ref().and_then(|role| role.held.clone());
        // Each branch can be dropped: a commit stays unseen, and a command stays in the channel.
        tokio::select! {
            () = wait_for_end(held) => PumpWake::Released,
            changed = self.tail.committed.changed() => match changed {
                Ok(()) => PumpWake::Committed,
                Err(_) => PumpWake::ThreadRemoved,
            },
            command = commands.recv() => PumpWake::Command(command),
            () = self.connection.state.streams_end.cancelled() => PumpWake::Stopping,
        }
    }

    async fn execute(&mut self, command: PumpCommand) -> Result<()> {
        match command {
            PumpCommand::Replay(start) => {
                self.next_replays.push_back(start);
                self.start_next_replay().await.map(drop)
            }
            PumpCommand::Flush(flushed) => {
                // The sender may have stopped waiting.
                let _ = flushed.send(());
                Ok(())
            }
            PumpCommand::AnswerEnded => {
                let mut lines = OutgoingLines::default();
                // The log has no event that would wake the pump for these prompts.
                self.answer_ended(&mut lines);
                self.send(lines).await;
                Ok(())
            }
        }
    }

    /// Renders the next part of the log. Returns `false` at its end.
    async fn step(&mut self) -> Result<bool> {
        let mut log = self.log(None).after(self.cursor);
        let Some(LogPage { frames, .. }) = log.next().await? else { return Ok(false) };
        let mut lines = OutgoingLines::default();
        // A relayed update is copied once; reserve enough, so that the buffer does not grow.
        let stored: usize = frames.iter().map(|frame| frame.bytes().len()).sum();
        lines.bytes.reserve(stored + stored / 2);
        for frame in &frames {
            self.render_frame(frame, &mut lines).await?;
            if self.replay.as_ref().is_some_and(|start| self.cursor >= start.until) {
                self.finish_replay(&mut lines).await?;
                // A batch ends with the response, so that nothing overtakes it.
                self.flush(&mut lines).await;
                self.release_replay();
                if self.is_held() {
                    break;
                }
            }
            if lines.bytes.len() >= READ_BYTES {
                self.flush(&mut lines).await;
            }
        }
        self.answer_ended(&mut lines);
        self.flush(&mut lines).await;
        Ok(true)
    }

    /// Returns a reader of the thread's log, or of a run's.
    fn log(&self, run: Option<RunKey>) -> LogReader<'_> {
        let read = self.connection.read().as_ref();
        LogReader::new(read, self.session.thread.key, run).pages_of(READ_BYTES)
    }

    async fn render_frame(&mut self, frame: &Frame, lines: &mut OutgoingLines) -> Result<()> {
        let mut records = frame.raw()?.peekable();
        while let Some(record) = records.next() {
            let record = record?;
            if record.number <= self.cursor {
                continue;
            }
            self.cursor = record.number;
            if self.is_folded() {
                self.fold_event(&record.event()?, lines).await?;
                continue;
            }
            match record.original.as_ref() {
                Some(original) if is_about_subagent(&original.bytes) => {
                    let named = Some((original, frame.run()));
                    self.subagent_event(&record.event()?, named, lines).await?;
                }
                // Relay the update without decoding it.
                Some(original) if self.renderer.relay(original, frame.run(), lines) => {
                    if self.replay.is_some() || is_setting(&original.bytes) {
                        // Only to update the session: the line is written already, so its visibility does not matter.
                        let _ = self.agent_session.push(&record.event()?);
                    }
                    if self.cursors.is_some() && may_end_place(original) {
                        // The line of an original never ends a run, so no cursor follows it.
                        self.push_cursors(&record.event()?, None, lines);
                    }
                }
                Some(original) if original.dialect == mapping::RESULT => {
                    if let (Some(run), Ok(text)) =
                        (frame.run(), std::str::from_utf8(&original.bytes))
                    {
                        self.agent_answered(run, text.to_owned(), lines);
                    }
                }
                _ => {
                    let mut event = record.event()?;
                    if let Body::Run(RunEvent::Created { input: input @ Some(_), .. }) =
                        &mut event.body
                        && let Some(Ok(next)) = records.peek()
                        && starts_user_message(&next.event()?)
                    {
                        // The message replaces the value that was built from it.
                        *input = None;
                    }
                    self.render_event(&event, lines).await?;
                }
            }
        }
        Ok(())
    }

    /// Renders an event that is not relayed.
    async fn render_event(&mut self, event: &Event, lines: &mut OutgoingLines) -> Result<()> {
        self.only_new_runs = match &event.body {
            Body::Run(RunEvent::Created { .. }) => true,
            Body::Run(_) | Body::Message(_) => self.only_new_runs,
            _ => false,
        };
        match self.agent_session.push(event) {
            Visibility::Visible => {}
            Visibility::Hidden => return Ok(()),
            Visibility::Setting { update, is_news } => {
                self.agent_setting(&update, is_news, lines);
                return Ok(());
            }
        }
        if matches!(&event.body, Body::State(StateEvent::Subagent(_))) {
            return self.subagent_event(event, None, lines).await;
        }
        if let Body::Thread(
            ThreadEvent::Created { metadata, .. } | ThreadEvent::Metadata(metadata),
        ) = &event.body
        {
            self.native_setting(metadata, lines);
        }
        let run = match event.run {
            Some(key) => self.run_id(key, event).await?,
            None => None,
        };
        self.note_own(event, run.as_ref()).await?;
        let read = self.connection.read();
        let thread = self.session.thread.key;
        let begins_turn = matches!(event.body, Body::Run(RunEvent::Started))
            && event.run.is_some_and(|key| self.renderer.shows_prompt(key));
        if let (true, Some(id)) = (begins_turn, &run) {
            let row = read.run(&self.session.scope(), id).await?;
            let own = &self.connection.principal.id;
            self.renderer.set_turn_origin(row.as_ref().filter(|row| row.principal != *own));
        }
        let child = match self.called_agent(event, run.as_ref()).await? {
            Some(called) => {
                let child = self.announce_call(&called, None, lines).await?;
                let shown = child.is_some().then(|| called.thread().clone());
                self.renderer.set_called_agent(shown);
                child.map(|child| (called, child))
            }
            None => None,
        };
        let read = self.connection.read();
        self.renderer.event(read, thread, event, run.as_ref(), lines).await?;
        if begins_turn {
            self.renderer.set_turn_origin(None);
        }
        if let Some((called, child)) = child {
            self.renderer.set_called_agent(None);
            // The announcement first: the child's own pump sends the rest.
            self.flush(lines).await;
            self.follow_call(&called, child).await?;
        }
        // Before the response to the prompt, as all updates of a turn.
        self.push_cursors(event, run.as_ref(), lines);
        match &event.body {
            Body::Run(RunEvent::Cancelling { .. }) => self.cancelling.extend(event.run),
            Body::Run(RunEvent::Ended(outcome)) => {
                if let Some(key) = event.run {
                    self.cancelling.remove(&key);
                    let result = self.results.remove(&key);
                    self.push_state(event, result.as_deref(), lines);
                    self.run_ended(key, RunEnd { outcome: outcome.clone(), result }, lines);
                }
            }
            Body::Interrupt(InterruptEvent::Raised(interrupt)) => {
                // During a replay, do not ask: its end asks about the questions that are still open then.
                if let Some(key) = event.run.filter(|_| self.replay.is_none()) {
                    let asking = self.question_for_client(interrupt).await;
                    if self.asks(run.as_ref(), interrupt, &asking).await? {
                        self.ask(key, interrupt, asking, lines);
                    }
                }
                self.push_state(event, None, lines);
            }
            Body::Run(RunEvent::Started | RunEvent::Resumed) => {
                self.push_state(event, None, lines);
            }
            Body::Interrupt(InterruptEvent::Resolved { interrupt, .. }) => {
                self.session.state().question.take_if(|question| question.id == *interrupt);
                question::withdraw(&self.connection, &self.session, interrupt, lines);
            }
            Body::Thread(ThreadEvent::RunRemoved { run, .. }) => self.run_removed(run, lines),
            _ => {}
        }
        Ok(())
    }

    /// Sends the cursors that follow an event.
    fn push_cursors(&mut self, event: &Event, run: Option<&RunId>, lines: &mut OutgoingLines) {
        let Some(cursors) = &mut self.cursors else { return };
        for update in cursors.push(event, run) {
            let params = SessionNotification::new(self.session.id(), update);
            lines.notification("session/update", &params);
        }
    }

    /// Asks the client. A question that is asked as text ends the turn.
    fn ask(
        &self,
        run: RunKey,
        interrupt: &Interrupt,
        asking: mapping::ClientQuestion,
        lines: &mut OutgoingLines,
    ) {
        let (connection, session) = (&self.connection, &self.session);
        if question::ask(connection, session, run, interrupt, asking, lines) == AskOutcome::Text {
            // The lock ends with this block, because `answer` takes it again.
            let prompts = {
                let mut state = session.state();
                state.question = Some(interrupt.clone());
                state.take_prompts(run)
            };
            self.answer(prompts, &RunEnd::of_text_question(), lines);
        }
    }

    /// Responds with the answer of a hosted agent: the run may still wait for late output, but the client does not. A run that is being cancelled is answered at its end.
    fn agent_answered(&mut self, run: RunKey, result: String, lines: &mut OutgoingLines) {
        self.results.insert(run, result.clone());
        if !self.cancelling.contains(&run) && !mapping::is_cancelled_result(&result) {
            let end = RunEnd { outcome: Outcome::Completed, result: Some(result) };
            self.run_ended(run, end, lines);
        }
    }

    fn run_ended(&mut self, run: RunKey, end: RunEnd, lines: &mut OutgoingLines) {
        let prompts = self.session.state().take_prompts(run);
        if prompts.is_empty() {
            // Its prompt may still be in acceptance, so `flush` looks for it again after the lines are sent.
            self.unclaimed_ends.push((run, end));
        } else {
            self.answer(prompts, &end, lines);
        }
    }

    fn run_removed(&mut self, run: &RunId, lines: &mut OutgoingLines) {
        let found = self.run_ids.iter().find(|(_, id)| *id == run).map(|(key, _)| *key);
        if let Some(key) = found {
            self.run_ids.remove(&key);
            self.results.remove(&key);
        }
        let prompts = self.session.state().remove_run(run);
        if prompts.is_empty() {
            self.unclaimed_removals.push(run.clone());
        } else {
            self.answer(prompts, &RunEnd::of_removed_run(), lines);
        }
    }

    /// Responds to prompts whose run has ended.
    fn answer(&self, prompts: Vec<OpenPrompt>, end: &RunEnd, lines: &mut OutgoingLines) {
        self.session.settled.notify_waiters();
        for prompt in prompts {
            if let Some(message) = &prompt.message {
                self.session.state().own_messages.remove(message);
            }
            tracing::debug!(
                run = %prompt.run_id,
                thread = %self.session.thread.id,
                message_id = prompt.message.as_ref().map(tracing::field::display),
                status = end.outcome.status().as_str(),
                "prompt answered"
            );
            let result = prompt.result(end, prompt.user_message_id.as_deref());
            self.connection.write_response(lines, &prompt.request, &result);
        }
    }

    /// Responds to prompts whose runs had ended before the client reached the cursor.
    fn answer_ended(&self, lines: &mut OutgoingLines) {
        let ended = self.session.state().take_ended(self.cursor);
        for (prompt, end) in ended {
            self.answer(vec![prompt], &end, lines);
        }
    }

    /// Sends the current batch, and remembers which runs ended for prompts that are being accepted.
    async fn flush(&mut self, lines: &mut OutgoingLines) {
        let has_moved = self.sent_position != self.cursor;
        if !lines.bytes.is_empty() || has_moved && !self.may_delay_position() {
            self.send(std::mem::take(lines)).await;
            // After the send: a position counts only when its lines are in the outbox.
            self.sent_position = self.cursor;
            self.only_new_runs = false;
        }
        for (run, end) in std::mem::take(&mut self.unclaimed_ends) {
            // Only now, after the batch: a response must follow its run's last event.
            let prompts = self.session.state().end_run(run, &end);
            self.send_answers(prompts, &end).await;
        }
        for run in std::mem::take(&mut self.unclaimed_removals) {
            let prompts = self.session.state().remove_run(&run);
            self.send_answers(prompts, &RunEnd::of_removed_run()).await;
        }
    }

    async fn send_answers(&self, prompts: Vec<OpenPrompt>, end: &RunEnd) {
        let mut lines = OutgoingLines::default();
        self.answer(prompts, end, &mut lines);
        if !lines.bytes.is_empty() {
            self.send(lines).await;
        }
    }

    /// Whether a position without lines can wait for the next lines: this client has prompted, so there will be some.
    ///
    /// A client that reconnects meanwhile resumes at the earlier position, and recognises its own prompt by its run.
    fn may_delay_position(&self) -> bool {
        let state = self.session.state();
        let is_prompting = state.prompts.len() + state.accepting == 1;
        is_prompting
            && self.only_new_runs
            && self.replay.is_none()
            && self.connection.client.is_some()
    }

    async fn send(&self, lines: OutgoingLines) {
        // A broken replay starts again, so the position moves only with its response.
        let position = match self.renderer.is_replay {
            true => Control::Boundary,
            false => Control::Position { session: self.session.id().into(), number: self.cursor },
        };
        if !lines.bytes.is_empty() || self.connection.numbered {
            self.connection.send(lines, position).await;
        }
    }

    /// Returns the id of an event's run.
    async fn run_id(&mut self, key: RunKey, event: &Event) -> Result<Option<RunId>> {
        if let Some(known) = self.run_ids.get(&key) {
            return Ok(Some(known.clone()));
        }
        let id = match &event.body {
            Body::Run(RunEvent::Created { run, .. }) => Some(run.clone()),
            _ => self.session.run_id(self.connection.read(), key).await?,
        };
        if self.run_ids.len() >= MAX_RUN_IDS {
            // This loses nothing: a missing id is read from the store.
            self.run_ids.clear();
        }
        if let Some(id) = &id {
            self.run_ids.insert(key, id.clone());
        }
        Ok(id)
    }
}

/// Waits for the end of a replay above. Without one, it waits forever.
async fn wait_for_end(replay: Option<CancellationToken>) {
    match replay {
        Some(ended) => ended.cancelled().await,
        None => std::future::pending().await,
    }
}

/// Whether an agent's update may end a tool call or a compaction.
fn may_end_place(original: &RawOriginal<'_>) -> bool {
    original.call.is_some() || memchr::memmem::find(&original.bytes, b"compaction_update").is_some()
}

fn starts_user_message(event: &Event) -> bool {
    matches!(&event.body, Body::Message(MessageEvent::Started { role: Role::User, .. }))
}
