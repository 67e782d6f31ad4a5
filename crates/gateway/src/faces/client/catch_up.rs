//! What of a session's log was there before a client asked for it.

use trilogue_domain::error::Result;
use trilogue_domain::event::Event;
use trilogue_domain::{RunId, RunKey, RunStatus, limits};
use trilogue_mapping::agent_client as mapping;
use trilogue_store::Range;
use trilogue_store::rows::{InterruptFilter, InterruptRow, Page, RunFilter};
use trilogue_wire::jsonrpc::Id;

use super::link::{Answer, Lines};
use super::opened::Opened;
use super::pump::{Pump, READ_BYTES};
use super::question;
use super::question::Asked;
use super::said::Said;
use super::session::{CLIENT, config_of, scope_of};
use super::show::Show;
use crate::stream::feed::run_id;

/// How far back a client's own answers are looked for, in events: where it was told that it is when it answered, or soon after.
const SAID_BEFORE: u64 = 256;

/// Where a pump begins, and what it does when the client has what was there before.
#[derive(Debug)]
pub(super) struct Start {
    /// The number of the last event that the client has; `None` where it has all that there was, and all that it was shown since.
    pub(super) from: Option<u64>,
    /// The number of the last event that was there when the client asked.
    pub(super) until: u64,
    /// Whether the client is told what it said itself.
    pub(super) is_replay: bool,
    /// Whether the client knows what was asked before.
    pub(super) knows_questions: bool,
    /// The request that is answered then.
    pub(super) request: Option<(Id<'static>, Opening)>,
}

/// What a request that opens a session is answered with.
#[derive(Debug)]
pub(super) enum Opening {
    /// This.
    Known(Answer),
    /// What the log says of the agent's own session.
    FromLog,
}

// === impl Pump ===

impl Pump {
    /// Begins what the client has asked for while it was being shown something else. `true` where there was any.
    pub(super) async fn start_next(&mut self) -> Result<bool> {
        let mut has_begun = false;
        while self.catching_up.is_none()
            && let Some(start) = self.next.pop_front()
        {
            self.start(start).await?;
            has_begun = true;
        }
        Ok(has_begun)
    }

    async fn start(&mut self, start: Start) -> Result<()> {
        // A client that is shown the session already misses nothing by saying that it has all.
        let from = start.from.unwrap_or(if self.is_started { self.cursor } else { start.until });
        let until = start.until;
        self.show = Show::new(&self.session.thread.id, self.link.id_format(), &self.client);
        self.opened = Opened::default();
        self.results.clear();
        self.config = None;
        (self.cursor, self.placed) = (from, u64::MAX);
        let reads_log = matches!(&start.request, Some((_, Opening::FromLog)));
        self.show.is_replay = start.is_replay;
        // First, so that its request is answered whatever fails.
        self.catching_up = Some(start);
        self.session.state().knows_asked = false;
        if from > 0 {
            self.note_said().await?;
            self.fold_open_runs().await?;
            if reads_log {
                self.look_for_opened().await?;
            }
        }
        self.is_started = true;
        if self.cursor >= until {
            let mut lines = Lines::default();
            self.caught_up(&mut lines).await?;
            self.send(lines).await;
        }
        Ok(())
    }

