//! Replays: the part of the log that existed when a client asked for the session.

use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::event::{Event, MessageEvent, RunEvent};
use trilogue_domain::{Body, Role, RunId, RunKey, ThreadId, limits};
use trilogue_mapping::agent_client as mapping;
use trilogue_store::rows::{InterruptFilter, InterruptRow, Page, RunFilter};
use trilogue_wire::agent_client::UpdateGate;

use super::super::super::connection::command::OpenResponse;
use super::super::super::thread_metadata::{CLIENT, config_of};
use super::super::agent_session::AgentSession;
use super::super::cursors::Cursors;
use super::super::renderer::LineRenderer;
use super::super::{OPEN_STATUSES, own_key};
use super::{OutgoingLines, Pump, READ_BYTES, ReplayStart};
use crate::stream::log_reader::LogReader;

// === impl Pump ===

impl Pump {
    /// Starts replays until one is in progress. Returns whether it started any.
    pub(super) async fn start_next_replay(&mut self) -> Result<bool> {
        let mut has_started = false;
        while self.replay.is_none()
            && let Some(start) = self.next_replays.pop_front()
        {
            self.start_replay(start).await?;
            has_started = true;
        }
        Ok(has_started)
    }

    async fn start_replay(&mut self, start: ReplayStart) -> Result<()> {
        // A client that already receives the session continues at its position.
        let from = start.from.unwrap_or(if self.is_started { self.cursor } else { start.until });
        let until = start.until;
        let (thread, ids) = (&self.session.thread.id, self.connection.id_format());
        self.renderer = LineRenderer::new(thread, ids, &self.client);
        if from > 0 {
            self.renderer.know_title(&self.session.thread);
        }
        self.renderer.is_replay = start.is_replay;
        self.agent_session = AgentSession::default();
        let has_cursors = self.role.is_none() && UpdateGate::Cursors.is_open(&self.client);
        self.cursors = has_cursors.then(|| Cursors::new(thread, ids));
        self.results.clear();
        self.cancelling.clear();
        self.config = None;
        // No position was sent for this replay, so the next `flush` sends one even without lines.
        (self.cursor, self.sent_position) = (from, u64::MAX);
        self.followed.begin_replay(start.parent.as_ref());
        let mut start = start;
        if self.role.is_none() {
            self.followed.positions = start.children.take();
        }
        if let (Some(role), Some(parent)) = (&mut self.role, start.parent.take()) {
            (role.held, role.caught_up) = (Some(parent.ended), Some(parent.caught_up));
        }
        let needs_agent_session = matches!(&start.request, Some((_, OpenResponse::FromLog)));
        // Set it before anything can fail, so that its request gets a response.
        self.replay = Some(start);
        self.session.state().knows_questions = false;
        if from > 0 {
            self.skip_to_cursor().await?;
            self.announce_open_calls().await?;
            self.announce_subagents().await?;
            if needs_agent_session {
                self.fold_agent_session().await?;
            }
        }
        self.is_started = true;
        // No later event may come, so the response cannot wait for `step`.
        if self.cursor >= until {
            let mut lines = OutgoingLines::default();
            self.finish_replay(&mut lines).await?;
            self.send(lines).await;
            self.release_replay();
        }
        Ok(())
    }

    /// Skips the events before the cursor of every run that has events after it: the rendering of later events depends on them.
    async fn skip_to_cursor(&mut self) -> Result<()> {
        // Before the log: a run that ends between the two reads is among the open ones.
        let mut keys = self.open_runs().await?;
        // Read to the end of the log: a run may have ended since the client sent its request.
        let mut log = self.log(None).after(self.cursor);
        while let Some(page) = log.next().await? {
            for key in page.runs() {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        let mut first = u64::MAX;
        for key in &keys {
            first = first.min(self.skip_run(*key).await?);
        }
        // Prompts of runs that ended before they started are rendered after the active run.
        if self.renderer.has_active_run() {
            self.skip_ended_runs(first, keys).await?;
        }
        self.renderer.own_run = None;
        Ok(())
    }

    /// Returns the open runs of the thread, oldest first.
    pub(super) async fn open_runs(&self) -> Result<Vec<RunKey>> {
        let filter = RunFilter {
            thread: Some(self.session.thread.id.clone()),
            statuses: OPEN_STATUSES.to_vec(),
            ..RunFilter::default()
        };
        let scope = self.session.scope();
        let mut page = Page { limit: limits::MAX_PAGE_ROWS, ..Page::default() };
        let mut keys = Vec::new();
        loop {
            let listing = self.connection.read().runs(&scope, &filter, &page).await?;
            keys.extend(listing.rows.iter().map(|run| run.key));
            page.after = listing.next;
            if page.after.is_none() {
                keys.reverse();
                return Ok(keys);
            }
        }
    }

    /// Skips the runs that have events after this number and are not in `known`.
    async fn skip_ended_runs(&mut self, after: u64, known: Vec<RunKey>) -> Result<()> {
        let mut ended = Vec::new();
        let mut log = self.log(None).after(after).until(self.cursor);
        while let Some(page) = log.next().await? {
            for key in page.runs() {
                if !known.contains(&key) && !ended.contains(&key) {
                    ended.push(key);
                }
            }
        }
        for key in ended {
            self.skip_run(key).await?;
        }
        Ok(())
    }

    /// Skips a run's events up to the cursor. Returns the number of its first event.
    async fn skip_run(&mut self, run: RunKey) -> Result<u64> {
        let id = self.session.run_id(self.connection.read(), run).await?;
        if let Some(id) = &id
            && self.is_own_run(id).await?
        {
            self.renderer.own_run = Some(run);
        }
        let (connection, mut first) = (Arc::clone(&self.connection), u64::MAX);
        let (read, thread) = (connection.read().as_ref(), self.session.thread.key);
        let mut log = LogReader::new(read, thread, Some(run)).pages_of(READ_BYTES);
        while let Some(page) = log.next().await? {
            let begins_at = page.frames.first().map_or(u64::MAX, |frame| frame.first());
            first = first.min(begins_at);
            if begins_at > self.cursor {
                break;
            }
            for event in page.events()? {
                if event.number <= self.cursor {
                    self.note_own(event, id.as_ref()).await?;
                    self.note_call(event, id.as_ref()).await?;
                    self.renderer.skip(event, id.as_ref());
                    if let Some(cursors) = &mut self.cursors {
                        // The client has the cursors of earlier runs, or asked for no history.
                        drop(cursors.push(event, id.as_ref()));
                    }
                }
            }
        }
        if let Some(id) = id {
            self.run_ids.insert(run, id);
        }
        Ok(first)
    }

    /// Folds the agent's session up to the cursor. The response contains what its events report.
    async fn fold_agent_session(&mut self) -> Result<()> {
        let (read, thread) = (self.connection.read().as_ref(), self.session.thread.key);
        self.agent_session = AgentSession::read(read, thread, self.cursor).await?;
        Ok(())
    }

    /// Records whether the client sent the next event itself, now or on an earlier connection.
    pub(super) async fn note_own(&mut self, event: &Event, run: Option<&RunId>) -> Result<()> {
        if let Body::Run(RunEvent::Created { run, .. }) = &event.body
            && self.is_own_run(run).await?
        {
            self.renderer.own_run = event.run;
        }
        if let Body::Message(MessageEvent::Started { message, role: Role::User, .. }) = &event.body
            && event.run != self.renderer.own_run
            && let Some((client, run)) = self.reconnected_client().zip(run)
        {
            // A message of a run that has started answers a question. The client is part of its key.
            let keys = self.connection.runtime().keys_of(self.session.thread.key, run).await?;
            let prefix = own_key(Some(client), "");
            let is_own = keys.iter().any(|key| {
                key.message.as_ref() == Some(message) && key.key.text.starts_with(&prefix)
            });
            if is_own {
                self.session.state().own_messages.insert(message.clone());
            }
        }
        self.renderer.note_own(event, &self.session.state());
        Ok(())
    }

    /// Whether this client prompted a run on an earlier connection.
    async fn is_own_run(&self, run: &RunId) -> Result<bool> {
        let Some(client) = self.reconnected_client() else { return Ok(false) };
        let found = self.connection.read().run(&self.session.scope(), run).await?;
        let metadata = found.map(|run| run.metadata.to_value());
        Ok(metadata.is_some_and(|it| it.get(CLIENT).is_some_and(|it| it == client)))
    }

    /// Returns the client's id while it receives the events between its connections.
    fn reconnected_client(&self) -> Option<&str> {
        let is_reconnect = self.replay.is_some() && !self.renderer.is_replay;
        self.connection.client.as_deref().filter(|_| is_reconnect)
    }

    /// Ends a replay once the client has received everything up to its request: responds, and asks the open questions.
    pub(super) async fn finish_replay(&mut self, lines: &mut OutgoingLines) -> Result<()> {
        // Everything that can fail comes before the request is taken.
        if self.config.is_none() || self.is_in_response() {
            // The response contains the configuration, so earlier changes are not sent again.
            self.config = Some(config_of(&self.connection.thread(self.session.id()).await?));
        }
        let config = self.config.clone().flatten();
        let pending = self.pending_interrupts().await?;
        let Some(start) = self.replay.take() else { return Ok(()) };
        // Cleared before the lines are sent: the position moves with the response.
        let was_replay = std::mem::replace(&mut self.renderer.is_replay, false);
        if let Some((request, response)) = start.request {
            let is_resumed = matches!(response, OpenResponse::FromLog) && !was_replay;
            let result = match response {
                OpenResponse::Ready(result) => result,
                OpenResponse::FromLog => {
                    let (connection, session) = (&self.connection, self.session.id());
                    self.agent_session.response(connection, session, config.as_ref())
                }
            };
            self.connection.write_response(lines, &request, &result);
            // Neither the history nor the response contains the agent's commands.
            if let Some(commands) = self.agent_session.commands.take().filter(|_| is_resumed) {
                self.renderer.repeat(&commands, lines);
            }
        }
        // A sub-agent asks when the replay above has ended.
        if !self.is_held() {
            self.ask_pending(pending, start.knows_questions, lines).await?;
        }
        Ok(())
    }

    /// Asks the client these questions, which are in order from the newest to the oldest.
    pub(super) async fn ask_pending(
        &mut self,
        pending: Vec<InterruptRow>,
        knows_questions: bool,
        lines: &mut OutgoingLines,
    ) -> Result<()> {
        for row in pending.into_iter().rev() {
            let asking = self.question_for_client(&row.interrupt).await;
            if !self.asks(Some(&row.run_id), &row.interrupt, &asking).await? {
                continue;
            }
            if !knows_questions
                && !self.renderer.has_asked(&row.interrupt.id)
                && let mapping::ClientQuestion::Text(text) = &asking
            {
                self.renderer.question(&row.interrupt, text, lines);
            }
            self.ask(row.run, &row.interrupt, asking, lines);
        }
        self.session.state().knows_questions = true;
        Ok(())
    }

    /// Returns the session's pending interrupts, newest first.
    pub(super) async fn pending_interrupts(&self) -> Result<Vec<InterruptRow>> {
        self.pending_interrupts_of(&self.session.thread.id).await
    }

    /// Returns a thread's pending interrupts, newest first.
    pub(super) async fn pending_interrupts_of(
        &self,
        thread: &ThreadId,
    ) -> Result<Vec<InterruptRow>> {
        let filter = InterruptFilter {
            thread: Some(thread.clone()),
            pending: true,
            ..InterruptFilter::default()
        };
        let scope = self.session.scope();
        let mut page = Page { limit: limits::MAX_PAGE_ROWS, ..Page::default() };
        let mut pending = Vec::new();
        loop {
            // Large interrupts end a page early, so read until the last page.
            let listing = self.connection.read().interrupts(&scope, &filter, &page).await?;
            pending.extend(listing.rows);
            page.after = listing.next;
            if page.after.is_none() {
                return Ok(pending);
            }
        }
    }
}