    /// Brings the fold to where the pump begins: what a run has said so far decides how it goes on, and how it ended where that is told now.
    async fn fold_open_runs(&mut self) -> Result<()> {
        let filter = RunFilter {
            thread: Some(self.session.thread.id.clone()),
            statuses: vec![
                RunStatus::Queued,
                RunStatus::Running,
                RunStatus::Interrupted,
                RunStatus::Cancelling,
            ],
            ..RunFilter::default()
        };
        let scope = scope_of(&self.session.thread);
        let mut page = Page { limit: limits::MAX_PAGE_ROWS, ..Page::default() };
        let mut keys = Vec::new();
        loop {
            let listing = self.link.read().runs(&scope, &filter, &page).await?;
            keys.extend(listing.rows.iter().map(|run| run.key));
            page.after = listing.next;
            if page.after.is_none() {
                break;
            }
        }
        keys.reverse();
        let mut after = self.cursor;
        // To its end: what was open where the pump begins may have ended since the client asked, too.
        loop {
            let range = Range { run: None, after, max_bytes: READ_BYTES };
            let frames = self.link.read().frames(&self.session.thread, range).await?;
            let Some(last) = frames.last().map(|frame| frame.last()) else { break };
            for key in frames.iter().filter_map(|frame| frame.run()) {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
            after = last;
        }
        let mut first = u64::MAX;
        for key in &keys {
            first = first.min(self.fold_run(*key).await?);
        }
        // What ended before it began is shown behind the turn that is going on.
        if self.show.is_at_work() {
            self.fold_ended(first, keys).await?;
        }
        self.show.own_run = None;
        Ok(())
    }

    /// Folds the runs that are not among these and were there behind this number.
    async fn fold_ended(&mut self, mut after: u64, mut known: Vec<RunKey>) -> Result<()> {
        while after < self.cursor {
            let range = Range { run: None, after, max_bytes: READ_BYTES };
            let frames = self.link.read().frames(&self.session.thread, range).await?;
            let Some(last) = frames.last().map(|frame| frame.last()) else { break };
            for key in frames.iter().filter_map(|frame| frame.run()) {
                if !known.contains(&key) {
                    known.push(key);
                    self.fold_run(key).await?;
                }
            }
            after = last;
        }
        Ok(())
    }

    /// Notes a message with which this client answered a question on a connection that has broken since: it stands behind this.
    pub(super) fn note_answer(&self, event: &Event) {
        if self.link.client.is_none() || self.catching_up.is_none() || self.show.is_replay {
            return;
        }
        if let Some(said) = Said::read(event).filter(|said| said.client == self.link.client) {
            self.session.state().mine.insert(said.message);
        }
    }

    /// Notes the answers of this client that may stand behind where the pump begins, though they were announced before.
    async fn note_said(&self) -> Result<()> {
        if self.link.client.is_none() || self.show.is_replay {
            return Ok(());
        }
        let mut after = self.cursor.saturating_sub(SAID_BEFORE);
        while after < self.cursor {
            let range = Range { run: None, after, max_bytes: READ_BYTES };
            let frames = self.link.read().frames(&self.session.thread, range).await?;
            let Some(last) = frames.last().map(|frame| frame.last()) else { break };
            for frame in &frames {
                let events = frame.events()?.iter();
                events
                    .filter(|event| event.number <= self.cursor)
                    .for_each(|event| self.note_answer(event));
            }
            after = last;
        }
        Ok(())
    }

    /// Folds what a run has said up to where the pump begins. Gives the number of its first event.
    async fn fold_run(&mut self, run: RunKey) -> Result<u64> {
        let id = run_id(self.link.read(), &self.session.thread, run).await?;
        if let Some(id) = &id
            && self.was_prompted_before(id).await?
        {
            self.show.own_run = Some(run);
        }
        let (mut after, mut first) = (0, u64::MAX);
        loop {
            let range = Range { run: Some(run), after, max_bytes: READ_BYTES };
            let frames = self.link.read().frames(&self.session.thread, range).await?;
            let Some(last) = frames.last().map(|frame| frame.last_run()) else { break };
            first = first.min(frames.first().map_or(u64::MAX, |frame| frame.first()));
            let is_behind = frames.first().is_some_and(|frame| frame.first() > self.cursor);
            for frame in frames.iter().filter(|_| !is_behind) {
                let (told, cursor) = (frame.events()?.iter(), self.cursor);
                let told = told.filter(|event| event.number <= cursor && event.run_number > after);
                for event in told {
                    self.show.note_mine(event, &self.session.state());
                    self.show.pass(event, id.as_ref());
                }
            }
            if last <= after || is_behind {
                break;
            }
            after = last;
        }
        if let Some(id) = id {
            self.names.insert(run, id);
        }
        Ok(first)
    }

    /// Looks through the log for what is known of the agent's own session.
    async fn look_for_opened(&mut self) -> Result<()> {
        let mut after = 0;
        while after < self.cursor {
            let range = Range { run: None, after, max_bytes: 4 * READ_BYTES };
            let frames = self.link.read().frames(&self.session.thread, range).await?;
            let Some(last) = frames.last().map(|frame| frame.last()) else { break };
            for frame in &frames {
                for event in frame.events()? {
                    // What it says is in the answer.
                    let _ = self.opened.push(event);
                }
            }
            after = last;
        }
        Ok(())
    }

    /// The client has what was there before it asked.
    pub(super) async fn caught_up(&mut self, lines: &mut Lines) -> Result<()> {
        // Everything that can fail stands before the request is taken, which is answered then.
        if self.config.is_none() || self.is_in_answer() {
            // A change that the answer tells of is no news behind it.
            self.config = Some(config_of(&self.session.row(&self.link).await?));
        }
        let config = self.config.clone().flatten();
        let pending = self.pending().await?;
        let Some(start) = self.catching_up.take() else { return Ok(()) };
        let was_replay = std::mem::replace(&mut self.show.is_replay, false);
        if let Some((request, opening)) = start.request {
            let is_resumed = matches!(opening, Opening::FromLog) && !was_replay;
            let answer = match opening {
                Opening::Known(answer) => answer,
                Opening::FromLog => self.opened.answer(&self.link, &self.session, config.as_ref()),
            };
            self.link.write_answer(lines, &request, &answer);
            // What can be asked of the agent is no part of what was said, and in no answer.
            if let Some(commands) = self.opened.commands.take().filter(|_| is_resumed) {
                self.show.again(&commands, lines);
            }
        }
        for row in pending.into_iter().rev() {
            let asking = mapping::asking(&row.interrupt, self.session.id(), &self.client);
            if !start.knows_questions
                && !self.show.has_asked(&row.interrupt.id)
                && let mapping::Asking::Text(text) = &asking
            {
                self.show.question(&row.interrupt, text, lines);
            }
            if question::ask(&self.link, &self.session, row.run, &row.interrupt, asking, lines)
                == Asked::AsText
            {
                self.session.state().asked = Some(row.interrupt);
                self.asked_in_words(row.run, lines);
            }
        }
        self.session.state().knows_asked = true;
        Ok(())
    }

    /// What is asked in the session, the newest first.
    async fn pending(&self) -> Result<Vec<InterruptRow>> {
        let filter = InterruptFilter {
            thread: Some(self.session.thread.id.clone()),
            pending: true,
            ..InterruptFilter::default()
        };
        let scope = scope_of(&self.session.thread);
        let mut page = Page { limit: limits::MAX_PAGE_ROWS, ..Page::default() };
        let mut pending = Vec::new();
        loop {
            // A page ends early where questions are large; a run has only so many.
            let listing = self.link.read().interrupts(&scope, &filter, &page).await?;
            pending.extend(listing.rows);
            page.after = listing.next;
            if page.after.is_none() {
                return Ok(pending);
            }
        }
    }

    /// Whether this client prompted a run on a connection that has broken since.
    pub(super) async fn was_prompted_before(&self, run: &RunId) -> Result<bool> {
        if self.catching_up.is_none() || self.show.is_replay {
            return Ok(false);
        }
        let Some(client) = &self.link.client else { return Ok(false) };
        let scope = scope_of(&self.session.thread);
        let found = self.link.read().run(&scope, run).await?;
        let metadata = found.map(|run| run.metadata.to_value());
        Ok(metadata.is_some_and(|it| it.get(CLIENT).is_some_and(|it| it == client.as_str())))
    }
}

// === impl Start ===

impl Start {
    /// Begins behind this number, with nothing to answer.
    pub(super) const fn live(from: u64, until: u64) -> Self {
        Self { from: Some(from), until, is_replay: false, knows_questions: true, request: None }
    }
}
